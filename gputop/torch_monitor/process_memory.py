"""A process's GPU memory told apart: in PyTorch's tensors, in its cache, outside PyTorch."""

from __future__ import annotations

from typing import Final, NamedTuple

from gputop.model import Gpu, GpuProcess, TorchDevice

#: A report older than this tells of another time than the driver does (the step lasts long, or it hangs).
FRESH_SECONDS: Final = 30.0


class TorchMemory(NamedTuple):
    """Bytes of one process on one GPU. The driver's figure and torch's are of two moments up to a second apart."""

    live: int  # in tensors, freed ones that a stream is waited for among them
    cached: int  # reserved and not live
    releasable: int  # of it what empty_cache() could give back, at most
    outside: int | None  # CUDA context, kernels, NCCL, other libraries; None: the driver does not say what it holds
    age: float  # seconds since the process told
    device: TorchDevice

    @property
    def fresh(self) -> bool:
        return self.age <= FRESH_SECONDS


def torch_memory(process: GpuProcess, gpu: Gpu | None, now: float) -> TorchMemory | None:
    """None where the process does not use gputop.torch_monitor, or not on this GPU."""
    if process.torch is None or gpu is None:
        return None
    device = process.torch.on(gpu)
    if device is None:
        return None
    outside = None if process.memory_bytes is None else max(0, process.memory_bytes - device.reserved_bytes)
    return TorchMemory(
        device.active_bytes,
        device.cached_bytes,
        device.releasable_bytes,
        outside,
        max(0.0, now - process.torch.written_at),
        device,
    )
