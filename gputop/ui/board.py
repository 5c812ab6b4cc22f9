"""The widget everything is drawn with: it takes lines of spans and redraws the spans that changed.

No widget of Textual's own draws in a tick: they repaint all of themselves for one cell (measured: 118 KB a tick).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputop.ui.cells import Line, plain, width
from gputop.ui.glyphs import asciify
from gputop.ui.palette import Palette

_JOIN = 8  # cells: a gap this small costs less than moving the cursor over it


class _PlainStrip(Strip):
    """A strip of one-cell characters only, which is cheap to crop."""

    def crop(self, start: int, end: int | None = None) -> Strip:
        stop = self._cell_length if end is None else min(end, self._cell_length)
        segments = []
        position = 0
        for segment in self._segments:
            text = segment[0]
            after = position + len(text)
            if after > start:
                if position < start or after > stop:
                    segments.append(Segment(text[max(0, start - position) : stop - position], segment[1]))
                else:
                    segments.append(segment)
                if after >= stop:
                    break
            position = after
        return Strip(segments, stop - start)


def _changed_runs(old: str, new: str, x: int) -> Iterator[tuple[int, int]]:
    """(x, length) of the runs in which two equally long plain texts differ; small gaps are joined."""
    first = last = -1
    for n, (a, b) in enumerate(zip(old, new, strict=True)):
        if a != b:
            if first < 0:
                first = n
            elif n - last > _JOIN:
                yield x + first, last - first + 1
                first = n
            last = n
    if first >= 0:
        yield x + first, last - first + 1


def changed_regions(y: int, old: Line, new: Line, cells: int) -> list[Region]:
    """What must be redrawn of line *y*, *cells* wide: exact spans where both lines have the same fields, else all."""
    if len(old) != len(new):
        return [Region(0, y, cells, 1)]
    runs: list[tuple[int, int]] = []
    x = 0
    for before, after in zip(old, new, strict=True):
        text = after[0]
        if before is after or before == after:
            x += width(text)
            continue
        simple = plain(text) and plain(before[0])
        if len(text) != len(before[0]) if simple else width(text) != width(before[0]):
            return [Region(0, y, cells, 1)]
        if simple and before[1] == after[1]:
            runs += _changed_runs(before[0], text, x)
            x += len(text)
        else:
            taken = width(text)
            runs.append((x, taken))
            x += taken
    regions = []
    start = end = -1
    for at, length in runs:
        if end >= 0 and at - end <= _JOIN:
            end = at + length
        else:
            if end >= 0:
                regions.append(Region(start, y, end - start, 1))
            start, end = at, at + length
    if end >= 0:
        regions.append(Region(start, y, min(end, cells) - start, 1))
    return regions


class Board(Widget):
    """Shows the lines given to :meth:`show`. Lines shorter than the widget are padded, longer ones cut."""

    DEFAULT_CSS: ClassVar[str] = "Board { width: 100%; height: 1; }"
    can_focus = False
    ascii_only: ClassVar[bool] = False  # set once for all boards, before the first one is drawn

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.lines: Sequence[Line] = ()
        self._strips: dict[int, tuple[Line, Palette, int, Strip]] = {}

    @property
    def palette(self) -> Palette:
        return Palette.of(self.app)

    def show(self, lines: Sequence[Line]) -> None:
        """Draw *lines* from now on; redraws what differs from those shown before."""
        if self.ascii_only:
            lines = [asciify(line) for line in lines]
        old, self.lines = self.lines, lines
        cells = self.size.width
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
        palette, cells = self.palette, self.size.width
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
            if plain(span_text):
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
        strip = _PlainStrip(segments, taken) if simple else Strip(segments, taken)
        if taken > cells:
            strip = strip.crop(0, cells)
            strip = _PlainStrip(strip._segments, cells) if simple else strip
        return strip



