"""The last line: the F-keys, with their letter twins where all of it has room. A click on one is its key."""

from __future__ import annotations

from textual import events

from gputop.text import fit, width
from gputop.ui.keys import KEYS, Key
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.line_widget import LineWidget


class Footer(LineWidget):
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
    pieces = [_piece(key, letters=True) for key in keys]
    if sum(map(_width, pieces)) + width(note) > cells:
        pieces = [_piece(key, letters=False) for key in keys]
    spans: list[Span] = []
    places: list[tuple[int, int, Key]] = []
    x = 0
    for key, piece in zip(keys, pieces, strict=True):
        taken = _width(piece)
        if x + taken > cells:
            break
        spans += piece
        places.append((x, x + taken, key))
        x += taken
    spans.append((fit(f"{note} ", cells - x, right=True) if note else " " * (cells - x), "warning+b@bar"))
    return tuple(spans), places


def _piece(key: Key, letters: bool) -> list[Span]:
    if letters:
        return [(f" {key.fkey}", "key+b@bar"), (f" {key.letter}", "accent@bar"), (f" {key.footer} ", "text@bar")]
    return [(f" {key.fkey}", "key+b@bar"), (key.footer, "text@bar")]


def _width(piece: list[Span]) -> int:
    return sum(width(text) for text, _ in piece)
