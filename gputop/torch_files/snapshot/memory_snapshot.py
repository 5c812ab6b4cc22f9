"""A memory snapshot of PyTorch's caching allocator: ``torch.cuda.memory._dump_snapshot()`` and its relatives.

:func:`open_snapshot` reads a file without running anything of it (safe_pickle.py) and gives a
:class:`MemorySnapshot` of mapped columns; the analyses beside this module (overview.py, …) work on these.

Moments are entries of a device's trace: moment *n* is after entry *n*, -1 before the first, ``last`` after the last
(the dump). Bytes are bytes asked for ("requested") unless a name says otherwise: a trace knows no others.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from gputop.torch_files import columns
from gputop.torch_files.columns import Column
from gputop.torch_files.maxima import first, most
from gputop.torch_files.safe_pickle import Progress, UnreadableFile, digest
from gputop.torch_files.snapshot.frames import Frames
from gputop.torch_files.snapshot.parsing.reader import ALLOCATED, INACTIVE, PENDING
from gputop.torch_files.snapshot.parsing.schema import HOST
from gputop.torch_files.snapshot.replay import ACTIONS, ALLOC, FREE_COMPLETED, FREE_REQUESTED, OOM, held_at

__all__ = [
    "ACTIONS",
    "ALLOC",
    "ALLOCATED",
    "FREE_COMPLETED",
    "FREE_REQUESTED",
    "HOST",
    "INACTIVE",
    "OOM",
    "PENDING",
    "DeviceSnapshot",
    "MemorySnapshot",
    "UnreadableFile",
    "open_snapshot",
]

_DIGESTER: Final = "gputop.torch_files.snapshot.parsing.reader:write"


def open_snapshot(path: Path, progress: Progress | None = None) -> MemorySnapshot:
    """Read the snapshot at *path*: any form since torch 1.8, pickle protocols 2 to 5, plain or gzip.

    Raises UnreadableFile with one sentence for whatever is wrong with it.
    """
    with digest(path, _DIGESTER, progress) as file:
        size = path.stat().st_size
        header, found = columns.read(file)
    return MemorySnapshot(path, size, header, found)


@dataclass(frozen=True, slots=True)
class Annotation:
    """A range of record_function: where it starts or ends."""

    device: int
    time_us: int
    name: str
    stage: str  # START, END or nothing


class MemorySnapshot:
    """What one file holds. Devices that it says nothing of are left out."""

    def __init__(self, path: Path, file_bytes: int, header: dict[str, Any], found: dict[str, Column]) -> None:
        self.path, self.file_bytes = path, file_bytes
        self.form: str = header["form"]
        self.settings: dict[str, Any] = header.get("settings", {})
        self.annotations = [Annotation(*given) for given in header.get("annotations", ())]
        self.frames = Frames(header["frames"], found)
        self.streams: list[int] = header["streams"]
        self.pools: list[tuple[int, int] | None] = [pool and tuple(pool) for pool in header["pools"]]
        self.notes: list[str] = header["notes"]
        columns_of: dict[str, dict[str, Column]] = {}  # by the device's place: a file may hold thousands
        for name, column in found.items():
            device, _, name = name.partition(".")
            columns_of.setdefault(device, {})[name] = column
        self.devices = [DeviceSnapshot(self, facts, columns_of[str(n)]) for n, facts in enumerate(header["devices"])]

    @property
    def name(self) -> str:
        return self.path.name

    def device(self, number: int) -> DeviceSnapshot | None:
        return next((device for device in self.devices if device.number == number), None)

    @property
    def entries(self) -> int:
        """Trace entries of all devices."""
        return sum(device.entries for device in self.devices)

    @property
    def expandable(self) -> bool | None:
        """Whether the allocator was set to expandable segments; None: the file does not say."""
        said = self.settings.get("expandable_segments")
        return bool(said) if isinstance(said, bool | int) else None

    def stream_label(self, number: int) -> str:
        value = self.streams[number]
        return "default" if value == 0 else f"{value:#x}" if value > 255 else str(value)

    def pool_label(self, number: int) -> str:
        pool = self.pools[number]
        return "unknown" if pool is None else "default" if pool == (0, 0) else f"{pool[0]},{pool[1]}"


class DeviceSnapshot:
    """One device of a snapshot: its segments and blocks at the dump, its trace, and what was held when."""

    def __init__(self, snapshot: MemorySnapshot, facts: dict[str, Any], found: dict[str, Column]) -> None:
        self.snapshot, self._facts, self._columns = snapshot, facts, found
        self.number: int = facts["device"]
        self.entries: int = facts["entries"]
        self.has_requested: bool = facts["has_requested"]  # the file tells bytes asked for, not only rounded ones
        self.has_times: bool = facts["has_times"]
        self.held_at_start: int = facts["held_at_start"]
        self.reserved_at_start: int = facts["reserved_at_start"]
        self.unseen: int = facts["unseen"]  # allocations that were left out of the trace: the curve is at most
        self.blocks_cut: int = facts["blocks_cut"]  # that reached into the next one or beyond their segment
        self.odd_entries: int = facts["odd_entries"]  # of the trace, with values of wrong types
        self.times_go_back: bool = facts["times_go_back"]
        self.unmatched: int = facts["unmatched"]
        self.ooms: list[tuple[int, int | None]] = [(entry, free) for entry, free in facts["ooms"]]
        # the trace, a value an entry
        self.action, self.address, self.size = found["action"], found["address"], found["size"]
        self.stream, self.pool, self.time = found["stream"], found["pool"], found["time"]
        self.stack, self.note, self.change = found["stack"], found["note"], found["change"]
        # allocations, a value each
        self.row_birth, self.row_death = found["row.birth"], found["row.death"]
        self.row_size, self.row_stack = found["row.size"], found["row.stack"]
        # the dump
        self.segment_address, self.segment_size = found["segment.address"], found["segment.size"]
        self.segment_stream, self.segment_pool = found["segment.stream"], found["segment.pool"]
        self.segment_small, self.segment_expandable = found["segment.small"], found["segment.expandable"]
        self.segment_stack, self.segment_block = found["segment.stack"], found["segment.block"]
        self.block_segment, self.block_address = found["block.segment"], found["block.address"]
        self.block_size, self.block_requested = found["block.size"], found["block.requested"]
        self.block_state, self.block_stack, self.block_row = (
            found["block.state"],
            found["block.stack"],
            found["block.row"],
        )

    @property
    def label(self) -> str:
        return "pinned host memory" if self.number == HOST else f"device {self.number}"

    @property
    def last(self) -> int:
        """The moment of the dump."""
        return self.entries - 1

    @property
    def segments(self) -> int:
        return len(self.segment_size)

    # -- curves

    def live(self, moment: int) -> int:
        """Bytes asked for by what was held."""
        return self.held_at_start if moment < 0 or not self.entries else int(self._columns["live"][moment])

    def reserved(self, moment: int) -> int:
        """Bytes the allocator had from the driver."""
        return self.reserved_at_start if moment < 0 or not self.entries else int(self._columns["reserved"][moment])

    def most_live(self, start: int, end: int) -> int:
        """The most that was held after any of the entries *start* to *end* (without)."""
        return self._maximum("live", start, end)

    def most_reserved(self, start: int, end: int) -> int:
        return self._maximum("reserved", start, end)

    def _maximum(self, curve: str, start: int, end: int) -> int:
        return most(self._levels(curve), start, end)

    def _levels(self, curve: str) -> list[Column]:
        """The curve and its coarser maxima."""
        found = [self._columns[curve]]
        while (above := self._columns.get(f"{curve}.{len(found) - 1}")) is not None:
            found.append(above)
        return found

    @cached_property
    def peak(self) -> tuple[int, int]:
        """The moment at which the most was held (the first such), and how much that was."""
        if not self.entries:
            return -1, self.held_at_start
        highest = self.most_live(0, self.entries)
        if self.held_at_start >= highest:
            return -1, self.held_at_start
        return first(self._levels("live"), highest), highest

    # -- what was held

    def rows_at(self, moment: int) -> Sequence[int]:
        """The allocations held at *moment*."""
        entries = self._columns["checkpoint.entry"]
        checkpoint = bisect.bisect_right(entries, moment) - 1
        return held_at(
            moment, self.change, entries, self._columns["checkpoint.start"], self._columns["checkpoint.row"], checkpoint
        )

    @cached_property
    def held(self) -> list[int]:
        """The active blocks of the dump: their allocations are the first rows, in this order."""
        return [block for block, state in enumerate(self.block_state) if state != INACTIVE]

    @cached_property
    def row_address(self) -> array[int]:
        """The address of each allocation."""
        return self._of_rows("Q", [self.block_address[block] for block in self.held], self.address)

    @cached_property
    def row_stream(self) -> array[int]:
        """The number of the stream of each allocation."""
        return self._of_rows("I", [self.segment_stream[self.block_segment[b]] for b in self.held], self.stream)

    @cached_property
    def row_pool(self) -> array[int]:
        """The number of the pool of each allocation."""
        return self._of_rows("I", [self.segment_pool[self.block_segment[b]] for b in self.held], self.pool)

    def _of_rows(self, code: str, of_held: list[int], of_entry: Column) -> array[int]:
        """What the dump says of what it holds, and the trace of the rest: its alloc, or its free where it has none."""
        first = len(of_held)
        entries = zip(self.row_birth[first:], self.row_death[first:], strict=True)
        return array(code, [*of_held, *(of_entry[birth if birth >= 0 else death] for birth, death in entries)])

    def row_of(self, entry: int) -> int | None:
        """The allocation that trace entry *entry* made or freed."""
        change = self.change[entry]
        return abs(change) - 1 if change else None

    def seconds_between(self, start: int, end: int) -> float | None:
        """Time from entry *start* to entry *end*."""
        if not self.has_times or not 0 <= start < self.entries or not 0 <= end < self.entries:
            return None
        return max(0.0, float(self.time[end] - self.time[start]) / 1e6)  # clocks of threads differ by some µs
