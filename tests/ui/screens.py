"""An application that shows one screen, for the tests of the screens over the dashboard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.app import App, ComposeResult
from textual.events import Key
from textual.geometry import Region
from textual.pilot import Pilot
from textual.screen import Screen

from gputop.history.gpu_history import History
from gputop.leaks.report import LeakReport
from gputop.model import ProcessKey, Snapshot
from gputop.monitor import Monitor
from gputop.procfs.host_reader import ProcessDetails
from gputop.sampling.bus import Bus
from gputop.sampling.messages import SnapshotTaken
from gputop.settings import DEFAULTS, Settings
from gputop.signals.protocol import Signals
from gputop.ui.keys import TORN
from gputop.ui.monitor_screen import MonitorScreen
from gputop.ui.toolkit.glyphs import UNICODE
from gputop.ui.toolkit.line_widget import LineWidget
from gputop.ui.toolkit.palette import DARK, THEMES
from gputop.ui.toolkit.view import View

VIEW = View(DEFAULTS, UNICODE)

#: What a torn F-key, arrow or paste leaves behind, by Textual's names; Escape always comes first.
CHARACTERS = {"left_square_bracket": "[", "tilde": "~"}
TORN_KEYS = ["escape", *({v: k for k, v in CHARACTERS.items()}.get(key, key) for key in sorted(TORN))]


class HandFed:
    """A sampler whose snapshots are those that a test takes. *details* answers for the host."""

    def __init__(self, bus: Bus, details: Callable[[ProcessKey], ProcessDetails | None] = lambda key: None) -> None:
        self.bus, self.details = bus, details
        self.history = History()
        self.latest: Snapshot | None = None
        self.interval = 1.0
        self.released = False

    def want(self, consumer: str, pids: Collection[int] | None, every: float = 1.0) -> None: ...

    def refresh(self) -> None: ...

    def take(self, snapshot: Snapshot) -> None:
        self.history.add(snapshot)
        self.latest = snapshot
        self.bus.publish(SnapshotTaken(snapshot))


def monitor_of(
    snapshot: Snapshot | None = None,
    *,
    settings: Settings = DEFAULTS,
    signals: Signals | None = None,
    report: LeakReport | None = None,
    details: Callable[[ProcessKey], ProcessDetails | None] = lambda key: None,
    sampler: HandFed | None = None,
) -> Monitor:
    """What a screen is given: *snapshot* is the newest, :func:`take` brings others."""
    sampler = sampler or HandFed(Bus(), details)
    monitor = Monitor(sampler, sampler.bus, settings, Path("/nowhere/gputop/config.toml"), signals=signals)
    if snapshot is not None:
        sampler.take(snapshot)
    if report is not None:
        monitor.take_report(report)
    return monitor


def take(monitor: Monitor, snapshot: Snapshot) -> None:
    """Something new is seen."""
    assert isinstance(monitor.sampler, HandFed)
    monitor.sampler.take(snapshot)


class Stage(App[None]):
    """Shows a board with a dashboard's text, and the screen over it. What it is a screen of goes on."""

    def __init__(self, make: Callable[[], Screen[Any]], theme: str = DARK.name) -> None:
        super().__init__()
        self.make = make
        self.results: list[Any] = []
        for known in THEMES:
            self.register_theme(known)
        self.theme = theme

    def compose(self) -> ComposeResult:
        yield LineWidget()

    def on_mount(self) -> None:
        screen = self.make()
        if isinstance(screen, MonitorScreen):
            screen.monitor.attach(asyncio.get_running_loop(), self._handle_exception)
        self.push_screen(screen, self.results.append)

    @property
    def over(self) -> Any:
        """The screen under test; None when it was closed."""
        return self.screen if len(self.screen_stack) > 1 else None

    def text(self) -> str:
        """What the screen's board shows, line by line."""
        board = self.screen.query_one(LineWidget)
        strips = board.render_lines(Region(0, 0, board.size.width, board.size.height))
        for strip in strips:
            assert strip.cell_length == board.size.width
        return "\n".join(strip.text.rstrip() for strip in strips)

    def notices(self) -> list[str]:
        return [notice.message for notice in self._notifications]


@asynccontextmanager
async def showing(
    make: Callable[[], Screen[Any]], size: tuple[int, int] = (80, 24), theme: str = DARK.name
) -> AsyncIterator[tuple[Stage, Pilot[None]]]:
    app = Stage(make, theme)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, pilot


def strike(screen: Any, *keys: str) -> None:
    """Press many keys at once: a pilot takes 30 ms for each."""
    for key in keys:
        screen.on_key(Key(key, key if len(key) == 1 else CHARACTERS.get(key)))


def flat(text: str) -> str:
    """*text* without line breaks and the scroll bar."""
    return " ".join(text.replace("█", " ").split())


async def until(condition: Callable[[], Any], what: str, seconds: float = 20) -> None:
    """Wait for *condition*, patiently: the machine may be busy."""
    end = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < end, f"waited {seconds} s for {what}"
        await asyncio.sleep(0.02)
