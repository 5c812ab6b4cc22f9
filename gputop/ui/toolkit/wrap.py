"""Text broken into lines of so many cells."""

from __future__ import annotations

from rich.cells import chop_cells

from gputop.ui.toolkit.cells import width


def wrap(text: str, cells: int) -> list[str]:
    """*text* in lines of at most *cells* cells, broken at spaces; longer words anywhere. At least one line."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if width(joined) <= cells:
            line = joined
            continue
        if line:
            lines.append(line)
        *whole, line = chop_cells(word, max(2, cells)) or [""]
        lines += whole
    lines.append(line)
    return lines
