"""Where the bytes of a GPU are: used = living + dead pids + unattributed - shared.

*Living* and *dead pids* are what the driver lists for processes that the host has, and for pids that it does not have.
*Unattributed* is what is used beyond that. *Shared* is by how much the listed figures exceed what is used (CUDA IPC
counts an allocation at both ends). What the driver reserves for itself, and what is free, are no part of used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gputop.model.gpu import PROCESSES_UNRELIABLE, Gpu
from gputop.model.process import GpuProcess


@dataclass(frozen=True, slots=True)
class MemoryBreakdown:
    """The bytes of one GPU. None: cannot be told; *unknown* then says why."""

    gpu_uuid: str
    total: int | None
    used: int | None
    living: int | None  # of listed processes that live; None too where the list is not known
    dead_pids: int | None  # of listed pids that do not exist; likewise
    unattributed: int | None  # used, and no listed process accounts for it
    shared: int | None  # counted at both ends
    reserved: int | None
    free: int | None
    unknown: str | None = None
    by_dead_pid: tuple[tuple[int, int | None], ...] = ()  # (pid, bytes), the largest first


def memory_breakdown(gpu: Gpu, processes: Iterable[GpuProcess]) -> MemoryBreakdown:
    """The bytes of *gpu*; of *processes* those on it count."""
    here = [process for process in processes if process.gpu_uuid == gpu.uuid]
    by_pid = memory_by_pid(here)
    trusted = gpu.processes_error != PROCESSES_UNRELIABLE
    dead = {process.pid for process in here if process.exists is False} if trusted else set()
    by_dead_pid = sorted(((pid, by_pid[pid]) for pid in dead), key=lambda entry: (-(entry[1] or 0), entry[0]))
    unknown = _why_unknown(gpu, by_pid)
    rest = None if unknown is not None else used_minus_listed(gpu, by_pid)
    told = gpu.processes_error is None
    return MemoryBreakdown(
        gpu_uuid=gpu.uuid,
        total=gpu.memory_total_bytes,
        used=gpu.memory_used_bytes,
        living=sum_or_none(by_pid[pid] for pid in by_pid if pid not in dead) if told else None,
        dead_pids=sum_or_none(by_pid[pid] for pid in dead) if told else None,
        unattributed=None if rest is None else max(0, rest),
        shared=None if rest is None else max(0, -rest),
        reserved=gpu.memory_reserved_bytes,
        free=gpu.memory_free_bytes,
        unknown=unknown,
        by_dead_pid=tuple(by_dead_pid),
    )


def unattributed(gpu: Gpu, by_pid: Mapping[int, int | None]) -> int | None:
    """Only that part of the breakdown: bytes used on *gpu* that none of the pids accounts for; None: cannot be told."""
    rest = None if _why_unknown(gpu, by_pid) is not None else used_minus_listed(gpu, by_pid)
    return None if rest is None else max(0, rest)


def used_minus_listed(gpu: Gpu, by_pid: Mapping[int, int | None]) -> int | None:
    """Unattributed minus shared memory, so it may be negative. Also where the driver counts what it reserves as used:
    enough to compare two moments. None where used, or a process's memory, is not known."""
    listed = sum_or_none(by_pid.values())
    return None if listed is None or gpu.memory_used_bytes is None else gpu.memory_used_bytes - listed


def memory_by_pid(processes: Iterable[GpuProcess]) -> dict[int, int | None]:
    """Memory by pid on one GPU; None where the driver does not say.

    The compute and the graphics list carry the same figure for a pid, and so do the compute instances of a MIG GPU
    instance, which share its memory: the largest counts. GPU instances have memory of their own: these are added.
    """
    parts: dict[tuple[int, int | None], int | None] = {}
    for process in processes:
        part = process.pid, process.gpu_instance_id
        known, bytes_ = parts.get(part), process.memory_bytes
        parts[part] = bytes_ if known is None or (bytes_ is not None and bytes_ > known) else known
    found: dict[int, int | None] = {}
    for (pid, _), bytes_ in parts.items():
        before = found.get(pid, 0)
        found[pid] = None if before is None or bytes_ is None else before + bytes_
    return found


def memory_by_gpu(processes: Iterable[GpuProcess]) -> dict[str, int | None]:
    """The memory of one process, by GPU's UUID: *processes* are its rows."""
    rows: dict[str, list[GpuProcess]] = {}
    for process in processes:
        rows.setdefault(process.gpu_uuid, []).append(process)
    return {uuid: memory_by_pid(here)[here[0].pid] for uuid, here in rows.items()}


def _why_unknown(gpu: Gpu, by_pid: Mapping[int, int | None]) -> str | None:
    if gpu.error is not None or gpu.late:
        return "the GPU is not responding"
    if gpu.asleep:
        return "the GPU is asleep, and is not woken to be read"
    if gpu.processes_error is not None:
        return gpu.processes_error
    if gpu.memory_is_shared:
        return "the GPU shares the host's memory: used is the sum of its processes"
    if gpu.memory_used_bytes is None:
        return "the driver does not report used memory"
    if gpu.memory_reserved_bytes is None:
        return "this driver counts its reserved memory as used (NVML memory info v1)"
    silent = sum(bytes_ is None for bytes_ in by_pid.values())
    if silent:
        return f"the driver reports no memory for {silent} of {len(by_pid)} processes"
    return None


def sum_or_none(values: Iterable[int | None]) -> int | None:
    """The sum; None where one of them is unknown: a sum of the rest would be a figure nobody measured."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
