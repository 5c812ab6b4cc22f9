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
import json
import shutil
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gputop.commands.shared.options import add_screen_options, whole_number
from gputop.commands.shared.output import is_terminal, print_csv, print_out
from gputop.commands.shared.refusal import Refusal

if TYPE_CHECKING:
    from gputop.torch_files.trace.comparison import RowChange
    from gputop.torch_files.trace.memory_timeline import MemoryTimeline
    from gputop.torch_files.trace.op_table import OpRow
    from gputop.torch_files.trace.profiler_trace import ProfilerTrace

UNREADABLE: Final = 1
_FIELDS: Final = (
    "name kind shape calls self_device_memory device_memory self_cpu_memory cpu_memory self_thread_memory "
    "thread_memory self_cpu_time cpu_time self_device_time device_time stack"
).split()
_LABELS: Final = ("name", "kind", "shape", "stack")
_FIGURES: Final = tuple(name for name in _FIELDS if name not in _LABELS)
_TOP: Final = 20
_PIPE_CELLS: Final = 220  # of a line that no terminal limits
_HELD_JSON: Final = 20
_KINDS: Final = ("cpu", "device", "python", "annotation", "device annotation")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=Path,
        help="a chrome trace or memory timeline of torch.profiler, .json or .json.gz; two traces are compared",
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
    output.add_argument("--curve", action="store_true", help="memory over time as CSV: a row for each memory event")
    output.add_argument(
        "--allocations", action="store_true", help="single allocations as CSV: address, bytes, lifetime, op"
    )
    add_screen_options(parser.add_argument_group("viewer"))


def _column(text: str) -> str:
    from gputop.torch_files.trace.op_table import COLUMNS

    try:
        return COLUMNS[text]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(sorted(set(COLUMNS.values())))}") from None


def run(options: argparse.Namespace) -> int:
    from gputop.model import clean_text
    from gputop.torch_files.trace.profiler_file import UnreadableTrace
    from gputop.torch_files.trace.profiler_trace import ProfilerTrace, open_profile

    if len(options.files) > 2:
        raise Refusal("one file, or two that are compared")
    if _wants_viewer(options):
        return _view(options)
    profiles, tables = [], []
    for path in options.files:
        progress = _Progress(path)
        try:
            profile = open_profile(path, progress)
            tables.append(_rows(profile, options) if isinstance(profile, ProfilerTrace) else [])
        except UnreadableTrace as error:
            progress.clear()
            print(f"gputop: {clean_text(str(path), 500)}: {error}", file=sys.stderr)
            return UNREADABLE
        progress.clear()
        profiles.append(profile)
    traces = [profile for profile in profiles if isinstance(profile, ProfilerTrace)]
    if not traces and len(profiles) == 1:
        assert not isinstance(profiles[0], ProfilerTrace)
        return _timeline(profiles[0], options)
    if len(traces) < len(profiles):
        raise Refusal("two traces can be compared, but no memory timelines")
    if (options.group_by_function or options.group_by_stack) and not all(trace.has_python for trace in traces):
        print("gputop: the trace has no Python frames: record with profile(with_stack=True)", file=sys.stderr)
    _print(traces, tables, options)
    return 0


def _rows(trace: ProfilerTrace, options: argparse.Namespace) -> list[OpRow]:
    from gputop.torch_files.trace.callers import FUNCTION

    if options.curve or options.allocations:
        return []
    depth = FUNCTION if options.group_by_function else options.group_by_stack
    return trace.rows(options.group_by_input_shape, depth, not options.no_python)


def _print(traces: list[ProfilerTrace], tables: list[list[OpRow]], options: argparse.Namespace) -> None:
    from gputop.text import to_ascii, unicode_works
    from gputop.torch_files.trace.comparison import compare, comparison_page
    from gputop.torch_files.trace.memory_csv import ALLOCATION_FIELDS, CURVE_FIELDS, allocation_rows, curve_rows
    from gputop.torch_files.trace.summary import page

    trace, rows, python = traces[-1], tables[-1], not options.no_python
    column = options.sort or _usual_column(traces)
    top = _TOP if options.top is None else options.top
    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else _PIPE_CELLS
    if options.csv or options.curve or options.allocations:
        for note in (note for one in traces for note in one.events.notes):
            print(f"gputop: {note}", file=sys.stderr)
    if options.curve or options.allocations:
        if len(traces) > 1:
            raise Refusal("--curve and --allocations take one file")
        lines = curve_rows(trace) if options.curve else allocation_rows(trace)
        limit = options.top or None  # 0, or not given: all
        print_csv(CURVE_FIELDS if options.curve else ALLOCATION_FIELDS, islice(lines, limit))
        return
    if len(traces) == 2:
        changes = compare(tables[0], tables[1], column)
        shown_changes = changes[: top or None]
        if options.csv:
            _print_csv_of_changes(traces, shown_changes)
        elif options.json:
            print_out(_json_of_changes(traces, shown_changes))
        else:
            text = comparison_page(traces[0], traces[1], shown_changes, len(changes), column, width)
            print_out(text if unicode_works(sys.stdout) else to_ascii(text))
        return
    rows.sort(key=lambda row: row.name if column == "name" else -getattr(row, column))
    shown = rows[: top or None]
    if options.csv:
        print_csv(_FIELDS, (_flat(_cells(row, trace)).values() for row in shown))
    elif options.json:
        print_out(_json(trace, shown, python))
    else:
        text = page(trace, shown, rows, column, width, python)
        print_out(text if unicode_works(sys.stdout) else to_ascii(text))


