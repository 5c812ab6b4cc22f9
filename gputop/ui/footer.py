"""The last line: the F-keys, with their letter twins where all of it has room. A click on one is its key.

What a leak holds stands on the key that shows it. Where there is no room for all keys, Kill and Quit stay longest.
"""

from __future__ import annotations

from typing import Final

from textual import events

from gputop.ui.keys import KEYS, Key
from gputop.ui.toolkit.cells import Line, Span, line_width
from gputop.ui.toolkit.line_widget import LineWidget

#: Actions, what is missed most first.
_IMPORTANCE: Final = ("kill", "quit", "leaks", "help", "filter", "settings", "sort", "tree", "chart")


class Footer(LineWidget):
    """Shows the keys; ``leaked`` is what leaks hold, a few cells."""

    def __init__(self, *, hidden: frozenset[str] = frozenset(), id: str | None = None) -> None:
        super().__init__(id=id)
        self._keys = [key for key in KEYS if key.footer and key.action not in hidden]
        self._places: list[tuple[int, int, Key]] = []
        self.leaked = ""

    def update(self) -> None:
        line, self._places = footer_line(self._keys, self.cells, self.leaked)
        self.show([line])

    def on_resize(self) -> None:
        self.update()

    async def on_click(self, event: events.Click) -> None:
        for start, end, key in self._places:
            if start <= event.x < end:
                await self.run_action(f"screen.{key.action}")


def footer_line(keys: list[Key], cells: int, leaked: str = "") -> tuple[Line, list[tuple[int, int, Key]]]:
    """The line, and where each key stands on it."""
    pieces = {key.action: _piece(key, leaked, letters=True) for key in keys}
    if sum(map(line_width, pieces.values())) > cells:
        pieces = {key.action: _piece(key, leaked, letters=False) for key in keys}
        room = cells
        for action in sorted(pieces, key=_importance):
            room -= line_width(pieces[action])
            if room < 0:
                room += line_width(pieces.pop(action))
    spans: list[Span] = []
    places: list[tuple[int, int, Key]] = []
    x = 0
    for key in keys:
        if piece := pieces.get(key.action):
            spans += piece
            places.append((x, x + line_width(piece), key))
            x += line_width(piece)
    return (*spans, (" " * (cells - x), "text@bar")), places


def _importance(action: str) -> int:
    return _IMPORTANCE.index(action) if action in _IMPORTANCE else len(_IMPORTANCE)


def _piece(key: Key, leaked: str, letters: bool) -> Line:
    label = f" {key.footer}" if letters or len(key.fkey) == 1 else key.footer
    piece: Line = ((f" {key.fkey}", "key+b@bar"), (label, "text@bar"))
    if letters and key.letter:
        piece = (piece[0], (f" {key.letter}", "accent@bar"), piece[1])
    return (*piece, (leaked, "critical+b@bar")) if leaked and key.action == "leaks" else piece
