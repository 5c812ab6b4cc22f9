"""One device at the dump, in figures; and how much of it the trace explains.

The sums are those of memory_stats(), to the byte (facts measured with torch 2.11): Σ segment sizes = reserved_bytes,
Σ active_allocated = allocated_bytes, with active_pending_free = active_bytes, Σ requested of these = requested_bytes,
inactive parts of split segments = inactive_split_bytes (torch counts none in expandable segments).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gputop import units
from gputop.torch_files.snapshot.memory_snapshot import ALLOCATED, HOST, INACTIVE, DeviceSnapshot
from gputop.units import fine

_SMALL_GRANULE_BYTES: Final = 2 * units.MIB  # what an expandable segment maps and unmaps at a time
_LARGE_GRANULE_BYTES: Final = 20 * units.MIB


@dataclass(slots=True)
class Totals:
    """Bytes of a device, or of one pool and stream of it."""

    segments: int = 0
    reserved: int = 0
    allocated: int = 0  # blocks of living tensors, rounded
    active: int = 0  # …and those waiting for another stream
    requested: int = 0  # what was asked for of these
    inactive: int = 0  # cached: free inside torch
    releasable: int = 0  # what empty_cache() would give back to the driver
    releasable_private: int = 0  # …of it in private pools, which stay as long as their graphs live
    inactive_split: int = 0  # as memory_stats() counts it: none in expandable segments
    largest_free: int = 0
    free_squares: float = 0.0  # Σ (free block)²
    live_blocks: int = 0

    @property
    def rounding_loss(self) -> int:
        """Bytes inside active blocks that nobody asked for."""
        return self.active - self.requested

    @property
    def stuck(self) -> int:
        """Cached, but in segments that something still lives in."""
        return self.inactive - self.releasable

    @property
    def fragmentation(self) -> float | None:
        """0: all free memory is one block; near 1: it is in many small ones. None: nothing is free."""
        return 1 - self.largest_free / self.inactive if self.inactive else None


@dataclass(frozen=True, slots=True)
class PoolKey:
    """Free blocks serve only requests of their own pool, stream and size class (small: up to 1 MiB)."""

    pool: int
    stream: int
    small: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """A device at the dump."""

    totals: Totals
    pools: dict[PoolKey, Totals]  # the largest first


@lru_cache(64)
def overview(device: DeviceSnapshot) -> Overview:
    """Sums over the device's segments."""
    whole = Totals()
    pools: dict[PoolKey, Totals] = {}
    for segment in range(device.segments):
        key = PoolKey(device.segment_pool[segment], device.segment_stream[segment], bool(device.segment_small[segment]))
        part = pools.get(key)
        if part is None:
            part = pools[key] = Totals()
        _add(device, segment, (whole, part))
    return Overview(whole, dict(sorted(pools.items(), key=lambda item: -item[1].reserved)))


def _add(device: DeviceSnapshot, segment: int, sums: tuple[Totals, ...]) -> None:
    first, after = device.segment_block[segment], device.segment_block[segment + 1]
    size = device.segment_size[segment]
    expandable = bool(device.segment_expandable[segment])
    allocated = active = requested = releasable = live = 0
    free: list[int] = []
    for block in range(first, after):
        block_size, state = device.block_size[block], device.block_state[block]
        if state == INACTIVE:
            free.append(block_size)
            if expandable:
                releasable += _whole_granules(device, segment, block)
            continue
        live += 1
        active += block_size
        requested += device.block_requested[block]
        if state == ALLOCATED:
            allocated += block_size
    inactive = size - active
    if not expandable and not live:
        releasable = inactive
    pool = device.snapshot.pools[device.segment_pool[segment]]
    for total in sums:
        total.segments += 1
        total.reserved += size
        total.allocated += allocated
        total.active += active
        total.requested += requested
        total.inactive += inactive
        total.releasable += releasable
        total.live_blocks += live
        if pool is not None and pool != (0, 0) and device.number != HOST:
            total.releasable_private += releasable
        if live and not expandable:
            total.inactive_split += inactive
        if free:
            total.largest_free = max(total.largest_free, max(free))
            total.free_squares += sum([float(part) ** 2 for part in free])


