"""Samples made into dots: decimated by the maximum of each column of time, then joined by lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

#: Dots of a braille character by (dot row from the bottom, dot column); Unicode 3.0, block U+2800.
BRAILLE: Final = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))
_HOLE: Final = 3.0  # sample distances without a sample make a gap


class Decimated:
    """One curve: the *maximum* of each bucket of time, so that a spike is never averaged away, and where it is broken.

    Buckets are numbered since the epoch. It is fed as samples come, each sample once: a chart's cost does not depend on
    how many samples its window holds. Memory is bounded by :meth:`forget`.
    """

    def __init__(self, bucket_seconds: float) -> None:
        self.bucket_seconds = bucket_seconds
        self.highest: dict[int, float] = {}
        self.breaks: set[int] = set()  # no line leads to these buckets from the one before
        self.newest = -math.inf  # time of the newest sample taken, known or not
        self.last = -1  # the newest bucket with a value
        self.oldest = 0  # buckets before it are forgotten
        self.changed_from: int | None = None  # the first bucket that changed since a reader set this to None
        self._distance: float | None = None
        self._unknown = False
        self._doubtful: tuple[int, float] | None = None  # a break that the next sample may take back, and its length

    def take(self, points: Iterable[tuple[float, float]]) -> None:
        """Add (time, value) samples in the order of time; those already taken are passed over. NaN is unknown."""
        highest, seconds = self.highest, self.bucket_seconds
        for at, value in points:
            distance = at - self.newest
            if distance <= 0:
                continue
            self.newest = at
            if self._doubtful is not None:
                bucket, length = self._doubtful
                self._doubtful = None
                if distance * _HOLE >= length:  # not a hole: samples have become rarer
                    self.breaks.discard(bucket)
                    self._change(bucket)
            if value != value:
                self._unknown, self._distance = True, distance
                continue
            bucket = int(at / seconds)
            old = highest.get(bucket)
            if old is None:
                highest[bucket] = value
                self.last = bucket
                hole = self._distance is not None and distance > _HOLE * self._distance
                if self._unknown or hole:
                    self.breaks.add(bucket)
                    if not self._unknown:
                        self._doubtful = (bucket, distance)
                self._change(bucket)
            elif value > old:
                highest[bucket] = value
                self._change(bucket)
            self._unknown = False
            self._distance = distance if distance < math.inf else None

    def _change(self, bucket: int) -> None:
        if self.changed_from is None or bucket < self.changed_from:
            self.changed_from = bucket

    def forget(self, before: int) -> None:
        """Drop buckets numbered below *before*."""
        if before > self.oldest:
            self.oldest = before
            self.highest = {bucket: value for bucket, value in self.highest.items() if bucket >= before}
            self.breaks = {bucket for bucket in self.breaks if bucket >= before}

    def peak(self) -> float | None:
        return max(self.highest.values(), default=None)

    def known_before(self, bucket: int) -> int | None:
        """The newest bucket with a value before *bucket*."""
        for number in range(bucket - 1, self.oldest - 1, -1):
            if number in self.highest:
                return number
        return None

    def height(self, bucket: int, rows: int, top: float) -> int:
        """The dot, of *rows* from 0 to *top*, in which the value of *bucket* lies."""
        return max(0, min(rows - 1, int(self.highest[bucket] * (rows - 1) / top + 0.5)))

    def runs(self, begin: int, rows: int, top: float) -> Iterator[tuple[int, int, int]]:
        """(bucket, lowest dot, highest dot) of the dots lit from bucket *begin* on: they lead from the height before to
        the bucket's own. Between buckets further apart (samples rarer than buckets) runs a straight line."""
        previous = self.known_before(begin)
        before = 0 if previous is None else self.height(previous, rows, top)
        for bucket in range(begin, self.last + 1):
            if bucket not in self.highest:
                continue
            height = self.height(bucket, rows, top)
            low = high = height
            if previous is not None and bucket not in self.breaks:
                for between in range(previous + 1, bucket):
                    step = round(before + (height - before) / (bucket - previous))
                    if between >= begin:
                        yield (between, *_joined(before, step))
                    before, previous = step, between
                low, high = _joined(before, height)
            yield bucket, low, high
            previous, before = bucket, height


def _joined(before: int, height: int) -> tuple[int, int]:
    """The dots from beside *before* to *height*, which is always one of them."""
    if height > before:
        return before + 1, height
    if height < before:
        return height, before - 1
    return height, height


class Raster:
    """The cells of one curve, kept from picture to picture: what has passed does not change, so only the newest cells
    are drawn again. *across* and *up*: the dots of a cell, 2 and 4 for braille, 1 and 1 for plain characters."""

    def __init__(self, curve: Decimated, across: int, up: int) -> None:
        self.curve = curve
        self.across, self.up = across, up
        self.columns: dict[int, dict[int, int]] = {}  # dots by row from the bottom, by cell column since the epoch
        self._drawn_for: tuple[int, float] | None = None

    def update(self, rows: int, top: float) -> None:
        """Bring the cells up to date; *rows* of cells from 0 to *top*."""
        curve, across, up = self.curve, self.across, self.up
        if self._drawn_for != (rows, top):
            self._drawn_for = (rows, top)
            self.columns = {}
            begin: int = curve.oldest
        elif curve.changed_from is None:
            begin = curve.last + 1
        else:
            known = curve.known_before(curve.changed_from)
            begin = curve.oldest if known is None else known + 1
        curve.changed_from = None
        begin -= begin % across
        first, oldest = begin // across, curve.oldest // across
        if any(column < oldest or column >= first for column in self.columns):
            self.columns = {column: cells for column, cells in self.columns.items() if oldest <= column < first}
        columns = self.columns
        for bucket, low, high in curve.runs(begin, rows * up, top):
            column, half = divmod(bucket, across)
            cells = columns.get(column)
            if cells is None:
                cells = columns[column] = {}
            for dot in range(low, high + 1):
                row = dot // up
                cells[row] = cells.get(row, 0) | BRAILLE[dot % up][half]


MIRRORED: Final = tuple(
    sum(BRAILLE[y][1 - x] for y in range(4) for x in range(2) if bits & BRAILLE[y][x]) for bits in range(256)
)
"""Dots of a braille character with left and right changed."""
