"""Processes made by hand, for the tests of the process table."""

from __future__ import annotations

from typing import Any

from gputop.model import Gpu, GpuProcess, HostFacts, ProcessKey, Snapshot, replace

GIB = 1024**3
TAKEN_AT = 1_800_000_000.0


def gpu(index: int) -> Gpu:
    return Gpu(index, f"GPU-{index:08x}-1111-2222", "NVIDIA H200", TAKEN_AT, memory_total_bytes=140 * GIB)


def facts(pid: int, **values: Any) -> HostFacts:
    start_ticks = values.pop("start_ticks", pid * 10)
    return HostFacts(
        **(
            {
                "key": ProcessKey(pid, start_ticks),
                "read_at": TAKEN_AT,
                "start_time": TAKEN_AT - 3600 - pid,
                "parent_pid": 1,
                "uid": 1000,
                "user": "ml",
                "name": "python",
                "command": f"/usr/bin/python train_{pid}.py",
                "state": "S",
                "threads": 8,
                "cpu_percent": 50.0,
                "host_memory_bytes": GIB,
            }
            | values
        )
    )


def process(pid: int, index: int = 0, gib: float | None = 1.0, **values: Any) -> GpuProcess:
    """Keyword arguments are fields of GpuProcess, or else of its HostFacts."""
    fields = GpuProcess.__dataclass_fields__
    own = {name: value for name, value in values.items() if name in fields}
    host = own.pop("host", facts(pid, **{name: value for name, value in values.items() if name not in fields}))
    return replace(
        GpuProcess(
            pid=pid,
            gpu_uuid=gpu(index).uuid,
            kind="C",
            gpu_index=index,
            memory_bytes=None if gib is None else int(gib * GIB),
            sm_percent=10,
            exists=True,
            host=host,
        ),
        **own,
    )


def snapshot(*processes: GpuProcess, gpus: int = 2, at: float = 0.0, **values: Any) -> Snapshot:
    """Taken *at* seconds into the test."""
    return Snapshot(TAKEN_AT + at, gpus=tuple(map(gpu, range(gpus))), processes=processes, **values)
