"""A time as somebody types it, while looking at a recording."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Callable
from typing import Final

from gputop import units

HELP: Final = "12:03, 12:03:10, 2026-11-30 12:03, 11-30 12:03, 02:30+02:00, +5m, -30s, 50%"

_CLOCK: Final = re.compile(
    r"(?:(?:(\d{4})-)?(\d{1,2})-(\d{1,2})(?:[ T]+|$))?"
    r"(?:(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))? ?(Z|[+-]\d{2}:?\d{2})?)?",
    re.ASCII,
)


def parse_when(
    text: str, first: float, last: float, now: float, of_clock: Callable[[float], float] = lambda clock: clock
) -> float:
    """Epoch seconds of *text*, which may leave out the day, be relative to *now* (``+5m``, ``-1h``) or a share of the
    way from *first* to *last* (``50%``). A time of day is the first one within the recording, else that of *now*'s
    day; so is one that a clock shows twice (the hour when summer time ends). Times are local unless they say otherwise
    (``Z``, ``+02:00``). *of_clock*: what a clock's time is in the recording. Raises ValueError in words."""
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
    year, month, day, hour, minute, second, zone = match.groups()
    clock = (int(hour or 0), int(minute or 0), float(second or 0))
    if clock[0] > 23 or clock[1] > 59 or clock[2] >= 60:
        raise ValueError(f"{text!r} is not a time of day")
    offset = None if zone is None else _offset(zone, text)
    if month is not None:
        date = (int(year or _date(now, offset)[0]), int(month), int(day))
        return of_clock(_within(_epochs(date, clock, offset, text), first, last))
    first_day = _date(first, offset)
    dates = [first_day, (*first_day[:2], first_day[2] + 1), _date(now, offset)]
    found = [_within(_epochs(date, clock, offset, text), first, last) for date in dates]
    return of_clock(next((at for at in found if _is_within(at, first, last)), found[-1]))


def _is_within(at: float, first: float, last: float) -> bool:
    return first - 60 <= at <= last + 60


def _within(epochs: list[float], first: float, last: float) -> float:
    """The first of *epochs* that is in the recording, or the first."""
    return next((at for at in epochs if _is_within(at, first, last)), epochs[0])


def _offset(zone: str, text: str) -> int:
    """Seconds east of UTC."""
    if zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    if hours > 14 or minutes > 59:
        raise ValueError(f"{text!r}: an offset from UTC is at most 14 hours")
    return (hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1)


def _date(at: float, offset: int | None) -> tuple[int, int, int]:
    """Year, month and day."""
    date = time.localtime(at) if offset is None else time.gmtime(at + offset)
    return date.tm_year, date.tm_mon, date.tm_mday


def _epochs(date: tuple[int, int, int], clock: tuple[int, int, float], offset: int | None, text: str) -> list[float]:
    """When a clock shows that, in order: twice in the hour that is repeated when summer time ends."""
    if not (1 <= date[1] <= 12 and 1 <= date[2] <= 32):
        raise ValueError(f"{text!r} is not a date")
    shown = (*date, clock[0], clock[1], int(clock[2]))
    try:
        if offset is not None:
            return [calendar.timegm((*shown, 0, 0, 0)) - offset + clock[2] % 1]
        usual = time.mktime((*shown, 0, 0, -1))
        both = {time.mktime((*shown, 0, 0, is_summer)) for is_summer in (0, 1)} | {usual}
    except (OverflowError, ValueError):
        raise ValueError(f"{text!r} is not a date") from None
    same = [at for at in both if time.localtime(at)[3:6] == time.localtime(usual)[3:6]]
    return [at + clock[2] % 1 for at in sorted(same)]
