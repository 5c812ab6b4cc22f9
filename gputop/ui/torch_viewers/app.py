"""``gputop torch-snapshot`` and ``torch-trace`` in the terminal: an application that is a viewer and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from textual.binding import Binding
from textual.screen import Screen

from gputop.settings import Settings
from gputop.text import unicode_works
from gputop.ui import exit_signals
from gputop.ui.toolkit.crash import ReportingApp
from gputop.ui.toolkit.glyphs import ASCII, UNICODE
from gputop.ui.toolkit.line_widget import LineWidget
from gputop.ui.toolkit.palette import THEMES, Palette, theme_to_show
from gputop.ui.toolkit.view import View
from gputop.ui.torch_viewers.screen import ViewerScreen


def run(make: Callable[[View], ViewerScreen[Any]], settings: Settings) -> int:
    """Show what *make* makes until the user quits. Returns the exit status: 1 where no file could be read."""
    app = ViewerApp(make, settings)
    app.termination_signals = exit_signals.EndingSignals()
    exit_signals.end_with_terminal()
    app.run(mouse=settings.mouse)
    return app.return_code or 0


class ViewerApp(ReportingApp[None]):
    """Themes and endings as in the dashboard; its one screen is the viewer."""

    TITLE = "gputop"
    CALLED = "viewer"
    CSS_PATH = "../gputop.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[Binding]] = [  # type: ignore[assignment]
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]
    termination_signals: exit_signals.EndingSignals | None = None

    def __init__(self, make: Callable[[View], ViewerScreen[Any]], settings: Settings) -> None:
        os.environ.pop("NO_COLOR", None)  # colours off is a theme of its own
        super().__init__()
        self._make = make
        self.settings = settings
        self.ascii_only = settings.ascii if settings.ascii is not None else not unicode_works(sys.__stderr__)
        LineWidget.ascii_only = self.ascii_only
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = theme_to_show(settings, self.available_themes, self.console.color_system)

    @property
    def view(self) -> View:
        glyphs = ASCII if self.ascii_only else UNICODE
        return View(self.settings, glyphs, Palette.of(self).has_track and not self.ascii_only)

    def get_default_screen(self) -> Screen[Any]:
        return self._make(self.view)

    def on_mount(self) -> None:
        if self.termination_signals is not None:
            self.termination_signals.hand_over(lambda status: self.exit(return_code=status))

    async def action_quit(self) -> None:
        self.exit(return_code=0)
