"""What was allocated within the trace and never freed, and whether it grows step by step.

At any moment of a training step much is alive that will be freed a moment later. So what counts is not that something
is alive at the dump, but that the same stack leaves something behind step after step: the trace is cut into steps (by
the program's own annotations or metadata where it has any, else into equal parts), the survivors of each stack are
counted by the step they were born in, and the last steps do not count.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress, pairwise
from typing import Final

from gputop.torch_files.snapshot.groups import AllocationFilter
from gputop.torch_files.snapshot.memory_snapshot import ALLOC, DeviceSnapshot

PARTS: Final = 12  # of a trace whose steps are not known
_MOST_STEPS: Final = 60
_STEPS: Final = ("step", "iter", "batch")  # by what goes before what where a note has several
_STEP: Final = re.compile("|".join(_STEPS), re.IGNORECASE)
_NUMBERED: Final = re.compile(rf"({'|'.join(_STEPS)})[a-z]*[\W_]{{0,3}}(\d+)", re.IGNORECASE)
_IS_ALLOC: Final = bytes(code == ALLOC for code in range(256))
_DIGITS: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Steps:
    """The trace cut into steps."""

    starts: tuple[int, ...]  # entries
    origin: str  # in words
    unit: str = "step"  # what each is: a step, steps, or a part of the trace

    def of(self, entry: int) -> int:
        return max(0, bisect.bisect_right(self.starts, entry) - 1)


def steps(device: DeviceSnapshot) -> Steps:
    """By annotations such as ``step 12`` or ``ProfilerStep#12``, by metadata, else in equal parts."""
    found = _annotated(device) or _noted(device)
    if found is not None:
        starts, name = found
        if len(starts) > _MOST_STEPS:  # several steps as one: what is drawn has so many columns
            every = -(-len(starts) // _MOST_STEPS)
            return Steps(tuple(starts[::every]), f"{every} of its {len(starts)} “{name}” each", f"{every} steps")
        return Steps(tuple(starts), f"its {len(starts)} “{name}”")
    parts = max(1, min(PARTS, device.entries))
    return Steps(tuple(device.entries * n // parts for n in range(parts)), f"{parts} equal parts of the trace", "part")


def _annotated(device: DeviceSnapshot) -> tuple[list[int], str] | None:
    if not device.has_times:
        return None
    times: dict[str, list[int]] = {}
    for note in device.snapshot.annotations:
        if note.stage != "END" and note.device in (device.number, -1) and _STEP.search(note.name):
            times.setdefault(_DIGITS.sub("", note.name).strip(" #:=_-"), []).append(note.time_us)
    name = max(times, key=lambda key: len(times[key]), default=None)
    if name is None or len(times[name]) < 3:
        return None
    starts = sorted({bisect.bisect_left(device.time, at) for at in times[name]})
    starts = [start for start in starts if start < device.entries]
    return (starts, name) if len(starts) >= 3 else None


def _noted(device: DeviceSnapshot) -> tuple[list[int], str] | None:
    """By metadata that numbers steps, whatever else it tells: ``step=3 phase=fwd`` and ``step=3 phase=bwd`` are one."""
    step_of = [_step(note) for note in device.snapshot.notes]
    if not any(step_of):
        return None
    starts, before, name = [], None, ""
    for entry, note in enumerate(device.note):
        step = step_of[note]
        if step is not None and step != before:
            before = step
            starts.append(entry)
            name = name or step[0]
    return (starts, name) if len(starts) >= 3 else None


def _step(note: str) -> tuple[str, str] | None:
    """The name and number of the step that a note tells of; a whole note that has its number somewhere else."""
    if not _STEP.search(note) or not _DIGITS.search(note):
        return None
    numbered = min(_NUMBERED.finditer(note), key=lambda found: _STEPS.index(found[1].casefold()), default=None)
    if numbered is not None:
        return numbered[1].casefold(), numbered[2]
    return _DIGITS.sub("", note).strip(" #:=_-") or "step", note


@dataclass(slots=True)
class Leak:
    """What one stack (folded) left behind."""

    stack: int
    bytes: int = 0
    count: int = 0
    freed: int = 0  # allocations of the same stack that were freed within the trace
    by_step: list[int] = field(default_factory=list)  # bytes left by the step they were born in
    oldest: int = 0  # entry
    newest: int = 0
    growing: bool = False

    @property
    def per_step(self) -> float:
        """Bytes a step, over the steps from its first one on."""
        first = next((n for n, amount in enumerate(self.by_step) if amount), 0)
        return self.bytes / max(1, len(self.by_step) - first)


def leaks(device: DeviceSnapshot, cut: Steps | None = None, only: AllocationFilter | None = None) -> list[Leak]:
    """Stacks that left something behind within the trace; those that do so step after step come first."""
    cut = cut or steps(device)
    fold = device.snapshot.frames.folded
    found: dict[int, Leak] = {}
    held = [row for row in range(len(device.held)) if device.row_birth[row] >= 0]
    for row in only.rows(device, held) if only else held:
        stack, size, birth = fold(device.row_stack[row]), device.row_size[row], device.row_birth[row]
        leak = found.get(stack)
        if leak is None:
            leak = found[stack] = Leak(stack, by_step=[0] * len(cut.starts), oldest=birth, newest=birth)
        leak.bytes += size
        leak.count += 1
        leak.by_step[cut.of(birth)] += size
        leak.oldest, leak.newest = min(leak.oldest, birth), max(leak.newest, birth)
    _count_freed(device, found)
    for leak in found.values():
        leak.growing = _grows(leak, several=cut.unit != "step") and not _rolls(device, cut, leak)
    return sorted(found.values(), key=lambda leak: (not leak.growing, -leak.bytes, leak.stack))


def _count_freed(device: DeviceSnapshot, found: dict[int, Leak]) -> None:
    fold = device.snapshot.frames.folded
    allocs = Counter(compress(device.stack, bytes(device.action).translate(_IS_ALLOC)))
    for stack, count in allocs.items():
        leak = found.get(fold(stack))
        if leak is not None:
            leak.freed += count
    for leak in found.values():
        leak.freed = max(0, leak.freed - leak.count)


def _rolls(device: DeviceSnapshot, cut: Steps, leak: Leak) -> bool:
    """Whether as much of earlier steps was held when the first survivor was made as is held of later ones now: a window
    of the newest (``deque(maxlen=8)``), whose oldest are freed."""
    first = next(n for n, amount in enumerate(leak.by_step) if amount)
    if not leak.freed or not 0 < first < len(cut.starts) - 1:
        return False
    fold, begin = device.snapshot.frames.folded, cut.starts[first]
    older = sum(
        device.row_size[row]
        for row in device.rows_at(cut.starts[first + 1] - 1)
        if 0 <= device.row_birth[row] < begin and fold(device.row_stack[row]) == leak.stack
    )
    return older > 0 and (older + leak.by_step[first]) * 5 >= leak.bytes * 4


def _grows(leak: Leak, several: bool) -> bool:
    """Something was left in at least three steps, the last two apart, and it goes on: at any period, in any share of
    the steps. A cache that fills and stays does not: it leaves less and less, then nothing for long.

    The last two steps are what a step in progress may still hold; with few steps, only the last is.
    """
    tail = 2 if len(leak.by_step) >= 6 else 1
    settled: Sequence[int] = leak.by_step[: len(leak.by_step) - tail]
    left = [n for n, amount in enumerate(settled) if amount]
    if len(left) < 3:
        return False
    since_first = len(settled) - left[0]
    longest = max(after - before for before, after in pairwise(left))
    since_last = len(settled) - 1 - left[-1]
    if since_last > max(2 * longest, since_first // 4):
        return False
    weights = [settled[n] if several else 1 for n in left]  # a column of several steps counts by its bytes
    late = sum(weight for n, weight in zip(left, weights, strict=True) if n >= left[0] + since_first // 2)
    return late * 3 >= sum(weights) - late
