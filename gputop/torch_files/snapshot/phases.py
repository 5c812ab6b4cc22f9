"""In which of the program's own ranges (record_function, profiler steps) a moment of the trace lies."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from functools import lru_cache

from gputop.torch_files.snapshot.memory_snapshot import DeviceSnapshot

_DEEPEST = 16


@dataclass(frozen=True, slots=True)
class Phases:
    """What was open from each time on, the outermost first."""

    times: tuple[int, ...]  # µs
    names: tuple[tuple[str, ...], ...]

    def at(self, time_us: int) -> tuple[str, ...]:
        at = bisect.bisect_right(self.times, time_us) - 1
        return self.names[at] if at >= 0 else ()


@lru_cache(16)
def phases(device: DeviceSnapshot) -> Phases:
    """The ranges of *device*, from external_annotations (torch 2.5 and later)."""
    open_: list[str] = []
    times: list[int] = []
    names: list[tuple[str, ...]] = []
    marks = [mark for mark in device.snapshot.annotations if mark.device in (device.number, -1)]
    for mark in sorted(marks, key=lambda mark: mark.time_us):
        if mark.stage == "START":
            open_.append(mark.name)
        elif mark.name in open_:
            del open_[len(open_) - 1 - open_[::-1].index(mark.name)]  # the last one of that name
        times.append(mark.time_us)
        names.append(tuple(open_[:_DEEPEST]))
    return Phases(tuple(times), tuple(names))
