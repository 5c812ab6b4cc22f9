"""Options that several commands have, and the checks of their values."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any


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
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="random seed of the simulated machine")


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


def add_screen_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """What an application in the terminal can be told."""
    parser.add_argument("--config", metavar="PATH", type=Path, help="settings file instead of the usual one")
    parser.add_argument("--ascii", action="store_true", default=None, help="draw with ASCII only")
    parser.add_argument("--no-color", action="store_true", help="no colours (like NO_COLOR in the environment)")
    parser.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")
