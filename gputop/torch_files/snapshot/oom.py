"""Why an allocation failed: what was asked, what was free and of it what could have served, and what may help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gputop import units
from gputop.torch_files.snapshot.layout import Free, free_at, free_at_dump
from gputop.torch_files.snapshot.memory_snapshot import DeviceSnapshot
from gputop.torch_files.snapshot.overview import overview
from gputop.torch_files.snapshot.replay import (
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
)
from gputop.units.fine import size

_SMALL: Final = units.MIB  # a request up to this is served from small segments
_SMALL_SEGMENT_BYTES: Final = 2 * units.MIB
_LARGE_SEGMENT_BYTES: Final = 20 * units.MIB  # for requests below half of it
_LARGE_GRANULE_BYTES: Final = 2 * units.MIB  # segments for larger ones are rounded up to it
_CHANGES: Final = frozenset(
    (ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP)
)


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """One failed allocation."""

    entry: int
    asked: int  # bytes, rounded up to a block
    tried: int  # …and to a segment: what torch's message says it "Tried to allocate"
    device_free: int | None  # what the driver had left, after torch had given back what it could
    stream: int
    stack: int
    seconds_before_end: float | None
    reserved: int
    live: int  # bytes asked for by what was held
    exact: bool  # the dump was taken right then: the free blocks are the real ones, not rebuilt from the trace
    cached: int  # free inside torch
    fits: int  # the largest free block that could serve: same stream, pool and size class
    other_stream: int  # the largest free block of another stream
    other_pool: int
    other_class: int
    verdict: str
    advice: tuple[str, ...]


def out_of_memory(device: DeviceSnapshot, entry: int, device_free: int | None) -> OutOfMemory:
    """Explain the ``oom`` entry *entry*."""
    asked, stream = int(device.size[entry]), int(device.stream[entry])
    exact = not any(code in _CHANGES for code in bytes(device.action[entry + 1 :]))
    free = free_at_dump(device) if exact else free_at(device, entry)
    reserved, live = device.reserved(entry), device.live(entry)
    cached = overview(device).totals.inactive if exact else sum(part.size for part in free)
    small = asked <= _SMALL
    pool = device.pool[entry] or None

    def largest(same_stream: bool, same_pool: bool, same_class: bool) -> int:
        """The largest free block of a kind: of those that keep all three rules, or break one."""
        return max(
            (
                part.size
                for part in free
                if (part.key.stream == stream) == same_stream
                and (part.key.small == small) == same_class
                and of_same_pool(part) == same_pool
            ),
            default=0,
        )

    def of_same_pool(part: Free) -> bool:
        if pool is not None:
            return part.key.pool == pool
        return device.snapshot.pools[part.key.pool] in (None, (0, 0))  # before 2.12 the default pool is likely

    fits = largest(True, True, True)
    others = (largest(False, True, True), largest(True, False, True), largest(True, True, False))
    verdict, advice = _explain(device, asked, device_free, live, cached, fits, others)
    return OutOfMemory(
        entry,
        asked,
        segment_bytes(asked),
        device_free,
        stream,
        int(device.stack[entry]),
        device.seconds_between(entry, device.last),
        reserved,
        live,
        exact,
        cached,
        fits,
        *others,
        verdict,
        advice,
    )


def segment_bytes(asked: int) -> int:
    """What torch asks the driver for to serve *asked* bytes (c10/cuda/CUDACachingAllocator, get_allocation_size)."""
    if asked <= _SMALL:
        return _SMALL_SEGMENT_BYTES
    if asked < _LARGE_SEGMENT_BYTES // 2:
        return _LARGE_SEGMENT_BYTES
    return -(-asked // _LARGE_GRANULE_BYTES) * _LARGE_GRANULE_BYTES


def as_torch_says(bytes_: int) -> str:
    """As in torch's messages (c10, format_size): ``162.00 MiB``."""
    for suffix, scale in (("GiB", units.GIB), ("MiB", units.MIB), ("KiB", units.KIB)):
        if bytes_ > scale:
            return f"{bytes_ / scale:.2f} {suffix}"
    return f"{bytes_} bytes"


def asked_for(told: OutOfMemory) -> str:
    """What was asked for, and how torch's own message puts it."""
    return f"{size(told.asked)} requested; torch's message: tried to allocate {as_torch_says(told.tried)}"


def _explain(
    device: DeviceSnapshot,
    asked: int,
    device_free: int | None,
    live: int,
    cached: int,
    fits: int,
    others: tuple[int, int, int],
) -> tuple[str, tuple[str, ...]]:
    """The rule that failed, in words, and what would help."""
    other_stream, other_pool, other_class = others
    expandable = device.snapshot.expandable
    advice: list[str] = []
    if fits >= asked:
        verdict = (
            f"A free block of {size(fits)} of the right stream, pool and size class was there and was not used: "
            "an oversized block that max_split_size_mb keeps whole, or memory that was freed only afterwards."
        )
        advice.append("Look at max_split_size_mb in PYTORCH_CUDA_ALLOC_CONF; retry the allocation once.")
    elif device_free is not None and device_free >= asked:
        verdict = (
            f"The device still had {size(device_free)} free, more than the {size(asked)} requested: a limit of this "
            "process stopped it (set_per_process_memory_fraction), or the driver could not give it in one piece."
        )
        advice.append("Look for torch.cuda.set_per_process_memory_fraction() and MPS or cgroup limits.")
    elif other_stream >= asked:
        verdict = (
            f"A free block of {size(other_stream)} was there, but it belongs to another stream: free memory serves "
            "only the stream it was allocated on."
        )
        advice.append("Allocate on the stream that frees, or call torch.cuda.empty_cache() between the two phases.")
    elif other_pool >= asked:
        verdict = (
            f"A free block of {size(other_pool)} was there, but it belongs to a private pool (a CUDA graph's or a "
            "MemPool's): others cannot use it."
        )
        advice.append("Share one pool between graphs (torch.cuda.graph(pool=…)), or free the graphs no longer used.")
    elif cached >= asked:
        verdict = (
            f"{size(cached)} was free inside torch, but in pieces: the largest usable one is {size(fits)}. "
            "This is fragmentation."
        )
        if expandable:
            advice.append(
                "Expandable segments are on already: look at the segments view for the blocks that pin memory."
            )
        else:
            advice.append("Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; it lets segments grow instead.")
        if other_class >= asked:
            advice.append("The free block that is large enough holds small allocations only.")
    else:
        verdict = (
            f"It did not fit: {size(asked)} was requested, {size(device_free)} was left on the device and "
            f"{size(cached)} free inside torch, while {size(live)} was held by tensors."
        )
        advice.append("Hold less: see what was live at this moment in the allocations view, largest first.")
        advice.append(
            "What other processes and libraries hold on the device is not in this file: gputop shows it live."
        )
    return verdict, tuple(advice)
