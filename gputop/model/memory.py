"""Where a GPU's memory is: what each pid holds, and what no listed process accounts for."""

from __future__ import annotations

from collections.abc import Mapping

from gputop.model.gpu import Gpu
from gputop.model.process import GpuProcess


def memory_by_pid(processes: tuple[GpuProcess, ...] | list[GpuProcess]) -> dict[int, int | None]:
    """Memory by pid on one GPU: the *largest* figure NVML gives for a pid, since the compute and the graphics list
    carry the same one. None where no figure of that pid is known."""
    found: dict[int, int | None] = {}
    for process in processes:
        known = found.get(process.pid)
        if process.memory_bytes is not None and (known is None or process.memory_bytes > known):
            found[process.pid] = process.memory_bytes
        else:
            found.setdefault(process.pid, None)
    return found


def unattributed(gpu: Gpu, by_pid: Mapping[int, int | None]) -> int | None:
    """Bytes used on *gpu* that no listed process accounts for.

    None where it cannot be told: only memory v1 answers (its used includes reserved), or a process's figure is unknown.
    A sum above used (CUDA IPC counts an allocation at both ends) gives 0.
    """
    if gpu.memory_used_bytes is None or gpu.memory_reserved_bytes is None or gpu.memory_is_shared:
        return None
    total = 0
    for bytes_ in by_pid.values():
        if bytes_ is None:
            return None
        total += bytes_
    return max(0, gpu.memory_used_bytes - total)
