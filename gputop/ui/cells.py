"""Lines of text made of styled spans, measured in terminal cells."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rich.cells import cell_len, set_cell_size

Span = tuple[str, str]
"""Text and the name of its style (see palette.py). The text is clean: no control characters, no markup."""

Line = tuple[Span, ...]

ELLIPSIS: Final = "…"


@lru_cache(8192)
def _plain(text: str) -> bool:
    return all(cell_len(character) == 1 for character in text)


def plain(text: str) -> bool:
    """Whether every character of *text* takes exactly one cell."""
    return text.isascii() or _plain(text)


def width(text: str) -> int:
    """Cells that *text* takes."""
    return len(text) if plain(text) else cell_len(text)


def fit(text: str, cells: int, right: bool = False) -> str:
    """*text* in exactly *cells* cells: padded, or cut with an ellipsis."""
    if cells <= 0:
        return ""
    taken = width(text)
    if taken > cells:
        text = text[: cells - 1] if plain(text) else set_cell_size(text, cells - 1)
        return text + ELLIPSIS
    return " " * (cells - taken) + text if right else text + " " * (cells - taken)


def skip(text: str, cells: int) -> str:
    """*text* without its first *cells* cells (a wide character cut in two leaves a space)."""
    if plain(text):
        return text[cells:]
    taken = 0
    for n, character in enumerate(text):
        if taken >= cells:
            return " " * (taken - cells) + text[n:]
        taken += cell_len(character)
    return ""


def line_width(line: Line) -> int:
    return sum(width(text) for text, _ in line)
