"""A framed box over the dashboard, which goes on underneath."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen

from gputop.text import wrap
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.frame import Hint, framed, shown
from gputop.ui.toolkit.line_widget import LineWidget
from gputop.ui.toolkit.textual_seams.exact_output import install
from gputop.ui.toolkit.view import View

ResultT = TypeVar("ResultT")

#: What can be done without seeing what one does: leave.
LEAVE: Final = frozenset({"escape", "q", "f10", "ctrl+c"})


def is_choice(event: events.Event) -> bool:
    """Whether *event* may choose or change something on a screen."""
    return isinstance(event, events.Paste | events.MouseEvent) or (
        isinstance(event, events.Key) and event.key not in LEAVE
    )


class Dialog(ModalScreen[ResultT]):
    """What is over the dashboard in a box. Subclasses say what is in it and take the keys.

    The dashboard is not dimmed: that would write all of the screen twice, which a slow link feels.
    """

    DEFAULT_CSS: ClassVar[str] = """
    Dialog { align: center middle; overflow: hidden; }
    Dialog > LineWidget { width: 10; height: 3; }
    """
    ALLOW_SELECT: ClassVar[bool] = False
    AUTO_FOCUS: ClassVar[str | None] = ""
    most_cells: ClassVar[int] = 76

    def __init__(self) -> None:
        super().__init__()
        install(self)
        self.styles.background = "transparent"  # the application's style for screens would win over this class's
        self.board = LineWidget()

    # what subclasses say

    @property
    def view(self) -> View:
        """How things are to be shown."""
        raise NotImplementedError

    def heading(self) -> str:
        raise NotImplementedError

    def content(self, cells: int, rows: int) -> Sequence[Line]:
        """The lines inside the frame: at most *rows*, *cells* wide."""
        raise NotImplementedError

    def hints(self) -> Sequence[Hint]:
        return ()

    def needs(self) -> tuple[int, int]:
        """Cells and rows inside the frame without which what can be chosen is not shown whole: then it cannot be
        chosen."""
        return 8, 1

    def clicked(self, row: int, column: int) -> None:
        """The mouse was pressed on a line of the content."""

    # drawing

    def compose(self) -> ComposeResult:
        yield self.board

    def on_mount(self) -> None:
        self.draw()

    def on_resize(self, event: events.Resize) -> None:
        self.draw()

    def draw(self) -> None:
        """Draw what changed; the box takes the size that its content needs."""
        size = self.app.size
        if not self.is_mounted or not size.width or not size.height:
            return
        cells = self._cells()
        lines: Sequence[Line]
        if self.is_seen:
            content = self.content(cells - 4, size.height - 2)
            lines = framed(self.heading(), self.hints(), content, cells, self.view.glyphs)
        else:
            message = "too small to show what would be done: enlarge the window, or press Esc"
            lines = [((part, "warning+b"),) for part in wrap(message, cells)][: size.height]
        styles = self.board.styles
        styles.width, styles.height = cells, len(lines)
        self.board.show(shown(lines, self.view.glyphs))

    def _cells(self) -> int:
        """How wide the box is."""
        width: int = self.app.size.width
        return min(self.most_cells, width - 2 if width > 64 else width)

    @property
    def is_seen(self) -> bool:
        """Whether all that is needed for a choice is on the screen."""
        cells, rows = self.needs()
        return self._cells() - 4 >= cells and self.app.size.height - 2 >= rows

    async def on_event(self, event: events.Event) -> None:
        if is_choice(event) and not self.is_seen:
            event.stop()
        else:
            await super().on_event(event)

    def on_click(self, event: events.Click) -> None:
        if event.widget is self.board:
            self.clicked(event.y - 1, event.x - 2)
