"""Memory of a GPU or a MIG instance: version 2 of the call, which tells reserved apart, else version 1."""

from __future__ import annotations

from typing import Final

from gputop.model import GpuProcess, memory_by_pid, sum_or_none
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.calls import Handle, Quantity
from gputop.sources.nvml.sysfs import host_memory

#: total, used, reserved, free; in bytes
Memory = tuple[int | None, int | None, int | None, int | None]

NO_MEMORY: Final[Memory] = (None, None, None, None)


def memory_quantity(handle: Handle) -> Quantity[Memory]:
    """nvmlDeviceGetMemoryInfo_v2 (R510), whose used is without reserved, as nvidia-smi shows it; or
    nvmlDeviceGetMemoryInfo, whose used is with it: then reserved is None."""
    return handle.first_of(
        ("nvmlDeviceGetMemoryInfo_v2", (), abi.MemoryV2(version=abi.version(abi.MemoryV2, 2)), _decode_v2),
        ("nvmlDeviceGetMemoryInfo", (), abi.MemoryV1(), _decode_v1),
    )


def _decode_v2(memory: abi.MemoryV2) -> Memory:
    return _likely((memory.total, memory.used, memory.reserved, memory.free))


def _decode_v1(memory: abi.MemoryV1) -> Memory:
    return _likely((memory.total, memory.used, None, memory.free))


def _likely(memory: tuple[int, int, int | None, int]) -> Memory:
    """More than there is cannot be used, reserved or free: then that is not known."""
    total, *others = memory
    used, reserved, free = [bytes_ if bytes_ is None or not total or bytes_ <= total else None for bytes_ in others]
    return total, used, reserved, free


def shared_memory(processes: tuple[GpuProcess, ...] | None) -> Memory:
    """GB10, Thor…: the GPU has no memory of its own. Its total is the host's; its use is what its processes hold
    (NVML tells that even there), not what the host uses (nvtop#511, nvitop#208). None: who they are is not known; of
    some of them the sum would be a figure nobody measured."""
    used = None if processes is None else sum_or_none(memory_by_pid(processes).values())
    return host_memory(), used, None, None
