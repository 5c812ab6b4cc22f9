"""Prints a script that makes Tab complete gputop's commands, options, fields and files in your shell."""

from __future__ import annotations

import argparse
import importlib
from typing import TYPE_CHECKING, Final

from gputop.commands import COMMANDS
from gputop.commands.shared.output import print_out

if TYPE_CHECKING:
    from gputop.outputs.completion import Command

SHELLS: Final = ("bash", "zsh", "fish")

_EPILOG: Final = """\
bash: gputop completion bash > ~/.local/share/bash-completion/completions/gputop
zsh:  gputop completion zsh > ~/.zfunc/_gputop    (with fpath+=~/.zfunc before compinit)
fish: gputop completion fish > ~/.config/fish/completions/gputop.fish
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")


def run(options: argparse.Namespace) -> int:
    generator = importlib.import_module(f"gputop.outputs.completion.{options.shell}")
    return print_out(generator.script(commands()))


def commands() -> list[Command]:
    """gputop itself and all its subcommands, as their parsers have them."""
    from gputop.commands.shared.parsers import command_module, command_parser, main_parser
    from gputop.outputs.completion import describe

    known = _known()
    found = [describe("", "", main_parser(), known)]
    for name, words in COMMANDS.items():
        found.append(describe(name, words, command_parser(name, command_module(name)), known))
    return found


def _known() -> dict[str, tuple[str, tuple[str, ...]]]:
    """The values that argparse knows nothing of, by the option's destination."""
    from gputop.outputs.completion import LIST, WORDS
    from gputop.sources.nvml.query import APP_FIELDS, GPU_FIELDS
    from gputop.sources.simulated import SCENARIOS

    formats = ("csv", "csv,noheader", "csv,nounits", "csv,noheader,nounits", "json", "table")
    return {
        "gpu": (LIST, tuple(field.name for field in GPU_FIELDS)),
        "compute_apps": (LIST, tuple(field.name for field in APP_FIELDS)),
        "format": (WORDS, formats),
        "demo": (WORDS, tuple(name for name in SCENARIOS if name)),
    }
