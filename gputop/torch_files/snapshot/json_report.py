"""A snapshot as plain values, for JSON. Unknown is None; bytes are bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from gputop.torch_files.snapshot.diff import difference
from gputop.torch_files.snapshot.groups import AllocationFilter, by_stack
from gputop.torch_files.snapshot.leaks import leaks, steps
from gputop.torch_files.snapshot.memory_snapshot import DeviceSnapshot, MemorySnapshot
from gputop.torch_files.snapshot.oom import out_of_memory
from gputop.torch_files.snapshot.overview import coverage, overview

SCHEMA = 1
_MOST_OOMS: Final = 64  # the newest: to explain one takes a walk through the whole trace


def facts(
    snapshot: MemorySnapshot,
    devices: Sequence[DeviceSnapshot],
    top: int = 10,
    wanted: AllocationFilter | None = None,
    all_frames: bool = False,
) -> dict[str, Any]:
    """Everything in figures. *top*: how many stacks are listed; *wanted*: of which allocations."""
    return {
        "schema": SCHEMA,
        "file": str(snapshot.path),
        "file_bytes": snapshot.file_bytes,
        "form": snapshot.form,
        "trace_entries": snapshot.entries,
        "allocator_settings": snapshot.settings,
        "devices": [_device(device, top, wanted or AllocationFilter(), all_frames) for device in devices],
    }


def comparison(
    before: MemorySnapshot,
    devices: Sequence[tuple[DeviceSnapshot, DeviceSnapshot]],
    top: int = 10,
    wanted: AllocationFilter | None = None,
    all_frames: bool = False,
) -> dict[str, Any]:
    """What the second of each pair holds more or less than the first at the dump, by stack; largest change first."""
    return {
        "file": str(before.path),
        "devices": [
            {
                "device": after.number,
                "changes": [
                    {
                        "bytes": change.bytes,
                        "count": change.count,
                        "before_bytes": change.before_bytes,
                        "before_count": change.before_count,
                        "after_bytes": change.after_bytes,
                        "after_count": change.after_count,
                        "frames": [frame._asdict() for frame in change.frames],
                    }
                    for change in difference(before_device, after, only=wanted, folded=not all_frames)[:top]
                ],
            }
            for before_device, after in devices
        ],
    }


def _device(device: DeviceSnapshot, top: int, wanted: AllocationFilter, all_frames: bool) -> dict[str, Any]:
    totals = overview(device).totals
    told = coverage(device)
    has_trace = device.entries > 0
    peak_at, peak = device.peak
    return {
        "device": device.number,
        "reserved_bytes": totals.reserved,
        "allocated_bytes": totals.allocated,
        "active_bytes": totals.active,
        "requested_bytes": totals.requested if device.has_requested else None,
        "inactive_bytes": totals.inactive,
        "releasable_bytes": totals.releasable,
        "releasable_private_bytes": totals.releasable_private,
        "inactive_split_bytes": totals.inactive_split,
        "stuck_bytes": totals.stuck,
        "largest_free_block_bytes": totals.largest_free,
        "rounding_loss_bytes": totals.rounding_loss if device.has_requested else None,
        "fragmentation": totals.fragmentation,
        "segments": totals.segments,
        "live_blocks": totals.live_blocks,
        "peak_requested_bytes": peak if has_trace else None,
        "peak_event_index": peak_at if has_trace and peak_at >= 0 else None,  # None: before the first entry
        "peak_reserved_bytes": max(device.reserved(-1), device.most_reserved(0, device.entries)) if has_trace else None,
        "events": device.entries,
        "coverage": {
            "seconds": told.seconds,
            "explained_percent": told.percent,
            "held_before_bytes": told.before,
            "unmatched_events": told.unmatched,
            "allocations_not_recorded": device.unseen,
            "odd_events": device.odd_entries,
            "blocks_cut": device.blocks_cut,
            "times_go_back": device.times_go_back,
            "blocks_without_frames": told.without_frames,
        },
        "oom_events": [_oom(device, entry, free) for entry, free in device.ooms[-_MOST_OOMS:]],
        "oom_events_left_out": max(0, len(device.ooms) - _MOST_OOMS),
        "pools": [
            {
                "pool": device.snapshot.pools[key.pool],
                "stream": device.snapshot.streams[key.stream],
                "size_class": "small" if key.small else "large",
                "segments": part.segments,
                "reserved_bytes": part.reserved,
                "active_bytes": part.active,
                "inactive_bytes": part.inactive,
                "releasable_bytes": part.releasable,
                "largest_free_block_bytes": part.largest_free,
            }
            for key, part in overview(device).pools.items()
        ],
        "top": _top(device, wanted.rows(device, device.rows_at(device.last)), top, all_frames),
        "top_at_peak": _top(device, wanted.rows(device, device.rows_at(peak_at)), top, all_frames)
        if has_trace
        else None,
        "leaks": _leaks(device, top, wanted) if has_trace else None,
    }


def _top(device: DeviceSnapshot, rows: Iterable[int], top: int, all_frames: bool) -> list[dict[str, Any]]:
    return [
        {"bytes": group.bytes, "count": group.count, "frames": frames_of(device, group.stack)}
        for group in by_stack(device, rows, not all_frames)[:top]
    ]


def frames_of(device: DeviceSnapshot, stack: int) -> list[dict[str, Any]]:
    """The frames of a stack, the innermost first."""
    return [frame._asdict() for frame in device.snapshot.frames.frames(stack)]


def _oom(device: DeviceSnapshot, entry: int, free: int | None) -> dict[str, Any]:
    told = out_of_memory(device, entry, free)
    return {
        "event_index": entry,
        "asked_bytes": told.asked,
        "tried_to_allocate_bytes": told.tried,
        "device_free_bytes": free,
        "stream": device.snapshot.streams[told.stream],
        "reserved_bytes": told.reserved,
        "requested_bytes": told.live,
        "cached_bytes": told.cached,
        "largest_fitting_free_block_bytes": told.fits,
        "exact": told.exact,
        "verdict": told.verdict,
        "advice": list(told.advice),
        "frames": frames_of(device, device.snapshot.frames.folded(told.stack)),
    }


def _leaks(device: DeviceSnapshot, top: int, wanted: AllocationFilter) -> list[dict[str, Any]]:
    cut = steps(device)
    return [
        {
            "bytes": leak.bytes,
            "count": leak.count,
            "growing": leak.growing,
            "bytes_per_step": leak.per_step,
            "bytes_by_step": leak.by_step,
            "steps": cut.origin,
            "freed": leak.freed,
            "frames": frames_of(device, leak.stack),
        }
        for leak in leaks(device, cut, wanted)[:top]
    ]
