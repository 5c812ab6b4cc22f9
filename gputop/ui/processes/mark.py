"""A marked moment, and what changed of processes' memory since."""

from __future__ import annotations

from typing import NamedTuple

from gputop import units
from gputop.model import GpuProcess, ProcessKey, Snapshot
from gputop.ui.processes.listing.row import ProcessRow

_Place = tuple[ProcessKey, str, int | None]


class Mark:
    """The memory of all processes at a moment. Unknown then or now: unknown change."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.at = snapshot.taken_at
        self._memory = {_place(process): process.memory_bytes for process in snapshot.processes}
        self._used = {gpu.uuid: gpu.memory_used_bytes for gpu in snapshot.gpus}

    @property
    def label(self) -> str:
        return f"Δ since {units.clock(self.at)}"

    def change(self, row: ProcessRow) -> MemoryChange | None:
        """Of a row, over all its parts; None where it is not known."""
        total, new = 0, True
        for part in row.parts or (row.process,):
            before = self._memory.get(_place(part), 0)
            if before is None or part.memory_bytes is None:
                return None
            new &= _place(part) not in self._memory
            total += part.memory_bytes - before
        return MemoryChange(total, new)

    def gpu_changes(self, snapshot: Snapshot) -> list[tuple[int, int]]:
        """(GPU's index, bytes) of the GPUs whose used memory changed."""
        found = []
        for gpu in snapshot.gpus:
            before = self._used.get(gpu.uuid)
            if before is not None and gpu.memory_used_bytes is not None and gpu.memory_used_bytes != before:
                found.append((gpu.index, gpu.memory_used_bytes - before))
        return found


class MemoryChange(NamedTuple):
    bytes: int
    new: bool  # it was not there at the moment marked

    def text(self, unit: str) -> str:
        """``+1.2G``, ``-612M``, ``0``, ``new 4.0G``."""
        if not self.bytes:
            return "new" if self.new else "0"
        size = units.size(abs(self.bytes), unit)
        return f"{'new ' if self.new else '+' if self.bytes > 0 else '-'}{size}"


def _place(process: GpuProcess) -> _Place:
    return process.key, process.gpu_uuid, process.gpu_instance_id
