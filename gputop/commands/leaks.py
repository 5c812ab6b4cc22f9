"""Find leaked GPU memory: which processes hold it, the evidence, and how to free it.

Exit status: 0 no leak, 1 a leak was found, 2 unknown (another PID namespace, GPUs that do not respond, unattributed
memory). Idle processes are listed, but are not leaks.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Final

from gputop.commands.shared.machine import machine_of, only_asked
from gputop.commands.shared.options import add_source_options
from gputop.commands.shared.output import is_terminal, print_out
from gputop.commands.shared.settings import settings_of

FOUND: Final = 1
UNSURE: Final = 2
INTERVAL: Final = 1.0
#: A process that has just died is listed for some seconds, and unattributed memory must last to count.
LEAST_SECONDS: Final = 6.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_options(parser)
    parser.add_argument(
        "--for",
        dest="duration",
        metavar="TIME",
        type=_duration,
        default=LEAST_SECONDS,
        help=f"watch for this long: 30s, 45m (default and minimum: {LEAST_SECONDS:g}s); idle and stopped "
        "processes are reported only after the minutes in the settings",
    )
    parser.add_argument("--json", action="store_true", help="write one JSON object")
    parser.add_argument("--config", metavar="PATH", type=Path, help="settings file to use")


def _duration(text: str) -> float:
    from gputop.units import parse_interval

    try:
        seconds = parse_interval(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if seconds < LEAST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"must be at least {LEAST_SECONDS:g} s: a process that has just exited stays listed for a while"
        )
    return seconds


def run(options: argparse.Namespace) -> int:
    from gputop.commands.shared.headless import Headless, say
    from gputop.model import Snapshot, Verdict

    settings, _, problems = settings_of(options)
    for words in problems:
        say(words)
    machine = machine_of(options)
    headless = Headless(machine, INTERVAL, pids=None)
    snapshot = headless.start()
    if snapshot is not None:
        only_asked(snapshot, options, settings)

    from gputop.leaks import text
    from gputop.leaks.finder import LeakFinder
    from gputop.leaks.report import LeakReport
    from gputop.text import unicode_works

    finder = LeakFinder(machine.investigator())
    report = LeakReport(time.time(), unsure=("the driver has not responded",))
    until = time.monotonic() + options.duration
    while True:
        if (newest := headless.poller.latest) is not None:
            snapshot, report = newest, finder.step(newest, settings)
        left = until - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(INTERVAL, left + 0.05))
    headless.poller.stop()
    shown = Snapshot(time.time()) if snapshot is None else only_asked(snapshot, options, settings)
    report = report.on({gpu.uuid for gpu in shown.gpus})
    terminal = is_terminal(sys.stdout)
    if options.json:
        print_out(text.as_json(report, shown, indent=2 if terminal else None) + "\n")
    else:
        width = shutil.get_terminal_size().columns if terminal else None
        print_out(text.render(report, shown, width, ascii_only=not unicode_works(sys.stdout)))
    if report.those(Verdict.LEAK):
        return FOUND
    return UNSURE if report.unsure else 0
