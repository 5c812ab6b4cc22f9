"""A trace as a page of plain text: what is in it, the peaks of memory, the table of ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gputop.model import clean_text
from gputop.text import fit, shorten
from gputop.torch_files.trace.op_columns import OpTotals, columns_of, figure, shown_columns
from gputop.torch_files.trace.op_table import OpRow
from gputop.torch_files.trace.profiler_trace import ProfilerTrace
from gputop.units.fine import milliseconds, size

_HELD_LINES: Final = 5  # about what was held at the peak


def page(
    trace: ProfilerTrace, rows: Sequence[OpRow], all_rows: Sequence[OpRow], column: str, width: int, python: bool
) -> str:
    """*rows* are those listed, sorted by *column*."""
    lines = [*about(trace, width), *memory(trace, width)]
    if trace.curves:
        lines.append(trace.reconciliation(python).sentence())
    lines += ["", f"by {column.replace('_', ' ')}, {len(rows):,} of {len(all_rows):,} rows"]
    lines += table(trace, rows, OpTotals.of(all_rows), column, width)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def about(trace: ProfilerTrace, width: int) -> list[str]:
    """What is in the file, and what of it could not be understood."""
    events = trace.events
    words = f"{clean_text(trace.path.name, 200)}: {events.seen:,} events, {len(events.start):,} of them ops, "
    words += f"kernels and frames; {len(events.memory_at):,} memory events"
    lines = [shorten(words + (f"; {trace.rank}" if trace.rank else ""), width)]
    lines += [f"note: {note}" for note in events.notes]
    if events.ooms:
        lines.append(f"note: out of memory {events.ooms} times")
    return lines


def memory(trace: ProfilerTrace, width: int) -> list[str]:
    """Each device's peak, what ran and what was held then."""
    lines = [] if trace.curves else [trace.why_no_memory]
    for curve in trace.curves:
        peak = curve.peak
        reserved = f" (reserved {size(peak.reserved)})" if peak.reserved > 0 else ""
        lines.append(
            f"{curve.device}: peak {size(peak.allocated)}{reserved} at {milliseconds(peak.at_ns - trace.begins_ns)}; "
            f"{curve.allocations:,} allocations {size(curve.allocated_bytes)}, {curve.frees:,} frees "
            f"{size(curve.freed_bytes)}; {size(curve.never_freed)} never freed"
        )
        running = trace.running(curve, peak.event)
        if running:
            lines.append(shorten(f"  at the peak: {clean_text(' > '.join(running[-5:]), 1000)}", width))
        for held in trace.held(curve, peak.event)[:_HELD_LINES]:
            by = f"{held.op or 'no op'}  {held.where}".rstrip()
            lines.append(shorten(f"  {size(held.bytes):>9} {held.blocks:>7,}× {clean_text(by, 500)}", width))
    return lines


def table(trace: ProfilerTrace, rows: Sequence[OpRow], totals: OpTotals, column: str, width: int) -> list[str]:
    """As many columns as *width* has room for, the sorted one among them."""
    shown = shown_columns(columns_of(trace), column, width)
    room = width - sum(one.width + 1 for one in shown)
    lines = [fit("op", room) + "".join(" " + fit(one.title.lower(), one.width, right=True) for one in shown)]
    for row in rows:
        name = clean_text(row.name, 300) + (f" {clean_text(row.shape, 300)}" if row.shape else "")
        figures = [fit(figure(row, one.field, totals), one.width, right=True) for one in shown]
        lines.append(" ".join((fit(name, room), *figures)))
        lines += [shorten(f"    from {clean_text(frame, 300)}", width) for frame in row.stack]
    return lines
