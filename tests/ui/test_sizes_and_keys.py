"""Every screen and dialog, at sizes down to 1×1 and up, with keys between them: nothing crashes, and what cannot be
seen is not chosen.

A walk is a seed: it opens a screen, then resizes and types by turns. What fails is told with its steps.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.app import App
from textual.events import Key, Resize
from textual.geometry import Region, Size

from gputop.history.gpu_history import History
from gputop.monitor import Monitor
from gputop.recording.reading import Recording
from gputop.sampling.bus import Bus
from gputop.sampling.player import Player
from gputop.sampling.poller import Poller
from gputop.sampling.shown_time import RecordedTime
from gputop.settings import DEFAULTS
from gputop.sources.simulated import simulated_machine
from gputop.ui.app import GputopApp
from gputop.ui.kill.screen import KillScreen
from gputop.ui.toolkit.textual_seams.typeahead import TypeaheadApp
from gputop.ui.torch_viewers.screen import ViewerScreen
from gputop.ui.torch_viewers.snapshot.screen import TorchSnapshotScreen
from gputop.ui.torch_viewers.trace.screen import TorchTraceScreen
from tests.recorded import life, record
from tests.ui.screens import VIEW, showing, until
from tests.unit.torch_files import allocator_simulator as sim

H200 = Path(__file__).resolve().parents[1] / "data" / "h200"

SIZES = [(1, 1), (2, 1), (1, 40), (200, 1), (3, 2), (12, 3), (20, 3), (20, 4), (24, 5), (40, 8), (59, 11), (60, 12),
         (61, 13), (80, 2), (80, 16), (80, 18), (80, 24), (120, 40), (200, 60)]  # fmt: skip

KEYS = ["down", "up", "pagedown", "pageup", "home", "end", "left", "right", "tab", "shift+tab", "enter",
        "space", "q", "escape", "1", "a", "slash", "plus", "minus", "backspace", "I", "c", "v", "t",
        "question_mark"]  # fmt: skip

WALKS = 2
SIZES_A_WALK = 10

#: How each screen and dialog is opened from the dashboard.
SCREENS = {
    "dashboard": (),
    "help": ("f1",),
    "settings": ("f2",),
    "filter": ("slash",),
    "tree": ("f5",),
    "sort": ("f6",),
    "sort at its end": ("f6", "end"),
    "chart": ("f7",),
    "leaks": ("f8",),
    "kill": ("f9",),
    "another signal": ("f9", "end", "enter"),
    "process": ("enter",),
    "GPU": ("shift+tab", "shift+tab", "enter"),
    "events": ("e",),
    "why": ("w",),
    "groups": ("b",),
    "looking back": ("comma",),
    "palette": ("ctrl+p",),
    "palette further down": ("ctrl+p", "down"),
}


@asynccontextmanager
async def dashboard(folder: Path, size: tuple[int, int] = (80, 24)) -> AsyncIterator[GputopApp]:
    machine = simulated_machine("")
    bus = Bus()
    poller = Poller(machine.source, machine.host, bus, 0.1, History())
    poller.start()
    assert poller.wait_for_first(10) is not None
    settings = DEFAULTS.changed(refresh=0.1)
    monitor = Monitor(
        poller, bus, settings, folder / "config.toml", signals=machine.signals,
        investigator=lambda: machine.investigator,
    )  # fmt: skip
    app = GputopApp(monitor)
    app.action_quit = _stays  # type: ignore[method-assign]
    async with app.run_test(size=size):
        yield app
    monitor.stop()
    poller.stop()


async def _stays() -> None:
    """Quit is one of the keys and commands that a walk comes upon."""


async def resize(app: App[None], size: tuple[int, int]) -> None:
    """As the driver tells it."""
    app.post_message(Resize(Size(*size), Size(*size)))
    await asyncio.sleep(0.02)  # 1/120 s later it is laid out


async def press(app: App[None], *keys: str) -> None:
    """Type *keys*, and wait until they were acted upon."""
    for key in keys:
        app.post_message(Key(key, key if len(key) == 1 else {"space": " ", "slash": "/"}.get(key)))
    end = time.monotonic() + 3
    await asyncio.sleep(0.01)
    while isinstance(app, TypeaheadApp) and (app._mark is not None or app._waiting) and time.monotonic() < end:
        await asyncio.sleep(0.005)


async def walk(app: App[None], seed: str, opened_by: tuple[str, ...] = (), walks: int = WALKS) -> None:
    """Open a screen, then resize and type by turns."""
    generator = random.Random(seed)
    steps: list[str | tuple[int, int]] = []
    floor = len(app.screen_stack)
    try:
        for _ in range(walks):
            steps += opened_by
            await press(app, *opened_by)
            for _ in range(SIZES_A_WALK):
                size = generator.choice(SIZES)
                steps.append(size)
                await resize(app, size)
                keys = generator.choices(KEYS, k=3)
                steps += keys
                await press(app, *keys)
                assert app._exception is None
            while len(app.screen_stack) > floor:
                app.pop_screen()
            await resize(app, (80, 24))
            await press(app, "escape")
    except BaseException as error:
        error.add_note(f"steps: {steps}")
        raise
    assert app._exception is None


@pytest.mark.parametrize("screen", SCREENS)
async def test_every_screen_takes_any_size_and_any_key(screen: str, tmp_path: Path) -> None:
    async with dashboard(tmp_path) as app:
        await walk(app, screen, SCREENS[screen])


@pytest.mark.parametrize("opened_by", [(), ("g",), ("f9",)], ids=["replay", "time prompt", "kill"])
async def test_a_replay_takes_any_size_and_any_key(opened_by: tuple[str, ...], tmp_path: Path) -> None:
    record(tmp_path / "gpus.rec", list(life("lost-gpu", 30, interval=1.0)))
    bus = Bus()
    player = Player(Recording.open(tmp_path / "gpus.rec"), bus)
    player.start()
    app = GputopApp(Monitor(player, bus, DEFAULTS, tmp_path / "config.toml", shown_time=RecordedTime(player)))
    app.action_quit = _stays  # type: ignore[method-assign]
    async with app.run_test(size=(80, 24)):
        await walk(app, f"replay {opened_by}", opened_by)
    player.stop()


@pytest.mark.parametrize("name", ["torch_trace_stacks.json.gz", "torch_trace_stacks.timeline.raw.json.gz"])
async def test_a_viewer_takes_any_size_and_any_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ViewerScreen, "close", lambda self: None)
    screen = TorchTraceScreen(H200 / name, VIEW)
    async with showing(lambda: screen) as (app, _):
        await until(lambda: screen.panes or screen.problems, "the file to be read")
        await walk(app, name, walks=3)


async def test_the_viewer_of_snapshots_takes_any_size_and_any_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ViewerScreen, "close", lambda self: None)
    device = sim.Allocator(0, capacity=700 << 20)
    sim.training(device, steps=5)
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(sim.dumps(sim.snapshot(device)))
    screen = TorchSnapshotScreen([path], VIEW)
    async with showing(lambda: screen) as (app, _):
        await until(lambda: screen.state is not None or screen.problems, "the file to be read")
        for key in "otalsmd":
            await walk(app, f"snapshot {key}", (key,), walks=1)


# ------------------------------------------------------------------------------- what cannot be seen


def sent(app: GputopApp) -> bool:
    """Whether the dialog on top has sent a signal, or is about to."""
    screen = app.screen
    return isinstance(screen, KillScreen) and (screen.terminations.sent or screen._graceful is not None)


TOO_SMALL = [(20, 3), (12, 3), (80, 4), (80, 8), (30, 24), (52, 24), (1, 1)]


@pytest.mark.parametrize("size", TOO_SMALL, ids=str)
async def test_a_kill_cannot_be_sent_unseen(size: tuple[int, int], tmp_path: Path) -> None:
    """A row chosen at 80×24, the window shrunk, F9 k Enter: whom it hits, the signal and the choice must be seen."""
    async with dashboard(tmp_path) as app:
        for keys in (
            ("k", "enter"),
            ("e", "enter"),
            ("down", "down", "enter"),
            ("end", "enter", "9", "enter", "enter"),
        ):
            await resize(app, size)
            await press(app, "f9", *keys)
            await asyncio.sleep(0.1)
            assert isinstance(app.screen, KillScreen) and not sent(app)
            await press(app, "escape")  # to leave needs no room
            assert not isinstance(app.screen, KillScreen)
        await press(app, "f9", "k")
        await resize(app, (80, 24))  # now it is seen
        await press(app, "k", "enter")
        await until(lambda: sent(app), "a signal")


async def test_a_dialog_that_shrinks_with_a_signal_at_the_cursor_sends_nothing(tmp_path: Path) -> None:
    async with dashboard(tmp_path) as app:
        await press(app, "f9", "k")
        app.post_message(Resize(Size(20, 3), Size(20, 3)))
        await press(app, "enter")
        await asyncio.sleep(0.1)
        assert not sent(app)


async def test_a_signal_at_the_least_size_is_seen_whole(tmp_path: Path) -> None:
    async with dashboard(tmp_path, (60, 12)) as app:
        await press(app, "f9")
        await asyncio.sleep(0.3)
        screen = app.screen
        assert isinstance(screen, KillScreen) and screen.is_seen
        text = "\n".join(strip.text for strip in screen.board.render_lines(Region(0, 0, *screen.board.size)))
        for words in ("Cancel", "SIGTERM", "SIGKILL", "SIGINT", "Other", "41832"):
            assert words in text
        assert screen.board.size.height <= 12


async def test_the_list_of_sort_columns_follows_a_window_that_grows(tmp_path: Path) -> None:
    """80×24, F6, End, 16 rows, then 18."""
    async with dashboard(tmp_path) as app:
        await press(app, "f6", "end")
        for rows in (16, 18, 5, 40, 3, 24):
            await resize(app, (80, rows))
        assert app._exception is None and len(app.screen_stack) == 2


async def test_the_palette_pages_where_there_is_no_room_for_its_list(tmp_path: Path) -> None:
    """Ctrl+P, Down, 80×2, PageDown."""
    async with dashboard(tmp_path) as app:
        for size in ((80, 2), (80, 1), (1, 1), (80, 24)):
            await press(app, "ctrl+p", "down")
            await resize(app, size)
            await press(app, "pagedown", "pageup", "pagedown", "escape", "escape")
        assert app._exception is None


async def test_enter_twice_in_the_palette_runs_one_command_once(tmp_path: Path) -> None:
    ran: list[str] = []
    async with dashboard(tmp_path) as app:
        app.dashboard.action_help = lambda: ran.append("help")  # type: ignore[method-assign]
        app.dashboard.action_details = lambda: None  # type: ignore[method-assign]  # the next Enter is the dashboard's
        for _ in range(5):
            ran.clear()
            await press(app, "ctrl+p")
            await asyncio.sleep(0.2)
            for letter in "what the keys":
                await press(app, letter)
            await asyncio.sleep(0.3)
            await press(app, "enter", "enter", "enter")
            await asyncio.sleep(0.2)
            assert app._exception is None and len(app.screen_stack) == 1 and ran == ["help"]


async def test_settings_are_not_changed_unseen(tmp_path: Path) -> None:
    async with dashboard(tmp_path) as app:
        await press(app, "f2")
        before = app.monitor.settings
        await resize(app, (12, 3))
        await press(app, "down", "right", "space", "enter", "D", "y")
        assert app.monitor.settings == before
        await press(app, "escape")
        assert len(app.screen_stack) == 1
