"""A small curve of blocks, several lines high."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.ui.glyphs import Glyphs


def curve(values: Sequence[float], rows: int, top: float, glyphs: Glyphs) -> list[str]:
    """*values* from 0 to *top* as *rows* lines, one cell a value; NaN is a gap. What is not 0 can be seen."""
    steps = len(glyphs.levels) - 1
    heights = [-1 if v != v else max(1 if v else 0, min(rows * steps, round(v * rows * steps / top))) for v in values]
    lines = []
    for row in range(rows - 1, -1, -1):
        floor = row * steps
        lines.append("".join([" " if h <= floor else glyphs.levels[min(steps, h - floor)] for h in heights]))
    return lines
