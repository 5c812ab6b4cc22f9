"""A view of a memory snapshot: lines, keys, hints; and the list with a stack below it that most of them are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gputop.memory.snapshot_frames import Frame
from gputop.memory.torch_snapshot import Device
from gputop.ui.cells import Line, Span, fit, width
from gputop.ui.torch_state import TorchState
from gputop.ui.widgets.frame import Hint, clip, on, thumb
from gputop.ui.wrap import wrap

NO_TRACE = "The snapshot has no trace: torch.cuda.memory._record_memory_history() was not called before it was taken."


class Pane:
    """One view. ``lines`` gives at most *rows* lines; ``pressed`` says whether a key was one of its own."""

    name: ClassVar[str]  # of its tab
    key: ClassVar[str]

    def __init__(self, state: TorchState) -> None:
        self.state = state

    @property
    def device(self) -> Device:
        device = self.state.device
        assert device is not None
        return device

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

    def __init__(self, state: TorchState) -> None:
        super().__init__(state)
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
            rule = self.state.view.glyphs.rule
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
    full = pane.state.view.glyphs.full
    found: list[Line] = []
    for n in range(rows):
        line = clip(lines[n] if n < len(lines) else (), cells - 2)
        found.append((*line, (" ", "text"), (full if n in bar else " ", "faint")) if bar else line)
    return found


def stack_lines(frames: Sequence[Frame], cells: int, rows: int, title: str = "") -> list[Line]:
    """A stack, the innermost frame first; the directories of a file give way to its name."""
    found: list[Line] = [((title, "dim"),)] if title else []
    if not frames:
        return [*found, (("no frames: allocated before recording began, or without a context", "dim"),)]
    room = max(1, rows - len(found))
    shown = frames[:room] if len(frames) <= room else frames[: room - 1]
    for n, frame in enumerate(shown):
        where = f"{frame.filename}:{frame.line}" if frame.line else frame.filename
        folder, slash, file = where.rpartition("/")
        name = fit(frame.name, min(width(frame.name), max(8, cells // 2)))
        left = cells - width(name) - width(file) - 4
        path = f"{folder}{slash}"
        if width(path) > left:
            path = "…" + path[len(path) - max(0, left - 1) :] if left > 1 else ""
        spans: tuple[Span, ...] = (
            (name, "title" if not n else "text"),
            ("  ", "text"),
            (path, "faint"),
            (file, "accent"),
        )
        found.append(spans)
    if len(shown) < len(frames):
        found.append(((f"… and {len(frames) - len(shown)} more frames outwards", "dim"),))
    return found
