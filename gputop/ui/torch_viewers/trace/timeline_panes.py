"""A memory timeline: the curve of all categories together, and what was held of each at the cursor."""

from __future__ import annotations

from collections.abc import Hashable

from gputop.text import fit
from gputop.torch_files.trace.memory_timeline import CATEGORIES, MemoryTimeline
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.view import View
from gputop.ui.torch_viewers.curve_pane import CurvePane
from gputop.units.fine import milliseconds, percent, size

_NAME_CELLS = 18
_BAR_CELLS = 24


class CategoriesPane(CurvePane):
    name = "Categories"
    key = "m"

    def __init__(self, timeline: MemoryTimeline, view: View) -> None:
        super().__init__(view)
        self._timeline = timeline
        self._cursor = timeline.peak

    @property
    def of(self) -> Hashable:
        return 0

    @property
    def points(self) -> int:
        return len(self._timeline)

    @property
    def cursor(self) -> int:
        return self._cursor

    @cursor.setter
    def cursor(self, moment: int) -> None:
        self._cursor = max(0, min(self.points - 1, moment))

    @property
    def peak(self) -> tuple[int, int]:
        return self._timeline.peak, self._timeline.total[self._timeline.peak]

    def most_held(self, start: int, end: int) -> int:
        return max(0, self._timeline.most(start, end))

    def most_reserved(self, start: int, end: int) -> int:
        return 0

    def axis(self, start: int, end: int) -> str:
        at = self._timeline.at_ns
        return f"{end - start:,} of {self.points:,} moments, {milliseconds(at[end - 1] - at[start])}"

    def below(self, cells: int, rows: int) -> list[Line]:
        timeline, at, glyphs = self._timeline, self._cursor, self.view.glyphs
        total = timeline.total[at]
        when = milliseconds(timeline.at_ns[at] - timeline.at_ns[0])
        lines: list[Line] = [
            (),
            ((f"moment {at:,} ", "dim"), (size(total), "g0+b"), (f" held, at {when}", "text")),
        ]
        held = sorted(((column[at], name) for name, column in zip(CATEGORIES, timeline.by_category, strict=True)))
        for bytes_, name in held[::-1][: len(held) if rows >= 17 else max(2, rows // 3)]:
            bar = glyphs.full * max(0, round(_BAR_CELLS * bytes_ / total)) if total > 0 else ""
            words = f"{size(bytes_):>9} {percent(bytes_, total):>7} "
            lines.append(((fit(f"  {name}", _NAME_CELLS), "text"), (words, "title+b"), (bar, "g0")))
        return lines
