"""A screen that is one widget of lines: what pages that scroll and viewers of files have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen

from gputop.text import fit
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.dialog import is_choice
from gputop.ui.toolkit.frame import shown
from gputop.ui.toolkit.line_widget import LineWidget
from gputop.ui.toolkit.textual_seams.exact_output import install
from gputop.ui.toolkit.view import View

ResultT = TypeVar("ResultT")


class FullScreen(Screen[ResultT]):
    """Subclasses say what is on it (``picture``) and take the keys (``take``)."""

    DEFAULT_CSS: ClassVar[str] = """
    FullScreen { overflow: hidden; }
    FullScreen > LineWidget { height: 1fr; }
    """
    ALLOW_SELECT: ClassVar[bool] = False
    AUTO_FOCUS: ClassVar[str | None] = ""
    least_size: ClassVar[tuple[int, int]] = (20, 4)  # cells and rows

    def __init__(self) -> None:
        super().__init__()
        install(self)
        self.board = LineWidget()

    @property
    def view(self) -> View:
        """How things are to be shown."""
        raise NotImplementedError

    def picture(self, cells: int, rows: int) -> Sequence[Line]:
        """The lines that fill the screen; never called for less than ``least_size``."""
        raise NotImplementedError

    def take(self, event: events.Key) -> bool:
        """Do what a key stands for; whether it was one of the screen's own."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        yield self.board

    def on_mount(self) -> None:
        self.draw()

    def on_resize(self, event: events.Resize) -> None:
        self.draw()

    def draw(self) -> None:
        """Draw what changed."""
        cells, rows = self.app.size
        if not self.is_mounted or not cells or not rows:
            return
        if not self.is_seen:
            least_cells, least_rows = self.least_size
            lines: Sequence[Line] = [((fit(f"too small: needs {least_cells}×{least_rows}", cells), "warning+b"),)]
        else:
            lines = self.picture(cells, rows)
        self.board.show(shown(lines, self.view.glyphs))

    @property
    def is_seen(self) -> bool:
        """Whether there is room for the picture."""
        cells, rows = self.app.size
        return cells >= self.least_size[0] and rows >= self.least_size[1]

    async def on_event(self, event: events.Event) -> None:
        if is_choice(event) and not self.is_seen:
            event.stop()
        else:
            await super().on_event(event)

    def on_key(self, event: events.Key) -> None:
        if self.take(event):
            event.stop()
            event.prevent_default()
            if self.is_current:
                self.draw()
