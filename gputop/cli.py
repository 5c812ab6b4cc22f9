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
from gputop.commands.shared.refusal import Refusal

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
        command = command_module(name)
        prepare = getattr(command, "prepare", list)
        options = command_parser(name, command).parse_args(prepare(arguments[1:]))
    from gputop.sources.source import SourceError

    try:
        if getattr(options, "demo", None) == "help":
            from gputop.commands.shared.machine import scenarios

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
    return command_module("once" if options.once else "dashboard"), options


def _complain(words: str, exit_status: int) -> int:
    from gputop.model import clean_text

    if sys.stderr is not None:
        words = "\n".join(clean_text(line, 4096) for line in words.split("\n"))  # names of files are anybody's
        print(f"gputop: {words}", file=sys.stderr)
    return exit_status
