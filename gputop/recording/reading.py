"""A recording being read: what it holds, and a cursor in it.

Records are in the order in which they were written. The clock of the machine may have been set back meanwhile, so times
in a recording are counted on: they are epoch seconds as recorded up to there, and go on rising afterwards.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from gputop import units
from gputop.model import Snapshot, replace
from gputop.recording.container import Index, LineGroup, NotARecording, read_index, read_lines
from gputop.recording.lines import BadLine, LineReader
from gputop.recording.when import parse_when

_UNKNOWN_PAUSE_SECONDS: Final = 1.0
_UNPACKED_GROUPS: Final = 4  # whose lines are kept


class Recording:
    """An open file. ``remarks`` says in words what of it cannot be read; ``facts`` is what its header says.
    ``first_at`` and ``last_at`` are the times of its first and last record, counted on."""

    def __init__(self, path: Path, descriptor: int, index: Index) -> None:
        self.path, self.facts, self.groups = path, index.facts, index.groups
        self._descriptor = descriptor
        self._lines: OrderedDict[int, list[bytes]] = OrderedDict()
        self.records = sum(group.records for group in self.groups)
        self._before = [0]  # records before each group
        for group in self.groups:
            self._before.append(self._before[-1] + group.records)
        self.shifts = _shifts(self.groups)
        self.first_at = self.groups[0].first_at if self.groups else 0.0
        self.last_at = self.groups[-1].last_at + self.shifts[-1] if self.groups else 0.0
        self.bytes_ = index.end
        self.is_growing = _is_locked(descriptor)
        self.remarks = self._remarks(index)

    @classmethod
    def open(cls, path: Path) -> Recording:
        """Raises NotARecording in words, also where there is no such file or nothing in it."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise NotARecording(f"it cannot be read: {error.strerror}") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise NotARecording("not a regular file")
            recording = cls(path, descriptor, read_index(descriptor, status.st_size))
            if not recording.groups:
                raise NotARecording("a recording without a whole record: nothing was recorded")
            return recording
        except OSError as error:
            os.close(descriptor)
            raise NotARecording(f"it cannot be read: {error.strerror}") from None
        except BaseException:
            os.close(descriptor)
            raise

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _remarks(self, index: Index) -> tuple[str, ...]:
        remarks = self._clock_remarks()
        if self.is_growing:
            return (
                *remarks,
                f"It is still being recorded: shown is what there was at {units.timestamp(time.time())}.",
            )
        if index.damage is not None:
            remarks.append(f"It is damaged: {index.damage}. What can be read is shown.")
        elif index.open_group is not None:
            remarks.append("Its recorder was killed.")
        if (index.damage is not None or index.open_group is not None) and self.groups:
            remarks.append(f"It is complete up to {units.timestamp(self.groups[-1].last_at)}.")
        return tuple(remarks)

    def _clock_remarks(self) -> list[str]:
        steps = [n for n in range(1, len(self.groups)) if self.shifts[n] != self.shifts[n - 1]]
        if not steps:
            return []
        before, after = self.groups[steps[0] - 1].last_at, self.groups[steps[0]].first_at
        more = f", and {len(steps) - 1} times more" if len(steps) > 1 else ""
        return [
            f"The clock was set back from {units.timestamp(before)} to {units.timestamp(after)}{more}: "
            "records are in the order in which they were taken."
        ]

    def lines(self, number: int) -> list[bytes]:
        """The lines of a group; empty where they are damaged."""
        lines = self._lines.get(number)
        if lines is None:
            try:
                lines = read_lines(self._descriptor, self.groups[number])
            except (NotARecording, OSError):
                lines = []
            self._lines[number] = lines
            if len(self._lines) > _UNPACKED_GROUPS:
                self._lines.popitem(last=False)
        else:
            self._lines.move_to_end(number)
        return lines

    def group_at(self, at: float) -> int:
        """The number of the last group that begins at or before *at*; the first one where none does."""
        starts = enumerate(zip(self.groups, self.shifts, strict=True))
        return max((n for n, (group, shift) in starts if group.first_at + shift <= at), default=0)

    def counted_on(self, clock: float) -> float:
        """The time of the record taken when the machine's clock showed *clock* (epoch seconds), at the first pass."""
        groups = list(zip(self.groups, self.shifts, strict=True))
        for group, shift in groups:
            if group.first_at <= clock <= group.last_at:
                return clock + shift
        if clock >= self.first_at:
            return clock
        return max((clock + shift for group, shift in groups if group.first_at <= clock), default=clock)

    def when(self, text: str, now: float) -> float:
        """The time that somebody means by *text* while looking at *now*. Raises ValueError in words."""
        return parse_when(text, self.first_at, self.last_at, now, self.counted_on)

    def cursor(self) -> RecordingCursor:
        """At its first record."""
        return RecordingCursor(self)

    def snapshots(self, start: float, end: float) -> Iterator[Snapshot]:
        """What was recorded from *start* to *end*, with the GPUs only: for curves."""
        first, last = self.group_at(start), self.group_at(end)
        for number in range(first, last + 1):
            reader, shift = LineReader(), self.shifts[number]
            for line in self.lines(number):
                try:
                    reader.read(line, gpus_only=True)
                    if reader.taken_at is not None and start <= reader.taken_at + shift <= end:
                        yield reader.snapshot()
                except BadLine:
                    break


