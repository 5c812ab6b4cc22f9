"""The NVIDIA driver as a source, read through pynvml (nvidia-ml-py) and nowhere else.

:class:`NvmlSource` is the whole public interface. ``library`` loads and connects, ``calls`` prepares NVML functions
with buffers that are reused, ``device`` is one GPU's fast tier, and each other file is one thing a GPU tells.
"""

from gputop.sources.nvml.errors import no_gpus
from gputop.sources.nvml.source import NvmlSource

__all__ = ["NvmlSource", "no_gpus"]
