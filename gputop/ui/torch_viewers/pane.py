"""A view of a file that a viewer shows: lines, keys, hints. Most are text that scrolls, or a list with details."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gputop.text import wrap
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.frame import Hint, clip, on, thumb
from gputop.ui.toolkit.view import View


class Pane:
    """One view of a file. ``lines`` gives at most *rows* lines; ``pressed`` says whether a key was one of its own."""

    name: ClassVar[str]  # of its tab
    key: ClassVar[str]

    def __init__(self, view: View) -> None:
        self.view = view

    def lines(self, cells: int, rows: int) -> Sequence[Line]:
        raise NotImplementedError

    def pressed(self, key: str, page: int) -> bool:
        return False

    def clicked(self, row: int, column: int) -> None:
        """The mouse was pressed in it."""

    def hints(self) -> Sequence[Hint]:
        return ()

    def pending(self) -> bool:
        """Whether something is left to be computed once no key is pressed for a moment; :meth:`settle` does it."""
        return False

    def settle(self) -> None:
        pass


class TextPane(Pane):
    """Text that scrolls."""

    first = 0
    _longest = 0

    def text(self, cells: int) -> list[Line]:
        raise NotImplementedError

    def lines(self, cells: int, rows: int) -> Sequence[Line]:
        text = self.text(cells - 2)
        self._longest = len(text)
        self.first = max(0, min(self.first, len(text) - rows))
        return scrolled(text[self.first : self.first + rows], cells, rows, self.first, len(text), self)

    def pressed(self, key: str, page: int) -> bool:
        moved = moved_by(key, self.first, self._longest, page)
        if moved is None:
            return False
        self.first = moved
        return True


class ListPane(Pane):
    """Rows with a cursor, headings over them, and details of the row at the cursor under them."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.at = 0
        self.first = 0
        self._count = 0
        self._shown = (0, 0)  # the first line of the list, how many

    def count(self) -> int:
        raise NotImplementedError

    def heading(self, cells: int) -> Sequence[Line]:
        return ()

    def row(self, n: int, cells: int) -> Line:
        raise NotImplementedError

    def details(self, n: int, cells: int, rows: int) -> Sequence[Line]:
        return ()

    def nothing(self) -> str:
        return "nothing"

    def lines(self, cells: int, rows: int) -> Sequence[Line]:
        self._count = count = self.count()
        heading = [clip(line, cells) for line in self.heading(cells)]
        self.at = max(0, min(self.at, count - 1))
        below: list[Line] = []
        if count and rows >= 12:
            below = list(self.details(self.at, cells, max(4, min(14, rows // 3))))[: max(4, rows // 3)]
        room = max(1, rows - len(heading) - (len(below) + 1 if below else 0))
        self.first = max(0, min(self.first, self.at, count - room))
        self.first = max(self.first, self.at - room + 1)
        self._shown = (len(heading), room)
        found: list[Line] = []
        for n in range(self.first, min(count, self.first + room)):
            line = clip(self.row(n, cells - 2), cells - 2)
            found.append(on(line, "cursor") if n == self.at else line)
        if not count:
            found = [((part, "dim"),) for part in wrap(self.nothing(), cells - 2)]
        body = scrolled(found, cells, room, self.first, count, self)
        if below:
            rule = self.view.glyphs.rule
            below = [((rule * cells, "faint"),), *(clip(((" ", "text"), *line), cells) for line in below)]
        return [*heading, *body, *below]

    def pressed(self, key: str, page: int) -> bool:
        moved = moved_by(key, self.at, self._count, max(1, self._shown[1] - 1))
        if moved is None:
            return False
        self.at = moved
        return True

    def clicked(self, row: int, column: int) -> None:
        start, room = self._shown
        if start <= row < start + room and self.first + row - start < self._count:
            self.at = self.first + row - start


def moved_by(key: str, at: int, count: int, page: int) -> int | None:
    """Where a key moves a cursor; None: it is no such key."""
    match key:
        case "down":
            return min(count - 1, at + 1)
        case "up":
            return max(0, at - 1)
        case "pagedown" | "space":
            return min(count - 1, at + page)
        case "pageup":
            return max(0, at - page)
        case "home":
            return 0
        case "end":
            return max(0, count - 1)
    return None


def scrolled(lines: Sequence[Line], cells: int, rows: int, first: int, total: int, pane: Pane) -> list[Line]:
    """*lines* on *rows* lines, with a scroll bar at the right where there are more."""
    bar = thumb(first, rows, total)
    full = pane.view.glyphs.full
    found: list[Line] = []
    for n in range(rows):
        line = clip(lines[n] if n < len(lines) else (), cells - 2)
        found.append((*line, (" ", "text"), (full if n in bar else " ", "faint")) if bar else line)
    return found
