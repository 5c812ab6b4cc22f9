"""Two snapshots (or two devices, or ranks) beside each other: which stack holds more, and by how much."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gputop.torch_files.snapshot.frames import Frame
from gputop.torch_files.snapshot.groups import AllocationFilter, by_stack
from gputop.torch_files.snapshot.memory_snapshot import DeviceSnapshot


@dataclass(frozen=True, slots=True)
class Difference:
    """One stack in both."""

    frames: tuple[Frame, ...]
    before_bytes: int
    before_count: int
    after_bytes: int
    after_count: int

    @property
    def bytes(self) -> int:
        return self.after_bytes - self.before_bytes

    @property
    def count(self) -> int:
        return self.after_count - self.before_count


def difference(
    before: DeviceSnapshot,
    after: DeviceSnapshot,
    at_peak: bool = False,
    only: AllocationFilter | None = None,
    folded: bool = True,
) -> list[Difference]:
    """What is held at both dumps (or peaks) by stack, folded to the user's frames or whole; the largest change first.

    Stacks are the same if their frames are: numbers of different files have nothing to do with each other.
    """
    sides = [_held(device, at_peak, only, folded) for device in (before, after)]
    found = []
    for frames in dict.fromkeys((*sides[0], *sides[1])):
        (bytes_a, count_a), (bytes_b, count_b) = (side.get(frames, (0, 0)) for side in sides)
        found.append(Difference(frames, bytes_a, count_a, bytes_b, count_b))
    return sorted(found, key=lambda d: (-abs(d.bytes), -abs(d.count), -d.after_bytes))


def _held(
    device: DeviceSnapshot, at_peak: bool, only: AllocationFilter | None, folded: bool
) -> dict[tuple[Frame, ...], tuple[int, int]]:
    rows: Iterable[int] = device.rows_at(device.peak[0] if at_peak else device.last)
    if only:
        rows = only.rows(device, rows)
    found: dict[tuple[Frame, ...], tuple[int, int]] = {}
    for group in by_stack(device, rows, folded):
        found[tuple(device.snapshot.frames.frames(group.stack))] = (group.bytes, group.count)
    return found
