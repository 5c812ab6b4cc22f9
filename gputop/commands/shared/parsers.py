"""The parsers: of ``gputop`` itself and of each subcommand. Completions and the man page are made from them too."""

from __future__ import annotations

import argparse
import importlib
import sys
from functools import partial
from typing import Any, NoReturn

from gputop import __version__
from gputop.commands import GROUPS
from gputop.commands.shared.options import add_screen_options, add_source_options, as_setting
from gputop.commands.shared.output import print_out


class _Parser(argparse.ArgumentParser):
    """One whose errors print no control characters of the arguments they quote."""

    def error(self, message: str) -> NoReturn:
        from gputop.model import clean_text

        super().error(clean_text(message))

    def _print_message(self, message: str, file: Any = None) -> None:
        """argparse says nothing where help cannot be written. Raises as print_out does."""
        if file is sys.stdout:
            print_out(message)
        else:
            super()._print_message(message, file)


class _MainParser(_Parser):
    """``gputop`` itself: its help begins with the subcommands, which argparse knows nothing of."""

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for title, commands in GROUPS.items():
            formatter.start_section(title)
            for name, words in commands.items():
                formatter.add_argument(argparse.Action([], name, help=words))
            formatter.end_section()
        formatter.add_text("`gputop COMMAND --help` shows the options of a command.")
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def command_module(name: str) -> Any:
    """The module of the subcommand *name*."""
    return importlib.import_module(f"gputop.commands.{name.replace('-', '_')}")


def command_parser(name: str, command: Any) -> argparse.ArgumentParser:
    """The parser of a subcommand, whose module is *command*."""
    parser = _Parser(prog=f"gputop {name}", description=command.__doc__, allow_abbrev=False)
    command.add_arguments(parser)
    return parser


def main_parser() -> argparse.ArgumentParser:
    """The parser of ``gputop`` without a subcommand."""
    parser = _MainParser(
        prog="gputop",
        usage="gputop [option...]\n       gputop COMMAND [option...]",
        formatter_class=partial(argparse.HelpFormatter, max_help_position=18),  # the longest command's name
        description="Which GPU is full, who filled it, and free it: a dashboard for NVIDIA GPUs. Without a "
        "command, the dashboard starts.",
        epilog="Exit status: 0 all is well, 2 usage, 3 no driver library, 4 driver not loaded, 5 driver and library "
        "differ, 6 no permission, 7 no GPUs, 8 the driver fails or does not answer, 70 an internal error, 71 the "
        "system gives no more threads or memory.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"gputop {__version__}{_built_from()}")
    add_source_options(parser)
    screen = parser.add_argument_group("dashboard")
    screen.add_argument(
        "-d",
        "--refresh",
        metavar="TIME",
        type=as_setting("refresh"),
        help="time between readings, with its unit: 500ms, 2s (100ms to 60s)",
    )
    add_screen_options(screen)
    screen.add_argument("--read-only", action="store_true", help="no way to send a signal to a process")
    screen.add_argument("--print-on-exit", action="store_true", help="leave the last table in the scrollback")
    headless = parser.add_argument_group("without the dashboard")
    headless.add_argument("--once", action="store_true", help="print one table and exit")
    headless.add_argument("--json", action="store_true", help="with --once: one JSON object instead")
    return parser


def _built_from() -> str:
    """`` (3f2a1bc, 2026-11-30)``: the commit, where hatch_build.py wrote it down."""
    try:
        from gputop._build import COMMIT
    except ModuleNotFoundError:
        return ""
    return f" ({COMMIT})"
