"""What is seen of a recording, and of the dashboard's own past."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gputop.history.gpu_history import History
from gputop.history.history_until import HistoryUntil
from gputop.model import Snapshot
from gputop.monitor import Monitor
from gputop.outputs import recorder as recorder_module
from gputop.recording.reading import Recording
from gputop.sampling.bus import Bus
from gputop.sampling.player import Player
from gputop.sampling.shown_time import RecordedTime
from gputop.settings import DEFAULTS
from gputop.signals.protocol import Signals
from gputop.sources.simulated import simulated_machine
from gputop.ui.app import GputopApp
from gputop.ui.chart.history_chart import HistoryChart
from gputop.ui.keys import KEYS, REPLAY_KEYS, TORN
from gputop.ui.toolkit.line_widget import LineWidget
from tests.recorded import EPOCH, life, record
from tests.ui.screens import monitor_of, take, until

SETTINGS = DEFAULTS.changed(refresh=1.0)


def clock(second: float) -> str:
    import time

    return time.strftime("%H:%M:%S", time.localtime(EPOCH + second))


def text(app: GputopApp) -> str:
    """All boards of the screen in front, line by line."""
    boards = [board for board in app.screen.query(LineWidget) if board.display]
    return "\n".join("".join(span for span, _ in line) for board in boards for line in board.lines)


def header(app: GputopApp) -> str:
    return "".join(span for span, _ in app.dashboard.header.lines[0])


def notices(app: GputopApp) -> str:
    return " ".join(notice.message for notice in app._notifications)


@asynccontextmanager
async def replaying(path: Path, size: tuple[int, int] = (120, 40)) -> AsyncIterator[tuple[GputopApp, Pilot[None]]]:
    bus = Bus()
    player = Player(Recording.open(path), bus)
    player.playing = False
    player.start()
    app = GputopApp(Monitor(player, bus, SETTINGS, path.with_name("config.toml"), shown_time=RecordedTime(player)))
    async with app.run_test(size=size) as pilot:
        await until(lambda: "REPLAY" in header(app), "the header")
        yield app, pilot
    player.stop()


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GPU that falls off the bus after 20 s and is back after 60 s."""
    monkeypatch.setattr(recorder_module, "GROUP_RECORDS", 16)
    record(tmp_path / "gpus.rec", list(life("lost-gpu", 90, interval=1.0)))
    return tmp_path / "gpus.rec"


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_a_recording_says_what_it_is_and_of_when(recording: Path, size: tuple[int, int]) -> None:
    async with replaying(recording, size) as (app, pilot):
        assert clock(0) in header(app) and "paused" in header(app) and "1%" in header(app)
        await pilot.press("full_stop", "full_stop")
        await until(lambda: clock(2) in header(app), "two steps")
        await pilot.press("comma")
        await until(lambda: clock(1) in header(app), "a step back")
        await pilot.press("shift+right", "shift+right", "shift+right")
        await until(lambda: clock(31) in header(app), "thirty seconds on")
        await until(lambda: "fallen off the bus" in text(app), "the lost GPU")
        await pilot.press("shift+left", "shift+left")
        await until(lambda: clock(11) in header(app), "twenty seconds back")
        await until(lambda: "fallen off the bus" not in text(app), "the GPU before it was lost")
        assert len(header(app)) == size[0]


async def test_a_time_is_typed_and_a_wrong_one_is_said_to_be_wrong(recording: Path) -> None:
    async with replaying(recording) as (app, pilot):
        await pilot.press("g", *"nonsense")
        await pilot.press("enter")
        await until(lambda: "not a time" in notices(app), "the words")
        await pilot.press("ctrl+u", *"50%")
        await pilot.press("enter")
        await until(lambda: clock(44) in header(app), "the middle")
        await pilot.press("g", *"+10s", "enter")
        await until(lambda: clock(54) in header(app), "ten seconds later")
        await pilot.press("g", *"12", "escape")
        assert clock(54) in header(app)
        await pilot.press("comma")  # the keys are the dashboard's again
        await until(lambda: clock(53) in header(app), "a step back")


