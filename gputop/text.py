"""Text in terminal cells: a character is not always one of them."""

from __future__ import annotations

import os
import unicodedata
from typing import Final, TextIO

_NO_WIDTH: Final = frozenset(("Mn", "Me", "Cf"))  # what combines with the character before it, and format marks
_ASCII: Final = str.maketrans(
    "█▉▊▋▌▍▎▏▓▒░·—–…×°†▲▼↓↑←→─│╭╮╰╯┤├✓",
    "########o=-.--~x +^v<><>-|++++||v",
)


def cells(text: str) -> int:
    """How many terminal cells *text* takes."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    return 0 if unicodedata.category(character) in _NO_WIDTH else 1


def head(text: str, width: int) -> str:
    """The beginning of *text* that fits *width* cells."""
    if text.isascii():
        return text[: max(0, width)]
    used = 0
    for position, character in enumerate(text):
        used += _width(character)
        if used > width:
            return text[:position]
    return text


def shorten(text: str, width: int) -> str:
    """*text* in at most *width* cells; an ellipsis says that something is missing."""
    if cells(text) <= width:
        return text
    return head(text, width - 1) + "…" if width > 0 else ""


def left(text: str, width: int) -> str:
    """*text* in exactly *width* cells, at their left."""
    text = shorten(text, width)
    return text + " " * (width - cells(text))


def right(text: str, width: int) -> str:
    """*text* in exactly *width* cells, at their right."""
    text = shorten(text, width)
    return " " * (width - cells(text)) + text


def wrap(text: str, width: int) -> list[str]:
    """*text* as lines of at most *width* (at least 2) cells, broken at spaces where there are any."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and cells(line) + 1 + cells(word) <= width:
            line = f"{line} {word}"
            continue
        if line:
            lines.append(line)
        while cells(word) > width:
            lines.append(head(word, width))
            word = word[len(lines[-1]) :]
        line = word
    return [*lines, line] if line else lines


def to_ascii(text: str) -> str:
    """*text* with ASCII only, in the same number of cells."""
    if text.isascii():
        return text
    text = text.translate(_ASCII)
    return "".join(c if c.isascii() else "?" * _width(c) for c in text)


def unicode_works(stream: TextIO | None) -> bool:
    """Whether what is written to *stream* arrives as Unicode: its encoding, the locale asked for (under C Python writes
    UTF-8 all the same), the Linux console's small font."""
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    ctype = os.environ.get("LC_CTYPE", "")
    ctype = "" if ctype == "C.UTF-8" else ctype  # Python sets that itself where LANG is C
    asked = os.environ.get("LC_ALL") or ctype or os.environ.get("LANG", "")
    return encoding == "utf8" and asked not in ("C", "POSIX") and os.environ.get("TERM") != "linux"