def _whole_granules(device: DeviceSnapshot, segment: int, block: int) -> int:
    """What of a free block an expandable segment can unmap."""
    granule = _SMALL_GRANULE_BYTES if device.segment_small[segment] else _LARGE_GRANULE_BYTES
    start = device.block_address[block] - device.segment_address[segment]
    end = start + device.block_size[block]
    return int(max(0, end // granule - -(-start // granule)) * granule)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of what is held at the dump the trace saw being allocated."""

    entries: int
    seconds: float | None
    held: int  # bytes at the dump
    explained: int  # of them, allocated within the trace
    before: int  # held before the first entry, whether or not it still is
    unmatched: int
    without_frames: int  # blocks held at the dump that have no frames
    without_frames_before: int  # of them, allocated before the first entry
    overflowed: bool | None  # the ring was full and lost its oldest entries; None: the file does not say

    @property
    def percent(self) -> float | None:
        return 100 * self.explained / self.held if self.held else None


@lru_cache(64)
def coverage(device: DeviceSnapshot) -> Coverage:
    """What the trace of *device* covers."""
    explained = held = without = without_before = 0
    for row, death in enumerate(device.row_death):
        if death < device.entries:
            break  # what is held at the dump comes first
        size = device.row_size[row]
        held += size
        born = device.row_birth[row] >= 0
        explained += size if born else 0
        if not device.row_stack[row]:
            without += 1
            without_before += not born
    said = device.snapshot.settings.get("trace_alloc_overflowed")
    if isinstance(said, list):
        said = said[device.number] if 0 <= device.number < len(said) else None
    return Coverage(
        device.entries,
        device.seconds_between(0, device.last),
        held,
        explained,
        device.held_at_start,
        device.unmatched,
        without,
        without_before,
        None if said is None else bool(said),
    )


def _oddities(device: DeviceSnapshot) -> list[str]:
    """What the file itself tells wrongly, or not."""
    words = []
    if device.unseen:
        words.append(
            f"{device.unseen:,} allocations were left out of the recording (skip_actions): each is taken to be held "
            "since its memory was reserved, or freed before, so the curve and its peak are upper bounds."
        )
    if device.times_go_back:
        words.append("Its times go back (the clock was set, or they are in no order): no durations are given.")
    if device.odd_entries:
        words.append(f"{device.odd_entries:,} trace entries hold values that are not numbers: left out.")
    return words


def coverage_sentences(device: DeviceSnapshot) -> list[str]:
    """The same in sentences, the most important first."""
    told = coverage(device)
    cut = []
    if device.blocks_cut:
        some = "1 block does" if device.blocks_cut == 1 else f"{device.blocks_cut:,} blocks do"
        cut.append(f"{some} not fit the place (a damaged file?): cut where the next one or the segment's end is.")
    if not told.entries:
        return [
            *cut,
            "No trace: the snapshot shows what is held, not when it was allocated "
            "(torch.cuda.memory._record_memory_history() was not called, or only for state).",
        ]
    span = ""
    if told.seconds is not None:
        span = f" over {told.seconds:.3g} s" if told.seconds < 60 else f" over {units.duration(told.seconds)}"
    words = [f"{told.entries:,} trace entries{span}.", *cut]
    if told.percent is not None:
        words.append(f"Of what is held at the dump, the trace saw {told.percent:.1f} % of the bytes allocated.")
    if told.before:
        why = {
            True: "the ring was full and lost its oldest entries",
            False: "recording began later",
            None: "recording began later, or the ring was full (max_entries) and lost its oldest entries",
        }[told.overflowed]
        words.append(f"{fine.size(told.before)} was held before the first entry: {why}.")
    words += _oddities(device)
    if told.unmatched:
        words.append(
            f"{told.unmatched:,} allocations or frees lack their counterpart: some kinds of entries were not recorded "
            "(skip_actions); the curve leaves them out."
        )
    if told.without_frames:
        rest = told.without_frames - told.without_frames_before
        parts = []
        if told.without_frames_before:
            parts.append(f"{told.without_frames_before:,} allocated before the trace begins")
        if rest:
            parts.append(f"{rest:,} without a context (context=None, or a thread without Python)")
        words.append(f"{told.without_frames:,} blocks held have no frames: {', '.join(parts)}.")
    return words
