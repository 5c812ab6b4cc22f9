"""F6: the column the process table is sorted by, and which way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events

from gputop.model.columns import COLUMNS
from gputop.monitor import Monitor
from gputop.text import fit
from gputop.ui.monitor_screen import MonitorScreen
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.dialog import Dialog
from gputop.ui.toolkit.frame import Hint, on


class SortScreen(MonitorScreen, Dialog[None]):
    """Asks for the column: those of the table first, then the others. Used for now, as by the table's own keys."""

    most_cells: ClassVar[int] = 64

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        columns, sort = monitor.settings.columns, monitor.settings.sort
        self._ids = [*columns, *(id_ for id_ in COLUMNS if id_ not in columns)]
        self._now = sort
        self._reverse = monitor.settings.sort_reverse
        self._at = self._ids.index(sort) if sort in self._ids else 0
        self._first = 0
        self._rows = 1

    def on_key(self, event: events.Key) -> None:
        event.stop()
        match event.key:
            case "escape" | "q" | "f6" | "f10":
                self.dismiss()
            case "enter":
                self._sort_by(self._at)
            case "down" | "tab":
                self._go(self._at + 1)
            case "up" | "shift+tab":
                self._go(self._at - 1)
            case "pagedown" | "pageup":
                self._go(self._at + (self._rows if event.key == "pagedown" else -self._rows))
            case "home" | "end":
                self._go(0 if event.key == "home" else len(self._ids))
            case "I" | "left" | "right" | "space":
                self._reverse = not self._reverse
        if self.is_current:
            self.draw()

    def _sort_by(self, n: int) -> None:
        self.monitor.change_for_now(sort=self._ids[n], sort_reverse=self._reverse)
        self.dismiss()

    def _go(self, to: int) -> None:
        self._at = max(0, min(len(self._ids) - 1, to))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._go(self._at + 1)
        self.draw()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._go(self._at - 1)
        self.draw()

    def clicked(self, row: int, column: int) -> None:
        if 0 <= row < self._rows and self._first + row < len(self._ids):
            self._sort_by(self._first + row)

    def heading(self) -> str:
        return "Sort by"

    def hints(self) -> Sequence[Hint]:
        return (("Enter", "sort"), ("←→ I", "reverse the order"), ("Esc", "cancel"))

    def content(self, cells: int, rows: int) -> Sequence[Line]:
        self._rows = min(rows, len(self._ids))
        self._first = max(0, min(self._first, self._at))
        self._first = max(self._first, self._at - self._rows + 1)
        self._first = min(self._first, len(self._ids) - self._rows)  # the window may have grown
        return [self._line(n, cells) for n in range(self._first, self._first + self._rows)]

    def _line(self, n: int, cells: int) -> Line:
        column = COLUMNS[self._ids[n]]
        here = n == self._at
        falling = column.descending != self._reverse
        glyphs = self.view.glyphs
        if here:
            way = glyphs.arrow_down if falling else glyphs.arrow_up
        else:
            way = glyphs.bullet if column.id == self._now else " "
        line: Line = (
            (f" {glyphs.folded if here else ' '} ", "accent+b"),
            (fit(column.heading, 8), "title+b" if here else "text"),
            (f" {way} ", "accent+b"),
            (fit(column.help, max(0, cells - 14)), "text" if here else "dim"),
        )
        return on(line, "cursor") if here else line
