"""Writes snapshots to a recording: the bus' subscriber behind ``gputop record``.

Every record is in the file when :meth:`Recorder.write` returns. The disk may be full, the process killed, the machine
lose power: what was recorded before stays readable (what was not yet synchronised aside, for the last of the three).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gputop import __version__, units
from gputop.model import Snapshot
from gputop.recording.container import GroupWriter, NotARecording, header, mend, read_index
from gputop.recording.lines import LineWriter

#: A group ends, and the next begins with a whole snapshot, after so many seconds or records. A seek reads half a group
#: on average, so it is the records that bound its time.
GROUP_SECONDS: Final = 60.0
GROUP_RECORDS: Final = 64

_ROTATED: Final = "%Y%m%d-%H%M%S"
_ROTATED_SUFFIX: Final = re.compile(r"\.\d{8}-\d{6}(-\d+)?")


class RecordingError(Exception):
    """Nothing more can be recorded. ``str()`` says why, and what became of what was."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a file is put aside for the next one: *bytes_* it must not exceed, or *seconds* from its first record to
    its last. *keep*: how many of those put aside to keep, None for all."""

    bytes_: int | None = None
    seconds: float | None = None
    keep: int | None = None


class Recorder:
    """Appends to *path*, a new file or a recording (whose torn end, if it has one, is mended first). Raises
    RecordingError, here and from every method."""

    def __init__(self, path: Path, rotation: Rotation = Rotation()) -> None:
        self.path, self._rotation = path, rotation
        self.records = 0  # written by this recorder, over all files
        self.bytes_ = 0
        self._lines = LineWriter()
        self._group: GroupWriter | None = None
        self._previous_footer = 0
        self._descriptor = -1
        self._size = 0  # of what is whole in the file
        self._began: float | None = None  # taken_at of the file's first record
        self._began_steady = 0.0  # the same, by the clock that nobody sets
        self._open()

    def write(self, snapshot: Snapshot) -> None:
        """Record *snapshot*."""
        if self._descriptor < 0:
            raise RecordingError(f"{self.path} is closed")
        group = self._group
        if group is not None and (
            group.records >= GROUP_RECORDS or not group.last_at <= snapshot.taken_at < group.first_at + GROUP_SECONDS
        ):
            self._end_group()
        seconds = self._rotation.seconds
        age = snapshot.steady_at - self._began_steady
        if seconds is not None and self._began is not None and not 0 <= age < seconds:
            self._rotate()
        if not self._put(snapshot):
            self._rotate()
            self._put(snapshot, forced=True)

    def close(self) -> None:
        """End the file properly. May be called twice."""
        if self._descriptor >= 0:
            try:
                self._end_group()
            finally:
                self._close()

    # -- the file

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK  # O_NONBLOCK: no waiting for a FIFO's reader
        try:
            self._descriptor = os.open(self.path, flags, 0o600)  # command lines of everybody are in it
            try:
                if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                    raise RecordingError(f"{self.path} is not a regular file")
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._size = os.fstat(self._descriptor).st_size
                if self._size:
                    self._continue()
            except BaseException:
                self._close()
                raise
        except BlockingIOError:
            raise RecordingError(f"{self.path}: another gputop is recording to it") from None
        except NotARecording as error:
            raise RecordingError(f"{self.path} is there already, and it is {error}: nothing was changed") from None
        except OSError as error:
            raise RecordingError(f"{self.path} cannot be written: {error.strerror}") from None

    def _continue(self) -> None:
        """Go on behind what is recorded already."""
        index = read_index(self._descriptor, self._size)
        self._previous_footer = mend(self._descriptor, index)
        self._size = os.fstat(self._descriptor).st_size
        if index.groups:
            self._began = self._began_steady = index.groups[0].first_at

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        with contextlib.suppress(OSError):  # all that counts was written, and answered for, before
            os.close(descriptor)

    def _put(self, snapshot: Snapshot, forced: bool = False) -> bool:
        """Write one record; False, and nothing written, where the file would become larger than it may."""
        packed = b""
        if self._size == 0:
            facts = {"gputop": __version__, "host": snapshot.host.name, "began": snapshot.taken_at}
            packed = header(facts)
        group = self._group or GroupWriter(self._size + len(packed))
        record = group.record(self._lines.line(snapshot, whole=group.records == 0))
        most = self._rotation.bytes_
        if most is not None and self._size and not forced and self._size + len(record) + 128 > most:
            return False  # 128: the end of the frame and a footer
        self._append(packed + record, snapshot.taken_at)
        group.written(record, snapshot.taken_at)
        self._group = group
        if self._began is None:
            self._began, self._began_steady = snapshot.taken_at, snapshot.steady_at
        self.records += 1
        return True

    def _end_group(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            packed = group.end(self._previous_footer)
            self._append(packed, group.last_at)
            self._previous_footer = group.offset + group.length
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:
                raise self._failed(error, group.last_at) from None

    def _append(self, packed: bytes, at: float) -> None:
        """Write *packed* behind what is whole, all of it or nothing."""
        done = 0
        try:
            while done < len(packed):
                done += os.pwrite(self._descriptor, packed[done:], self._size + done)
        except OSError as error:
            with contextlib.suppress(OSError):  # the reader passes over what would be left
                os.ftruncate(self._descriptor, self._size)
            raise self._failed(error, at) from None
        self._size += done
        self.bytes_ += done

    def _failed(self, error: OSError, at: float) -> RecordingError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        why = {
            errno.ENOSPC: "the disk is full",
            errno.EDQUOT: "the disk quota is used up",
            errno.EFBIG: "the file has become too large for its file system or for `ulimit -f`",
        }.get(error.errno or 0, f"it cannot be written: {error.strerror}")
        group, self._group = self._group, None
        if full and group is not None:  # what truncating gave back may do for a footer
            packed = group.end(self._previous_footer)
            with contextlib.suppress(OSError):
                if os.pwrite(self._descriptor, packed, self._size) < len(packed):
                    os.ftruncate(self._descriptor, self._size)
        self._close()
        clock = units.timestamp(at)
        kept = f"The {self.records} records before {clock} are intact." if self.records else "Nothing was recorded."
        return RecordingError(f"{self.path}: {why}. {kept}")

    # -- rotation

    def _rotate(self) -> None:
        """Put the file aside under the time it began, and begin the next one."""
        self._end_group()
        aside = self._aside()
        try:
            os.rename(self.path, aside)
        except OSError as error:
            self._close()
            raise RecordingError(f"{self.path} cannot be renamed to {aside.name}: {error.strerror}") from None
        self._close()
        self._size, self._previous_footer, self._began = 0, 0, None
        self._open()
        self._drop_old()

    def _aside(self) -> Path:
        stamp = time.strftime(_ROTATED, time.localtime(self._began or time.time()))
        for more in ("", *(f"-{n}" for n in range(2, 10_000))):
            aside = self.path.with_name(f"{self.path.name}.{stamp}{more}")
            if not os.path.lexists(aside):
                return aside
        raise RecordingError(f"{self.path}: too many files of the same second are there")

    def _drop_old(self) -> None:
        keep = self._rotation.keep
        if keep is None:
            return
        for old in rotated(self.path)[: -keep or None]:
            try:
                old.unlink()
            except OSError as error:
                raise RecordingError(f"{old} cannot be removed (--keep): {error.strerror}") from None


def rotated(path: Path) -> list[Path]:
    """The files put aside for *path*, oldest first."""
    name = path.name
    return sorted(
        (
            other
            for other in path.parent.iterdir()
            if other.name.startswith(name) and _ROTATED_SUFFIX.fullmatch(other.name[len(name) :]) and other.is_file()
        ),
        key=lambda other: [int(part) for part in re.findall(r"\d+", other.name[len(name) :])],
    )
