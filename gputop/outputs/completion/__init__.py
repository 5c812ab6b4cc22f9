"""Shell completion, made from the parsers: what there is to complete, as the shells' generators need it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

NOTHING: Final = "nothing"
FILE: Final = "file"
WORDS: Final = "words"
LIST: Final = "list"  # of words, with commas between

_FILES: Final = ("FILE", "PATH", "DIR")


@dataclass(frozen=True, slots=True)
class Value:
    """What an option or a command takes: its name in the help, and what it can be completed to."""

    name: str
    kind: str = NOTHING
    words: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    names: tuple[str, ...]
    help: str
    value: Value | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand; ``gputop`` itself has no name."""

    name: str
    help: str
    options: tuple[Option, ...]
    operand: Value | None = None


def describe(
    name: str, help_: str, parser: argparse.ArgumentParser, known: Mapping[str, tuple[str, tuple[str, ...]]]
) -> Command:
    """The command that *parser* parses. *known* says how values are completed that argparse knows nothing of: by the
    option's destination, the kind and the words."""
    options, operand = [], None
    for action in parser._actions:
        value = None if action.nargs == 0 else _value(action, known)
        if action.option_strings:
            options.append(Option(tuple(action.option_strings), _first_sentence(action.help or ""), value))
        else:
            operand = value
    return Command(name, help_, tuple(options), operand)


def _value(action: argparse.Action, known: Mapping[str, tuple[str, tuple[str, ...]]]) -> Value:
    name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    optional = action.nargs == "?"
    if action.dest in known:
        kind, words = known[action.dest]
        return Value(name, kind, words, optional)
    if action.choices:
        return Value(name, WORDS, tuple(map(str, action.choices)), optional)
    return Value(name, FILE if name.startswith(_FILES) else NOTHING, (), optional)


def _first_sentence(text: str) -> str:
    """Short enough for a menu."""
    text = " ".join(text.replace("%%", "%").split())
    for end in ("; ", ": ", " ("):
        text = text.partition(end)[0]
    return text
