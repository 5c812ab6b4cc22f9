"""What ``prof.export_memory_timeline()`` wrote: bytes by category over time, ``.json`` or ``.raw.json`` (also gzip).

==========  ============================================================================================
.json       ``[[t_us, …], [[0, bytes, …], …]]``: at every moment nine columns, the first of which is always 0
.raw.json   ``[[t_ns, action, bytes, category], …]``: what was there before (1, at -1), created (2), of another
            version now (3, a pair: out of the old category, into the new) or destroyed (4); a size that goes
            is negative
==========  ============================================================================================

One device a file, which does not say which. Read as a stream of innermost lists: some 80 bytes are kept of each moment.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from gputop.torch_files.maxima import first, levels, most
from gputop.torch_files.trace.profiler_file import ProfilerFile, Progress, UnreadableTrace

CATEGORIES: Final = (
    "parameters", "optimizer state", "inputs", "temporaries", "activations", "gradients", "autograd detail", "unknown",
)  # fmt: skip
_PREEXISTING, _CREATE, _NEW_VERSION, _DESTROY = 1, 2, 3, 4
_BEFORE: Final = -1  # when what was there before the first moment came
_MAX_LIST_CHARACTERS: Final = 1 << 29  # characters of one list: the times of 30 million moments
_MOST: Final = 1 << 62


class MemoryTimeline:
    """``by_category[c][n]`` bytes of CATEGORIES[c] at moment *n*, ``at_ns[n]``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at_ns = array("q")
        self.by_category = [array("q") for _ in CATEGORIES]
        self.total = array("q")

    def __len__(self) -> int:
        return len(self.at_ns)

    def add(self, at_ns: int, bytes_: Sequence[int]) -> None:
        total = sum(bytes_)
        if not (abs(at_ns) < _MOST and abs(total) < _MOST and all(abs(value) < _MOST for value in bytes_)):
            raise ValueError("numbers beyond 62 bits")
        self.at_ns.append(at_ns)
        self.total.append(total)
        for column, value in zip(self.by_category, bytes_, strict=True):
            column.append(value)

    @cached_property
    def peak(self) -> int:
        """The moment at which most was held; there must be one."""
        return first(self._levels, max(self.total))

    def most(self, start: int, end: int) -> int:
        """The most that was held at the moments *start* to *end* (without)."""
        return most(self._levels, start, end)

    @cached_property
    def _levels(self) -> list[Sequence[int]]:
        return [self.total, *levels(self.total)]


def is_timeline(head: bytes) -> bool:
    """Whether a file that begins with *head* is one."""
    return b"".join(head[:256].split()).startswith(b"[[")


def read_timeline(path: Path, file: ProfilerFile, progress: Progress | None = None) -> MemoryTimeline:
    """Raises UnreadableTrace, in one sentence."""
    timeline = MemoryTimeline(path)

    def told() -> None:
        if progress is not None:
            progress(file.share)

    try:
        _read(timeline, _lists(file, told))
    except OSError as error:
        raise UnreadableTrace(error.strerror or str(error)) from None
    except (ValueError, RecursionError, OverflowError) as error:
        words = file.problem or error
        raise UnreadableTrace(f"no memory timeline of torch, or a damaged one ({words})") from None
    if not len(timeline):
        raise UnreadableTrace("a memory timeline without a moment: nothing was recorded of that device")
    return timeline


def _lists(file: ProfilerFile, told: Callable[[], None]) -> Iterator[list[int]]:
    """The lists that hold no list."""
    rest = ""
    while data := file.read():
        told()
        *whole, rest = (rest + data.decode("utf-8", "replace")).split("]")
        if len(rest) > _MAX_LIST_CHARACTERS:
            raise ValueError("a list longer than any")
        for text in whole:
            numbers = text.rpartition("[")[2] if "[" in text else ""
            if numbers:
                yield _numbers(numbers)
    if rest.strip() or file.problem is not None:
        raise ValueError("it ends too early")


def _numbers(text: str) -> list[int]:
    try:
        return list(map(int, text.split(",")))
    except ValueError:
        values = json.loads(f"[{text}]")
        if not all(isinstance(value, int | float) for value in values):
            raise ValueError("something that is no number") from None
        return [round(value) for value in values]


def _read(timeline: MemoryTimeline, lists: Iterator[list[int]]) -> None:
    head = next(lists, None)
    if head is None:
        return
    if len(head) == 4 and head[1] in (_PREEXISTING, _CREATE, _NEW_VERSION, _DESTROY):
        _read_changes(timeline, head, lists)
        return
    count = 0
    for at, bytes_ in zip(head, lists, strict=False):
        if len(bytes_) != len(CATEGORIES) + 1:
            raise ValueError(f"{len(bytes_)} columns, not {len(CATEGORIES) + 1}")
        timeline.add(at * 1000, bytes_[1:])
        count += 1
    if count != len(head):
        raise ValueError(f"{len(head)} moments, and sizes of {count}")


def _read_changes(timeline: MemoryTimeline, change: list[int] | None, lists: Iterator[list[int]]) -> None:
    held = [0] * len(CATEGORIES)
    while change is not None:
        if len(change) != 4:
            raise ValueError(f"a change of {len(change)} numbers, not 4")
        at, _, bytes_, category = change
        if not 0 <= category < len(CATEGORIES):
            raise ValueError(f"category {category}")
        held[category] += bytes_
        following = next(lists, None)
        # what happens at one moment is one point: a new version is out of one category and into another
        if following is None:
            timeline.add(at, held)
        elif following[0] != at:
            timeline.add(following[0] if at == _BEFORE else at, held)
        change = following
