"""The dashboard as a Textual app: themes, screens, signals of the system, and the way in from the bus."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.app import SystemCommand
from textual.binding import Binding
from textual.filter import LineFilter
from textual.screen import Screen

from gputop import settings_file
from gputop.alarms.raised import RaisedAlarms
from gputop.leaks.process_context import Investigator
from gputop.model import Snapshot
from gputop.sampling.bus import Bus
from gputop.sampling.history import History
from gputop.sampling.messages import GpuBack, GpuLost, LeaksReported, SnapshotTaken
from gputop.sampling.sampler import Sampler
from gputop.settings import Settings
from gputop.signals.protocol import Signals
from gputop.text import unicode_works
from gputop.ui import exit_signals
from gputop.ui.dashboard import Dashboard
from gputop.ui.insight import Insight
from gputop.ui.messages import GpuEvent, ReportArrived, SnapshotArrived
from gputop.ui.toolkit import plain_widgets
from gputop.ui.toolkit.crash import ReportingApp
from gputop.ui.toolkit.glyphs import ASCII, UNICODE
from gputop.ui.toolkit.line_widget import LineWidget
from gputop.ui.toolkit.palette import THEMES, Palette, theme_to_show
from gputop.ui.toolkit.view import View

if TYPE_CHECKING:
    from gputop.sampling.player import Player

PAINTED: Final = 0.5  # seconds after which the first picture is drawn, so that other work may begin
SETTLED: Final = 2.0  # seconds after which what start-up made is no longer looked at by the garbage collector


def run(
    *,
    poller: Sampler,
    bus: Bus,
    history: History,
    settings: Settings,
    settings_path: Path,
    problems: tuple[str, ...] = (),
    signals: Signals | None = None,
    simulated: bool = False,
    player: Player | None = None,
    investigator: Callable[[], Investigator] | None = None,
) -> int:
    """Show the dashboard until the user quits. Returns the exit status (128 + n after signal n).

    *signals* None: read-only. *problems*: what was wrong with the settings, to be shown. *player*: *poller* again,
    where it plays a recording. *investigator* finds out owners and leaks.
    """
    insight = Insight(poller, bus, settings, investigator, keeps_log=not simulated)
    app = GputopApp(poller, bus, history, settings, settings_path, problems, signals, player, insight)
    app.termination_signals = exit_signals.EndingSignals()
    exit_signals.end_with_terminal()
    stdout = sys.__stdout__
    sys.__stdout__ = sys.__stderr__  # type: ignore[misc]  # Textual draws there, but asks the other one for the size
    try:
        app.run(mouse=settings.mouse)
    finally:
        sys.__stdout__ = stdout  # type: ignore[misc]
    return app.return_code or 0


class GputopApp(ReportingApp[None]):
    """Holds what the screens share; draws nothing itself."""

    TITLE = "gputop"
    CSS_PATH = "gputop.tcss"
    BINDINGS: ClassVar[list[Binding]] = [  # type: ignore[assignment]  # on every screen
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("ctrl+l", "repaint", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]
    termination_signals: exit_signals.EndingSignals | None = None

    def __init__(
        self,
        poller: Sampler,
        bus: Bus,
        history: History,
        settings: Settings,
        settings_path: Path,
        problems: tuple[str, ...] = (),
        signals: Signals | None = None,
        player: Player | None = None,
        insight: Insight | None = None,
    ) -> None:
        # Colours off is a theme of its own here: attributes instead of greys (Textual's NO_COLOR means greys).
        os.environ.pop("NO_COLOR", None)
        super().__init__()
        self.poller, self.bus, self.history = poller, bus, history
        self.settings, self.settings_path = settings, settings_path
        self.settings_problems = problems
        self.signals, self.player = signals, player
        self.insight = insight or Insight(poller, bus, settings)
        self._told_lost: set[str] = set()  # UUIDs
        self._alarms = RaisedAlarms(bus, self._say_alarm)
        self.ascii_only = settings.ascii if settings.ascii is not None else not unicode_works(sys.__stderr__)
        LineWidget.ascii_only = self.ascii_only
        for theme in THEMES:
            self.register_theme(theme)
        self.apply_theme(settings)

    # -- settings

    def get_line_filters(self) -> list[LineFilter]:
        """What Textual's own widgets are drawn through; boards draw what is right by themselves."""
        filters = [*super().get_line_filters()]
        if self.ascii_only:
            filters.append(plain_widgets.ASCII_ONLY)
        if not self.settings.color:
            filters.append(plain_widgets.NO_COLOURS)
        return filters

    @property
    def view(self) -> View:
        """How things are to be shown now."""
        return View(
            self.settings,
            ASCII if self.ascii_only else UNICODE,
            Palette.of(self).has_track and not self.ascii_only,
            self._alarms.by_gpu,
        )

    def apply_theme(self, settings: Settings) -> None:
        self.theme = theme_to_show(settings, self.available_themes, self.console.color_system)

    def change_settings(self, settings: Settings) -> str | None:
        """Apply *settings* and save what changed. Returns why they could not be saved, in words, or None."""
        before = self.settings
        names = [name for name in Settings.__dataclass_fields__ if getattr(before, name) != getattr(settings, name)]
        if not names:
            return None
        self.use_settings(settings)
        try:
            words = settings_file.save(settings, self.settings_path, names)
        except settings_file.SettingsError as error:
            return str(error)
        self.notify(words, timeout=2, markup=False)
        return None

    def use_settings(self, settings: Settings) -> None:
        """Apply *settings* for now, without saving them."""
        before, self.settings = self.settings, settings
        if settings.refresh != self.poller.interval:
            self.poller.interval = settings.refresh
        if (settings.theme, settings.color) != (before.theme, before.color) or self.theme != settings.theme:
            self.apply_theme(settings)
        if settings.ascii is not None:
            self.ascii_only = LineWidget.ascii_only = settings.ascii
        self.insight.use(settings)
        self.dashboard.rearrange()

    # -- life

    @property
    def dashboard(self) -> Dashboard:
        screen = self.screen_stack[0]
        assert isinstance(screen, Dashboard)
        return screen

    def get_default_screen(self) -> Screen[Any]:
        if self.player is not None:
            from gputop.ui.replay.dashboard import ReplayDashboard

            return ReplayDashboard(self.player)
        return Dashboard()

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        if self.termination_signals is not None:
            self.termination_signals.hand_over(self._end)
        self.bus.subscribe(SnapshotTaken, self._on_snapshot_taken)
        self.bus.subscribe(LeaksReported, self._on_leaks_reported)
        self.bus.subscribe(GpuLost, self._on_gpu_lost, every=True)
        self.bus.subscribe(GpuBack, self._on_gpu_back, every=True)
        self.bus.attach(loop)
        self.theme_changed_signal.subscribe(self, lambda _: self.dashboard.rearrange())
        self.app_resume_signal.subscribe(self, lambda _: self.action_repaint())  # the shell wrote in between
        self.insight.follow()
        self.set_timer(SETTLED, self._settle)
        self.set_timer(PAINTED, self.insight.start)
        for words in self.settings_problems:
            self.notify(words, title="settings", severity="warning", timeout=10, markup=False)

    def _end(self, status: int) -> None:
        self.exit(return_code=status)

    def _settle(self) -> None:
        """The garbage collector was off while starting; what start-up made it need never look at again."""
        gc.collect()
        gc.freeze()
        gc.enable()

    def _on_snapshot_taken(self, message: SnapshotTaken) -> None:
        self.post_message(SnapshotArrived(message.snapshot))

    def _on_gpu_lost(self, message: GpuLost) -> None:
        gpu, latest = message.gpu, self.poller.latest
        if latest is None or gpu.error not in latest.problems:  # what ails all of them is in the banner, once
            self._told_lost.add(gpu.uuid)
            self.post_message(GpuEvent(f"GPU {gpu.index} is in trouble: {gpu.error}", bad=True))

    def _on_gpu_back(self, message: GpuBack) -> None:
        if message.gpu.uuid in self._told_lost:
            self._told_lost.remove(message.gpu.uuid)
            self.post_message(GpuEvent(f"GPU {message.gpu.index} is back", bad=False))

    def on_snapshot_arrived(self, message: SnapshotArrived) -> None:
        self.dashboard.show_snapshot(message.snapshot)
        for screen in self.screen_stack[1:]:
            handler = getattr(screen, "show_snapshot", None)
            if handler is not None:
                handler(message.snapshot)

    def _say_alarm(self, words: str, bad: bool) -> None:
        self.post_message(GpuEvent(words, bad))

    def _on_leaks_reported(self, message: LeaksReported) -> None:
        self.post_message(ReportArrived(message.report))

    def on_report_arrived(self, message: ReportArrived) -> None:
        self.insight.take(message.report)
        self.dashboard.show_report(message.report)
        for screen in self.screen_stack[1:]:
            handler = getattr(screen, "show_report", None)
            if handler is not None:
                handler(message.report)

    def on_gpu_event(self, message: GpuEvent) -> None:
        self.notify(message.words, severity="error" if message.bad else "information", timeout=8, markup=False)

    @property
    def latest(self) -> Snapshot | None:
        return self.dashboard.snapshot

    async def action_quit(self) -> None:
        self.exit(return_code=0)

    def action_repaint(self) -> None:
        """Write every cell anew, as it is: something else may have written on this terminal."""
        for screen in self.screen_stack:
            for board in screen.query(LineWidget):
                board.redraw()
            screen.refresh(repaint=True, layout=True)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The command palette: every action of the dashboard."""
        for key in self.dashboard.keys:
            if key.action != "suspend":
                words = key.words[0].upper() + key.words[1:]
                yield SystemCommand(words, f"key {key.shown}", self._runner(key.action))

    def _runner(self, action: str) -> Any:
        async def run_it() -> None:
            await self.run_action(f"screen.{action}", self.dashboard)

        return run_it
