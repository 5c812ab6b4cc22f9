"""A dialog that asks for one of a few things: what to sort or group by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual import events

from gputop.fleet.view import HostSort
from gputop.text import fit
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.dialog import Dialog
from gputop.ui.toolkit.frame import Hint, on
from gputop.ui.toolkit.view import View

Choice = tuple[str, str]
"""What it is called, and a word about it."""

SORTS: Final = {
    HostSort.NAME: "by name, digits as numbers",
    HostSort.PROBLEM: "unreachable, broken, stale first",
    HostSort.GPUS: "most GPUs first",
    HostSort.FREE: "most free GPUs first",
    HostSort.UTILIZATION: "busiest first",
    HostSort.MEMORY: "most memory in use first",
    HostSort.POWER: "most power first",
    HostSort.TEMPERATURE: "hottest first",
    HostSort.AGE: "oldest reading first",
}


class ChoiceDialog(Dialog[str]):
    """Ends with the name that was chosen, or None."""

    most_cells: ClassVar[int] = 60

    def __init__(self, title: str, choices: Sequence[Choice], now: str, view: View) -> None:
        super().__init__()
        self._title, self._choices, self._now, self._view = title, choices, now, view
        self._at = next((n for n, (name, _) in enumerate(choices) if name == now), 0)
        self._first = 0
        self._rows = 1

    @property
    def view(self) -> View:
        return self._view

    def on_key(self, event: events.Key) -> None:
        event.stop()
        match event.key:
            case "escape" | "q" | "f5" | "f6" | "f10":
                self.dismiss()
            case "enter":
                self.dismiss(self._choices[self._at][0])
            case "down" | "tab":
                self._go(self._at + 1)
            case "up" | "shift+tab":
                self._go(self._at - 1)
            case "pagedown" | "pageup":
                self._go(self._at + (self._rows if event.key == "pagedown" else -self._rows))
            case "home" | "end":
                self._go(0 if event.key == "home" else len(self._choices))
        if self.is_current:
            self.draw()

    def _go(self, to: int) -> None:
        self._at = max(0, min(len(self._choices) - 1, to))

    def clicked(self, row: int, column: int) -> None:
        if 0 <= row < self._rows and self._first + row < len(self._choices):
            self.dismiss(self._choices[self._first + row][0])

    def heading(self) -> str:
        return self._title

    def hints(self) -> Sequence[Hint]:
        return (("Enter", "choose"), ("Esc", "cancel"))

    def content(self, cells: int, rows: int) -> Sequence[Line]:
        self._rows = min(rows, len(self._choices))
        self._first = max(min(self._first, self._at), self._at - self._rows + 1)
        return [self._line(n, cells) for n in range(self._first, self._first + self._rows)]

    def _line(self, n: int, cells: int) -> Line:
        name, about = self._choices[n]
        here = n == self._at
        glyphs = self.view.glyphs
        line: Line = (
            (f" {glyphs.folded if here else glyphs.bullet if name == self._now else ' '} ", "accent+b"),
            (fit(name or "nothing", 14), "title+b" if here else "text"),
            (fit(about, max(0, cells - 17)), "text" if here else "dim"),
        )
        return on(line, "cursor") if here else line
