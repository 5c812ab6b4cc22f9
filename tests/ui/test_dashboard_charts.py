"""The dashboard's charts: F7, the focus, the cursor in time, and where they stand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot

from gputop.commands.shared.demo_past import RewindableClock, remember
from gputop.history.gpu_history import History
from gputop.model.chart_metrics import USUAL_METRICS
from gputop.monitor import Monitor
from gputop.sampling.bus import Bus
from gputop.sampling.poller import Poller
from gputop.settings import DEFAULTS, Settings
from gputop.settings_file import load
from gputop.sources.simulated import simulated_machine
from gputop.ui.app import GputopApp
from gputop.ui.chart.history_chart import HistoryChart


@asynccontextmanager
async def dashboard(
    tmp_path: Path, name: str = "", size: tuple[int, int] = (120, 40), settings: Settings = DEFAULTS
) -> AsyncIterator[tuple[GputopApp, Pilot[None]]]:
    clock, bus, history = RewindableClock(), Bus(), History()
    clock.rewind(120)
    machine = simulated_machine(name, 3, clock)
    remember(machine.source, history, clock)
    poller = Poller(machine.source, machine.host, bus, 0.25, history)
    poller.start()
    assert poller.wait_for_first(10) is not None
    app = GputopApp(Monitor(poller, bus, settings.changed(refresh=0.25), tmp_path / "config.toml"))
    async with app.run_test(size=size) as pilot:
        yield app, pilot
    poller.stop()


async def until(true: Callable[[], object], what: str) -> None:
    for _ in range(400):
        if true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"not seen: {what}")


def title(app: GputopApp) -> str:
    return "".join(text for text, _ in chart(app).lines[0])


def chart(app: GputopApp) -> HistoryChart:
    found = app.dashboard.chart
    assert found is not None
    return found


async def drawn(app: GputopApp) -> None:
    await until(lambda: app.dashboard.chart is not None and chart(app).picture is not None, "a chart")


async def test_utilization_stands_beside_memory_by_default(tmp_path: Path) -> None:
    async with dashboard(tmp_path) as (app, _):
        await drawn(app)
        assert "GPU utilization" in title(app) and "memory used" in title(app)
    async with dashboard(tmp_path, size=(80, 24)) as (app, _):
        await drawn(app)
        assert "GPU utilization" in title(app) and chart(app).size.height >= 5


async def test_f7_walks_through_the_sets_comes_back_and_the_choice_is_saved(tmp_path: Path) -> None:
    async with dashboard(tmp_path) as (app, pilot):
        await drawn(app)
        seen = []
        for _ in range(20):
            await pilot.press("f7")
            settings = app.dashboard.monitor.settings
            seen.append(settings.chart_metrics if settings.show_chart else ())
            if seen[-1] == USUAL_METRICS:
                break
        assert seen[0] == ("utilization",) and ("memory",) in seen and seen[-2] == ()
        await pilot.press("f7", "f7")
        assert load(tmp_path / "config.toml")[0].chart_metrics == ("memory",)


async def test_the_focus_is_not_lost_with_the_chart_that_had_it(tmp_path: Path) -> None:
    async with dashboard(tmp_path, settings=DEFAULTS.changed(chart_metrics=("nvlink",))) as (app, pilot):
        await drawn(app)
        app.dashboard.set_focus(chart(app))
        while app.dashboard.monitor.settings.show_chart:
            await pilot.press("f7")
        await pilot.pause()
        assert app.dashboard.focused is not None and app.dashboard.focused is not chart(app)
        await pilot.press("t")
        assert app.dashboard.monitor.settings.tree, "keys are still heard"


async def test_arrows_in_a_focused_chart_show_the_values_of_then(tmp_path: Path) -> None:
    async with dashboard(tmp_path, "h200") as (app, pilot):
        await drawn(app)
        app.dashboard.set_focus(chart(app))
        await pilot.press("left", "left", "left")
        assert " at " in title(app)
        at, history = chart(app).cursor, app.dashboard.monitor.history
        assert at is not None
        (track,) = history.tracks.values()
        value = track.value_at("utilization", at)
        assert value is not None and f" {value:.0f}%" in title(app)
        await pilot.press("left")
        assert chart(app).cursor is not None and chart(app).cursor < at  # type: ignore[operator]
        await pilot.press("home", "right", "end")
        app.dashboard.set_focus(app.dashboard.table)
        await pilot.pause()
        assert " at " not in title(app) and chart(app).cursor is None


async def test_one_gpu_on_a_wide_screen_stands_beside_its_charts(tmp_path: Path) -> None:
    """Its gauges were stretched over 80 cells."""
    async with dashboard(tmp_path, "h200") as (app, pilot):
        await drawn(app)
        gpus = app.dashboard.gpus
        assert gpus.size.width < 80 and chart(app).region.x >= gpus.size.width
        assert gpus.size.height == chart(app).size.height
        await pilot.resize_terminal(90, 40)
        await until(lambda: chart(app).region.x == 0 and gpus.size.width == 90, "the chart below")
        await pilot.resize_terminal(130, 40)
        await until(lambda: chart(app).region.x > 0, "beside again")
        await until(lambda: len("".join(text for text, _ in gpus.lines[0])) == gpus.size.width, "whole cards")