def _usual_column(traces: list[ProfilerTrace]) -> str:
    if not any(trace.curves for trace in traces):
        return "self_cpu_time"
    return "self_device_memory" if any(trace.has_device_memory for trace in traces) else "self_cpu_memory"


def _wants_viewer(options: argparse.Namespace) -> bool:
    """Where there is a terminal, and nothing was said about how a table is to be printed."""
    says = [options.summary, options.json, options.csv, options.curve, options.allocations, options.no_python]
    says.append(len(options.files) > 1)
    says += [options.group_by_input_shape, options.group_by_function]
    if any(says) or options.top is not None or options.sort is not None or options.group_by_stack > 0:
        return False
    return is_terminal(sys.stdin) and is_terminal(sys.stdout) and is_terminal(sys.stderr)


def _view(options: argparse.Namespace) -> int:
    from gputop.commands.shared.settings import settings_of
    from gputop.ui.torch_viewers import app
    from gputop.ui.torch_viewers.trace.screen import TorchTraceScreen

    settings, _, _ = settings_of(options)
    return app.run(lambda view: TorchTraceScreen(options.files[0], view), settings)


def _timeline(timeline: MemoryTimeline, options: argparse.Namespace) -> int:
    """What was held by category: there are no ops in such a file."""
    from gputop.torch_files.trace import memory_timeline_summary as summary
    from gputop.torch_files.trace.memory_timeline import CATEGORIES

    if options.sort or options.group_by_input_shape or options.group_by_function or options.group_by_stack > 0:
        raise Refusal("a memory timeline has no ops: it cannot be sorted or grouped by them")
    if options.allocations:
        raise Refusal("a memory timeline has no single allocations")
    if options.curve:
        fields = ("time_ns", *CATEGORIES)
        print_csv(fields, islice(zip(timeline.at_ns, *timeline.by_category, strict=True), options.top or None))
    elif options.csv:
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


def _cells(row: OpRow, trace: ProfilerTrace) -> dict[str, Any]:
    """None: of memory, where none was recorded."""
    cells = {name: _KINDS[row.kind] if name == "kind" else getattr(row, name) for name in _FIELDS}
    return cells if trace.curves else cells | {name: None for name in _FIELDS if name.endswith("_memory")}


def _json(trace: ProfilerTrace, rows: list[OpRow], python: bool) -> str:
    plain = {
        "file": trace.path.name,
        "events": trace.events.seen,
        "memory_events": len(trace.events.memory_at),
        "rank": trace.events.rank,
        "world_size": trace.events.world_size,
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
        "rows": [_cells(row, trace) for row in rows],
    }
    return json.dumps(plain, indent=2 if is_terminal(sys.stdout) else None) + "\n"


def _flat(cells: dict[str, Any]) -> dict[str, Any]:
    return cells | {"stack": ";".join(cells["stack"])}


def _print_csv_of_changes(traces: list[ProfilerTrace], changes: list[RowChange]) -> None:
    """Figures of the first file, then of the second; empty where an op is in one only."""
    fields = [*_LABELS, *(f"{name}_{side}" for name in _FIGURES for side in ("before", "after"))]
    lines = []
    for change in changes:
        sides = [None if row is None else _cells(row, trace) for row, trace in zip(change, traces, strict=True)]
        labels = _flat(_cells(change.row, traces[0]))
        figures = [None if side is None else side[name] for name in _FIGURES for side in sides]
        lines.append([*(labels[name] for name in _LABELS), *figures])
    print_csv(fields, lines)


def _json_of_changes(traces: list[ProfilerTrace], changes: list[RowChange]) -> str:
    from gputop.torch_files.trace.comparison import peaks

    rows = []
    for change in changes:
        sides = [None if row is None else _cells(row, trace) for row, trace in zip(change, traces, strict=True)]
        labels = _cells(change.row, traces[0])
        figures = [None if side is None else {name: side[name] for name in _FIGURES} for side in sides]
        rows.append({name: labels[name] for name in _LABELS} | {"before": figures[0], "after": figures[1]})
    plain = {
        "files": [trace.path.name for trace in traces],
        "notes": [note for trace in traces for note in trace.events.notes],
        "peak_allocated_bytes": [peak._asdict() for peak in peaks(traces[0], traces[1])],
        "rows": rows,
    }
    return json.dumps(plain, indent=2 if is_terminal(sys.stdout) else None) + "\n"