class RecordingCursor:
    """A record of a recording. Damaged records are passed over."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._reader = LineReader()
        self.group = 0
        self.record = -1  # in the group
        if not self.step(1):
            raise NotARecording("a recording none of whose records can be read")

    @property
    def number(self) -> int:
        """Of the record, from 0 to ``recording.records`` - 1."""
        return self._recording._before[self.group] + self.record

    @property
    def at(self) -> float:
        """When it was recorded, counted on."""
        return (self._reader.taken_at or 0.0) + self._recording.shifts[self.group]

    def snapshot(self) -> Snapshot:
        snapshot = self._reader.snapshot()
        return replace(snapshot, steady=self.at) if self._recording.shifts[self.group] else snapshot

    def seek(self, at: float) -> None:
        """To the last record at or before *at*; to the first one where there is none."""
        number = self._recording.group_at(at)
        while not self._enter(number, at) and number > 0:
            number -= 1

    def _enter(self, number: int, at: float, until: int | None = None) -> bool:
        """To the last record of a group that is not after *at*, nor after record *until*; False where it has none
        that can be read."""
        reader, found = LineReader(), -1
        clock = at - self._recording.shifts[number]
        for n, line in enumerate(self._recording.lines(number)):
            if (n > 0 and _taken_at(line) > clock) or (until is not None and n > until):
                break
            try:
                reader.read(line)
                if n == 0:
                    reader.snapshot()
            except BadLine:
                if found >= 0:
                    self._enter(number, at, found)  # what was read is lost: once more up to there
                    return True
                return False
            found = n
        if found < 0:
            return False
        self._reader, self.group, self.record = reader, number, found
        return True

    def step(self, by: int) -> bool:
        """One record on (1) or back (-1). False, and no move, at the end."""
        if by < 0:
            if self.record > 0:
                return self._enter(self.group, float("inf"), self.record - 1)
            return any(self._enter(number, float("inf")) for number in range(self.group - 1, -1, -1))
        lines = self._recording.lines(self.group)
        if self.record + 1 < len(lines):
            here = self.record
            try:
                self._reader.read(lines[here + 1])
                self.record += 1
                return True
            except BadLine:
                if here >= 0:
                    self._enter(self.group, float("inf"), here)
        for number in range(self.group + 1, len(self._recording.groups)):
            if self._enter(number, float("inf"), 0):
                return True
        return False


def _shifts(groups: Sequence[LineGroup]) -> list[float]:
    """Seconds to add to the times of each group, so that they rise although the clock was set back. How long ago the
    record before was then taken is not known: :data:`_UNKNOWN_PAUSE_SECONDS`."""
    shifts: list[float] = []
    for n, group in enumerate(groups):
        shift = shifts[-1] if shifts else 0.0
        if n and group.first_at < groups[n - 1].last_at:
            shift += groups[n - 1].last_at + _UNKNOWN_PAUSE_SECONDS - group.first_at
        shifts.append(shift)
    return shifts


def _taken_at(line: bytes) -> float:
    """The time of a line, without reading all of it: it comes first."""
    try:
        return float(line[: line.index(b",") if b"," in line else -1].partition(b":")[2].rstrip(b"}"))
    except ValueError:
        return 0.0


def _is_locked(descriptor: int) -> bool:
    """Whether a recorder has it open."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def describe(recording: Recording) -> dict[str, Any]:
    """What `gputop replay --info` prints."""
    cursor = recording.cursor()
    gpus = len(cursor.snapshot().gpus)
    seconds = recording.last_at - recording.first_at
    hours = gpus * seconds / 3600
    return {
        "file": str(recording.path),
        "host": recording.facts.get("host") or "?",
        "GPUs": gpus,
        "from": units.timestamp(recording.first_at),
        "to": units.timestamp(recording.groups[-1].last_at),
        "records": recording.records,
        "bytes": recording.bytes_,
        "bytes per GPU-hour": round(recording.bytes_ / hours) if hours > 0.01 else None,
        "remarks": " ".join(recording.remarks) or None,
    }
