"""Allocations grouped by the stack that made them, at any moment, and which of them are looked at."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gputop import units
from gputop.torch_files.snapshot.memory_snapshot import DeviceSnapshot

#: The terms of a filter, for help texts.
TERMS: Final = (
    ("text", "in the stack: a function, a file, file:line"),
    ("size>10M", "the size of the allocation; also <"),
    ("stream:0", "a stream: its number or default"),
    ("pool:0,1", "a memory pool: its id, default or private"),
    ("!text", "not this; before any term"),
)
_SIZE_TERM: Final = re.compile(r"size(>=|<=|>|<)(.+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AllocationFilter:
    """Which allocations are looked at. An empty one lets all through."""

    text: str = ""
    terms: tuple[tuple[bool, str], ...] = ()  # (wanted, in the stack)
    least: int = 0
    most: int | None = None
    streams: tuple[tuple[bool, str], ...] = ()
    pools: tuple[tuple[bool, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms or self.least or self.most is not None or self.streams or self.pools)

    def rows(self, device: DeviceSnapshot, rows: Iterable[int]) -> list[int]:
        """Those of *rows* (allocations) that are wanted."""
        if not self:
            return list(rows)
        stacks: dict[int, bool] = {}
        places: dict[tuple[int, int], bool] = {}
        found = []
        for row in rows:
            size = device.row_size[row]
            if size < self.least or (self.most is not None and size > self.most):
                continue
            place = (device.row_stream[row], device.row_pool[row])
            wanted = places.get(place)
            if wanted is None:
                wanted = places[place] = self._place(device, *place)
            if not wanted:
                continue
            stack = device.row_stack[row]
            wanted = stacks.get(stack)
            if wanted is None:
                wanted = stacks[stack] = self.stack(device, stack)
            if wanted:
                found.append(row)
        return found

    def stack(self, device: DeviceSnapshot, stack: int) -> bool:
        """Whether the words are in (or not in) a stack."""
        if not self.terms:
            return True
        text = device.snapshot.frames.text(stack).casefold()
        return all((word in text) == wanted for wanted, word in self.terms)

    def _place(self, device: DeviceSnapshot, stream: int, pool: int) -> bool:
        snapshot = device.snapshot
        names = {snapshot.stream_label(stream), str(snapshot.streams[stream])}
        if any((word in names) != wanted for wanted, word in self.streams):
            return False
        pool_names = {snapshot.pool_label(pool)}
        if snapshot.pools[pool] == (0, 0):
            pool_names.add("0,0")
        elif snapshot.pools[pool] is not None:
            pool_names.add("private")
        return not any((word in pool_names) != wanted for wanted, word in self.pools)


def parse_filter(text: str) -> AllocationFilter:
    """The filter that *text* asks for. Raises ValueError in words."""
    words: list[tuple[bool, str]] = []
    streams: list[tuple[bool, str]] = []
    pools: list[tuple[bool, str]] = []
    least, most = 0, None
    for term in text.split():
        wanted = not term.startswith("!")
        term = term.removeprefix("!")
        if not term:
            continue
        name, colon, value = term.partition(":")
        name = name.casefold()
        if size := _SIZE_TERM.fullmatch(term):
            amount = units.parse_size(size[2])
            sign = size[1] if wanted else {">": "<=", ">=": "<", "<": ">=", "<=": ">"}[size[1]]
            if sign[0] == ">":
                least = max(least, amount + (sign == ">"))
            else:
                limit = amount - (sign == "<")
                most = limit if most is None else min(most, limit)
        elif colon and name == "stream":
            streams.append((wanted, _number(value)))
        elif colon and name == "pool":
            pools.append((wanted, value.casefold()))
        else:
            words.append((wanted, term.casefold()))
    return AllocationFilter(text.strip(), tuple(words), least, most, tuple(streams), tuple(pools))


def _number(value: str) -> str:
    if value.casefold() == "default":
        return "default"
    try:
        return str(int(value, 0))
    except ValueError:
        raise ValueError(f"stream:{value}: a stream is a number or default") from None


@dataclass(slots=True)
class StackGroup:
    """Allocations of one stack."""

    stack: int
    bytes: int = 0
    count: int = 0
    largest: int = 0
    oldest: int = 0  # the entry of the first of them, -1: before the trace


def by_stack(device: DeviceSnapshot, rows: Iterable[int], folded: bool = True) -> list[StackGroup]:
    """*rows* (allocations) by their stacks, folded to the user's frames or whole; the most bytes first."""
    of_stack: dict[int, StackGroup] = {}
    stacks, sizes, births = device.row_stack, device.row_size, device.row_birth
    for row in rows:
        stack, size, birth = stacks[row], sizes[row], births[row]
        group = of_stack.get(stack)
        if group is None:
            group = of_stack[stack] = StackGroup(stack, oldest=birth)
        group.bytes += size
        group.count += 1
        if size > group.largest:
            group.largest = size
        if birth < group.oldest:
            group.oldest = birth
    groups = merged(device, of_stack.values()) if folded else list(of_stack.values())
    return sorted(groups, key=lambda group: (-group.bytes, -group.count, group.stack))


def merged(device: DeviceSnapshot, groups: Iterable[StackGroup]) -> list[StackGroup]:
    """Groups whose folded stacks are the same, as one."""
    fold = device.snapshot.frames.folded
    found: dict[int, StackGroup] = {}
    for group in groups:
        stack = fold(group.stack)
        into = found.get(stack)
        if into is None:
            found[stack] = StackGroup(stack, group.bytes, group.count, group.largest, group.oldest)
            continue
        into.bytes += group.bytes
        into.count += group.count
        into.largest = max(into.largest, group.largest)
        into.oldest = min(into.oldest, group.oldest)
    return list(found.values())


def stack_title(device: DeviceSnapshot, stack: int) -> str:
    """The innermost frame of a stack in a few words: ``train.py:41 step``."""
    frames = device.snapshot.frames.frames(stack)
    return frames[0].short if frames else "(no frames)"
