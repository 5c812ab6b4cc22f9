"""The values of a trace's entries, a key at a time: some may lack it, and one may hold what it should not."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

ACTION, ADDRESS, SIZE, TIME = map(itemgetter, ("action", "addr", "size", "time_us"))
STREAM, FRAMES, METADATA, CONTEXT = map(itemgetter, ("stream", "frames", "user_metadata", "compile_context"))
POOL = itemgetter("pool_id")
_MOST: Final = 2**63 - 1
_JITTER_US: Final = 1000  # of a clock read by several threads


def values(part: list[dict[str, Any]], get: Any, key: str, default: Any) -> list[Any]:
    """The values of *key*, which *get* gets: entries that lack it have *default*."""
    try:
        return list(map(get, part))
    except KeyError:
        return [entry.get(key, default) for entry in part]


def numbered(values: list[Any], number: Callable[[Any], int]) -> array[int]:
    if values.count(values[0]) == len(values):
        return array("I", [number(values[0])]) * len(values)
    try:
        numbers = {value: number(value) for value in set(values)}
    except TypeError:  # dicts, lists: of each its own
        return array("I", list(map(number, values)))
    return array("I", list(map(numbers.__getitem__, values)))


def in_short(value: Any) -> str:
    """Metadata that is no text, as torch's own viewer takes it: what is plain in it, once."""
    pairs = list(value.items()) if isinstance(value, dict) else [("", part) for part in value]
    parts = [
        f"{str(name)[:40]}={str(part)[:80]}" if name != "" else str(part)[:80]
        for name, part in pairs[:16]
        if isinstance(part, str | int | float) and isinstance(name, str | int)
    ]
    return " ".join(parts)


def go_back(times: array[int]) -> bool:
    """Whether the clock was set back, or times are in no order: a little jitter between threads is none of that."""
    ordered = times.tolist()
    if ordered == sorted(ordered):
        return False
    back = sum([before - after for before, after in pairwise(ordered) if before > after])
    return back > _JITTER_US + (max(ordered) - min(ordered)) // 20


def _is_plain(entry: dict[str, Any]) -> bool:
    """Whether the values that go into columns of numbers are numbers."""
    address, *numbers = [entry.get(key, 0) for key in ("addr", "size", "time_us")]
    return (
        all(isinstance(value, int) and abs(value) <= _MOST for value in numbers)
        and isinstance(address, int)
        and 0 <= address < 2**64
        and isinstance(entry.get("stream", 0), int)
    )


def without_odd(part: list[Any]) -> tuple[list[Any], int]:
    """*part* with an entry that says nothing in place of each whose values have wrong types; how many those were."""
    found, count = [], 0
    for entry in part:
        if not isinstance(entry, dict):
            raise TypeError("an entry of the trace is not a dict")
        if not _is_plain(entry):
            entry, count = {"action": "other"}, count + 1
        found.append(entry)
    return found, count
