"""Keys went nowhere after the window had been too small, and after the chart that had them went."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot

from gputop.ui.app import GputopApp
from tests.ui.screens import monitor_of, until
from tests.ui.test_monitor_screen import taken

SIZES = [(60, 12), (80, 24), (120, 40), (200, 60)]


async def settled(pilot: Pilot[None]) -> None:
    await pilot.pause(0.15)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tabs", [0, 1, 2])
async def test_keys_go_nowhere_after_the_window_was_too_small(size: tuple[int, int], tabs: int) -> None:
    app = GputopApp(monitor_of(taken(0, 1)))
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        for _ in range(tabs):
            await pilot.press("tab")
        had = app.focused
        assert had is not None
        for small in ((30, 5), (59, 40), (20, 11)):
            await pilot.resize_terminal(*small)
            await settled(pilot)
        await pilot.resize_terminal(*size)
        await until(lambda: app.focused is not None, "the focus")
        assert app.focused is had


async def test_keys_go_nowhere_when_the_chart_that_had_them_goes() -> None:
    monitor = monitor_of(taken(0, 1))
    app = GputopApp(monitor)
    async with app.run_test(size=(120, 40)) as pilot:
        screen: Any = app.dashboard
        await until(lambda: screen.chart is not None and screen.chart.display, "the chart")
        app.set_focus(screen.chart)
        await settled(pilot)
        monitor.change_for_now(show_chart=False)
        await until(lambda: app.focused is not screen.chart, "the focus")
        await settled(pilot)
        assert app.focused in (screen.table, screen.gpus) and app.focused.display
        await pilot.press("f1")
        await until(lambda: app.screen is not screen, "help")
        await pilot.press("escape")
        await until(lambda: app.screen is screen, "the dashboard")
        assert app.focused is not None
