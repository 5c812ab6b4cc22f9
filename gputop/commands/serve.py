"""A Prometheus exporter for this machine's GPUs, until Ctrl+C or SIGTERM.

It listens on this machine only unless --listen says otherwise.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Final

from gputop.commands.shared.machine import machine_of, only_asked
from gputop.commands.shared.options import add_source_options, as_setting
from gputop.commands.shared.refusal import Refusal
from gputop.commands.shared.settings import settings_of

#: Not taken in Prometheus' list of default port allocations: its range 9100-9999 has been full since 2023, new entries
#: go on from 10000, and this is far from both; it is below the ports Linux gives to outgoing connections.
PORT: Final = 19835
HOST: Final = "127.0.0.1"
TURNS: Final = 8  # with --processes, an eighth of them is looked at anew each second: a scrape comes every 15 s or so
LAST_SECONDS: Final = 2.0  # how long the end waits for answers under way


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_options(parser)
    parser.add_argument(
        "--listen",
        metavar="ADDR:PORT",
        type=address,
        default=(HOST, PORT),
        help=f"where to listen: :{PORT} is all addresses, IPv4 and IPv6, [::1]:{PORT} IPv6 (default: {HOST}:{PORT})",
    )
    parser.add_argument(
        "--processes", action="store_true", help="series for each process too: user, name, job, pod, unit, rank"
    )
    parser.add_argument(
        "--web-config",
        "--web.config.file",
        metavar="FILE",
        type=Path,
        help="TLS and passwords, as other exporters have them (tls_server_config, basic_auth_users)",
    )
    parser.add_argument(
        "-d", "--refresh", metavar="TIME", type=as_setting("refresh"), help="time between readings: 500ms, 2s"
    )
    parser.add_argument("--config", metavar="PATH", type=Path, help="settings file instead of the usual one")


def address(text: str) -> tuple[str, int]:
    """``ADDR:PORT``, ``:PORT`` (all addresses: the host is empty), ``[IPv6]:PORT`` or ``ADDR``."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.%]+)\]|([^:\[\]]*))(?::(\d{1,5}))?", text)
    if match is None or not text or int(match[3] or 0) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address such as {HOST}:{PORT}, :{PORT} or [::1]:{PORT}")
    return match[1] or match[2] or "", PORT if match[3] is None else int(match[3])


def run(options: argparse.Namespace) -> int:
    from gputop.commands.shared.headless import Headless, say
    from gputop.outputs.web_config import WebConfig, WebConfigError, load

    settings, _, problems = settings_of(options)
    for words in problems:
        say(words)
    try:
        config = load(options.web_config) if options.web_config else WebConfig()
    except WebConfigError as error:
        raise Refusal(f"--web-config: {error}") from None
    machine = machine_of(options)
    headless = Headless(machine, settings.refresh, ())
    first = headless.start()
    if first is not None:
        only_asked(first, options, settings)

    from prometheus_client import CollectorRegistry, generate_latest

    from gputop.model import Snapshot
    from gputop.model.selection import only
    from gputop.outputs.exporter import Exporter, host_and_port
    from gputop.outputs.prometheus import SnapshotCollector, XidCounts
    from gputop.outputs.prometheus_processes import ProcessOwners, ProcessText

    def latest() -> Snapshot | None:
        snapshot = headless.poller.latest
        return None if snapshot is None else only(snapshot, settings.gpus)[0]

    xids = XidCounts()
    collector = SnapshotCollector(latest, xids)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    owners = ProcessOwners(machine.investigator) if options.processes else None
    processes = ProcessText(owners.of) if owners is not None else None

    def metrics() -> bytes:
        text = generate_latest(registry)
        snapshot = collector.current() if processes is not None else None
        return text if processes is None or snapshot is None else text + processes.render(snapshot).encode()

    turn, turned_at = 0, 0.0

    def look(snapshot: Snapshot) -> None:
        nonlocal turn, turned_at
        xids.add(snapshot)
        if processes is not None and not 0 <= snapshot.taken_at - turned_at < 0.95:
            turn, turned_at = (turn + 1) % TURNS, snapshot.taken_at
            pids = {process.pid for process in snapshot.processes if process.pid % TURNS == turn}
            headless.poller.want("headless", pids)
            if owners is not None:
                owners.look(snapshot)

    host, port = options.listen
    try:
        exporter = Exporter((host, port), metrics, lambda: collector.current() is not None, config, say)
    except OSError as error:
        raise Refusal(f"--listen {host_and_port(host, port)}: {error.strerror or error}", 1) from None
    exporter.start()
    say(f"metrics at {exporter.url}/metrics, every {settings.refresh:g} s; Ctrl+C ends it")
    try:
        return headless.run(look)
    finally:
        exporter.stop(LAST_SECONDS)
