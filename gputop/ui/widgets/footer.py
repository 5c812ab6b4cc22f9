"""The last line: the F-keys, with their letter twins where there is room. A click on one is its key."""

from __future__ import annotations

from textual import events

from gputop.ui.board import Board
from gputop.ui.cells import Line, Span, fit, width
from gputop.ui.keys import KEYS, Key

LETTERS_FROM = 100  # columns


class Footer(Board):
    """Shows the keys; ``note`` stands at its right end."""

    def __init__(self, *, hidden: frozenset[str] = frozenset(), id: str | None = None) -> None:
        super().__init__(id=id)
        self._keys = [key for key in KEYS if key.footer and key.action not in hidden]
        self._places: list[tuple[int, int, Key]] = []
        self.note = ""

    def update(self) -> None:
        line, self._places = footer_line(self._keys, self.cells, self.note)
        self.show([line])

    def on_resize(self) -> None:
        self.update()

    async def on_click(self, event: events.Click) -> None:
        for start, end, key in self._places:
            if start <= event.x < end:
                await self.run_action(f"screen.{key.action}")


def footer_line(keys: list[Key], cells: int, note: str = "") -> tuple[Line, list[tuple[int, int, Key]]]:
    """The line, and where each key stands on it."""
    letters = cells >= LETTERS_FROM
    spans: list[Span] = []
    places: list[tuple[int, int, Key]] = []
    x = 0
    for key in keys:
        label = f" {key.letter}" if letters else ""
        piece: list[Span] = [
            (f" {key.fkey}", "key+b@bar"),
            (f"{label}", "accent@bar"),
            (f" {key.footer} " if letters else key.footer, "text@bar"),
        ]
        taken = sum(width(text) for text, _ in piece)
        if x + taken > cells:
            break
        spans += piece
        places.append((x, x + taken, key))
        x += taken
    spans.append((fit(f"{note} ", cells - x, right=True) if note else " " * (cells - x), "warning+b@bar"))
    return tuple(spans), places
