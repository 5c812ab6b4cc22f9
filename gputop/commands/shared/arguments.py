"""What the commands have in common: what is looked at, the settings, and output that may fail."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gputop.leaks.process_context import Investigator
    from gputop.model import Snapshot
    from gputop.procfs.host_reader import HostReader
    from gputop.settings import Settings
    from gputop.signals.protocol import Signals
    from gputop.sources.source import Source

USAGE: Final = 2  # 3 to 8: see gputop.sources.SourceError
NO_ANSWER: Final = 8

TRY_ONCE: Final = "`gputop --once` prints one table, `gputop --once --json` one JSON object."


UNWRITTEN: Final = 74  # EX_IOERR: no verdict of leaks or watch --once


class Refusal(Exception):
    """What was asked for cannot be done. ``str()`` says why and what to do."""

    def __init__(self, words: str, exit_status: int = USAGE) -> None:
        super().__init__(words)
        self.exit_status = exit_status


# ------------------------------------------------------------------------- options


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """What is looked at."""
    parser.add_argument(
        "--gpus",
        metavar="LIST",
        type=as_setting("gpus", lambda text: [name.strip() for name in text.split(",") if name.strip()]),
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


def as_setting(name: str, read: Callable[[str], Any] = str) -> Callable[[str], Any]:
    """An argument that is a setting, checked as one."""

    def checked(text: str) -> Any:
        from gputop.settings import check

        try:
            return check(name, read(text))
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def whole_number(text: str) -> int:
    """For argparse: 0, 1, 2…"""
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def spreadsheet_text(value: Any) -> Any:
    """A cell of a CSV file: text is cleaned, and such that a spreadsheet takes it for text. The names are anybody's."""
    if not isinstance(value, str):
        return value
    from gputop.model import clean_text

    text = clean_text(value, len(value))
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def add_viewer_arguments(parser: argparse.ArgumentParser) -> None:
    """What an application in the terminal can be told."""
    screen = parser.add_argument_group("viewer")
    screen.add_argument("--config", metavar="PATH", type=Path, help="settings file instead of the usual one")
    screen.add_argument("--ascii", action="store_true", default=None, help="draw with ASCII only")
    screen.add_argument("--no-color", action="store_true", help="no colours (as NO_COLOR in the environment)")
    screen.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")


def settings_of(options: argparse.Namespace) -> tuple[Settings, Path, tuple[str, ...]]:
    """The command line over the file over the defaults; the file; what is wrong with it."""
    from gputop import locations, settings_file

    config: Path | None = getattr(options, "config", None)
    path = config or locations.settings_file()
    settings, problems = settings_file.load(path)
    if config is not None and not path.exists():
        problems = (*problems, f"{path}: not there yet; it will be once a setting is changed")
    asked = {name: getattr(options, name, None) for name in ("refresh", "gpus", "ascii")}
    changes = {name: value for name, value in asked.items() if value is not None}
    if getattr(options, "no_color", False) or os.environ.get("NO_COLOR"):
        changes["color"] = False
    if getattr(options, "no_mouse", False):
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
    investigator: Callable[[], Investigator]  # made when leaks are looked for


def machine_of(options: argparse.Namespace, to_act: bool = False, clock: Callable[[], float] = time.time) -> Machine:
    """What *options* say to look at. *clock* is a simulated machine's."""
    if options.demo is not None:
        from gputop.sources.simulated import UnknownScenario, simulated_machine

        try:
            demo = simulated_machine(options.demo, options.seed, clock)
        except UnknownScenario as error:
            raise Refusal(f"--demo: {error}") from None
        return Machine(demo.source, demo.host, demo.signals if to_act else None, True, lambda: demo.investigator)
    from gputop.procfs.proc_host_reader import ProcHostReader
    from gputop.sources.nvml import NvmlSource

    signals: Signals | None = None
    if to_act:
        from gputop.signals.sender import ProcSignals

        signals = ProcSignals()
    reader = ProcHostReader()

    def investigator() -> Investigator:
        from gputop.leaks.proc_investigator import ProcInvestigator

        return ProcInvestigator(reader.facts_of)

    return Machine(NvmlSource(), reader, signals, False, investigator)


def scenarios() -> str:
    from gputop.sources.simulated import SCENARIOS

    lines = [(f"--demo={name}" if name else "--demo", words) for name, words in SCENARIOS.items()]
    lines.append(("--demo=NxMODEL", "so many of those GPUs: 4xh200, 16xb200, 2xl40s"))
    width = max(len(option) for option, _ in lines)
    return "".join(f"  {option:<{width}}  {words}\n" for option, words in lines)


def only_asked(snapshot: Snapshot, options: argparse.Namespace, settings: Settings) -> Snapshot:
    """*snapshot* with the GPUs asked for. One named on the command line must be there; of those named in the settings
    file some may be away, and if all are, all GPUs are shown: a problem says so."""
    from gputop.model import replace
    from gputop.model.selection import only

    if not snapshot.gpus:
        from gputop.sources.nvml import no_gpus

        raise no_gpus()
    selected, unknown = only(snapshot, settings.gpus)
    if not unknown:
        return selected
    words = f"{', '.join(unknown)}: no such GPU, or more than one"
    if options.gpus is not None:
        there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in snapshot.gpus)
        option = "--gpu" if getattr(options, "gpu", None) is not None else "--gpus"
        raise Refusal(f"{option}: {words}. There are: {there}")
    selected = selected if selected.gpus else snapshot
    return replace(selected, problems=(*selected.problems, f"settings: gpus: {words}"))


# ------------------------------------------------------------------------- printing


def is_terminal(stream: Any) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def print_out(text: str) -> int:
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
        raise Refusal(f"stdout cannot be written: {error.strerror or error}", UNWRITTEN) from None
    return 0
