"""A trace's memory as rows for a CSV file: the curve event by event, or single allocations with their lifetimes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gputop.torch_files.trace.profiler_trace import ProfilerTrace

CURVE_FIELDS: Final = "device time_ns bytes allocated_bytes reserved_bytes address op".split()
ALLOCATION_FIELDS: Final = (
    "device address bytes allocated_ns freed_ns lifetime_ns op function annotation".split()
)  # without a time: not in the trace


def curve_rows(trace: ProfilerTrace) -> Iterator[tuple[Any, ...]]:
    """A row for each memory event: bytes allocated (or freed, negative) and held after it. Times in ns since the first
    event of the trace; the op is the innermost that ran."""
    for curve in trace.curves:
        for n, at in enumerate(curve.at_ns):
            running = trace.running(curve, n)
            yield (
                curve.device,
                at - trace.begins_ns,
                curve.bytes[n],
                curve.allocated[n],
                curve.reserved[n] if curve.reserved[n] >= 0 else None,
                f"{curve.address[n]:#x}" if curve.address[n] else None,
                running[-1] if running else "",
            )


def allocation_rows(trace: ProfilerTrace) -> list[tuple[Any, ...]]:
    """A row for each allocation of the trace, the largest first."""
    found = []
    for curve in trace.curves:
        for n, freed in curve.lifetimes():
            begin = curve.at_ns[n] - trace.begins_ns
            end = None if freed is None else curve.at_ns[freed] - trace.begins_ns
            by = trace.asked_for(curve, n)
            address = f"{curve.address[n]:#x}" if curve.address[n] else None
            lasted = None if end is None else end - begin
            found.append((curve.device, address, curve.bytes[n], begin, end, lasted, by.op, by.frame, by.phase))
    return sorted(found, key=lambda row: -row[2])
