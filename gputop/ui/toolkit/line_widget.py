"""The widget everything is drawn with: it takes lines of spans and redraws the spans that changed.

No widget of Textual's own draws in a tick: they repaint all of themselves for one cell (measured: 118 KB a tick).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from rich.segment import Segment
from textual.app import App
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputop.text import is_narrow, width
from gputop.ui.toolkit.cells import Line, asciify
from gputop.ui.toolkit.palette import Palette, blank_look
from gputop.ui.toolkit.textual_seams.plain_strip import PlainStrip

_JOIN: Final = 12  # cells: a gap this small is cheaper to write than to skip
_FAR: Final = 4096  # cells: the rest of the line


Run = tuple[int, int]
"""Cells from, and up to without."""


def changed_runs(old: Line, new: Line) -> list[Run]:
    """Where two lines differ, in cells: their spans are walked side by side, so that a bar that grew by a cell is one
    cell that changed, however the spans are cut. From the first character on that is not one cell wide, a difference
    means the rest of the line."""
    runs: list[Run] = []
    n = m = x = 0
    text = style = after = after_style = ""
    while True:
        if not text and not after:
            while n < len(old) and m < len(new) and old[n] == new[m]:
                x += width(old[n][0])
                n, m = n + 1, m + 1
        while not text and n < len(old):
            text, style = old[n]
            n += 1
        while not after and m < len(new):
            after, after_style = new[m]
            m += 1
        if not text or not after:
            break
        if not is_narrow(text) or not is_narrow(after):
            return [*runs, (x, x + _FAR)]
        length = min(len(text), len(after))
        if style != after_style:
            runs += _restyled_runs(text[:length], style, after[:length], after_style, x)
        elif text[:length] != after[:length]:
            runs += [(x + k, x + k + 1) for k in range(length) if text[k] != after[k]]
        text, after = text[length:], after[length:]
        x += length
    left = max(
        width(text) + sum(width(more) for more, _ in old[n:]),
        width(after) + sum(width(more) for more, _ in new[m:]),
    )
    return [*runs, (x, x + left)] if left else runs


def _restyled_runs(text: str, style: str, after: str, after_style: str, x: int) -> list[Run]:
    """Where two equally long texts of different styles differ: everywhere but in blanks that look the same."""
    if " " not in text or blank_look(style) != blank_look(after_style):
        return [(x, x + len(text))]
    return [
        (x + n, x + n + 1) for n, (old, new) in enumerate(zip(text, after, strict=True)) if old != " " or new != " "
    ]


def changed_regions(y: int, old: Line, new: Line, cells: int) -> list[Region]:
    """What must be redrawn of line *y*, which is *cells* wide; small gaps are joined."""
    regions = []
    start = end = -1
    for first, after in changed_runs(old, new):
        if first - end <= _JOIN and end >= 0:
            end = after
        else:
            if end >= 0:
                regions.append(Region(start, y, end - start, 1))
            start, end = first, after
    if end >= 0 and start < cells:
        regions.append(Region(start, y, min(end, cells) - start, 1))
    return regions


class LineWidget(Widget):
    """Shows the lines given to :meth:`show`. Lines shorter than the widget are padded, longer ones cut."""

    DEFAULT_CSS: ClassVar[str] = "LineWidget { width: 100%; height: 1; }"
    can_focus = False
    ascii_only: ClassVar[bool] = False  # set once for all boards, before the first one is drawn

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.lines: Sequence[Line] = ()
        self.cells_given = 0  # by whoever arranges the screen; what counts before the first layout
        self.lines_given = 0
        self._strips: dict[int, tuple[Line, Palette, int, Strip]] = {}

    @property
    def palette(self) -> Palette:
        return Palette.of(self.app)

    @property
    def cells(self) -> int:
        """Its width; the screen's as long as it has none of its own, so that the first picture is the right one."""
        return self.outer_size.width or self.cells_given or self.app.size.width

    @property
    def height(self) -> int:
        return self.outer_size.height or self.lines_given

    def show(self, lines: Sequence[Line]) -> None:
        """Draw *lines* from now on; redraws what differs from those shown before."""
        if self.ascii_only:
            lines = [asciify(line) for line in lines]
        old, self.lines = self.lines, lines
        cells = self.cells
        regions: list[Region] = []
        for y, line in enumerate(lines):
            before = old[y] if y < len(old) else ()
            if before is not line and before != line:
                regions += changed_regions(y, before, line, cells)
        regions += [Region(0, y, cells, 1) for y in range(len(lines), len(old))]
        if regions:
            self.refresh(*regions)

    def redraw(self) -> None:
        """Draw everything anew (theme changed, Ctrl+L)."""
        self._strips.clear()
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Replaces Textual's styles cache (borders, padding: a board has none), which costs 3.6 ms a tick."""
        palette, cells = self.palette, self.outer_size.width
        strips, lines = self._strips, self.lines
        first, last = crop.column_span
        whole = first == 0 and last == cells
        result = []
        for y in crop.line_range:
            line = lines[y] if y < len(lines) else ()
            kept = strips.get(y)
            if kept is None or kept[0] is not line or kept[1] is not palette or kept[2] != cells:
                kept = strips[y] = (line, palette, cells, self._draw(line, palette, cells))
            result.append(kept[3] if whole else kept[3].crop(first, last))
        return result

    def render_line(self, y: int) -> Strip:
        line = self.lines[y] if y < len(self.lines) else ()
        return self._draw(line, self.palette, self.size.width)

    def _draw(self, line: Line, palette: Palette, cells: int) -> Strip:
        segments: list[Segment] = []
        text, name = "", ""
        simple = True
        taken = 0
        for span_text, span_name in line:
            if is_narrow(span_text):
                taken += len(span_text)
            else:
                simple = False
                taken += width(span_text)
            if span_name == name:
                text += span_text
            else:
                if text:
                    segments.append(Segment(text, palette.style(name)))
                text, name = span_text, span_name
        if text:
            segments.append(Segment(text, palette.style(name)))
        if taken < cells:
            segments.append(Segment(" " * (cells - taken), palette.style("text")))
            taken = cells
        strip = PlainStrip(segments, taken) if simple else Strip(segments, taken)
        return strip.crop(0, cells) if taken > cells else strip


def redraw_all(app: App[Any]) -> None:
    """Write every cell of the terminal anew: something else may have written on it."""
    for screen in app.screen_stack:
        for board in screen.query(LineWidget):
            board.redraw()
        screen.refresh(repaint=True, layout=True)
