"""Shows the manual page; into a file or a pipe it is written as man's source."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Final

from gputop.commands import COMMANDS
from gputop.commands.shared.output import is_terminal, print_out

_EPILOG: Final = "gputop man > ~/.local/share/man/man1/gputop.1 makes `man gputop` find it."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG


def run(options: argparse.Namespace) -> int:
    text = source()
    viewer = shutil.which("man")
    if viewer is None or not is_terminal(sys.stdout):
        return print_out(text)
    with tempfile.NamedTemporaryFile("w", prefix="gputop.", suffix=".1", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        return subprocess.run([viewer, "-l", file.name]).returncode


def source() -> str:
    """The page of gputop and all its subcommands, as their parsers have them."""
    from gputop import __version__
    from gputop.commands.shared.parsers import command_module, command_parser, main_parser
    from gputop.outputs.man_page import page

    moment = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()))
    commands = [(name, words, command_parser(name, command_module(name))) for name, words in COMMANDS.items()]
    return page(__version__, time.strftime("%Y-%m-%d", moment), main_parser(), commands)
