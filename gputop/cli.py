"""The command line: what is asked for, and starting those who do it.

Imports are late on purpose: ``--version`` needs nothing, ``--once`` no Textual, and the dashboard's first reading is
taken while its screen is still being imported.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gputop import __version__

if TYPE_CHECKING:
    from gputop.model import Snapshot
    from gputop.processes import HostReader, Signals
    from gputop.settings import Settings
    from gputop.sources import Source

USAGE: Final = 2  # 3 to 8: see gputop.sources.SourceError
NO_ANSWER: Final = 8
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141  # as if SIGPIPE had ended it

FIRST_READING: Final = 3.0  # seconds the dashboard waits for one before it opens without

TRY_ONCE: Final = "`gputop --once` prints one table, `gputop --once --json` one JSON object."
TRY_DEMO: Final = "`gputop --demo` shows the dashboard on a simulated machine."


class Refusal(Exception):
    """What was asked for cannot be done. ``str()`` says why and what to do."""

    def __init__(self, words: str, exit_status: int = USAGE) -> None:
        super().__init__(words)
        self.exit_status = exit_status


def main() -> int:
    """The command ``gputop``."""
    status = run(sys.argv[1:])
    if threading.active_count() > 1:  # a thread may hang inside the driver: no waiting for it
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(status)
    return status


def run(arguments: Sequence[str]) -> int:
    """Do what *arguments* ask for. Returns the exit status; threads inside the driver may be left."""
    options = _parse(arguments)
    from gputop.sources import SourceError

    try:
        if options.demo == "help":
            return _print(_scenarios())
        return _once(options) if options.once else _dashboard(options)
    except Refusal as refusal:
        return _complain(str(refusal), refusal.exit_status)
    except SourceError as error:
        return _complain(str(error) if options.once else f"{error}\n{TRY_DEMO}", error.exit_status)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that Python's last flush does not fail again
        return PIPE_CLOSED


# ------------------------------------------------------------------------- options


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gputop",
        description="Which GPU is full, who filled it, and free it: a dashboard for NVIDIA GPUs.",
        epilog="Exit status: 0 all is well, 2 usage, 3 no driver library, 4 driver not loaded, 5 driver and library "
        "differ, 6 no permission, 7 no GPUs, 8 the driver fails or does not answer.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"gputop {__version__}")
    _add_source_options(parser)
    screen = parser.add_argument_group("dashboard")
    screen.add_argument(
        "-d",
        "--refresh",
        metavar="TIME",
        type=_setting("refresh"),
        help="time between readings, with its unit: 500ms, 2s (100ms to 60s)",
    )
    screen.add_argument("--config", metavar="PATH", type=Path, help="settings file instead of the usual one")
    screen.add_argument("--ascii", action="store_true", default=None, help="draw with ASCII only")
    screen.add_argument("--no-color", action="store_true", help="no colours (as NO_COLOR in the environment)")
    screen.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")
    screen.add_argument("--read-only", action="store_true", help="no way to send a signal to a process")
    screen.add_argument("--print-on-exit", action="store_true", help="leave the last table in the scrollback")
    headless = parser.add_argument_group("without the dashboard")
    headless.add_argument("--once", action="store_true", help="print one table and exit")
    headless.add_argument("--json", action="store_true", help="with --once: one JSON object instead")
    options = parser.parse_args(arguments)
    if options.json and not options.once:
        parser.error("--json needs --once")
    return options


def _add_source_options(parser: argparse.ArgumentParser) -> None:
    """What is looked at."""
    parser.add_argument(
        "--gpus",
        metavar="LIST",
        type=_setting("gpus", lambda text: [name.strip() for name in text.split(",") if name.strip()]),
        help="only these GPUs: indices, UUIDs (their first 8 digits will do) or PCI ids, with commas between",
    )
    parser.add_argument(
        "--demo",
        metavar="NAME",
        nargs="?",
        const="",
        help="a simulated machine instead of this one; --demo=help lists them",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="another course of the same demo")


def _setting(name: str, read: Callable[[str], Any] = str) -> Callable[[str], Any]:
    """An argument that is a setting, checked as one."""

    def checked(text: str) -> Any:
        from gputop.settings import check

        try:
            return check(name, read(text))
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _settings(options: argparse.Namespace) -> tuple[Settings, Path, tuple[str, ...]]:
    """The command line over the file over the defaults; the file; what is wrong with it."""
    from gputop import locations, settings_file

    path = options.config or locations.settings_file()
    settings, problems = settings_file.load(path)
    if options.config is not None and not path.exists():
        problems = (*problems, f"{path}: not there yet; it will be once a setting is changed")
    asked = {name: getattr(options, name) for name in ("refresh", "gpus", "ascii")}
    changes = {name: value for name, value in asked.items() if value is not None}
    if options.no_color or os.environ.get("NO_COLOR"):
        changes["color"] = False
    if options.no_mouse:
        changes["mouse"] = False
    return settings.changed(**changes), path, problems


# ------------------------------------------------------------------------- machine


@dataclass(frozen=True, slots=True)
class Machine:
    """What is looked at and, unless it is only looked at, acted on."""

    source: Source
    host: HostReader
    signals: Signals | None
    simulated: bool


def _machine(options: argparse.Namespace, to_act: bool) -> Machine:
    if options.demo is not None:
        from gputop.sources.simulated import UnknownScenario, simulated_machine

        try:
            demo = simulated_machine(options.demo, options.seed)
        except UnknownScenario as error:
            raise Refusal(f"--demo: {error}") from None
        return Machine(demo.source, demo.host, demo.signals if to_act else None, simulated=True)
    from gputop.processes.identity import ProcHostReader
    from gputop.sources.nvml import NvmlSource

    signals: Signals | None = None
    if to_act:
        from gputop.processes.signals import ProcSignals

        signals = ProcSignals()
    return Machine(NvmlSource(), ProcHostReader(), signals, simulated=False)


def _scenarios() -> str:
    from gputop.sources.simulated import SCENARIOS

    lines = [(f"--demo={name}" if name else "--demo", words) for name, words in SCENARIOS.items()]
    lines.append(("--demo=NxMODEL", "so many of those GPUs: 4xh200, 16xb200, 2xl40s"))
    width = max(len(option) for option, _ in lines)
    return "".join(f"  {option:<{width}}  {words}\n" for option, words in lines)


def _only_asked(snapshot: Snapshot, options: argparse.Namespace, settings: Settings) -> Snapshot:
    """*snapshot* with the GPUs asked for. One named on the command line must be there; of those named in the settings
    file some may be away, and if all are, all GPUs are shown: a problem says so."""
    from gputop.model import replace
    from gputop.selection import only

    if not snapshot.gpus:
        from gputop.sources.nvml import no_gpus

        raise no_gpus()
    selected, unknown = only(snapshot, settings.gpus)
    if not unknown:
        return selected
    words = f"{', '.join(unknown)}: no such GPU, or more than one"
    if options.gpus is not None:
        there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in snapshot.gpus)
        raise Refusal(f"--gpus: {words}. There are: {there}")
    selected = selected if selected.gpus else snapshot
    return replace(selected, problems=(*selected.problems, f"settings: gpus: {words}"))


# ------------------------------------------------------------------- what is started


def _once(options: argparse.Namespace) -> int:
    """One table, or one JSON object, from two readings 100 ms apart."""
    from gputop.model import replace
    from gputop.sample import sample

    def get_ready() -> tuple[Settings, tuple[str, ...]]:
        from gputop.outputs import json_lines, table  # noqa: F401  (while there is nothing to do but wait)

        settings, _, problems = _settings(options)
        return settings, problems

    machine = _machine(options, to_act=False)
    everything, (settings, problems) = sample(machine.source, machine.host, get_ready)
    stuck = any(gpu.late for gpu in everything.gpus)
    if not stuck:
        machine.source.close()
    snapshot = _only_asked(everything, options, settings)
    snapshot = replace(snapshot, problems=(*snapshot.problems, *problems))
    if options.json:
        from gputop.outputs.json_lines import as_json

        _print(as_json(snapshot, indent=2 if _is_terminal(sys.stdout) else None) + "\n")
    else:
        _print(_table(snapshot, settings))
    return NO_ANSWER if stuck else 0


def _dashboard(options: argparse.Namespace) -> int:
    _require_terminal()
    import gc

    gc.disable()  # nothing that start-up makes is garbage; the app enables it
    from gputop.bus import Bus
    from gputop.history import History
    from gputop.poller import Poller

    settings, path, problems = _settings(options)
    machine = _machine(options, to_act=not options.read_only)
    bus, history = Bus(), History()
    poller = Poller(machine.source, machine.host, bus, settings.refresh, history)
    poller.start()
    from gputop.ui import app  # takes a while: meanwhile the poller reads

    first = poller.wait_for_first(FIRST_READING)
    if poller.error is not None:
        raise poller.error
    if first is not None:
        _only_asked(first, options, settings)
    status = app.run(
        poller=poller,
        bus=bus,
        history=history,
        settings=settings,
        settings_path=path,
        problems=problems,
        signals=machine.signals,
        simulated=machine.simulated,
    )
    poller.stop()
    if options.print_on_exit and poller.latest is not None:
        from gputop.selection import only

        settings, _, _ = _settings(options)  # as F2 left them
        _print(_table(only(poller.latest, settings.gpus)[0], settings))
    return status


def _require_terminal() -> None:
    """The dashboard reads keys from stdin and draws on stderr (Textual does, so that stdout can be piped)."""
    for stream, words in ((sys.stdin, "The keyboard (stdin)"), (sys.stderr, "The screen (stderr)")):
        if not _is_terminal(stream):
            raise Refusal(f"{words} is not a terminal, so there can be no dashboard. {TRY_ONCE}")
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        raise Refusal(
            f"TERM is {os.environ.get('TERM') or 'not set'}: this terminal cannot show a dashboard "
            f"(if it can, set TERM=xterm-256color). {TRY_ONCE}"
        )


# ------------------------------------------------------------------------- printing


def _table(snapshot: Snapshot, settings: Settings) -> str:
    import shutil

    from gputop.outputs import table
    from gputop.text import unicode_works

    terminal = _is_terminal(sys.stdout)
    fixed = terminal or os.environ.get("COLUMNS", "").isdecimal()
    ascii_only = not unicode_works(sys.stdout) if settings.ascii is None else settings.ascii
    return table.render(
        snapshot,
        settings,
        width=shutil.get_terminal_size().columns if fixed else None,  # a pipe gets command lines whole
        color=terminal and settings.color and os.environ.get("TERM", "") not in ("", "dumb"),
        ascii_only=ascii_only,
    )


def _is_terminal(stream: Any) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def _print(text: str) -> int:
    """Write to stdout, now. Raises Refusal where that fails, BrokenPipeError where nobody reads any more."""
    if sys.stdout is None:
        return 0
    try:
        sys.stdout.write(text.encode(sys.stdout.encoding or "ascii", "replace").decode(sys.stdout.encoding or "ascii"))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise Refusal(f"stdout cannot be written: {error.strerror or error}", 1) from None
    return 0


def _complain(words: str, exit_status: int) -> int:
    if sys.stderr is not None:
        print(f"gputop: {words}", file=sys.stderr)
    return exit_status
