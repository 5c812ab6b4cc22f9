"""A recording in memory, of a size fixed beforehand: what the dashboard scrolls back in.

The newest snapshots, exactly as they were, in as many bytes as are given: of 8 GPUs with a few processes a reading
takes about 1 KB, so 1.5 MB hold 10 minutes at 500 ms. Deflate with a window of 32 KB does as well as Zstandard on lines
this short, and its library is in memory already.
"""

from __future__ import annotations

import zlib
from collections import deque
from typing import Final

from gputop.model import Snapshot
from gputop.recording.lines import LineReader, LineWriter

TAPE_BYTES: Final = 1536 * 1024
GROUP_RECORDS: Final = 60  # between two whole snapshots
CLOCK_STEP_SECONDS: Final = 2.0  # a clock set back by less only costs the readings meanwhile


class _Group:
    """Records packed together, at *start* of all bytes ever written."""

    __slots__ = ("length", "start", "times")

    def __init__(self, start: int) -> None:
        self.start, self.length = start, 0
        self.times: list[float] = []


class Tape:
    """One thread's. All memory is taken when it is made; the oldest group makes room for the newest record."""

    def __init__(self, bytes_: int = TAPE_BYTES) -> None:
        self._ring = bytearray(b"\xff") * bytes_  # written, so that the memory is there from now on
        self._end = 0  # bytes ever written
        self._groups: deque[_Group] = deque()
        self._lines = LineWriter()
        self._packer = zlib.compressobj(1)

    def add(self, snapshot: Snapshot) -> None:
        """Keep *snapshot*; one that is not newer than the last one is passed over. The tape begins anew when the clock
        was set back: times on it have one direction only."""
        last = self._groups[-1] if self._groups else None
        if last is not None and snapshot.taken_at <= last.times[-1]:
            if snapshot.taken_at > last.times[-1] - CLOCK_STEP_SECONDS:
                return
            self._groups.clear()
            last = None
        whole = last is None or len(last.times) >= GROUP_RECORDS
        group = _Group(self._end) if last is None or whole else last
        if whole:
            self._packer = zlib.compressobj(1)
        line = self._lines.line(snapshot, whole)
        packed = self._packer.compress(line) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        if group.length + len(packed) > len(self._ring):  # a machine too large for the tape: nothing is kept
            self._groups.clear()
            return
        if whole:
            self._groups.append(group)
        self._put(packed)
        group.length += len(packed)
        group.times.append(snapshot.taken_at)
        while self._groups[0].start < self._end - len(self._ring):
            self._groups.popleft()

    def _put(self, packed: bytes) -> None:
        ring, at = self._ring, self._end % len(self._ring)
        head = packed[: len(ring) - at]
        ring[at : at + len(head)] = head
        ring[: len(packed) - len(head)] = packed[len(head) :]
        self._end += len(packed)

    def times(self) -> list[float]:
        """When the snapshots kept were taken, oldest first."""
        return [at for group in self._groups for at in group.times]

    def snapshot(self, at: float) -> Snapshot | None:
        """The newest one taken at or before *at*, the oldest where there is none; None where nothing is kept."""
        group = next((g for g in reversed(self._groups) if g.times[0] <= at), self._groups[0] if self._groups else None)
        if group is None:
            return None
        size, start = len(self._ring), group.start % len(self._ring)
        packed = bytes(self._ring[start : start + group.length])
        packed += bytes(self._ring[: group.length - len(packed)]) if start + group.length > size else b""
        reader = LineReader()
        for n, line in enumerate(zlib.decompressobj().decompress(packed).splitlines()):
            if n and group.times[n] > at:
                break
            reader.read(line)
        return reader.snapshot()
