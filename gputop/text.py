"""Plain text in terminal cells: measured, cut, padded, wrapped, made ASCII. A character is not always one cell.

All text is measured by one table, Rich's, since Textual lays out the screen with it. It is loaded at the first
character that is neither ASCII nor one of those gputop draws with: commands without a screen seldom need it. Text is
clean (:func:`gputop.model.clean_text`): no control characters, and none that join others into one.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Final, TextIO

ELLIPSIS: Final = "…"

#: Of what is drawn here, nearly everything: printable ASCII, arrows, boxes, blocks, braille and a few signs.
_USUAL: Final = re.compile("[ -~°·×†—…←-↓─-╿▀-▟■▲▴▸▾⠀-⣿]*")
_ASCII: Final = str.maketrans(
    {
        **dict.fromkeys("—–─·▔▁", "-"),
        **dict.fromkeys("│┤├▐▌▎▏▊▉▋▍", "|"),  # parts of a bar; the edges of toasts and of the command palette
        **dict.fromkeys("╭╮╰╯", "+"),
        **dict.fromkeys("←‹", "<"),
        **dict.fromkeys("→›▸≥", ">"),
        **dict.fromkeys("↓▾▼", "v"),
        **dict.fromkeys("↑▴", "^"),
        **dict.fromkeys("█■", "#"),
        "▓": "=",
        "▒": "%",
        "░": ":",
        "▲": "!",
        "†": "x",
        "✓": "*",
        "…": "~",
        "×": "x",
        "µ": "u",
        "°": " ",
    }
)


_LONE_DEGREE: Final = re.compile("°(?! ?[CF])")


@lru_cache(4096)
def _cell(character: str) -> int:
    """Cells of one character: 0 (combining marks), 1 or 2."""
    from rich.cells import get_character_cell_size

    return get_character_cell_size(character)


@lru_cache(4096)
def is_narrow(text: str) -> bool:
    """Whether every character of *text* takes exactly one cell."""
    return _USUAL.fullmatch(text) is not None or all(_cell(character) == 1 for character in text)


@lru_cache(4096)
def width(text: str) -> int:
    """How many cells *text* takes."""
    return len(text) if is_narrow(text) else sum(map(_cell, text))


def head(text: str, cells: int) -> str:
    """The beginning of *text* that fits *cells* cells."""
    if is_narrow(text):
        return text[: max(0, cells)]
    taken = 0
    for position, character in enumerate(text):
        taken += _cell(character)
        if taken > cells:
            return text[:position]
    return text


def skip(text: str, cells: int) -> str:
    """*text* without its first *cells* cells; half a wide character is a space."""
    if is_narrow(text):
        return text[cells:]
    taken = 0
    for position, character in enumerate(text):
        if taken >= cells:
            return " " * (taken - cells) + text[position:]
        taken += _cell(character)
    return " " * max(0, taken - cells)


def cut(text: str, cells: int) -> str:
    """The first *cells* cells of a longer text; half a wide character is a space."""
    text = head(text, cells)
    return text + " " * (cells - width(text))


def shorten(text: str, cells: int) -> str:
    """*text* in at most *cells* cells; an ellipsis says that something is missing."""
    if width(text) <= cells:
        return text
    return head(text, cells - 1) + ELLIPSIS if cells > 0 else ""


def fit(text: str, cells: int, right: bool = False) -> str:
    """*text* in exactly *cells* cells, at their left or their right: padded, or cut with an ellipsis."""
    taken = width(text)
    if taken > cells:
        if is_narrow(text):  # the path of nearly all that is drawn
            return text[: cells - 1] + ELLIPSIS if cells > 0 else ""
        text = shorten(text, cells)
        taken = width(text)
    return " " * (cells - taken) + text if right else text + " " * (cells - taken)


def wrap(text: str, cells: int) -> list[str]:
    """*text* in lines of at most *cells* (at least 2) cells, broken at spaces; longer words anywhere. At least one
    line."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if width(joined) <= cells:
            line = joined
            continue
        if line:
            lines.append(line)
        while width(word) > max(2, cells):
            lines.append(head(word, max(2, cells)))
            word = word[len(lines[-1]) :]
        line = word
    return [*lines, line]


def to_ascii(text: str) -> str:
    """*text* with ASCII only, in the same number of cells (``?`` where there is no likeness)."""
    if text.isascii():
        return text
    text = _LONE_DEGREE.sub("'", text).translate(_ASCII)
    return "".join([c if c.isascii() else "?" * _cell(c) for c in text])


def unicode_works(stream: TextIO | None) -> bool:
    """Whether what is written to *stream* arrives as Unicode: its encoding, the locale asked for (under C Python writes
    UTF-8 all the same), the Linux console's small font."""
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    ctype = os.environ.get("LC_CTYPE", "")
    ctype = "" if ctype == "C.UTF-8" else ctype  # Python sets that itself where LANG is C
    asked = os.environ.get("LC_ALL") or ctype or os.environ.get("LANG", "")
    return encoding == "utf8" and asked not in ("C", "POSIX") and os.environ.get("TERM") != "linux"
