"""A recording being read: what it holds, and a place in it that moves."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gputop import units
from gputop.model import Snapshot
from gputop.recording.container import Index, NotARecording, read_index, read_lines
from gputop.recording.lines import BadLine, LineReader

_KEPT: Final = 4  # groups whose lines are kept unpacked


class Recording:
    """An open file. ``remarks`` says in words what of it cannot be read; ``facts`` is what its header says."""

    def __init__(self, path: Path, descriptor: int, index: Index) -> None:
        self.path, self.facts, self.groups = path, index.facts, index.groups
        self._descriptor = descriptor
        self._lines: OrderedDict[int, list[bytes]] = OrderedDict()
        self.records = sum(group.records for group in self.groups)
        self._before = [0]  # records before each group
        for group in self.groups:
            self._before.append(self._before[-1] + group.records)
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

    @property
    def first_at(self) -> float:
        return self.groups[0].first_at

    @property
    def last_at(self) -> float:
        return self.groups[-1].last_at

    def _remarks(self, index: Index) -> tuple[str, ...]:
        if self.is_growing:
            return (f"It is still being recorded: shown is what there was at {units.timestamp(time.time())}.",)
        remarks = []
        if index.damage is not None:
            remarks.append(f"It is damaged: {index.damage}. What can be read is shown.")
        elif index.open_group is not None:
            remarks.append("Its recorder was killed.")
        if remarks and self.groups:
            remarks.append(f"It is whole up to {units.timestamp(self.last_at)}.")
        return tuple(remarks)

    def lines(self, number: int) -> list[bytes]:
        """The lines of a group; empty where they are damaged."""
        lines = self._lines.get(number)
        if lines is None:
            try:
                lines = read_lines(self._descriptor, self.groups[number])
            except (NotARecording, OSError):
                lines = []
            self._lines[number] = lines
            if len(self._lines) > _KEPT:
                self._lines.popitem(last=False)
        else:
            self._lines.move_to_end(number)
        return lines

    def group_at(self, at: float) -> int:
        """The number of the last group that begins at or before *at*; the first one where none does."""
        return max((n for n, group in enumerate(self.groups) if group.first_at <= at), default=0)

    def place(self) -> RecordingCursor:
        """At its first record."""
        return RecordingCursor(self)

    def snapshots(self, start: float, end: float) -> Iterator[Snapshot]:
        """What was recorded from *start* to *end*, with the GPUs only: for curves."""
        first, last = self.group_at(start), self.group_at(end)
        for number in range(first, last + 1):
            reader = LineReader()
            for line in self.lines(number):
                try:
                    reader.read(line, gpus_only=True)
                    if reader.taken_at is not None and start <= reader.taken_at <= end:
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
        """When it was recorded."""
        return self._reader.taken_at or 0.0

    def snapshot(self) -> Snapshot:
        return self._reader.snapshot()

    def seek(self, at: float) -> None:
        """To the last record at or before *at*; to the first one where there is none."""
        number = self._recording.group_at(at)
        while not self._enter(number, at) and number > 0:
            number -= 1

    def _enter(self, number: int, at: float, until: int | None = None) -> bool:
        """To the last record of a group that is not after *at*, nor after record *until*; False where it has none
        that can be read."""
        reader, found = LineReader(), -1
        for n, line in enumerate(self._recording.lines(number)):
            if (n > 0 and _taken_at(line) > at) or (until is not None and n > until):
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
    place = recording.place()
    gpus = len(place.snapshot().gpus)
    seconds = recording.last_at - recording.first_at
    hours = gpus * seconds / 3600
    return {
        "file": str(recording.path),
        "host": recording.facts.get("host") or "?",
        "GPUs": gpus,
        "from": units.timestamp(recording.first_at),
        "to": units.timestamp(recording.last_at),
        "records": recording.records,
        "bytes": recording.bytes_,
        "bytes per GPU-hour": round(recording.bytes_ / hours) if hours > 0.01 else None,
        "remarks": " ".join(recording.remarks) or None,
    }
