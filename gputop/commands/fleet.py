"""GPUs of many hosts: which are free, who holds idle ones, which host is broken.

--demo shows a simulated fleet. Exit status: 0, 1 where --free finds no host, 2 usage, 8 no answer.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

from gputop.commands.shared.options import add_screen_options, whole_number
from gputop.commands.shared.output import is_terminal, print_out
from gputop.commands.shared.refusal import NO_ANSWER, Refusal
from gputop.commands.shared.settings import settings_of

if TYPE_CHECKING:
    from gputop.fleet.filter import FleetFilter
    from gputop.fleet.free import FreeRequest
    from gputop.fleet.source import FleetSource
    from gputop.fleet.view import FleetView

NONE_FREE: Final = 1
ONCE_SECONDS: Final = 60.0  # of a query, where nobody sits before a screen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_argument_group("where from")
    source.add_argument(
        "--demo",
        dest="demo_hosts",
        metavar="N",
        nargs="?",
        const="",
        help="a simulated fleet of N hosts (default: 200)",
    )
    source.add_argument(
        "--prometheus",
        metavar="URL",
        help="Prometheus, VictoriaMetrics, Thanos or Mimir that scrapes the hosts' exporters (default: "
        "GPUTOP_PROMETHEUS, or fleet_prometheus of the settings); tokens and passwords: docs/fleet.md",
    )
    source.add_argument("--seed", type=int, default=0, metavar="N", help="random seed of the simulated fleet")
    parser.add_argument(
        "--filter",
        metavar="TEXT",
        default="",
        help="only hosts that match, as typed after /: 'free>=4 model:h100', 'user:ml', 'state:down'",
    )
    parser.add_argument("--sort", metavar="BY", default="name", help="name, problem, gpus, free, utilization, memory…")
    scripts = parser.add_argument_group("without the screen")
    scripts.add_argument("--once", action="store_true", help="print one table and exit")
    scripts.add_argument("--json", action="store_true", help="with --once or --free: one JSON object instead")
    scripts.add_argument(
        "--free",
        metavar="GPUS",
        type=_free_request,
        help="the hosts with so many free GPUs, best fit first: '4 × h100', '2 × 40GiB', '8x h200 140GiB'",
    )
    add_screen_options(parser)


def _free_request(text: str) -> FreeRequest:
    from gputop.fleet.free import FreeRequest

    try:
        return FreeRequest.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(options: argparse.Namespace) -> int:
    if options.json and not (options.once or options.free):
        raise Refusal("--json needs --once or --free")
    source = source_of(options)
    if options.free is not None:
        return _free(source, options)
    if options.once:
        return _once(source, options)
    return _screen(source, options)


def source_of(options: argparse.Namespace) -> FleetSource:
    """What is asked for on the command line, else in the environment, else in the settings file."""
    if options.demo_hosts is not None:
        return _demo(options)
    settings, _, problems = settings_of(options)
    url = options.prometheus or os.environ.get("GPUTOP_PROMETHEUS") or settings.fleet_prometheus
    if not url:
        raise Refusal("where from? --prometheus URL asks an engine, --demo shows a simulated fleet")
    from gputop.commands.shared.headless import say
    from gputop.fleet.prometheus.client import TIMEOUT_SECONDS, EngineClient, check_url
    from gputop.fleet.prometheus.credentials import credentials_of
    from gputop.fleet.prometheus.source import PrometheusFleet

    for problem in problems:
        say(problem)
    patience = ONCE_SECONDS if options.once or options.free else TIMEOUT_SECONDS
    return PrometheusFleet(EngineClient(check_url(url), credentials_of(settings, os.environ), patience))


def _demo(options: argparse.Namespace) -> FleetSource:
    from gputop.fleet.simulated import HOSTS_DEFAULT, HOSTS_MOST, SimulatedFleet

    try:
        count = whole_number(options.demo_hosts) if options.demo_hosts else HOSTS_DEFAULT
    except argparse.ArgumentTypeError as error:
        raise Refusal(f"--demo: {error}") from None
    if not 1 <= count <= HOSTS_MOST:
        raise Refusal(f"--demo: {count} is not from 1 to {HOSTS_MOST} hosts")
    return SimulatedFleet(count, options.seed)


def _filter(options: argparse.Namespace) -> FleetFilter:
    from gputop.fleet.filter import FleetFilter

    parsed = FleetFilter.parse(options.filter)
    if parsed.problems:
        raise Refusal(f"--filter: {'; '.join(parsed.problems)}")
    return parsed


def _view(options: argparse.Namespace) -> FleetView:
    from gputop.fleet.view import FleetView, HostSort

    try:
        sort = HostSort(options.sort)
    except ValueError:
        raise Refusal(f"--sort: {options.sort!r} is none of {', '.join(HostSort)}") from None
    return FleetView(_filter(options), sort)


def _screen(source: FleetSource, options: argparse.Namespace) -> int:
    view = _view(options)
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise Refusal("the screen needs a terminal; --once prints a table")
    from gputop.ui.fleet import app

    settings, _, _ = settings_of(options)
    source.open()
    try:
        return app.run(source, view, settings)
    finally:
        source.close()


def _once(source: FleetSource, options: argparse.Namespace) -> int:
    view = _view(options)
    source.open()
    try:
        snapshot = source.poll(view)
    finally:
        source.close()
    if options.json:
        from gputop.fleet.json_output import as_json

        print_out(as_json(snapshot, 2 if is_terminal(sys.stdout) else None) + "\n")
    else:
        from gputop.fleet.text import render

        columns, ascii_only = _terminal(options)
        print_out(render(snapshot, columns, ascii_only))
    return NO_ANSWER if snapshot.totals is None else 0


def _free(source: FleetSource, options: argparse.Namespace) -> int:
    from gputop.fleet.free import places
    from gputop.fleet.view import FleetView

    passes = _filter(options)
    source.open()
    try:
        snapshot = source.poll(FleetView(passes))
    finally:
        source.close()
    if snapshot.totals is None:
        raise Refusal("; ".join(snapshot.problems) or "no answer", NO_ANSWER)
    found = places(snapshot.hosts, options.free)
    if options.json:
        from gputop.fleet.json_output import free_as_json

        print_out(free_as_json(options.free, found, snapshot.problems, 2 if is_terminal(sys.stdout) else None) + "\n")
    else:
        from gputop.fleet.text import render_free

        print_out(render_free(options.free, found, snapshot.problems, *_terminal(options)))
    return 0 if found else NONE_FREE


def _terminal(options: argparse.Namespace) -> tuple[int | None, bool]:
    """Columns (None: a pipe takes lines of any length), and whether only ASCII may be written."""
    import shutil

    from gputop.text import unicode_works

    settings, _, _ = settings_of(options)
    fixed = is_terminal(sys.stdout) or os.environ.get("COLUMNS", "").isdecimal()
    ascii_only = not unicode_works(sys.stdout) if settings.ascii is None else settings.ascii
    return shutil.get_terminal_size().columns if fixed else None, ascii_only
