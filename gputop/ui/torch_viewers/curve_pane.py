"""A curve of bytes held, and reserved, entry by entry: with zoom, a cursor, the peak and what went wrong marked.

A column stands for as many entries as it must and shows the most that was held after any of them, so that no spike is
lost; the curves come from levels of maxima, which makes a redraw independent of their length.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise

from gputop.text import fit, width, wrap
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.frame import Hint
from gputop.ui.toolkit.view import View
from gputop.ui.torch_viewers.pane import Pane
from gputop.units.fine import size

_AXIS_CELLS = 9  # cells of the labels at the left
_LEAST = 20  # entries of the deepest zoom


class CurvePane(Pane):
    """Draws the curve; what it is of is its subclass's. Entries count from 0, -1 is before the first."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._windows: dict[Hashable, tuple[int, int]] = {}
        self._columns = 1

    # -- what is drawn

    @property
    def of(self) -> Hashable:
        """Which curve it is: each has its own window."""
        raise NotImplementedError

    @property
    def points(self) -> int:
        raise NotImplementedError

    @property
    def cursor(self) -> int:
        raise NotImplementedError

    @cursor.setter
    def cursor(self, entry: int) -> None:
        raise NotImplementedError

    @property
    def peak(self) -> tuple[int, int]:
        """The entry after which most was held, and how much."""
        raise NotImplementedError

    @property
    def alarms(self) -> Sequence[int]:
        """Entries to be marked: out of memory."""
        return ()

    def most_held(self, start: int, end: int) -> int:
        """The most after any of the entries *start* to *end* (without)."""
        raise NotImplementedError

    def most_reserved(self, start: int, end: int) -> int:
        raise NotImplementedError

    def axis(self, start: int, end: int) -> str:
        """Words about the entries shown."""
        return f"{end - start:,} of {self.points:,} entries"

    def below(self, cells: int, rows: int) -> list[Line]:
        """About the entry at the cursor."""
        raise NotImplementedError

    def nothing(self) -> str:
        return "nothing"

    # -- what of it is in sight

    @property
    def window(self) -> tuple[int, int]:
        """The entries shown: from, to (without)."""
        return self._windows.get(self.of, (0, self.points))

    @window.setter
    def window(self, window: tuple[int, int]) -> None:
        start, end = window
        span = max(min(_LEAST, self.points), end - start)
        start = max(0, min(start, self.points - span))
        self._windows[self.of] = (start, min(self.points, start + span))

    # -- keys

    def pressed(self, key: str, page: int) -> bool:
        if not self.points:
            return False
        start, end = self.window
        span = end - start
        step = max(1, span // self._columns)
        match key:
            case "left" | "right":
                self.cursor += step if key == "right" else -step
            case "comma" | "full_stop":
                self.cursor += 1 if key == "full_stop" else -1
            case "pageup" | "pagedown" | "space":
                self.cursor += -span // 2 if key == "pageup" else span // 2
            case "home" | "end":
                self.cursor = -1 if key == "home" else self.points - 1
            case "plus" | "equals_sign" | "up":
                self._zoom(span // 2)
            case "minus" | "down":
                self._zoom(span * 2)
            case "z":
                self.window = (0, self.points)
            case "p":
                self.cursor = self.peak[0]
            case "n" if self.alarms:
                self.cursor = next((entry for entry in self.alarms if entry > self.cursor), self.alarms[0])
            case _:
                return False
        self._follow()
        return True

    def _zoom(self, span: int) -> None:
        start, end = self.window
        at = max(start, min(end, self.cursor))
        share = (at - start) / max(1, end - start)
        self.window = (round(at - share * span), round(at - share * span) + span)

    def _follow(self) -> None:
        """Move the window to the cursor."""
        start, end = self.window
        cursor = max(0, self.cursor)
        if cursor < start:
            self.window = (cursor, cursor + end - start)
        elif cursor >= end:
            self.window = (cursor + 1 - (end - start), cursor + 1)

    def clicked(self, row: int, column: int) -> None:
        start, end = self.window
        if column >= _AXIS_CELLS and end > start:
            self.cursor = start + (column - _AXIS_CELLS) * (end - start) // max(1, self._columns)

    def hints(self) -> Sequence[Hint]:
        return (("←→", "move"), (", .", "one entry"), ("↑↓", "zoom"), ("z", "all"), ("p", "peak"))

    # -- drawing

    def lines(self, cells: int, rows: int) -> Sequence[Line]:
        if not self.points:
            return [(), *[((part, "dim"),) for part in wrap(self.nothing(), cells)]]
        below = self.below(cells, rows)
        height = max(3, rows - len(below) - 3)
        self._columns = columns = max(10, cells - _AXIS_CELLS - 1)
        return [*self._chart(columns, height), *below]

    def _chart(self, columns: int, height: int) -> list[Line]:
        glyphs = self.view.glyphs
        start, end = self.window
        span = end - start
        edges = [start + n * span // columns for n in range(columns + 1)]
        live = [self.most_held(a, max(a + 1, b)) for a, b in pairwise(edges)]
        reserved = [self.most_reserved(a, max(a + 1, b)) for a, b in pairwise(edges)]
        top = max(1, *reserved, *live)
        steps = len(glyphs.levels) - 1
        heights = [max(value * height * steps // top, 1 if value else 0) for value in live]
        tops = [value * height * steps // top for value in reserved]
        cursor = self._column(self.cursor, columns)
        lines: list[Line] = [self._marks(columns)]
        for row in range(height):
            base = (height - 1 - row) * steps
            label = size(top * (height - row) / height) if row % 3 == 0 else ""
            lines.append(
                ((fit(label, _AXIS_CELLS - 1, right=True) + " ", "dim"), *self._row(base, heights, tops, cursor))
            )
        lines.append(self._axis(start, end, columns))
        return lines

    def _row(self, base: int, heights: list[int], tops: list[int], cursor: int | None) -> list[Span]:
        """One row of cells: the curve, what is reserved above it, the cursor."""
        glyphs = self.view.glyphs
        marks, steps = glyphs.levels, len(glyphs.levels) - 1
        track = self.view.has_track
        spans: list[Span] = []
        text, style = "", ""
        for column, height in enumerate(heights):
            level = height - base
            in_reserved = tops[column] - base >= steps // 2
            surface = "@track" if in_reserved and track else ""
            if level > 0:
                mark, now = marks[min(steps, level)], f"g0{surface}"
            else:
                mark, now = (" " if track or not in_reserved else glyphs.track), f"faint{surface}"
            if column == cursor:
                mark, now = (mark, "title@cursor") if level > 0 else (glyphs.peak, "accent@cursor")
            if now != style and text:
                spans.append((text, style))
                text = ""
            text, style = text + mark, now
        return [*spans, (text, style)]

    def _column(self, entry: int, columns: int) -> int | None:
        start, end = self.window
        if not start <= max(0, entry) < end:
            return None
        return min(columns - 1, ((max(0, entry) - start + 1) * columns - 1) // (end - start))

    def _marks(self, columns: int) -> Line:
        """Over the chart: the peak and the OOMs that are in sight."""
        glyphs = self.view.glyphs
        cells = [" "] * columns
        styles = ["dim"] * columns
        for entry in self.alarms:
            if (at := self._column(entry, columns)) is not None:
                cells[at], styles[at] = glyphs.warning, "critical+b"
        moment, peak = self.peak
        if moment >= 0 and (at := self._column(moment, columns)) is not None:
            words = f"peak {size(peak)}"
            left = at + 1 + len(words) + 1 > columns
            text = f"{words} {glyphs.down}" if left else f"{glyphs.down} {words}"
            begin = at - len(text) + 1 if left else at
            for n, character in enumerate(text):
                if 0 <= begin + n < columns and cells[begin + n] != glyphs.warning:
                    cells[begin + n], styles[begin + n] = character, "warning+b"
        return ((" " * _AXIS_CELLS, "text"), *zip(cells, styles, strict=True))

    def _axis(self, start: int, end: int, columns: int) -> Line:
        left, right = f"{start:,}", f"{end - 1:,}"
        room, words = max(1, columns - len(left) - len(right)), self.axis(start, end)
        if width(words) > room - 2:
            words = ""
        return ((" " * _AXIS_CELLS, "text"), (left + words.center(room) + right, "dim"))
