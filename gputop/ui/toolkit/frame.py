"""What all screens over the dashboard are drawn with: frames, hints, fields, scroll bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from gputop.text import fit, skip, width
from gputop.ui.toolkit.cells import Line, Span, asciify
from gputop.ui.toolkit.glyphs import ASCII, Glyphs

Hint = tuple[str, str]
"""A key and what it does."""


def shown(lines: Iterable[Line], glyphs: Glyphs) -> list[Line]:
    """*lines* as the terminal can show them: with ASCII only where that is wanted, in the same number of cells."""
    if glyphs is not ASCII:
        return list(lines)
    return [asciify(line) for line in lines]


def clip(line: Line, cells: int) -> Line:
    """*line* in exactly *cells* cells."""
    room = cells
    spans: list[Span] = []
    for text, style in line:
        taken = width(text)
        if taken > room:
            if room > 0:
                spans.append((fit(text, room), style))
            room = 0
            break
        spans.append((text, style))
        room -= taken
    if room > 0:
        spans.append((" " * room, "text"))
    return tuple(spans)


def slice_from(line: Line, cells: int) -> Line:
    """*line* without its first *cells* cells."""
    spans: list[Span] = []
    for text, style in line:
        taken = width(text)
        if cells >= taken:
            cells -= taken
            continue
        spans.append((skip(text, cells) if cells else text, style))
        cells = 0
    return tuple(spans)


def on(line: Line, surface: str) -> Line:
    """*line* on a surface (the cursor's, the bar's), except where a span has one of its own."""
    return tuple([(text, style if "@" in style else f"{style}@{surface}") for text, style in line])


def hint_line(hints: Sequence[Hint], cells: int, surface: str = "") -> Line:
    """Keys and what they do, as many as fit, on *surface*."""
    at = f"@{surface}" if surface else ""
    spans: list[Span] = []
    room = cells
    for key, words in hints:
        need = width(key) + width(words) + 3
        if need > room:
            continue
        room -= need
        spans += [(" " + key, f"key+b{at}"), (f" {words} ", f"dim{at}")]
    spans.append((" " * room, f"dim{at}"))
    return tuple(spans)


def framed(title: str, hints: Sequence[Hint], lines: Sequence[Line], cells: int, glyphs: Glyphs) -> list[Line]:
    """*lines* in a box of *cells* cells, with *title* in its upper and *hints* in its lower edge."""
    tl, tr, bl, br = tuple(glyphs.corners)
    inner = cells - 4
    title = fit(title, min(width(title), inner - 2))
    edge = "accent"
    rest = " " + glyphs.rule * (cells - 5 - width(title)) + tr
    top = ((f"{tl}{glyphs.rule} ", edge), (title, "title+b"), (rest, edge))
    below: list[Span] = [(f"{bl}{glyphs.rule}", edge)]
    room = cells - 3
    for key, words in hints:
        need = width(key) + width(words) + 4
        if need > room:
            continue
        room -= need
        below += [(f" {key}", "key+b"), (f" {words} ", "dim"), (glyphs.rule, edge)]
    below.append((glyphs.rule * room + br, edge))
    side, other = (f"{glyphs.side} ", edge), (f" {glyphs.side}", edge)
    return [top, *((side, *clip(line, inner), other) for line in lines), tuple(below)]


def thumb(first: int, rows: int, total: int) -> range:
    """The rows of a scroll bar's thumb; empty where everything is seen."""
    if total <= rows or rows <= 0:
        return range(0)
    size = max(1, rows * rows // total)
    most = total - rows
    start = round((rows - size) * first / most) if most else 0
    return range(start, start + size)


def beside(left: Sequence[Line], right: Sequence[Line], left_cells: int, gap: int) -> list[Line]:
    """Two columns of lines as one."""
    between = (" " * gap, "text")
    return [(*clip(a, left_cells), between, *b) for a, b in zip_longest(left, right, fillvalue=())]
