"""What the details screens look back on: memory of the largest processes, event reasons of the GPUs.

Fed with every snapshot, so that something is there when somebody looks; costs next to nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Final

from gputop.history.gpu_history import BUCKET_SECONDS, BUCKETS, NAN, Buckets
from gputop.model import GpuProcess, RowKey, Snapshot
from gputop.torch_monitor.process_memory import torch_memory

MOST_PROCESSES: Final = 64  # that are followed: the largest
MOST_PHASES: Final = 8
_PERIOD_SECONDS: Final = 1.0  # between looks at the processes


class Reasons:
    """The event reasons of one GPU: all that were seen in each bucket of time. -1 is unknown."""

    def __init__(self, size: int = BUCKETS) -> None:
        self.size = size
        self.masks = array("q", [-1]) * size
        self.newest = 0

    def put(self, at: float, mask: int | None) -> None:
        number = int(at / BUCKET_SECONDS)
        for n in range(max(self.newest + 1, number - self.size + 1), number + 1):
            self.masks[n % self.size] = -1
        self.newest = max(self.newest, number)
        if mask is not None:
            known = self.masks[self.newest % self.size]
            self.masks[self.newest % self.size] = mask if known < 0 else known | mask

    def last(self, columns: int) -> list[int]:
        """The newest buckets, oldest first."""
        columns = min(columns, self.size)
        return [self.masks[n % self.size] for n in range(self.newest - columns + 1, self.newest + 1)]


class DetailHistory:
    """Rings by row of the process table, and by GPU's UUID. They know one direction of time only: where a recording is
    wound back, they begin anew."""

    def __init__(self) -> None:
        self.reasons: dict[str, Reasons] = {}
        self._memory: dict[RowKey, Buckets] = {}
        self._torch: dict[RowKey, dict[str, Buckets]] = {}
        self._at = 0.0
        self._newest = 0.0

    def add(self, snapshot: Snapshot) -> None:
        if snapshot.taken_at < self._newest - BUCKET_SECONDS:
            self.reasons, self._memory, self._torch, self._newest = {}, {}, {}, 0.0
        self._newest = max(self._newest, snapshot.taken_at)
        for gpu in snapshot.gpus:
            known = gpu.error is None and not gpu.late
            self.reasons.setdefault(gpu.uuid, Reasons()).put(
                snapshot.taken_at, gpu.event_reasons_mask if known else None
            )
        if 0 <= snapshot.taken_at - self._at < _PERIOD_SECONDS:
            return
        self._at = snapshot.taken_at
        followed = snapshot.processes
        if len(followed) > MOST_PROCESSES:
            followed = tuple(sorted(followed, key=_size, reverse=True)[:MOST_PROCESSES])
        memory: dict[RowKey, Buckets] = {}
        torch: dict[RowKey, dict[str, Buckets]] = {}
        for process in followed:
            ring = memory[process.row] = self._memory.get(process.row) or Buckets()
            value = NAN if process.memory_bytes is None else float(process.memory_bytes)
            ring.put(snapshot.taken_at, value, 3 * max(_PERIOD_SECONDS, snapshot.interval))
            if process.torch is not None:
                torch[process.row] = self._follow_torch(process, snapshot)
        self._memory, self._torch = memory, torch

    def memory(self, row: RowKey) -> Buckets | None:
        """Bytes that the process held; None where it is not followed."""
        return self._memory.get(row)

    def torch(self, row: RowKey) -> Mapping[str, Buckets]:
        """Bytes in PyTorch's tensors ("allocated"), in its cache ("cached"), and the peak of each phase by its name
        ("phase NAME"), where the process tells."""
        return self._torch.get(row, {})

    def _follow_torch(self, process: GpuProcess, snapshot: Snapshot) -> dict[str, Buckets]:
        rings = self._torch.get(process.row, {})
        split = torch_memory(process, snapshot.gpu(process.gpu_uuid), snapshot.taken_at)
        if split is None:
            return rings
        values = {"allocated": split.live, "cached": split.cached}
        values |= {f"phase {phase.name}": phase.peak_bytes for phase in split.device.phases[:MOST_PHASES]}
        hold = 3 * max(_PERIOD_SECONDS, snapshot.interval)
        for name, bytes_ in values.items():
            ring = rings.get(name)
            if ring is None:
                ring = rings[name] = Buckets()
            ring.put(snapshot.taken_at, float(bytes_) if split.fresh else NAN, hold)
        for name in list(rings)[: -2 * MOST_PHASES]:  # a process that gives every phase a new name
            del rings[name]
        return rings


def _size(process: GpuProcess) -> int:
    return process.memory_bytes or 0
