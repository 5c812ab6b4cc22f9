"""Lines of text made of styled spans, in terminal cells. Plain text is measured and cut in gputop.text."""

from __future__ import annotations

from gputop.text import to_ascii, width

Span = tuple[str, str]
"""Text and the name of its style (see palette.py). The text is clean: no control characters, no markup."""

Line = tuple[Span, ...]


def line_width(line: Line) -> int:
    return sum(width(text) for text, _ in line)


def asciify(line: Line) -> Line:
    """*line* in as many cells with every character that is not ASCII replaced."""
    return tuple([(text if text.isascii() else to_ascii(text), style) for text, style in line])
