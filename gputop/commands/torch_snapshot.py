"""Inspect PyTorch memory snapshots: what is held, since when and by which line; leaks, fragmentation, OOMs, changes.

FILE is what torch.cuda.memory._dump_snapshot() wrote (any version since torch 1.8, gzip too). Nothing in it is run.
With two files, the second is compared with the first. Without an output option, a viewer opens in the terminal.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gputop.commands.shared.options import add_screen_options, whole_number
from gputop.commands.shared.output import is_terminal, print_csv, print_out
from gputop.commands.shared.refusal import Refusal

if TYPE_CHECKING:
    from gputop.torch_files.snapshot.groups import AllocationFilter
    from gputop.torch_files.snapshot.memory_snapshot import DeviceSnapshot, MemorySnapshot

UNREADABLE: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", metavar="FILE", nargs="+", type=Path, help="a snapshot; a second one is compared with it"
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--summary", action="store_true", help="print a page about each device and exit")
    output.add_argument("--json", action="store_true", help="print all figures as JSON, an object for each file")
    output.add_argument("--csv", action="store_true", help="print allocations by stack, a row each")
    output.add_argument(
        "--curve", action="store_true", help="print memory over time as CSV: a row for each trace entry"
    )
    output.add_argument(
        "--allocations", action="store_true", help="print single allocations as CSV: address, bytes, lifetime, stack"
    )
    output.add_argument("--flamegraph", metavar="FILE.svg", type=Path, help="write a flame graph of the allocations")
    parser.add_argument(
        "--at",
        choices=("now", "peak"),
        help="for --csv and --flamegraph: what is held at the dump (the default), or at the peak; --allocations lists "
        "all of the trace without it",
    )
    parser.add_argument("--device", type=int, metavar="N", help="only this device (-1: pinned host memory)")
    parser.add_argument(
        "--filter", metavar="TERMS", default="", help="as in the viewer: text size>10M stream:0 pool:0,1 !text"
    )
    parser.add_argument(
        "--top",
        type=whole_number,
        metavar="N",
        help="how many stacks, rows to list (default 10, of CSV all; 0: all)",
    )
    parser.add_argument("--all-frames", action="store_true", help="include torch's and C++ frames, not only yours")
    add_screen_options(parser.add_argument_group("viewer"))


def run(options: argparse.Namespace) -> int:
    from gputop.torch_files.snapshot.groups import parse_filter

    try:
        wanted = parse_filter(options.filter)
    except ValueError as error:
        raise Refusal(f"--filter: {error}") from None
    options.csv_top = options.top or None
    options.top = 10 if options.top is None else options.top or sys.maxsize  # 0: all
    if options.flamegraph and len(options.files) > 1:
        raise Refusal("--flamegraph takes a single file")
    if options.flamegraph:
        from gputop.commands.shared.output_file import must_not_replace_others
        from gputop.torch_files.flame_graph import is_flame_graph

        must_not_replace_others(options.flamegraph, is_flame_graph, "a flame graph of gputop's")
    as_csv = options.csv or options.curve or options.allocations
    if not (options.summary or options.json or as_csv or options.flamegraph):
        if is_terminal(sys.stdin) and is_terminal(sys.stderr):
            return _view(options)
        options.summary = True
    failed = 0
    snapshots: list[MemorySnapshot] = []
    for path in options.files:
        snapshot = _open(path)
        if snapshot is None:
            failed = UNREADABLE
        else:
            snapshots.append(snapshot)
    if not snapshots:
        return failed
    if options.json:
        print_out(_json(snapshots, options, wanted))
    elif as_csv:
        _print_csv(snapshots, options, wanted)
    elif options.flamegraph:
        _flame_graph(snapshots[0], options, wanted)
    else:
        from gputop.torch_files.snapshot.summary import compared, summary

        pages = [summary(s, _devices(s, options), options.top, wanted, options.all_frames) for s in snapshots]
        pages += [compared(snapshots[0], other, options.top, wanted) for other in snapshots[1:]]
        print_out("\n".join(pages))
    return failed


def _view(options: argparse.Namespace) -> int:
    from gputop.commands.shared.settings import settings_of
    from gputop.ui.torch_viewers import app
    from gputop.ui.torch_viewers.snapshot.screen import TorchSnapshotScreen

    settings, _, _ = settings_of(options)
    return app.run(lambda view: TorchSnapshotScreen(options.files, view, options.device, options.filter), settings)


def _open(path: Path) -> MemorySnapshot | None:
    from gputop.model import clean_text
    from gputop.torch_files.snapshot.memory_snapshot import UnreadableFile, open_snapshot

    told = False

    def progress(what: str, share: float) -> None:
        nonlocal told
        if is_terminal(sys.stderr):
            told = True
            print(
                f"\r{clean_text(path.name, 60)}: {what} {100 * share:3.0f} %\x1b[K", end="", file=sys.stderr, flush=True
            )

    try:
        return open_snapshot(path, progress)
    except UnreadableFile as error:
        if told:
            print("\r\x1b[K", end="", file=sys.stderr)
        print(f"gputop: {clean_text(str(path), 500)}: {error}", file=sys.stderr)
        return None
    finally:
        if told:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _devices(snapshot: MemorySnapshot, options: argparse.Namespace) -> list[DeviceSnapshot]:
    if options.device is None:
        return snapshot.devices
    device = snapshot.device(options.device)
    if device is None:
        there = ", ".join(str(d.number) for d in snapshot.devices) or "none"
        raise Refusal(f"--device {options.device}: not in {snapshot.name}, which has {there}")
    return [device]


def _pairs(
    before: MemorySnapshot, after: MemorySnapshot, options: argparse.Namespace
) -> list[tuple[DeviceSnapshot, DeviceSnapshot]]:
    """The devices of *after*, each with the one of *before* that it is compared with."""
    from gputop.torch_files.snapshot.summary import counterpart

    pairs = [(counterpart(before, after, device), device) for device in _devices(after, options)]
    return [(other, device) for other, device in pairs if other is not None]


def _json(snapshots: list[MemorySnapshot], options: argparse.Namespace, wanted: AllocationFilter) -> str:
    from gputop.torch_files.snapshot.json_report import comparison, facts

    how = (options.top, wanted, options.all_frames)
    lines = []
    for n, snapshot in enumerate(snapshots):
        data = facts(snapshot, _devices(snapshot, options), *how)
        if n:
            data["compared_with"] = comparison(snapshots[0], _pairs(snapshots[0], snapshot, options), *how)
        lines.append(json.dumps(data, indent=2 if is_terminal(sys.stdout) else None) + "\n")
    return "".join(lines)


def _print_csv(snapshots: list[MemorySnapshot], options: argparse.Namespace, wanted: AllocationFilter) -> None:
    from gputop.torch_files.snapshot import csv_rows

    top, at = options.csv_top, options.at or "now"
    devices = [device for snapshot in snapshots for device in _devices(snapshot, options)]
    if options.curve:
        return print_csv(csv_rows.CURVE_FIELDS, (row for device in devices for row in csv_rows.curve_rows(device, top)))
    how = (wanted, options.all_frames, top)
    if options.allocations:
        rows = (row for device in devices for row in csv_rows.allocation_rows(device, options.at, *how))
        return print_csv(csv_rows.ALLOCATION_FIELDS, rows)
    if len(snapshots) == 1:
        return print_csv(csv_rows.STACK_FIELDS, (row for d in devices for row in csv_rows.stack_rows(d, at, *how)))
    first, *others = snapshots
    before = [(*row, None, None) for d in _devices(first, options) for row in csv_rows.stack_rows(d, at, *how)]
    pairs = [pair for other in others for pair in _pairs(first, other, options)]
    changes = [row for before_, after in pairs for row in csv_rows.change_rows(before_, after, at, *how)]
    print_csv(csv_rows.CHANGE_FIELDS, [*before, *changes])


def _flame_graph(snapshot: MemorySnapshot, options: argparse.Namespace, wanted: AllocationFilter) -> None:
    from gputop.model import clean_text
    from gputop.torch_files.call_tree import call_tree
    from gputop.torch_files.flame_graph import flame_graph
    from gputop.torch_files.snapshot.groups import by_stack
    from gputop.units.fine import size

    devices = _devices(snapshot, options)
    stacks = []
    for device in devices:
        moment = device.peak[0] if options.at == "peak" else device.last
        rows = wanted.rows(device, device.rows_at(moment))
        for group in by_stack(device, rows, not options.all_frames):
            stacks.append((snapshot.frames.frames(group.stack), group.bytes, group.count))
    root = call_tree(stacks)
    when = "at the peak" if options.at == "peak" else "at the dump"
    labels = ", ".join(device.label for device in devices)
    svg = flame_graph(root, f"{snapshot.name}: {size(root.bytes)} held {when}, {labels}")
    try:
        options.flamegraph.write_text(svg, encoding="utf-8", errors="replace")
    except OSError as error:
        raise Refusal(f"{clean_text(str(options.flamegraph), 500)}: {error.strerror or error}", 1) from None
    print_out(f"{clean_text(str(options.flamegraph), 500)}: {size(root.bytes)} held {when}, by stack\n")
