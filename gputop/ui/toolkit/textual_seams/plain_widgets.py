"""Textual's own widgets (prompt, command palette, toasts) on a terminal without Unicode, or without colours."""

from __future__ import annotations

from typing import Final

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter, NoColor

from gputop.text import to_ascii


class _AsciiOnly(LineFilter):
    """Every character that is not ASCII replaced, in as many cells."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [segment if segment.text.isascii() else Segment(to_ascii(segment.text), *segment[1:])
                for segment in segments]  # fmt: skip


ASCII_ONLY: Final = _AsciiOnly()
NO_COLOURS: Final = NoColor()
