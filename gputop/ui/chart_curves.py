"""Samples made into dots: decimated by the maximum of each column of time, then joined by lines."""

from __future__ import annotations

import math
from collections.abc import Iterable
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
        self._distance: float | None = None
        self._unknown = False
        self._doubtful: tuple[int, float] | None = None  # a break that the next sample may take back, and its length

    def take(self, points: Iterable[tuple[float, float]]) -> None:
        """Add (time, value) samples in the order of time; those already taken are passed over. NaN is unknown."""
        highest, seconds = self.highest, self.bucket_seconds
        newest, before, unknown = self.newest, self._distance, self._unknown
        for at, value in points:
            if at <= newest:
                continue
            distance = at - newest
            newest = at
            if self._doubtful is not None:
                bucket, length = self._doubtful
                if distance * _HOLE >= length:  # not a hole: samples have become rarer
                    self.breaks.discard(bucket)
                self._doubtful = None
            if value != value:
                unknown, before = True, distance
                continue
            bucket = int(at / seconds)
            hole = before is not None and distance > _HOLE * before
            old = highest.get(bucket)
            if old is None:
                highest[bucket] = value
                if unknown or hole:
                    self.breaks.add(bucket)
                    if not unknown:
                        self._doubtful = (bucket, distance)
            elif value > old:
                highest[bucket] = value
            unknown = False
            before = distance if distance < math.inf else None
        self.newest, self._distance, self._unknown = newest, before, unknown

    def forget(self, before: int) -> None:
        """Drop buckets numbered below *before*."""
        for bucket in [bucket for bucket in self.highest if bucket < before]:
            del self.highest[bucket]
        self.breaks = {bucket for bucket in self.breaks if bucket >= before}

    def peak(self) -> float | None:
        return max(self.highest.values(), default=None)

    def dots(self, first: int, columns: int, rows: int, top: float) -> list[tuple[int, int, int]]:
        """(column, lowest row, highest row) of dots lit, for *columns* buckets from *first* on and *rows* dots from 0
        to *top*: a column's dots lead from its neighbour's height to its own."""
        runs = []
        scale, most = (rows - 1) / top, rows - 1
        highest, breaks = self.highest, self.breaks
        previous = -1
        height_before = 0
        for bucket in range(first, first + columns):
            value = highest.get(bucket)
            if value is None:
                continue
            column = bucket - first
            height = int(value * scale + 0.5)
            height = 0 if height < 0 else most if height > most else height
            low = high = height
            if previous >= 0 and bucket not in breaks:
                for between in range(previous + 1, column):  # samples rarer than columns
                    step = round(height_before + (height - height_before) / (column - previous))
                    runs.append((between, *_joined(height_before, step)))
                    height_before, previous = step, between
                low, high = _joined(height_before, height)
            runs.append((column, low, high))
            previous, height_before = column, height
        return runs


def _joined(before: int, height: int) -> tuple[int, int]:
    """The dots from beside *before* to *height*, which is always one of them."""
    if height > before:
        return before + 1, height
    if height < before:
        return height, before - 1
    return height, height


def braille_cells(runs: list[tuple[int, int, int]], columns: int, mirrored: bool) -> dict[tuple[int, int], int]:
    """Bits of braille characters by (cell column, cell row from the bottom); two dots a cell across, four up.
    *columns*: dots across; *mirrored*: the oldest at the right."""
    cells: dict[tuple[int, int], int] = {}
    get = cells.get
    for column, low, high in runs:
        if mirrored:
            column = columns - 1 - column
        x, half = column >> 1, column & 1
        for y in range(low, high + 1):
            cell = (x, y >> 2)
            cells[cell] = get(cell, 0) | BRAILLE[y & 3][half]
    return cells


def plain_cells(runs: list[tuple[int, int, int]], columns: int, mirrored: bool) -> dict[tuple[int, int], int]:
    """The same for characters that are one dot."""
    return {
        (columns - 1 - column if mirrored else column, y): 1 for column, low, high in runs for y in range(low, high + 1)
    }
