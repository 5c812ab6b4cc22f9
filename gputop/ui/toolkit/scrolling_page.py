"""A full screen of text that scrolls: the help, and the details of a process and of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from textual import events

from gputop import units
from gputop.text import fit, width, wrap
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.frame import Hint, beside, clip, hint_line, thumb
from gputop.ui.toolkit.full_screen import FullScreen, ResultT

_LEAST_COLUMN = 56  # cells from which on two sections stand side by side
_GAP = 3


class Part(NamedTuple):
    """A titled part of a page."""

    title: str
    lines: list[Line]


class ScrollingPage(FullScreen[ResultT]):
    """A title, a body that scrolls, keys. Esc, q and the screen's own key close it; subclasses give the text."""

    closing_keys: ClassVar[tuple[str, ...]] = ("escape", "q", "f10")
    most_cells: ClassVar[int] = 250

    def __init__(self) -> None:
        super().__init__()
        self._first = 0
        self._body: list[Line] = []

    # what subclasses say

    def heading(self) -> tuple[str, str]:
        """Words at the left and at the right of the title line."""
        raise NotImplementedError

    def parts(self, cells: int) -> Sequence[Part]:
        """The text, *cells* wide."""
        raise NotImplementedError

    def before(self, cells: int) -> Sequence[Line]:
        """Lines over all parts."""
        return ()

    def hints(self) -> Sequence[Hint]:
        return (("Esc", "back"),)

    def pressed(self, key: str) -> bool:
        """A key of the screen's own; whether it was one."""
        return False

    # drawing and scrolling

    def picture(self, cells: int, rows: int) -> Sequence[Line]:
        text_cells = min(cells - 3, self.most_cells)
        self._body = [*self.before(text_cells), *columns(self.parts, text_cells, self.view.glyphs.rule)]
        room = rows - 3
        self._first = max(0, min(self._first, len(self._body) - room))
        bar = thumb(self._first, room, len(self._body))
        left, right = self.heading()
        title = ((f" {left} ", "title+b@bar"), (fit(f"{right} ", cells - width(left) - 2, right=True), "dim@bar"))
        lines: list[Line] = [clip(title, cells), ()]
        for n in range(room):
            at = self._first + n
            text = clip(self._body[at] if at < len(self._body) else (), text_cells)
            edge = self.view.glyphs.full if n in bar else " "
            lines.append(((" ", "text"), *text, (" ", "text"), (edge, "faint")) if bar else ((" ", "text"), *text))
        scroll: tuple[Hint, ...] = (("↑↓ PgUp PgDn", "scroll"),) if bar else ()
        return [*lines, hint_line((*self.hints(), *scroll), cells, "bar")]

    def take(self, event: events.Key) -> bool:
        page = max(1, self.app.size.height - 4)
        key = event.key
        if key in self.closing_keys:
            self.dismiss()
        elif key in ("down", "up"):
            self._first += 1 if key == "down" else -1
        elif key in ("pagedown", "space", "pageup"):
            self._first += -page if key == "pageup" else page
        elif key in ("home", "end"):
            self._first = 0 if key == "home" else len(self._body)
        else:
            return self.pressed(key)
        return True

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._first += 3
        self.draw()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._first -= 3
        self.draw()


def columns(parts_of: Callable[[int], Sequence[Part]], cells: int, rule: str) -> list[Line]:
    """Parts under each other, or in two or three columns of like height where there is room."""
    count = max(1, min(3, (cells + _GAP) // (_LEAST_COLUMN + _GAP)))
    each = (cells - _GAP * (count - 1)) // count
    stacks = split([_titled(part, each, rule) for part in parts_of(each) if part.lines], count)
    lines = stacks[-1]
    for stack in reversed(stacks[:-1]):
        lines = beside(stack, lines, each, _GAP)
    return lines


def split(blocks: Sequence[list[Line]], count: int) -> list[list[Line]]:
    """*blocks* in *count* stacks, in order, with the tallest stack as low as can be."""
    low, high = max(map(len, blocks), default=0), sum(map(len, blocks))
    while low < high:  # the least height that is enough
        middle = (low + high) // 2
        if len(_stacked(blocks, middle)) <= count:
            high = middle
        else:
            low = middle + 1
    return _stacked(blocks, high) or [[]]


def _stacked(blocks: Sequence[list[Line]], height: int) -> list[list[Line]]:
    stacks: list[list[Line]] = []
    for block in blocks:
        if stacks and len(stacks[-1]) + len(block) <= height:
            stacks[-1] += block
        else:
            stacks.append(list(block))
    return stacks


def _titled(part: Part, cells: int, rule: str) -> list[Line]:
    return [((part.title, "accent+b"), (f" {rule * (cells - width(part.title) - 1)}", "faint")), *part.lines, ()]


def field(label: str, value: str | None, cells: int, style: str = "text", label_cells: int = 16) -> list[Line]:
    """A label and its value, on more lines where it is long; unknown is a dash."""
    if value is None or value == units.UNKNOWN:
        return [((fit(label, label_cells), "dim"), (units.UNKNOWN, "faint"))]
    parts = wrap(value, max(8, cells - label_cells))
    return [((fit(label if not n else "", label_cells), "dim"), (part, style)) for n, part in enumerate(parts)]


def spread(label: str, spans: Sequence[Span], label_cells: int = 16) -> Line:
    """A label and a value of several styles, on one line."""
    return ((fit(label, label_cells), "dim"), *spans)
