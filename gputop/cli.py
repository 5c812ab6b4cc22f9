"""The command line: what is asked for, and starting those who do it.

Imports are late on purpose: ``--version`` needs nothing, ``--once`` no Textual, and the dashboard's first reading is
taken while its screen is still being imported.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any, Final

from gputop.commands import COMMANDS
from gputop.commands.shared.output import print_out
from gputop.commands.shared.parsers import command_module, command_parser, main_parser
from gputop.commands.shared.refusal import CANNOT_WRITE, Refusal

INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141  # as if SIGPIPE had ended it

TRY_DEMO: Final = "`gputop --demo` shows the dashboard on a simulated machine."


def main() -> int:
    """The command ``gputop``."""
    try:
        status = run(sys.argv[1:])
    except SystemExit as end:  # of argparse, whose text may not be written yet
        status = end.code if isinstance(end.code, int) else 0
    status = _written(status)
    if threading.active_count() > 1:  # a thread may hang inside the driver: no waiting for it
        os._exit(status)
    return status


def run(arguments: Sequence[str]) -> int:
    """Do what *arguments* ask for. Returns the exit status; threads inside the driver may be left."""
    name = arguments[0] if arguments and arguments[0] in COMMANDS else None
    headless = name is not None
    try:
        if name is None:
            command, options = _parse(arguments)
        else:
            command = command_module(name)
            prepare = getattr(command, "prepare", list)
            options = command_parser(name, command).parse_args(prepare(arguments[1:]))
        headless = headless or options.once
        if getattr(options, "demo", None) == "help":
            from gputop.commands.shared.machine import scenarios

            return print_out(scenarios())
        status: int = command.run(options)
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard(1)
        return PIPE_CLOSED
    except Exception as error:
        return _failed(error, name, headless)


# ------------------------------------------------------------------------- options


def _parse(arguments: Sequence[str]) -> tuple[Any, argparse.Namespace]:
    """The module that does what is asked for, and the options."""
    parser = main_parser()
    options = parser.parse_args(arguments)
    if options.json and not options.once:
        parser.error("--json needs --once")
    return command_module("once" if options.once else "dashboard"), options


def _failed(error: Exception, name: str | None, headless: bool) -> int:
    """Say why it ended. Returns the exit status. For a fault of ours, or of the system's, it is nobody's verdict:
    Python's own would be 1, "a leak"."""
    if isinstance(error, Refusal):
        return _complain(str(error), error.exit_status)
    from gputop.sources.source import SourceError, asked_once

    if isinstance(error, SourceError):
        return _complain(asked_once(str(error)) if headless else f"{error}\n{TRY_DEMO}", error.exit_status)
    from gputop.crash import crash_message, exit_status

    return _complain(crash_message(name or "program", error), exit_status(error))


def _complain(words: str, exit_status: int) -> int:
    from gputop.model import clean_text

    if sys.stderr is not None:
        words = "\n".join(clean_text(line, 4096) for line in words.split("\n"))  # names of files are anybody's
        try:
            print(f"gputop: {words}", file=sys.stderr, flush=True)
        except OSError:
            _discard(2)
    return exit_status


def _written(status: int) -> int:
    """*status*, or another where what stands in a buffer cannot be written: Python would exit with 120."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        _discard(2)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard(1)
        return PIPE_CLOSED
    except OSError as error:
        _discard(1)
        return _complain(f"stdout cannot be written: {error.strerror or error}", CANNOT_WRITE)
    return status


def _discard(descriptor: int) -> None:
    """Let *descriptor* take anything, so that Python's last flush does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
