"""The man page, made from the parsers: groff's man macros, which mandoc reads too."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

#: Name, what it is for, parser.
_Command = tuple[str, str, argparse.ArgumentParser]

#: Sections behind the commands: heading and paragraphs.
_ENVIRONMENT: Final = (
    ("XDG_CONFIG_HOME", "where the settings are: $XDG_CONFIG_HOME/gputop/config.toml, else ~/.config"),
    ("NO_COLOR", "draw without colours"),
    ("TERM, COLORTERM", "what the terminal can do"),
    ("LD_LIBRARY_PATH", "where else libnvidia-ml.so.1 is looked for"),
)


def page(version: str, date: str, itself: argparse.ArgumentParser, commands: Sequence[_Command]) -> str:
    """The page of gputop *version*, dated *date* (ISO)."""
    return "".join(f"{line}\n" for line in _lines(version, date, itself, commands))


def _lines(version: str, date: str, itself: argparse.ArgumentParser, commands: Sequence[_Command]) -> Iterator[str]:
    yield f'.TH GPUTOP 1 "{date}" "gputop {version}" "User Commands"'
    yield ".SH NAME"
    yield r"gputop \- which GPU is full, who filled it, and free it"
    yield ".SH SYNOPSIS"
    yield from _synopsis("gputop", itself)
    for name, _, parser in commands:
        yield ".br"
        yield from _synopsis(f"gputop {name}", parser)
    yield ".SH DESCRIPTION"
    yield _text(itself.description or "")
    yield "F1 lists its keys, F2 its settings."
    yield ".SH OPTIONS"
    yield from _options(itself)
    yield ".SH COMMANDS"
    for name, words, parser in commands:
        yield f'.SS "gputop {_text(name)}"'
        yield _text(f"{words[:1].upper()}{words[1:]}.")
        yield ".PP"
        yield _text(parser.description or "")
        yield from _options(parser)
        if parser.epilog:
            yield ".PP"
            yield from _epilog(parser)
    yield ".SH EXIT STATUS"
    statuses = (itself.epilog or "").partition("Exit status: ")[2].rstrip(".")
    for status in statuses.split(", "):
        number, _, words = status.partition(" ")
        yield from _item(number, words)
    yield ".SH ENVIRONMENT"
    for name, words in _ENVIRONMENT:
        yield from _item(name, words)
    yield ".SH SEE ALSO"
    yield ".BR nvidia\\-smi (1)"


def _synopsis(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    operands = [action for action in parser._actions if not action.option_strings]
    names = " ".join(_metavar(action) + ("..." if action.nargs in ("+", "*") else "") for action in operands)
    yield f".B {_text(name)}"
    yield f"[option...] {_text(names)}".rstrip()


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        if not actions:
            continue
        if group.title not in ("options", "positional arguments", None):
            yield ".PP"
            yield f"{_text(str(group.title)).capitalize()}:"
        for action in actions:
            yield from _item(_names(action), _help(parser, action), escaped=True)


def _names(action: argparse.Action) -> str:
    """Bold names, the value in italics."""
    value = "" if action.nargs == 0 else rf"\fI{_text(_metavar(action))}\fR"
    if not action.option_strings:
        return value
    names = ", ".join(rf"\fB{_text(name)}\fR" for name in action.option_strings)
    if not value:
        return names
    return f"{names} [{value}]" if action.nargs == "?" else f"{names} {value}"


def _metavar(action: argparse.Action) -> str:
    return action.metavar if isinstance(action.metavar, str) else action.dest.upper()


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = (action.help or "").replace("%(default)s", str(action.default)).replace("%(prog)s", parser.prog)
    return " ".join(text.replace("%%", "%").split())


def _epilog(parser: argparse.ArgumentParser) -> Iterator[str]:
    epilog = parser.epilog or ""
    if parser.formatter_class is argparse.RawDescriptionHelpFormatter:  # its lines are meant
        yield ".nf"
        yield from map(_text, epilog.rstrip().splitlines())
        yield ".fi"
    else:
        yield _text(epilog)


def _item(head: str, words: str, escaped: bool = False) -> Iterable[str]:
    return (".TP", head if escaped else rf"\fB{_text(head)}\fR", _text(words) or r"\&")


def _text(text: str) -> str:
    """*text* as roff prints it: no escapes, no requests, hyphens that can be copied."""
    text = " ".join(text.split()) if "\n" in text else text
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("—", r"\(em").replace("'", r"\(aq")
    return rf"\&{text}" if text.startswith((".", "'")) else text
