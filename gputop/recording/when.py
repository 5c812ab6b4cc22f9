"""A time as somebody types it, while looking at a recording."""

from __future__ import annotations

import re
import time
from typing import Final

from gputop import units

HELP: Final = "12:03, 12:03:10, 2026-11-30 12:03, 11-30 12:03, +5m, -30s, 50%"

_CLOCK: Final = re.compile(
    r"(?:(?:(\d{4})-)?(\d{1,2})-(\d{1,2})(?:[ T]+|$))?(?:(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?)?", re.ASCII
)


def parse_when(text: str, first: float, last: float, now: float) -> float:
    """Epoch seconds of *text*, which may leave out the day, be relative to *now* (``+5m``, ``-1h``) or a share of the
    way from *first* to *last* (``50%``). A time of day is the first one within the recording, else that of *now*'s
    day; times are local. Raises ValueError in words."""
    text = text.strip()
    if text.endswith("%"):
        try:
            share = float(text[:-1]) / 100
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise ValueError(f"{text!r}: a share is from 0% to 100%")
        return first + share * (last - first)
    if text[:1] in ("+", "-"):
        seconds = units.parse_interval(text[1:])
        return now + seconds if text[0] == "+" else now - seconds
    match = _CLOCK.fullmatch(text)
    if not text or match is None:
        raise ValueError(f"{text!r} is not a time such as {HELP}")
    year, month, day, hour, minute, second = match.groups()
    clock = (int(hour or 0), int(minute or 0), float(second or 0))
    if clock[0] > 23 or clock[1] > 59 or clock[2] >= 60:
        raise ValueError(f"{text!r} is not a time of day")
    if month is not None:
        return _epoch(int(year or time.localtime(now).tm_year), int(month), int(day), clock, text)
    date = time.localtime(first)
    for ahead in range(2):  # the day of its first record, or the next one
        at = _epoch(date.tm_year, date.tm_mon, date.tm_mday + ahead, clock, text)
        if first - 60 <= at <= last + 60:
            return at
    date = time.localtime(now)
    return _epoch(date.tm_year, date.tm_mon, date.tm_mday, clock, text)


def _epoch(year: int, month: int, day: int, clock: tuple[int, int, float], text: str) -> float:
    if not (1 <= month <= 12 and 1 <= day <= 32):
        raise ValueError(f"{text!r} is not a date")
    try:
        whole = time.mktime((year, month, day, clock[0], clock[1], int(clock[2]), 0, 0, -1))
    except (OverflowError, ValueError):
        raise ValueError(f"{text!r} is not a date") from None
    return whole + clock[2] % 1
