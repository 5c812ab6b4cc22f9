"""Why is this GPU full or slow? One page of plain text: whose memory it is, how much is live, cached or outside
PyTorch, the trend, suspects, throttling, and what to do next, with the exact command or line of code.

Exit status: 0 success, 2 no such GPU (others: see `gputop --help`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Final

from gputop.commands.shared.machine import machine_of
from gputop.commands.shared.options import add_source_options
from gputop.commands.shared.output import is_terminal, print_out
from gputop.commands.shared.refusal import Refusal
from gputop.commands.shared.settings import settings_of

INTERVAL: Final = 1.0
LEAST_SECONDS: Final = 6.0  # a process that has just died is listed for some seconds, and unattributed memory must last


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", metavar="N", help="index, UUID or PCI id (default: each GPU in use, fullest first)")
    add_source_options(parser)
    parser.add_argument("--json", action="store_true", help="write one JSON object per GPU")
    parser.add_argument(
        "--for",
        dest="duration",
        metavar="TIME",
        type=_duration,
        default=LEAST_SECONDS,
        help=f"watch for this long: 30s, 5m (default {LEAST_SECONDS:g}s); longer gives a better trend",
    )
    parser.add_argument("--config", metavar="PATH", type=Path, help="settings file to use")


def _duration(text: str) -> float:
    from gputop.units import parse_interval

    try:
        return parse_interval(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(options: argparse.Namespace) -> int:
    from gputop.commands.shared.headless import Headless, say
    from gputop.commands.shared.machine import only_asked
    from gputop.leaks.finder import LeakFinder
    from gputop.leaks.report import LeakReport
    from gputop.model import ProcessKey, Snapshot
    from gputop.text import unicode_works
    from gputop.why import text
    from gputop.why.diagnosis import ObservedTrend, diagnose, headline

    if options.gpu is not None:
        options.gpus = [options.gpu]
    settings, _, problems = settings_of(options)
    for words in problems:
        say(words)
    machine = machine_of(options)
    headless = Headless(machine, INTERVAL, pids=None)
    first = headless.start()
    if first is not None:
        only_asked(first, options, settings)
    finder = LeakFinder(machine.investigator())
    report = LeakReport(time.time())
    snapshot, until = first, time.monotonic() + options.duration
    try:
        while True:
            if (newest := headless.poller.latest) is not None:
                first = first or newest
                snapshot, report = newest, finder.step(newest, settings)
            left = until - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(INTERVAL, left + 0.05))
    finally:
        headless.poller.stop()
    if snapshot is None or first is None:
        raise Refusal("the driver has not responded", 8)
    shown = only_asked(snapshot, options, settings)
    gpus = sorted(shown.gpus, key=lambda gpu: -(gpu.memory_used_bytes or 0))
    if options.gpu is None and len(gpus) > 1:
        held = {process.gpu_uuid for process in shown.processes}
        held |= {found.gpu_uuid for found in report.unattributed}
        gpus = [gpu for gpu in gpus if gpu.uuid in held or not gpu.processes_known] or gpus[:1]
    seconds = snapshot.taken_at - first.taken_at
    ascii_only = not unicode_works(sys.stdout)
    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None

    def sizes(of: Snapshot, uuid: str) -> dict[ProcessKey, int]:
        return {p.key: p.memory_bytes for p in of.processes if p.gpu_uuid == uuid and p.memory_bytes is not None}

    pages = []
    for gpu in gpus:
        before, old = sizes(first, gpu.uuid), first.gpu(gpu.uuid)
        grown = {key: bytes_ - before[key] for key, bytes_ in sizes(snapshot, gpu.uuid).items() if key in before}
        rate = full = None
        if old is not None and old.memory_used_bytes is not None and gpu.memory_used_bytes is not None and seconds > 2:
            rate = (gpu.memory_used_bytes - old.memory_used_bytes) / seconds
            rate = rate if abs(rate) * seconds >= 1 << 20 else 0.0
            if rate > 0 and gpu.memory_free_bytes is not None:
                full = gpu.memory_free_bytes / rate
        sections = diagnose(snapshot, gpu, report, ObservedTrend(rate, full, grown, seconds))
        if options.json:
            import json

            plain = {
                "gpu_uuid": gpu.uuid,
                "gpu_index": gpu.index,
                "taken_at": snapshot.taken_at,
                "headline": headline(snapshot, gpu),
                "sections": {one.title: one.lines for one in sections},
            }
            pages.append(json.dumps(plain, indent=2 if width else None) + "\n")
        else:
            pages.append(text.render(sections, snapshot, gpu, width, ascii_only))
    print_out(("" if options.json else "\n").join(pages))
    return 0
