"""The NVIDIA driver as a source, read through pynvml (nvidia-ml-py) and nowhere else.

:class:`NvmlSource` is the whole interface of the source. ``driver.library`` loads it, ``driver.calls`` prepares NVML
functions with buffers that are reused, and ``readings`` has a file for each thing a GPU reports. When it is read:
``fast_tier`` at every tick, ``background_tiers`` (medium: once a second; slow: every 5 to 30 s), ``static_facts`` once.
``device`` is an opened GPU with its tiers, ``event_watch`` waits for Xids. ``query`` answers the single fields of
`gputop query` and needs none of the tiers, so they are imported when the source is asked for.

What the driver does beyond the text of nvml.h is in docs/nvml-quirks.md, which the code cites by section.

Not here: when a tier's turn comes (``gputop.sampling``), and what the host says about a pid (``gputop.procfs``).
"""

from typing import TYPE_CHECKING, Any

from gputop.sources.nvml.driver.errors import no_gpus

if TYPE_CHECKING:
    from gputop.sources.nvml.source import NvmlSource

__all__ = ["NvmlSource", "no_gpus"]


def __getattr__(name: str) -> Any:
    if name == "NvmlSource":
        from gputop.sources.nvml.source import NvmlSource

        return NvmlSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