async def test_it_plays_faster_and_slower_and_pauses(recording: Path) -> None:
    async with replaying(recording) as (app, pilot):
        await pilot.press("greater_than_sign", "greater_than_sign", "greater_than_sign", "p")
        await until(lambda: "10×" in header(app), "the speed")
        await until(lambda: clock(0) not in header(app), "time to pass")
        await pilot.press("less_than_sign")
        await until(lambda: "5×" in header(app), "the speed")
        await pilot.press("p")
        await until(lambda: "paused" in header(app), "the pause")


async def test_nobody_is_killed_in_a_recording_and_this_machine_is_not_asked_about_it(recording: Path) -> None:
    async with replaying(recording) as (app, pilot):
        await pilot.press("k", "f9", "f8", "L", "w", "T")
        assert len(app.screen_stack) == 1
        assert "Kill" not in text(app) and "Leaks" not in text(app)
        await pilot.press("f1")
        await until(lambda: len(app.screen_stack) == 2, "the help")
        assert "go to a time" in " ".join(key.words for key in app.dashboard.keys)


async def test_details_of_a_recorded_process(recording: Path) -> None:
    async with replaying(recording) as (app, pilot):
        await pilot.press("enter")
        await until(lambda: len(app.screen_stack) == 2, "the details")
        await until(lambda: "recording" in text(app), "what a recording does not have")


async def test_a_torn_recording_says_so(tmp_path: Path) -> None:
    path = tmp_path / "file"
    record(path, list(life("", 20)))
    path.write_bytes(path.read_bytes()[:-100])
    async with replaying(path) as (app, _):
        await until(lambda: "It is complete up to" in notices(app), "the words")


async def test_the_chart_follows_a_jump_at_once(recording: Path) -> None:
    async with replaying(recording, (160, 50)) as (app, pilot):
        await until(lambda: app.dashboard.chart is not None and app.dashboard.chart.picture is not None, "a chart")
        chart = app.dashboard.chart
        assert isinstance(chart, HistoryChart)
        for where, second in (("90s", 89), ("0%", 0), ("50%", 44)):
            await pilot.press("g", *(f"+{where}" if where.endswith("s") else where), "enter")
            await until(lambda second=second: clock(second) in header(app), "the jump")
            await until(
                lambda second=second: chart.picture is not None and chart.picture.request.now == EPOCH + second,
                "its picture",
            )


# -------------------------------------------------------------------- looking back


@asynccontextmanager
async def live(
    snapshots: list[Snapshot], size: tuple[int, int] = (120, 40), signals: Signals | None = None
) -> AsyncIterator[tuple[GputopApp, Pilot[None], Any]]:
    monitor = monitor_of(signals=signals, settings=SETTINGS)
    app = GputopApp(monitor)

    async def show(snapshot: Snapshot) -> None:
        take(monitor, snapshot)
        await asyncio.sleep(0)

    async with app.run_test(size=size) as pilot:
        for snapshot in snapshots:
            await show(snapshot)
        await pilot.pause()
        yield app, pilot, show


async def test_the_past_is_shown_with_how_long_ago_it_was_and_end_is_now() -> None:
    snapshots = list(life("lost-gpu", 45, interval=1.0))
    async with live(snapshots[:40], (160, 50)) as (app, pilot, take):
        assert "fallen off the bus" in text(app) and "ago" not in header(app)
        await pilot.press("comma")
        assert f"{clock(38)} · 1s ago, End: live" in header(app)
        await pilot.press("shift+left", "shift+left")
        assert f"{clock(18)} · 21s ago, End: live" in header(app)
        assert "fallen off the bus" not in text(app)
        await take(snapshots[40])  # the present goes on unseen
        assert f"{clock(18)} · 22s ago" in header(app)
        assert app.dashboard.snapshot is not None and app.dashboard.snapshot.taken_at == EPOCH + 18
        await pilot.press("full_stop", "shift+right")
        assert f"{clock(29)} · 11s ago" in header(app)
        await pilot.press("end")
        assert "ago" not in header(app) and clock(40) in header(app)
        await take(snapshots[41])
        assert clock(41) in header(app)
        await pilot.press("comma", "full_stop")  # on from the last one is now
        assert "ago" not in header(app)


