"""A snapshot as rows for a CSV file: allocations by stack, single ones with lifetimes, the curve entry by entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from gputop.torch_files.snapshot.diff import difference
from gputop.torch_files.snapshot.frames import Frame
from gputop.torch_files.snapshot.groups import AllocationFilter, by_stack
from gputop.torch_files.snapshot.memory_snapshot import ACTIONS, DeviceSnapshot

STACK_FIELDS: Final = "file device moment bytes count largest_bytes frame stack".split()
CHANGE_FIELDS: Final = [*STACK_FIELDS, "before_bytes", "before_count"]
ALLOCATION_FIELDS: Final = (
    "file device address bytes stream pool allocated_entry allocated_us freed_entry freed_us lifetime_us frame stack"
).split()  # without an entry: before the trace, or not freed in it
CURVE_FIELDS: Final = "file device entry time_us action bytes requested_bytes reserved_bytes".split()


def stack_rows(
    device: DeviceSnapshot, at: str, wanted: AllocationFilter, all_frames: bool, top: int | None
) -> Iterator[tuple[Any, ...]]:
    """What is held ``now`` or at the ``peak``, the most bytes first."""
    rows = wanted.rows(device, device.rows_at(_moment(device, at)))
    for group in by_stack(device, rows, not all_frames)[:top]:
        frames = device.snapshot.frames.frames(group.stack)
        yield (device.snapshot.name, device.number, at, group.bytes, group.count, group.largest, *_stack(frames))


def change_rows(
    before: DeviceSnapshot, after: DeviceSnapshot, at: str, wanted: AllocationFilter, all_frames: bool, top: int | None
) -> Iterator[tuple[Any, ...]]:
    """The same of *after*, with what *before* holds by the same stack; the largest change first, and with 0 bytes what
    is no longer held."""
    rows = wanted.rows(after, after.rows_at(_moment(after, at)))
    largest = {
        tuple(after.snapshot.frames.frames(group.stack)): group.largest
        for group in by_stack(after, rows, not all_frames)
    }
    for change in difference(before, after, at == "peak", wanted, not all_frames)[:top]:
        held = (change.after_bytes, change.after_count, largest.get(change.frames, 0))
        was = (change.before_bytes, change.before_count)
        yield (after.snapshot.name, after.number, at, *held, *_stack(change.frames), *was)


def allocation_rows(
    device: DeviceSnapshot, at: str | None, wanted: AllocationFilter, all_frames: bool, top: int | None
) -> Iterator[tuple[Any, ...]]:
    """Single allocations, the largest first: those held ``now`` or at the ``peak``; None: all of the trace."""
    snapshot = device.snapshot
    rows = range(len(device.row_size)) if at is None else device.rows_at(_moment(device, at))
    for row in islice(sorted(wanted.rows(device, rows), key=lambda row: -device.row_size[row]), top):
        birth, death = device.row_birth[row], device.row_death[row]
        made = birth if birth >= 0 else None
        freed = death if death < device.entries else None
        lasted = None if made is None or freed is None else device.seconds_between(made, freed)
        stack = device.row_stack[row] if all_frames else snapshot.frames.folded(device.row_stack[row])
        yield (
            snapshot.name,
            device.number,
            f"{device.row_address[row]:#x}",
            device.row_size[row],
            snapshot.stream_label(device.row_stream[row]),
            snapshot.pool_label(device.row_pool[row]),
            made,
            _time(device, made),
            freed,
            _time(device, freed),
            None if lasted is None else round(lasted * 1e6),
            *_stack(snapshot.frames.frames(stack)),
        )


def curve_rows(device: DeviceSnapshot, top: int | None) -> Iterator[tuple[Any, ...]]:
    """Each entry of the trace, and what was held and reserved after it."""
    for entry in range(device.entries)[:top]:
        yield (
            device.snapshot.name,
            device.number,
            entry,
            _time(device, entry),
            ACTIONS[device.action[entry]],
            device.size[entry],
            device.live(entry),
            device.reserved(entry),
        )


def _moment(device: DeviceSnapshot, at: str) -> int:
    return device.peak[0] if at == "peak" else device.last


def _stack(frames: Sequence[Frame]) -> tuple[str, str]:
    return (str(frames[0]) if frames else "", " < ".join(map(str, frames)))


def _time(device: DeviceSnapshot, entry: int | None) -> int | None:
    """Epoch µs, where the trace has times."""
    return None if entry is None or not device.time[entry] else int(device.time[entry])
