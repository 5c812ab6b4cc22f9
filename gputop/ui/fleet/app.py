"""``gputop fleet`` as a Textual application: themes and endings as in the dashboard."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from textual.app import SuspendNotSupported
from textual.binding import Binding
from textual.screen import Screen

from gputop.fleet.source import FleetSource
from gputop.fleet.view import FleetView
from gputop.settings import Settings
from gputop.text import unicode_works
from gputop.ui import exit_signals
from gputop.ui.fleet.remote import RefusedName, run_there, ssh_command
from gputop.ui.fleet.screen import FleetScreen
from gputop.ui.toolkit.crash import ReportingApp
from gputop.ui.toolkit.glyphs import ASCII, UNICODE
from gputop.ui.toolkit.line_widget import LineWidget, redraw_all
from gputop.ui.toolkit.palette import THEMES, Palette, theme_to_show
from gputop.ui.toolkit.view import View


def run(source: FleetSource, asked: FleetView, settings: Settings) -> int:
    """Show *source*, which is open, until the user quits. Returns the exit status (128 + n after signal n)."""
    app = FleetApp(source, asked, settings)
    app.termination_signals = exit_signals.EndingSignals()
    exit_signals.end_with_terminal()
    app.run(mouse=settings.mouse)
    return app.return_code or 0


class FleetApp(ReportingApp[None]):
    """Its one screen is the list of hosts; pages and dialogs are over it."""

    TITLE = "gputop fleet"
    CALLED = "fleet"
    CSS_PATH = "../gputop.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[Binding]] = [  # type: ignore[assignment]
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("ctrl+l", "repaint", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]
    termination_signals: exit_signals.EndingSignals | None = None
    run_there: Callable[[list[str]], str | None] = staticmethod(run_there)

    def __init__(self, source: FleetSource, asked: FleetView, settings: Settings) -> None:
        os.environ.pop("NO_COLOR", None)  # colours off is a theme of its own
        super().__init__()
        self.source, self.settings, self._asked = source, settings, asked
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
        return FleetScreen(self.source, self._asked, self.view, self.open_there)

    def on_mount(self) -> None:
        if self.termination_signals is not None:
            self.termination_signals.hand_over(lambda status: self.exit(return_code=status))

    def open_there(self, host: str) -> None:
        """Give the terminal to the gputop of *host* until it ends."""
        try:
            command = ssh_command(host)
            with self.suspend():
                problem = self.run_there(command)
        except RefusedName as refused:
            problem = str(refused)
        except SuspendNotSupported:
            problem = "this terminal cannot be lent to ssh"
        else:
            redraw_all(self)
        if problem is not None:
            self.notify(problem, severity="warning", timeout=8, markup=False)

    async def action_quit(self) -> None:
        self.exit(return_code=0)

    def action_repaint(self) -> None:
        redraw_all(self)