async def test_the_past_ends_where_it_began() -> None:
    async with live(list(life("", 5, interval=1.0))) as (app, pilot, _):
        await pilot.press(*["comma"] * 4)
        assert clock(0) in header(app)
        await pilot.press("comma")
        assert clock(0) in header(app) and "Nothing older is kept" in notices(app)
        await pilot.press("shift+left")
        assert clock(0) in header(app)


async def test_end_is_the_tables_own_while_nothing_is_looked_back_at() -> None:
    async with live(list(life("8xh200", 3, interval=1.0))) as (app, pilot, _):
        rows = app.dashboard.table
        first = rows.cursor_process
        await pilot.press("end")
        last = rows.cursor_process
        assert first is not None and last is not None and first.key != last.key
        await pilot.press("home", "comma")
        assert "ago" in header(app)
        await pilot.press("end")
        assert "ago" not in header(app)
        assert rows.cursor_process is not None and rows.cursor_process.key != last.key


async def test_nobody_is_killed_in_the_past() -> None:
    snapshots = list(life("", 5, interval=1.0))
    async with live(snapshots, signals=simulated_machine().signals) as (app, pilot, _):
        await pilot.press("comma", "k")
        assert len(app.screen_stack) == 1 and "You are looking back" in notices(app)
        await pilot.press("end", "k")
        await until(lambda: len(app.screen_stack) == 2, "the dialog, now")


async def test_the_chart_marks_the_moment_and_its_legend_has_the_values_of_then() -> None:
    snapshots = list(life("", 60, interval=5.0, joined=300.0))
    async with live(snapshots, (120, 44)) as (app, pilot, _):
        await until(lambda: app.dashboard.chart is not None and app.dashboard.chart.picture is not None, "a chart")
        chart = app.dashboard.chart
        assert isinstance(chart, HistoryChart)

        def marks() -> list[tuple[str, str]]:
            return [span for line in chart.lines for span in line if span[1] in ("accent", "accent+r")]

        assert not marks()
        await pilot.press(*["shift+left"] * 6)
        before = snapshots[-13]
        assert app.dashboard.snapshot == before
        await until(lambda: len(marks()) >= 3, "a picture of it all")  # the one at hand may be of the first readings
        legend = "".join(span for span, _ in chart.lines[0])
        for gpu in before.gpus:
            assert app.dashboard.view.memory(gpu.memory_used_bytes).strip() in legend
        await pilot.press("end")
        assert not marks()


def test_a_history_until_a_time_has_nothing_after_it() -> None:
    history = History()
    snapshots = list(life("", 40, interval=2.0))
    for snapshot in snapshots:
        history.add(snapshot)
    uuid = snapshots[0].gpus[0].uuid
    expected = History()
    for snapshot in snapshots[:21]:
        expected.add(snapshot)
    until_then = HistoryUntil(history, EPOCH + 40).track(uuid)
    then = expected.track(uuid)
    assert until_then is not None and then is not None
    for n in (5, 20):
        assert until_then.memory.last(n) == then.memory.last(n)
        assert until_then.utilization.last(n) == then.utilization.last(n)
    values = HistoryUntil(history, EPOCH - 490).track(uuid)
    assert values is not None
    assert all(value != value for value in values.memory.last(30))  # long written over, or never there


def test_no_new_key_is_what_a_torn_sequence_leaves_behind() -> None:
    for key in (*KEYS, *REPLAY_KEYS):
        assert not TORN & set(key.keys)
    names = [name for key in REPLAY_KEYS for name in key.keys]
    assert len(names) == len(set(names))
