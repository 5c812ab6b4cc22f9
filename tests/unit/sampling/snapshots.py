"""Snapshots for tests of what is done with them: a machine with two H200s, one look after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gputop.model import Gpu, GpuProcess, HostFacts, ProcessKey, Snapshot

GIB = 1024**3
START = 1_800_000_000.0


def gpu(index: int = 0, at: float = START, **changes: Any) -> Gpu:
    """Half full, busy, warm."""
    base = Gpu(
        index=index,
        uuid=f"GPU-{index}{index}{index}{index}0000-0000-0000-0000-000000000000",
        name="NVIDIA H200",
        read_at=at,
        memory_total_bytes=140 * GIB,
        memory_used_bytes=70 * GIB,
        memory_free_bytes=70 * GIB,
        memory_reserved_bytes=0,
        memory_unattributed_bytes=0,
        utilization_gpu_percent=50,
        sm_active_percent=40.0,
        temperature_celsius=60,
        power_watts=350.0,
        power_limit_watts=700.0,
    )
    return replace(base, **changes)


def process(pid: int, of: Gpu | None = None, started: int | None = 7, **changes: Any) -> GpuProcess:
    """A python of user ml that holds 10 GiB and works."""
    of = of or gpu()
    host = HostFacts(ProcessKey(pid, started), START, user="ml", name="python", command=f"python train.py {pid}")
    base = GpuProcess(
        pid, of.uuid, "C", of.index, memory_bytes=10 * GIB, sm_percent=50, exists=True, host=host if started else None
    )
    return replace(base, **changes)


def snapshot(at: float, gpus: Iterable[Gpu] = (), processes: Iterable[GpuProcess] = (), **changes: Any) -> Snapshot:
    """*at*: seconds after START."""
    when = START + at
    read = tuple(replace(g, read_at=when) if not g.late else g for g in gpus)
    return Snapshot(when, gpus=read, processes=tuple(processes), interval=0.5, **changes)
