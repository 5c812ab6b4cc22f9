"""A snapshot as a page of plain text, to be read in a terminal or pasted into an issue."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.model import clean_text
from gputop.torch_files.snapshot.diff import difference
from gputop.torch_files.snapshot.groups import AllocationFilter, by_stack, stack_title
from gputop.torch_files.snapshot.leaks import leaks, steps
from gputop.torch_files.snapshot.memory_snapshot import DeviceSnapshot, MemorySnapshot
from gputop.torch_files.snapshot.oom import asked_for, out_of_memory
from gputop.torch_files.snapshot.overview import Totals, coverage_sentences, overview
from gputop.units.fine import percent, signed, size


def summary(
    snapshot: MemorySnapshot,
    devices: Sequence[DeviceSnapshot],
    top: int = 10,
    wanted: AllocationFilter | None = None,
    all_frames: bool = False,
) -> str:
    """The page."""
    lines = [f"{clean_text(snapshot.name)}: {size(snapshot.file_bytes)}, {snapshot.form}"]
    if not devices:
        lines.append("It has no segments and no trace: CUDA was not used, or another allocator was (cudaMallocAsync).")
    for device in devices:
        lines += ["", *_device(device, top, wanted or AllocationFilter(), all_frames)]
    return "\n".join(lines) + "\n"


def figures(device: DeviceSnapshot, totals: Totals) -> list[tuple[str, str, str]]:
    """(what, how much, what that means) of a device at the dump."""
    unknown = not device.has_requested
    split = totals.fragmentation
    return [
        ("reserved", size(totals.reserved), f"{totals.segments:,} segments taken from the driver"),
        ("allocated", size(totals.allocated), f"live tensors, {percent(totals.allocated, totals.reserved)}"),
        ("active", size(totals.active), f"with {size(totals.active - totals.allocated)} waiting for another stream"),
        ("requested", size(None if unknown else totals.requested), "of it, requested by the program"),
        ("rounding loss", size(None if unknown else totals.rounding_loss), "active, but never requested"),
        ("cached", size(totals.inactive), "free inside torch"),
        ("  releasable", size(totals.releasable), "empty_cache() would return it to the driver" + _private(totals)),
        ("  stuck", size(totals.stuck), "next to live blocks in the same segment"),
        ("largest free", size(totals.largest_free), "the largest free block"),
        ("fragmentation", "—" if split is None else f"{100 * split:.0f}%", "of the free memory is outside that block"),
    ]


def _private(totals: Totals) -> str:
    kept = totals.releasable_private
    return f", but {size(kept)} of it only once its private pools are gone" if kept else ""


def _device(device: DeviceSnapshot, top: int, wanted: AllocationFilter, all_frames: bool) -> list[str]:
    totals = overview(device).totals
    lines = [device.label]
    lines += [f"  {what:<15} {much:>8}  {words}" for what, much, words in figures(device, totals)]
    at, peak = device.peak
    if device.entries:
        where = f"after entry {at:,} of {device.entries:,}" if at >= 0 else "before the first entry"
        at_most = "at most, " if device.unseen else ""
        lines.append(f"  {'peak':<15} {size(peak):>8}  requested, {at_most}{where}")
    lines += ["", *(f"  {words}" for words in coverage_sentences(device))]
    for entry, free in device.ooms[-3:]:
        told = out_of_memory(device, entry, free)
        lines += ["", f"  OUT OF MEMORY at entry {entry:,}: {asked_for(told)}", f"    {told.verdict}"]
        lines += [f"    {words}" for words in told.advice]
    moments = [("now", device.last)] + ([("at the peak", at)] if device.entries and at != device.last else [])
    for words, moment in moments:
        rows = wanted.rows(device, device.rows_at(moment))
        groups = by_stack(device, rows, not all_frames)
        held = sum(group.bytes for group in groups)
        lines += ["", f"  Allocations {words}: {size(held)} in {len(rows):,} blocks, by the line that made them"]
        for group in groups[:top]:
            share = percent(group.bytes, held)
            lines.append(f"  {size(group.bytes):>8} {share:>6} {group.count:>7,}×  {stack_title(device, group.stack)}")
    if device.entries:
        lines += _leaks(device, top, wanted)
    return lines


def _leaks(device: DeviceSnapshot, top: int, wanted: AllocationFilter) -> list[str]:
    cut = steps(device)
    growing = [leak for leak in leaks(device, cut, wanted) if leak.growing][:top]
    if not growing:
        which = " that matches the filter" if wanted else ""
        return ["", f"  Leaks: no line{which} leaves something behind step after step ({cut.origin})."]
    lines = ["", f"  Leaks: left behind step after step ({cut.origin})"]
    for leak in growing:
        pace = f"{size(leak.per_step)} a {cut.unit}"
        lines.append(f"  {size(leak.bytes):>8} {leak.count:>7,}×  {pace:>14}  {stack_title(device, leak.stack)}")
    return lines


def counterpart(before: MemorySnapshot, after: MemorySnapshot, device: DeviceSnapshot) -> DeviceSnapshot | None:
    """The device of *before* that *device* of *after* is compared with: its own, or the only one of each (ranks)."""
    alone = len(before.devices) == len(after.devices) == 1
    return before.devices[0] if alone else before.device(device.number)


def compared(
    before: MemorySnapshot, after: MemorySnapshot, top: int = 10, wanted: AllocationFilter | None = None
) -> str:
    """What the second holds more or less than the first, device by device."""
    lines = [f"{clean_text(after.name)} compared with {clean_text(before.name)}"]
    for device in after.devices:
        other = counterpart(before, after, device)
        if other is None:
            continue
        lines += ["", f"  {device.label}"]
        for change in difference(other, device, only=wanted)[:top]:
            title = change.frames[0].short if change.frames else "(no frames)"
            lines.append(f"  {signed(change.bytes):>9} {change.count:>+8,}×  {title}")
    return "\n".join(lines) + "\n"
