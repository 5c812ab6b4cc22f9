"""The largest value in any part of a long curve, by way of ever coarser maxima: what a column of a chart shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

FAN: Final = 32  # values of a curve under one of the level above it


def levels(curve: Sequence[int]) -> list[list[int]]:
    """Ever coarser maxima of *curve*: of FAN values each, of FAN of those… until there are few."""
    found: list[list[int]] = []
    below = curve
    while len(below) > FAN * FAN:
        below = [max(below[n : n + FAN]) for n in range(0, len(below), FAN)]
        found.append(below)
    return found


def most(curves: Sequence[Sequence[int]], start: int, end: int) -> int:
    """The largest of the values *start* to *end* (without) of ``curves[0]``, 0 where there is none. The others are its
    levels; some 2·FAN values of each are looked at."""
    best: list[int] = []
    level = 0
    while end - start > 2 * FAN and level + 1 < len(curves):
        values, inner, outer = curves[level], -(-start // FAN), end // FAN
        best += values[start : inner * FAN]
        best += values[outer * FAN : end]
        start, end, level = inner, outer, level + 1
    return max(max(curves[level][start:end], default=0), max(best, default=0))


def first(curves: Sequence[Sequence[int]], value: int) -> int:
    """Where *value*, the largest of all, is reached first: from the coarsest level down."""
    at, span = 0, len(curves[-1])
    for values in reversed(curves):
        at = (at + list(values[at : at + span]).index(value)) * FAN
        span = FAN
    return at // FAN
