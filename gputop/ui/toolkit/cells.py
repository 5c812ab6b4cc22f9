"""Lines of text made of styled spans, measured in terminal cells."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from rich.cells import cell_len, set_cell_size

Span = tuple[str, str]
"""Text and the name of its style (see palette.py). The text is clean: no control characters, no markup."""

Line = tuple[Span, ...]

ELLIPSIS: Final = "…"


#: Of what is drawn here, nearly everything: printable ASCII, arrows, boxes, blocks, braille and a few signs.
_USUAL: Final = re.compile("[ -~°·×†—…←-↓─-╿▀-▟■▲▴▸▾⠀-⣿]*")


@lru_cache(4096)
def plain(text: str) -> bool:
    """Whether every character of *text* takes exactly one cell."""
    return _USUAL.fullmatch(text) is not None or all(cell_len(character) == 1 for character in text)


@lru_cache(4096)
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
