"""What was held at every moment of a trace, from the dump backwards.

The dump at the end is complete; the trace is not (it is a ring, and recording may have begun late). So the trace is
read from its end: an ``alloc`` takes a block out of what is held, a ``free_completed`` puts one back. Whatever remains
at the first entry was held before it. This is exact for every moment the trace covers, however much was overwritten.

Sizes in a trace are the bytes asked for, not rounded up; so the curve is what memory_stats() calls ``requested_bytes``.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
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

FAN: Final = 32  # values of a curve under one of the level above it
CHECKPOINT: Final = 8192  # changes that are replayed at most to know what was held at a moment, unless more is held


class Lifetimes:
    """Every allocation that is in the trace or the dump, a row each, in no particular order.

    ``birth``: the entry that allocated it, -1: held before the first entry. ``death``: the entry that freed it,
    the number of entries: held at the dump.
    """

    def __init__(self) -> None:
        self.birth, self.death = array("i"), array("i")
        self.address, self.size = array("Q"), array("q")
        self.stack, self.stream = array("I"), array("I")
        self.pool = array("I")
        self.changes = array("i")  # per entry: +(row + 1) allocated, -(row + 1) freed, 0 neither
        self.deltas = array("q")  # per entry: bytes
        self.held_at_start = 0  # bytes
        self.unmatched = 0  # frees and allocs of the trace whose counterpart should be in it, and is not


def lifetimes(
    action: bytes,
    address: Sequence[int],
    size: Sequence[int],
    stack: Sequence[int],
    stream: Sequence[int],
    pool: Sequence[int],
    held: Sequence[tuple[int, int, int, int, int]],
) -> Lifetimes:
    """Replay backwards. *held*: (address, requested bytes, stack, stream, pool) of each active block of the dump; they
    become the first rows."""
    found = Lifetimes()
    entries = len(action)
    birth, death = found.birth, found.death
    for block_address, requested, block_stack, block_stream, block_pool in held:
        birth.append(-1)
        death.append(entries)
        found.address.append(block_address)
        found.size.append(requested)
        found.stack.append(block_stack)
        found.stream.append(block_stream)
        found.pool.append(block_pool)
    end_of_life = FREE_COMPLETED if FREE_COMPLETED in action or FREE_REQUESTED not in action else FREE_REQUESTED
    changes, deltas = array("i", bytes(4 * entries)), array("q", bytes(8 * entries))
    live = {block_address: row for row, block_address in enumerate(found.address)}
    add_birth, add_death, add_address, add_size = birth.append, death.append, found.address.append, found.size.append
    add_stack, add_stream, add_pool = found.stack.append, found.stream.append, found.pool.append
    row = len(birth)
    unmatched = 0
    take = live.pop
    for n in range(entries - 1, -1, -1):
        code = action[n]
        if code == ALLOC:
            which = take(address[n], -1)
            if which < 0:
                unmatched += 1  # its free is not in the trace: that kind of entry was left out of it
                continue
            birth[which] = n
            changes[n] = which + 1
            deltas[n] = found.size[which]
            if stack[n]:
                found.stack[which] = stack[n]
            if pool[n]:
                found.pool[which] = pool[n]
            found.stream[which] = stream[n]
        elif code == end_of_life:
            where = address[n]
            if where in live:
                unmatched += 1  # it is held later, and its alloc is not in the trace
                continue
            live[where] = row
            add_birth(-1)
            add_death(n)
            add_address(where)
            add_size(size[n])
            add_stack(0)  # the alloc's, when that is met; where it was freed is another matter
            add_stream(stream[n])
            add_pool(pool[n])
            row += 1
            changes[n] = -row
            deltas[n] = -size[n]
    found.changes, found.deltas = changes, deltas
    found.held_at_start = sum([found.size[which] for which in live.values()])
    found.unmatched = unmatched
    return found


def live_curve(found: Lifetimes) -> array[int]:
    """Bytes held after each entry."""
    curve = array("q", accumulate(found.deltas, initial=found.held_at_start))
    return curve[1:]


def reserved_curve(action: bytes, size: Sequence[int], at_end: int) -> tuple[int, array[int]]:
    """Bytes reserved before the first entry, and after each: the dump's total and the trace's segments."""
    factors = [0] * 256
    for code, sign in _RESERVES.items():
        factors[code] = sign
    if any(code in action for code in _RESERVES):
        deltas = [size[n] * factors[code] if factors[code] else 0 for n, code in enumerate(action)]
        start = at_end - sum(deltas)
    else:
        deltas, start = [0] * len(action), at_end
    return start, array("q", accumulate(deltas, initial=start))[1:]


def levels(curve: array[int]) -> list[array[int]]:
    """Ever coarser maxima of *curve*: of FAN values each, of FAN of those… until there are few."""
    found = []
    below = curve
    while len(below) > FAN * FAN:
        below = array("q", [max(below[n : n + FAN]) for n in range(0, len(below), FAN)])
        found.append(below)
    return found


def checkpoints(found: Lifetimes) -> tuple[array[int], array[int], array[int]]:
    """Entries at which all rows held are written down: (entry, start in rows…, rows). After the entry, that is; the
    first is -1. As many rows are written as entries passed since the last, at least: so they take little room."""
    entries, starts, rows = array("i"), array("Q"), array("I")
    changes, count = found.changes, len(found.changes)
    birth = found.birth
    live = {row: None for row in range(len(birth)) if birth[row] < 0}
    at = -1
    while True:
        entries.append(at)
        starts.append(len(rows))
        rows.extend(live)
        after = at + max(CHECKPOINT, len(live))
        if after >= count:
            break
        for change in changes[at + 1 : after + 1]:
            if change > 0:
                live[change - 1] = None
            elif change < 0:
                del live[-change - 1]
        at = after
    starts.append(len(rows))
    return entries, starts, rows


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
