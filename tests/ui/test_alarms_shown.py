"""The alarms of the settings file, on the dashboard."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gputop.alarms.dashboard import watch
from gputop.history.gpu_history import History
from gputop.monitor import Monitor
from gputop.sampling.bus import Bus
from gputop.sampling.messages import AlarmCleared, AlarmDetails, AlarmRaised
from gputop.sampling.poller import Poller
from gputop.settings import DEFAULTS, AlarmRule, Settings
from gputop.sources.simulated import simulated_machine
from gputop.ui.app import GputopApp
from gputop.ui.toolkit.line_widget import LineWidget
from tests.ui.screens import until


def text(app: GputopApp) -> str:
    boards = [board for board in app.screen.query(LineWidget) if board.display]
    return "\n".join("".join(span for span, _ in line) for board in boards for line in board.lines)


def notices(app: GputopApp) -> list[str]:
    return [notice.message for notice in app._notifications]


@asynccontextmanager
async def dashboard(
    settings: Settings, folder: Path, machine: str = "", size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[GputopApp, Poller]]:
    simulated, bus, history = simulated_machine(machine, 0), Bus(), History()
    poller = Poller(simulated.source, simulated.host, bus, 0.2, history)
    poller.start()
    assert poller.wait_for_first(10) is not None
    problems = watch(settings, poller, bus, simulated.host.exists)
    app = GputopApp(Monitor(poller, bus, settings, folder / "config.toml", problems))
    async with app.run_test(size=size):
        yield app, poller
    poller.stop()


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_an_alarm_is_on_the_panel_and_told_once(tmp_path: Path, size: tuple[int, int]) -> None:
    settings = DEFAULTS.changed(refresh=0.2, alarms=[AlarmRule("gpu:1 memory > 80%", "400ms")])
    async with dashboard(settings, tmp_path, size=size) as (app, poller):
        await until(lambda: "alarm: gpu:1" in text(app) or "alarm" in text(app), "the remark")
        assert text(app).count("▲ alarm") == 1
        seen = poller.latest
        await until(lambda: poller.latest is not seen, "more readings")
        (told,) = notices(app)
        assert re.match(r"Alarm: GPU 1 \(NVIDIA H200\): memory 9\d(\.\d)?%, for 400 ms", told)


async def test_it_goes_when_it_is_cleared_and_many_at_once_are_one_toast(tmp_path: Path) -> None:
    async with dashboard(DEFAULTS.changed(refresh=0.2), tmp_path) as (app, poller):
        assert poller.latest is not None
        gpu = poller.latest.gpus[0]
        alarms = [AlarmDetails("xid", f"{n}", f"GPU 0: Xid {n}", gpu) for n in range(5)]
        for alarm in alarms:
            app.monitor.bus.publish(AlarmRaised(0.0, alarm))
        await until(lambda: "alarm: xid" in text(app), "the remark")
        assert notices(app) == ["Alarm: GPU 0: Xid 0  [xid], and 4 more"]
        for alarm in alarms:
            app.monitor.bus.publish(AlarmCleared(0.0, alarm))
        await until(lambda: "alarm: xid" not in text(app), "no remark")
        assert any(words.startswith("Cleared: ") for words in notices(app))


async def test_a_wrong_alarm_is_told_and_the_others_work(tmp_path: Path) -> None:
    settings = DEFAULTS.changed(refresh=0.2, alarms=[AlarmRule("memry > 1%"), AlarmRule("gpu:0 memory > 1%")])
    async with dashboard(settings, tmp_path) as (app, _):
        await until(lambda: "alarm: gpu:0 memory > 1%" in text(app), "the remark")
        assert any("did you mean memory?" in words for words in notices(app))


async def test_handles_let_go_of_by_hand_are_no_lost_gpus(tmp_path: Path) -> None:
    async with dashboard(DEFAULTS.changed(refresh=0.2, alarms=[AlarmRule("gpu lost")]), tmp_path) as (app, poller):
        poller.released = True
        await until(lambda: poller.latest is not None and bool(poller.latest.problems), "the release")
        poller.released = False
        await until(lambda: poller.latest is not None and not poller.latest.problems, "the readings")
        assert not any(words.startswith("Alarm") for words in notices(app))
