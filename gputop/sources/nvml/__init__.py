"""The NVIDIA driver as a source, read through pynvml (nvidia-ml-py) and nowhere else.

:class:`NvmlSource` is the whole interface of the source. ``library`` loads and connects, ``calls`` prepares NVML
functions with buffers that are reused, ``device`` is one GPU's fast tier, and each other file is one thing a GPU tells.
``query`` answers single questions and needs none of the tiers, so they are imported when the source is asked for.
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
