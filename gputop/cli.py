"""The command line: what is asked for, and starting those who do it.

Imports are late on purpose: ``--version`` needs nothing, ``--once`` no Textual, and the dashboard's first reading is
taken while its screen is still being imported.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from gputop import __version__
from gputop.commands import COMMANDS
from gputop.commands.common import Refusal, add_source_options, as_setting, print_out, scenarios

INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141  # as if SIGPIPE had ended it

TRY_DEMO: Final = "`gputop --demo` shows the dashboard on a simulated machine."


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
    name = arguments[0] if arguments and arguments[0] in COMMANDS else None
    if name is None:
        command, options = _parse(arguments)
    else:
        command = importlib.import_module(f"gputop.commands.{name.replace('-', '_')}")
        prepare = getattr(command, "prepare", list)
        options = command_parser(name, command).parse_args(prepare(arguments[1:]))
    from gputop.sources import SourceError

    try:
        if getattr(options, "demo", None) == "help":
            return print_out(scenarios())
        status: int = command.run(options)
        return status
    except Refusal as refusal:
        return _complain(str(refusal), refusal.exit_status)
    except SourceError as error:
        headless = name is not None or options.once
        return _complain(str(error) if headless else f"{error}\n{TRY_DEMO}", error.exit_status)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that Python's last flush does not fail again
        return PIPE_CLOSED


# ------------------------------------------------------------------------- options


def _parse(arguments: Sequence[str]) -> tuple[Any, argparse.Namespace]:
    """The module that does what is asked for, and the options."""
    parser = main_parser()
    options = parser.parse_args(arguments)
    if options.json and not options.once:
        parser.error("--json needs --once")
    return importlib.import_module(f"gputop.commands.{'once' if options.once else 'dashboard'}"), options


def command_parser(name: str, command: Any) -> argparse.ArgumentParser:
    """The parser of a subcommand, whose module is *command*."""
    parser = argparse.ArgumentParser(prog=f"gputop {name}", description=command.__doc__, allow_abbrev=False)
    command.add_arguments(parser)
    return parser


def main_parser() -> argparse.ArgumentParser:
    """The parser of ``gputop`` without a subcommand."""
    parser = argparse.ArgumentParser(
        prog="gputop",
        description="Which GPU is full, who filled it, and free it: a dashboard for NVIDIA GPUs.",
        epilog=_commands_in_words()
        + "Exit status: 0 all is well, 2 usage, 3 no driver library, 4 driver not loaded, 5 driver and library "
        "differ, 6 no permission, 7 no GPUs, 8 the driver fails or does not answer.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"gputop {__version__}")
    add_source_options(parser)
    screen = parser.add_argument_group("dashboard")
    screen.add_argument(
        "-d",
        "--refresh",
        metavar="TIME",
        type=as_setting("refresh"),
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
    return parser


def _commands_in_words() -> str:
    return "".join(f"gputop {name}: {words}. " for name, words in COMMANDS.items())


def _complain(words: str, exit_status: int) -> int:
    if sys.stderr is not None:
        print(f"gputop: {words}", file=sys.stderr)
    return exit_status
