"""Samples made into dots: decimated by the maximum of each column of time, then joined by lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from gputop.ui.chart.scale import Scale

#: Dots of a braille character by (dot row from the bottom, dot column); Unicode 3.0, block U+2800.
BRAILLE: Final = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))
_HOLE: Final = 3.0  # sample distances without a sample make a gap


class Decimated:
    """One curve: the *maximum* of each bucket of time, so that a spike is never averaged away, the mean below it, and
    where it is broken.

    Buckets are numbered since the epoch. It is fed as samples come, each sample once: a chart's cost does not depend on
    how many samples its window holds. Memory is bounded by :meth:`forget`.
    """

    def __init__(self, bucket_seconds: float) -> None:
        self.bucket_seconds = bucket_seconds
        self.highest: dict[int, float] = {}
        self._sums: dict[int, tuple[float, int]] = {}  # of the samples of a bucket, and how many there were
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
            total, count = self._sums.get(bucket, (0.0, 0))
            self._sums[bucket] = total + value, count + 1
            if count:
                self._change(bucket)
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
            self._sums = {bucket: kept for bucket, kept in self._sums.items() if bucket >= before}
            self.breaks = {bucket for bucket in self.breaks if bucket >= before}

    def mean(self, bucket: int) -> float:
        """Of the samples of *bucket*, which has some."""
        total, count = self._sums[bucket]
        return total / count

    def range(self, of_means: bool = False) -> tuple[float, float] | None:
        """The lowest and the highest value kept; *of_means*: the lowest mean."""
        values = self.highest.values()
        if not values:
            return None
        return min(map(self.mean, self.highest) if of_means else values), max(values)

    def known_before(self, bucket: int) -> int | None:
        """The newest bucket with a value before *bucket*."""
        for number in range(bucket - 1, self.oldest - 1, -1):
            if number in self.highest:
                return number
        return None

    def heights(self, begin: int, dots: int, scale: Scale) -> Iterator[tuple[int, int, int | None]]:
        """(bucket, dot, the dot before where a line leads from there) from bucket *begin* on, of *dots* over *scale*.
        Between buckets further apart (samples rarer than buckets) runs a straight line."""
        highest = self.highest
        previous = self.known_before(begin)
        before = 0 if previous is None else scale.dot(highest[previous], dots)
        for bucket in range(begin, self.last + 1):
            if bucket not in highest:
                continue
            height = scale.dot(highest[bucket], dots)
            if previous is None or bucket in self.breaks:
                yield bucket, height, None
            else:
                start = previous
                for between in range(previous + 1, bucket):
                    step = round(before + (height - before) / (bucket - start))
                    if between >= begin:
                        yield between, step, before
                    before, start = step, between
                yield bucket, height, before
            previous, before = bucket, height

    def runs(self, begin: int, dots: int, scale: Scale) -> Iterator[tuple[int, int, int]]:
        """(bucket, lowest dot, highest dot) of the dots lit from bucket *begin* on: they lead from the height before to
        the bucket's own."""
        for bucket, height, before in self.heights(begin, dots, scale):
            yield (bucket, height, height) if before is None else (bucket, *_joined(before, height))


def _joined(before: int, height: int) -> tuple[int, int]:
    """The dots from beside *before* to *height*, which is always one of them."""
    if height > before:
        return before + 1, height
    if height < before:
        return height, before - 1
    return height, height


class Raster:
    """The cells of one curve, kept from picture to picture: what has passed does not change, so only the newest cells
    are drawn again. *across* and *up*: the dots of a cell, 2 and 4 for braille, 1 and 1 for plain characters, 1 and 8
    for a filled area."""

    def __init__(self, curve: Decimated, across: int, up: int) -> None:
        self.curve = curve
        self.across, self.up = across, up
        #: By cell column since the epoch: dots by row from the bottom.
        self.columns: dict[int, dict[int, int]] = {}
        #: The same of a filled area: how many dots are lit, from the bottom, up to the mean and to the maximum.
        self.levels: dict[int, tuple[int, int]] = {}
        self._drawn_for: tuple[int, Scale, int] | None = None

    def update(self, rows: int, scale: Scale, offset: int = 0) -> None:
        """Bring the cells up to date: *rows* of them over *scale*; buckets whose number leaves *offset* when divided by
        *across* are at the left of a cell."""
        curve, across, up = self.curve, self.across, self.up
        if self._drawn_for != (rows, scale, offset):
            self._drawn_for = (rows, scale, offset)
            self.columns, self.levels = {}, {}
            begin: int = curve.oldest
        elif curve.changed_from is None:
            begin = curve.last + 1
        else:
            known = curve.known_before(curve.changed_from)
            begin = curve.oldest if known is None else known + 1
        curve.changed_from = None
        begin -= (begin - offset) % across
        first, oldest = (begin - offset) // across, (curve.oldest - offset) // across
        if up == 8:
            self.levels = {column: level for column, level in self.levels.items() if oldest <= column < first}
            for bucket, height, _ in curve.heights(begin, rows * up, scale):
                mean = height
                if bucket in curve.highest:
                    mean = scale.dot(curve.mean(bucket), rows * up)
                self.levels[bucket] = mean + 1, height + 1
            return
        if any(column < oldest or column >= first for column in self.columns):
            self.columns = {column: cells for column, cells in self.columns.items() if oldest <= column < first}
        columns = self.columns
        for bucket, low, high in curve.runs(begin, rows * up, scale):
            column, half = divmod(bucket - offset, across)
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
