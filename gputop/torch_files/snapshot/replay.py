"""What was held at every moment of a trace, from the dump backwards.

The dump at the end is complete; the trace is not (it is a ring, and recording may have begun late). So the trace is
read from its end: an ``alloc`` takes a block out of what is held, a ``free_completed`` puts one back. Whatever remains
at the first entry was held before it. This is exact for every moment the trace covers, however much was overwritten.

Sizes in a trace are the bytes asked for, not rounded up; so the curve is what memory_stats() calls ``requested_bytes``.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Sequence
from itertools import accumulate, compress
from operator import itemgetter
from typing import Any, Final

ACTIONS: Final = (  # the codes are their places
    "other",
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
    "annotate",
)
OTHER, ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, OOM, MARK, _ = (
    range(11)
)
_RESERVES: Final = {SEGMENT_ALLOC: 1, SEGMENT_MAP: 1, SEGMENT_FREE: -1, SEGMENT_UNMAP: -1}
_RESERVING: Final = bytes(code in _RESERVES for code in range(256))

CHECKPOINT: Final = 8192  # changes that are replayed at most to know what was held at a moment, unless more is held


class Lifetimes:
    """Every allocation that is in the trace or the dump, a row each: those of the dump first, the others from the one
    freed last to the one freed first.

    ``birth``: the entry that allocated it, -1: held before the first entry. ``death``: the entry that freed it,
    the number of entries: held at the dump.
    """

    def __init__(self) -> None:
        self.birth, self.death = array("i"), array("i")
        self.size, self.stack = array("q"), array("I")
        self.changes = array("i")  # per entry: +(row + 1) allocated, -(row + 1) freed, 0 neither
        self.live: list[int] = []  # per entry: bytes held after it
        self.held_at_start = 0  # bytes
        self.unseen = 0  # allocations that the trace left out, and that are taken to have been made as early as can be
        self.unmatched = 0  # frees and allocs of the trace whose counterpart should be in it, and is not
        # moments at which all rows held are written down: after entry e, rows[start[n]:start[n + 1]]; the first is -1
        self.checkpoints: tuple[array[int], array[int], array[int]] = (array("i"), array("Q"), array("I"))


Block = tuple[int, int, int]
"""Of the dump, and active: address, bytes asked for, stack."""


def lifetimes(
    action: bytes, address: Sequence[int], size: Sequence[int], stack: Sequence[int], held: Sequence[Block]
) -> Lifetimes:
    """Replay backwards from *held*. Between two checkpoints there are as many entries as rows are written, or more, so
    that checkpoints never take much room."""
    entries = len(action)
    end_of_life = FREE_COMPLETED if FREE_COMPLETED in action or FREE_REQUESTED not in action else FREE_REQUESTED
    flags = action.translate(bytes(code in (ALLOC, end_of_life) for code in range(256)))
    places = list(compress(range(entries), flags))
    addresses = list(compress(address, flags))
    codes = bytes(compress(action, flags))
    birth = [-1] * (len(held) + action.count(end_of_life))
    death = [entries] * len(held)
    changes = [0] * entries
    live = {block[0]: row for row, block in enumerate(held)}
    written: list[tuple[int, list[int]]] = []
    unmatched = unseen = 0
    allocs = ALLOC in action  # else they were left out of the recording (skip_actions=["alloc"])
    take, put, end = live.pop, live.setdefault, death.append
    row = len(held)
    at = len(places)
    while at:
        written.append((places[at - 1], list(live.values())))
        start = max(0, at - max(CHECKPOINT, len(live)))
        for n, where, code in zip(
            places[start:at][::-1], addresses[start:at][::-1], codes[start:at][::-1], strict=True
        ):
            if code == ALLOC:
                which = take(where, -1)
                if which >= 0:
                    birth[which] = n
                    changes[n] = which + 1
                else:
                    unmatched += 1  # its free is not in the trace: that kind of entry was left out of it
            elif not allocs and where in live and _begin_unseen(live[where], n + 1, birth, death, changes):
                unseen += 1  # allocated anew in between, without an entry
                live[where] = row
                row += 1
                changes[n] = -row
                end(n)
            elif put(where, row) == row:
                row += 1
                changes[n] = -row
                end(n)
            else:
                unmatched += 1  # it is held later, and its alloc is not in the trace
        at = start
    if not allocs and live:
        reserved_by = _Reservations(action, address, size)
        for where, which in live.items():
            unseen += _begin_unseen(which, reserved_by.before(where, death[which]), birth, death, changes)
        written = [(moment, [which for which in rows if birth[which] <= moment]) for moment, rows in written]
        live = {where: which for where, which in live.items() if birth[which] < 0}
    written.append((-1, list(live.values())))
    found = _table(birth[:row], death, held, list(live.values()), size, stack)
    if unseen:  # where something else happened at that entry, its stack is not the allocation's
        for which, entry in enumerate(birth[:row]):
            own = held[which][2] if which < len(held) else 0
            if entry >= 0 and action[entry] not in _RESERVES:
                found.stack[which] = own
    found.unseen = unseen
    found.changes = array("i", changes)
    found.held_at_start = sum(_pick(found.size, list(live.values())))
    found.unmatched = unmatched
    # bytes by change: of +k the size of row k - 1, of -k (an index from the end) that size, negative
    signed = [0, *found.size, *[-amount for amount in reversed(found.size)]]
    found.live = list(accumulate(map(signed.__getitem__, changes), initial=found.held_at_start))[1:]
    moments, starts, rows = found.checkpoints
    for moment, held_rows in reversed(written):
        moments.append(moment)
        starts.append(len(rows))
        rows.fromlist(held_rows)
    starts.append(len(rows))
    return found


def _begin_unseen(row: int, earliest: int, birth: list[int], death: list[int], changes: list[int]) -> int:
    """Have *row* begin at *earliest*, or the next entry that changed nothing; whether there was one."""
    for entry in range(earliest, min(death[row], earliest + 256)) if earliest >= 0 else ():
        if not changes[entry]:
            birth[row], changes[entry] = entry, row + 1
            return 1
    return 0


class _Reservations:
    """When the memory that an address is in was taken from the driver."""

    def __init__(self, action: bytes, address: Sequence[int], size: Sequence[int]) -> None:
        taken = [n for n, code in enumerate(action) if _RESERVES.get(code) == 1]
        self._at = sorted((address[n], n, address[n] + size[n]) for n in taken)

    def before(self, where: int, entry: int) -> int:
        """The last one before *entry*; -1: none in the trace."""
        found = -1
        at = bisect.bisect_right(self._at, (where, 1 << 62, 0)) - 1
        start = self._at[at][0] if at >= 0 else -1
        while at >= 0 and self._at[at][0] == start:
            if found < self._at[at][1] < entry and where < self._at[at][2]:
                found = self._at[at][1]
            at -= 1
        return found


def _table(
    birth: list[int],
    death: list[int],
    held: Sequence[Block],
    unborn: list[int],
    size: Sequence[int],
    stack: Sequence[int],
) -> Lifetimes:
    """The rows' other columns: the size from the free, the stack from the alloc, where the trace has it (of the rows
    *unborn* it has not)."""
    first = len(held)
    freed, known = death[first:], birth[first:]
    strangers = [row - first for row in unborn if row >= first]
    for n in strangers:
        known[n] = freed[n]
    found = Lifetimes()
    found.birth, found.death = array("i", birth), array("i", death)
    found.size = array("q", [block[1] for block in held])
    found.size.extend(array("q", _pick(size, freed)))
    found.stack = array("I", [(stack[n] if n >= 0 else 0) or b[2] for n, b in zip(birth[:first], held, strict=True)])
    found.stack.extend(array("I", _pick(stack, known)))
    for n in strangers:
        found.stack[first + n] = 0  # where it was freed is another matter than where it was allocated
    return found


def _pick(values: Sequence[int], places: list[int]) -> Sequence[int]:
    """The values at *places*, all in one call."""
    if len(places) < 2:
        return [values[n] for n in places]
    picked: tuple[int, ...] = itemgetter(*places)(values)
    return picked


def reserved_curve(action: bytes, size: Sequence[int], at_end: int) -> tuple[int, list[int]]:
    """Bytes reserved before the first entry, and after each: the dump's total and the trace's segments."""
    places = list(compress(range(len(action)), action.translate(_RESERVING)))
    value = start = at_end - sum(size[n] * _RESERVES[action[n]] for n in places)
    curve: list[int] = []
    for n in places:
        curve += [value] * (n - len(curve))
        value += size[n] * _RESERVES[action[n]]
    return start, curve + [value] * (len(action) - len(curve))


def held_at(
    entry: int, changes: Sequence[int], entries: Any, starts: Sequence[int], rows: Sequence[int], checkpoint: int
) -> list[int]:
    """The rows held after *entry* (-1: before the first), from the *checkpoint*-th one at or before it."""
    live = dict.fromkeys(rows[starts[checkpoint] : starts[checkpoint + 1]])
    for change in changes[entries[checkpoint] + 1 : entry + 1]:
        if change > 0:
            live[change - 1] = None
        elif change < 0:
            del live[-change - 1]
    return list(live)
