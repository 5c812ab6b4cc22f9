"""The dashboard as a Textual app: themes, screens, signals of the system, and the way in from the bus."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.binding import Binding
from textual.filter import LineFilter
from textual.notifications import SeverityLevel
from textual.screen import Screen

from gputop.monitor import Monitor
from gputop.sampling.messages import Announced, SettingsChanged
from gputop.sampling.shown_time import RecordedTime
from gputop.text import unicode_works
from gputop.ui import exit_signals
from gputop.ui.dashboard import Dashboard
from gputop.ui.toolkit.crash import ReportingApp
from gputop.ui.toolkit.line_widget import LineWidget, redraw_all
from gputop.ui.toolkit.palette import THEMES, theme_to_show
from gputop.ui.toolkit.textual_seams import plain_widgets
from gputop.ui.toolkit.textual_seams.command_palette import SteadyPalette

if TYPE_CHECKING:
    from textual.command import Provider

PAINTED_SECONDS: Final = 0.5  # after which the first picture is drawn, so that other work may begin
SETTLED_SECONDS: Final = 2.0  # after which what start-up made is no longer looked at by the garbage collector


def run(monitor: Monitor) -> int:
    """Show the dashboard until the user quits. Returns the exit status (128 + n after signal n)."""
    app = GputopApp(monitor)
    app.termination_signals = exit_signals.EndingSignals()
    exit_signals.end_with_terminal()
    app.run(mouse=monitor.settings.mouse)
    return app.return_code or 0


def _commands() -> type[Provider]:
    from gputop.ui.commands import DashboardCommands  # what the palette is made of takes a while to import

    return DashboardCommands


class GputopApp(ReportingApp[None]):
    """Themes, endings and toasts; draws nothing itself. What the screens share is *monitor*."""

    TITLE = "gputop"
    CSS_PATH = "gputop.tcss"
    BINDINGS: ClassVar[list[Binding]] = [  # type: ignore[assignment]  # on every screen
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("ctrl+l", "repaint", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]
    COMMANDS = {_commands}
    termination_signals: exit_signals.EndingSignals | None = None

    def __init__(self, monitor: Monitor) -> None:
        # Colours off is a theme of its own here: attributes instead of greys (Textual's NO_COLOR means greys).
        os.environ.pop("NO_COLOR", None)
        super().__init__()
        self.monitor, settings = monitor, monitor.settings
        LineWidget.ascii_only = settings.ascii if settings.ascii is not None else not unicode_works(sys.__stderr__)
        for theme in THEMES:
            self.register_theme(theme)
        self._themed: tuple[str, bool] | None = None  # the theme and whether there are colours, as the settings say
        self._use_settings()
        monitor.bus.subscribe(SettingsChanged, lambda _: self._use_settings())  # before any screen draws by them
        monitor.bus.subscribe(Announced, self._announce, every=True)

    # -- settings

    def get_line_filters(self) -> list[LineFilter]:
        """What Textual's own widgets are drawn through; boards draw what is right by themselves."""
        filters = [*super().get_line_filters()]
        if LineWidget.ascii_only:
            filters.append(plain_widgets.ASCII_ONLY)
        if not self.monitor.settings.color:
            filters.append(plain_widgets.NO_COLOURS)
        return filters

    def _use_settings(self) -> None:
        settings = self.monitor.settings
        if settings.ascii is not None:
            LineWidget.ascii_only = settings.ascii
        if self._themed != (settings.theme, settings.color):
            self._themed = settings.theme, settings.color
            self.theme = theme_to_show(settings, self.available_themes, self.console.color_system)

    # -- life

    @property
    def dashboard(self) -> Dashboard:
        screen = self.screen_stack[0]
        assert isinstance(screen, Dashboard)
        return screen

    def get_default_screen(self) -> Screen[Any]:
        time = self.monitor.shown_time
        if isinstance(time, RecordedTime):
            from gputop.ui.replay.dashboard import ReplayDashboard

            return ReplayDashboard(self.monitor, time.player)
        return Dashboard(self.monitor)

    def on_mount(self) -> None:
        if self.termination_signals is not None:
            self.termination_signals.hand_over(self._end)
        self.monitor.attach(asyncio.get_running_loop(), self._handle_exception)
        self.set_timer(SETTLED_SECONDS, self._settle)
        self.set_timer(PAINTED_SECONDS, self.monitor.start)
        for words in self.monitor.settings_problems:
            self.notify(words, title="settings", severity="warning", timeout=10, markup=False)

    def _end(self, status: int) -> None:
        self.exit(return_code=status)

    def _settle(self) -> None:
        """The garbage collector was off while starting; what start-up made it need never look at again."""
        gc.collect()
        gc.freeze()
        gc.enable()

    def _announce(self, message: object) -> None:
        if isinstance(message, Announced):
            severity: SeverityLevel = "error" if message.bad else "information"
            self.notify(message.message, severity=severity, timeout=8, markup=False)

    async def action_quit(self) -> None:
        self.exit(return_code=0)

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, SteadyPalette):
            self.push_screen(SteadyPalette(id="--command-palette"))

    def action_repaint(self) -> None:
        redraw_all(self)
