"""Screens are told by the bus: while they can be seen, in one hop, and what goes wrong in them is not lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gputop import locations
from gputop.model import Snapshot
from gputop.ui.app import GputopApp
from tests.ui.screens import monitor_of, take, until
from tests.unit.ui.process_data import TAKEN_AT, gpu, process


def taken(second: float, gib: float) -> Snapshot:
    return Snapshot(TAKEN_AT + second, gpus=(gpu(0),), processes=(process(10, gib=gib),))


def watched(app: GputopApp) -> list[Snapshot | None]:
    """The moments that the dashboard draws from now on."""
    drawn: list[Snapshot | None] = []
    screen: Any = app.dashboard
    usual = screen._draw

    def draw() -> None:
        usual()
        drawn.append(screen.snapshot)

    screen._draw = draw
    return drawn


async def settled(pilot: Pilot[None]) -> None:
    await pilot.pause(0.1)


async def test_a_hidden_dashboard_draws_nothing_and_is_up_to_date_when_it_is_seen_again() -> None:
    monitor = monitor_of(taken(0, 1))
    app = GputopApp(monitor)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        drawn = watched(app)
        take(monitor, taken(1, 2))
        await until(lambda: drawn, "a picture")
        await pilot.press("e")  # a full screen over it
        await settled(pilot)
        before = len(drawn)
        for second in range(2, 6):
            take(monitor, taken(second, second))
            await settled(pilot)
        assert len(drawn) == before
        await pilot.press("q")
        await until(lambda: drawn[-1] is monitor.latest, "the newest")


async def test_a_dashboard_behind_a_dialog_goes_on() -> None:
    monitor = monitor_of(taken(0, 1))
    app = GputopApp(monitor)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("f6")
        await settled(pilot)
        drawn = watched(app)
        take(monitor, taken(1, 2))
        await until(lambda: drawn and drawn[-1] is monitor.latest, "the newest")


async def test_a_fault_in_a_screen_that_the_bus_tells_is_not_swallowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locations, "state_directory", lambda: tmp_path)
    monitor = monitor_of(taken(0, 1))
    app = GputopApp(monitor)
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        async with app.run_test(size=(120, 40)) as pilot:
            await settled(pilot)
            screen: Any = app.dashboard
            screen.look = lambda: 1 // 0
            take(monitor, taken(1, 2))
            await pilot.pause(0.3)
    assert "ZeroDivisionError" in (tmp_path / "crash.log").read_text()
