"""Show which op of a PyTorch profiler trace took the memory and the time: key_averages(), and what it hides.

In a terminal a viewer opens: memory over time, what ran and what held it, and the table, sorted by any column. With
--summary or any option about the table, or in a pipe, the table is printed instead.

FILE is what prof.export_chrome_trace() wrote (gzip too), best with profile_memory=True; or the .json or .raw.json of
prof.export_memory_timeline(). It is read as a stream, so gigabytes are fine. Memory is net: allocated minus freed
while the op ran, by itself ("self") or including what it called. "By thread" counts an allocation for the op that was
running on the same thread; torch counts it for whatever was running at the time.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gputop.commands.shared.options import add_screen_options, whole_number
from gputop.commands.shared.output import is_terminal, print_out, spreadsheet_text
from gputop.commands.shared.refusal import Refusal

if TYPE_CHECKING:
    from gputop.torch_files.trace.memory_timeline import MemoryTimeline
    from gputop.torch_files.trace.op_table import OpRow
    from gputop.torch_files.trace.profiler_trace import ProfilerTrace

UNREADABLE: Final = 1
_FIELDS: Final = (
    "name kind shape calls self_device_memory device_memory self_cpu_memory cpu_memory self_thread_memory "
    "thread_memory self_cpu_time cpu_time self_device_time device_time stack"
).split()
_TOP: Final = 20
_HELD_LINES: Final = 5  # lines about what was held at the peak
_HELD_JSON: Final = 20
_KINDS: Final = ("cpu", "device", "python", "annotation", "device annotation")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", type=Path, help="a chrome trace or memory timeline of torch.profiler, .json or .json.gz"
    )
    parser.add_argument(
        "--top", type=whole_number, default=None, metavar="N", help="how many rows to print (default 20; 0: all)"
    )
    parser.add_argument(
        "--sort",
        metavar="COLUMN",
        type=_column,
        default=None,
        help="the column to sort by: self_device_memory (the default if the trace has device memory, else "
        "self_cpu_memory), cpu_time, calls, self_thread_memory…; torch's names work too",
    )
    parser.add_argument("--group-by-input-shape", action="store_true", help="a row for each input shape")
    stack = parser.add_mutually_exclusive_group()
    stack.add_argument(
        "--group-by-stack",
        type=whole_number,
        default=0,
        metavar="N",
        help="a row for each calling stack of N Python frames (needs with_stack=True)",
    )
    stack.add_argument(
        "--group-by-function",
        action="store_true",
        help="a row for each of your functions that called it (needs with_stack=True)",
    )
    parser.add_argument(
        "--no-python",
        action="store_true",
        help="leave out Python functions (with_stack=True), as torch before 2.12 does",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument(
        "--summary", action="store_true", help="print the table even to a terminal, instead of opening the viewer"
    )
    output.add_argument("--json", action="store_true", help="one JSON object")
    output.add_argument("--csv", action="store_true", help="the table as CSV: bytes and µs")
    add_screen_options(parser.add_argument_group("viewer"))


def _column(text: str) -> str:
    from gputop.torch_files.trace.op_table import COLUMNS

    try:
        return COLUMNS[text]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(sorted(set(COLUMNS.values())))}") from None


def run(options: argparse.Namespace) -> int:
    from gputop.model import clean_text
    from gputop.torch_files.trace.callers import FUNCTION
    from gputop.torch_files.trace.memory_timeline import MemoryTimeline
    from gputop.torch_files.trace.profiler_file import UnreadableTrace
    from gputop.torch_files.trace.profiler_trace import open_profile

    if _wants_viewer(options):
        return _view(options)
    progress = _Progress(options.file)
    python = not options.no_python
    depth = FUNCTION if options.group_by_function else options.group_by_stack
    try:
        profile = open_profile(options.file, progress)
        rows = [] if isinstance(profile, MemoryTimeline) else profile.rows(options.group_by_input_shape, depth, python)
    except UnreadableTrace as error:
        progress.clear()
        print(f"gputop: {clean_text(str(options.file), 500)}: {error}", file=sys.stderr)
        return UNREADABLE
    progress.clear()
    if isinstance(profile, MemoryTimeline):
        return _timeline(profile, options)
    if depth and not profile.has_python:
        print("gputop: the trace has no Python frames: record with profile(with_stack=True)", file=sys.stderr)
    column = options.sort or ("self_device_memory" if profile.has_device_memory else "self_cpu_memory")
    if not profile.curves and options.sort is None:
        column = "self_cpu_time"
    rows.sort(key=lambda row: row.name if column == "name" else -getattr(row, column))
    top = _TOP if options.top is None else options.top
    shown = rows[:top] if top else rows
    if options.csv:
        for note in profile.events.notes:
            print(f"gputop: {note}", file=sys.stderr)
        print_out(_csv(shown))
    elif options.json:
        print_out(_json(profile, shown, python))
    else:
        width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else 160
        print_out(_page(profile, shown, len(rows), column, width, python))
    return 0


def _wants_viewer(options: argparse.Namespace) -> bool:
    """Where there is a terminal, and nothing was said about how a table is to be printed."""
    says = [options.summary, options.json, options.csv, options.no_python]
    says += [options.group_by_input_shape, options.group_by_function]
    if any(says) or options.top is not None or options.sort is not None or options.group_by_stack > 0:
        return False
    return is_terminal(sys.stdin) and is_terminal(sys.stdout) and is_terminal(sys.stderr)


def _view(options: argparse.Namespace) -> int:
    from gputop.commands.shared.settings import settings_of
    from gputop.ui.torch_viewers import app
    from gputop.ui.torch_viewers.trace.screen import TorchTraceScreen

    settings, _, _ = settings_of(options)
    return app.run(lambda view: TorchTraceScreen(options.file, view), settings)


def _timeline(timeline: MemoryTimeline, options: argparse.Namespace) -> int:
    """What was held by category: there are no ops in such a file."""
    from gputop.torch_files.trace import memory_timeline_summary as summary

    if options.sort or options.group_by_input_shape or options.group_by_function or options.group_by_stack > 0:
        raise Refusal("a memory timeline has no ops: it cannot be sorted or grouped by them")
    if options.csv:
        print_out(summary.as_csv(timeline))
    elif options.json:
        print_out(json.dumps(summary.facts(timeline), indent=2 if is_terminal(sys.stdout) else None) + "\n")
    else:
        print_out(summary.page(timeline))
    return 0


class _Progress:
    """On stderr, where that is a terminal."""

    def __init__(self, path: Path) -> None:
        self._name, self._told = path.name, -1

    def __call__(self, share: float) -> None:
        percent = int(100 * share)
        if percent != self._told and is_terminal(sys.stderr):
            from gputop.model import clean_text

            self._told = percent
            print(f"\r{clean_text(self._name, 60)}: reading {percent:3} %\x1b[K", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._told >= 0:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _page(trace: ProfilerTrace, rows: list[OpRow], count: int, column: str, width: int, python: bool) -> str:
    from gputop.model import clean_text
    from gputop.text import fit, shorten, to_ascii, unicode_works
    from gputop.units.fine import duration, milliseconds, size

    events = trace.events
    lines = [shorten(f"{clean_text(trace.path.name, 200)}: {events.seen:,} events, {len(events.start):,} of them ops, "
             f"kernels and frames; {len(events.memory_at):,} memory events", width)]  # fmt: skip
    lines += [f"note: {note}" for note in events.notes]
    if events.ooms:
        lines.append(f"note: out of memory {events.ooms} times")
    if not trace.curves:
        advice = "" if events.notes else ": record with profile(profile_memory=True, record_shapes=True)"
        lines.append(f"no memory events {'were read' if events.notes else 'in it'}{advice}")
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
    if trace.curves:
        lines.append(trace.reconciliation(python).sentence())
    device = trace.has_device_memory
    lines += ["", f"by {column.replace('_', ' ')}, {len(rows)} of {count} rows"]
    memory = ("self_device_memory", "device_memory") if device else ("self_cpu_memory", "cpu_memory")
    times = [("self_cpu_time", "self CPU"), ("cpu_time", "CPU")]
    if any(row.device_time for row in rows):
        times.append(("device_time", "device"))
    head = f"{'calls':>8}{'self mem':>10}{'mem':>10}{'by thread':>10}" + "".join(f"{title:>11}" for _, title in times)
    room = max(16, width - len(head) - 2)
    lines.append(fit("op", room) + head)
    for row in rows:
        figures = f"{row.calls:>8,}{size(getattr(row, memory[0])):>10}{size(getattr(row, memory[1])):>10}"
        figures += f"{size(row.self_thread_memory):>10}"
        figures += "".join(f"{duration(getattr(row, name)):>11}" for name, _ in times)
        name = clean_text(row.name, 300) + (f" {clean_text(row.shape, 300)}" if row.shape else "")
        lines.append(fit(name, room) + figures)
        lines += [shorten(f"    from {clean_text(frame, 300)}", width) for frame in row.stack]
    text = "".join(f"{line.rstrip()}\n" for line in lines)
    return text if unicode_works(sys.stdout) else to_ascii(text)


def _cells(row: OpRow) -> dict[str, Any]:
    return {name: _KINDS[row.kind] if name == "kind" else getattr(row, name) for name in _FIELDS}


def _json(trace: ProfilerTrace, rows: list[OpRow], python: bool) -> str:
    plain = {
        "file": trace.path.name,
        "events": trace.events.seen,
        "memory_events": len(trace.events.memory_at),
        "base_ns": trace.events.base_ns,
        "notes": trace.events.notes,
        "devices": [
            {
                "device": curve.device,
                "peak_allocated_bytes": curve.peak.allocated,
                "peak_reserved_bytes": curve.peak.reserved if curve.peak.reserved >= 0 else None,
                "peak_at_ns": curve.peak.at_ns,
                "peak_running": list(trace.running(curve, curve.peak.event)),
                "peak_held": [held._asdict() for held in trace.held(curve, curve.peak.event)[:_HELD_JSON]],
                "allocations": curve.allocations,
                "allocated_bytes": curve.allocated_bytes,
                "frees": curve.frees,
                "freed_bytes": curve.freed_bytes,
                "never_freed_bytes": curve.never_freed,
            }
            for curve in trace.curves
        ],
        "reconciliation": trace.reconciliation(python)._asdict() if trace.curves else None,
        "rows": [_cells(row) for row in rows],
    }
    return json.dumps(plain, indent=2 if is_terminal(sys.stdout) else None) + "\n"


def _csv(rows: list[OpRow]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_FIELDS)
    for row in rows:
        cells = list((_cells(row) | {"stack": ";".join(row.stack)}).values())
        writer.writerow([spreadsheet_text(cell) for cell in cells])
    return out.getvalue()
