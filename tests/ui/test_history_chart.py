"""The history chart as a widget: what is on the screen, when it is built, what a redraw writes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.screen import Screen

from gputop.history.gpu_history import History
from gputop.model import Gpu, Snapshot
from gputop.settings import Settings
from gputop.ui.chart.history_chart import HistoryChart, arrange
from gputop.ui.chart.picture import Painter
from gputop.ui.toolkit.cells import line_width
from gputop.ui.toolkit.glyphs import ASCII, UNICODE
from gputop.ui.toolkit.line_widget import changed_regions
from gputop.ui.toolkit.palette import THEMES
from gputop.ui.toolkit.textual_seams import exact_output
from gputop.ui.toolkit.view import View

GIB = 1024**3
T0 = 1_796_000_000.0


def snapshot(at: float, gpus: int = 2, noise: float = 0.0) -> Snapshot:
    return Snapshot(
        taken_at=at,
        interval=0.5,
        gpus=tuple(
            Gpu(
                index=n,
                uuid=f"GPU-{n}",
                name="H200",
                read_at=at,
                memory_total_bytes=140 * GIB,
                memory_used_bytes=int((10 + 15 * n + noise * random.random()) * GIB),
                utilization_gpu_percent=min(100, 10 + 5 * n),
                power_watts=100.0 + n,
            )
            for n in range(gpus)
        ),
    )


def filled(gpus: int = 2, seconds: int = 700, noise: float = 0.0) -> History:
    history = History()
    for n in range(seconds * 2):
        history.add(snapshot(T0 - seconds + n / 2, gpus, noise))
    return history


class ChartApp(App[None]):
    def __init__(self) -> None:
        super().__init__()
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = "gputop"

    def compose(self) -> ComposeResult:
        yield HistoryChart(id="chart")

    @property
    def chart(self) -> HistoryChart:
        return self.screen_stack[0].query_one(HistoryChart)


def view(glyphs: Any = UNICODE, **changes: Any) -> View:
    return View(Settings(**changes), glyphs)


MEMORY_ONLY = view(chart_metrics=("memory",))


def rows(chart: HistoryChart) -> list[str]:
    return ["".join(text for text, _ in line) for line in chart.lines]


async def until(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    for _ in range(400):
        await pilot.pause()
        if true():
            return
        await asyncio.sleep(0.02)
    pytest.fail("it did not happen")


def has_curves(chart: HistoryChart) -> bool:
    return any("\u2800" < c <= "\u28ff" for row in rows(chart) for c in row)


async def test_axes_at_once_then_the_curves_with_title_and_legend() -> None:
    app = ChartApp()
    async with app.run_test(size=(120, 14)) as pilot:
        app.chart.show_snapshot(snapshot(T0), filled(), view())
        first = rows(app.chart)
        assert first[0].startswith("╭ GPU utilization · 10 min ─") and first[0].endswith("─╮")
        assert "■ 0  10.0G  ■ 1  25.0G" in first[0]
        assert "100%┤" in first[1] and "GiB┤" in first[1] and first[-1].startswith("╰─")
        await until(pilot, lambda: has_curves(app.chart))
        assert {line_width(line) for line in app.chart.lines} == {120} and len(app.chart.lines) == 14
        styles = {style for line in app.chart.lines[1:] for _, style in line}
        assert {"g0", "g1"} <= styles


async def test_values_in_the_title_are_those_of_this_tick_though_no_curve_is_due() -> None:
    app, history = ChartApp(), filled()
    async with app.run_test(size=(120, 14)) as pilot:
        app.chart.show_snapshot(snapshot(T0), history, view())
        await until(pilot, lambda: has_curves(app.chart))
        lost = snapshot(T0 + 0.5)
        gpus = (lost.gpus[0], Gpu(index=1, uuid="GPU-1", name="H200", read_at=T0, error="fallen off the bus"))
        app.chart.show_snapshot(Snapshot(taken_at=T0 + 0.5, gpus=gpus), history, view())
        assert "■ 0  10.0G  ■ 1      —" in rows(app.chart)[0]


@pytest.mark.parametrize(("width", "shown"), [(120, "■ 0  10.0G"), (84, "■0 ■1 ■2 ■3"), (36, "10 min")])
async def test_a_narrow_legend_loses_its_values_first_and_then_itself(width: int, shown: str) -> None:
    app = ChartApp()
    async with app.run_test(size=(width, 12)):
        app.chart.show_snapshot(snapshot(T0, 4 if width > 90 else 8), History(), MEMORY_ONLY)
        title = rows(app.chart)[0]
        assert shown in title and len(title) == width
        assert ("■" in title) == (width > 36)


async def test_hidden_it_builds_nothing_and_shown_again_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[float] = []
    paint = Painter.paint

    def counted(self: Painter, *args: Any) -> Any:
        built.append(args[-1])
        return paint(self, *args)

    monkeypatch.setattr(Painter, "paint", counted)
    app, history = ChartApp(), filled()
    async with app.run_test(size=(120, 14)) as pilot:
        app.chart.show_snapshot(snapshot(T0), history, view())
        await until(pilot, lambda: has_curves(app.chart))
        for hide, show in (
            (lambda: setattr(app.chart, "display", False), lambda: setattr(app.chart, "display", True)),
            (lambda: app.push_screen(Screen()), lambda: app.pop_screen()),
        ):
            hide()
            await pilot.pause()
            count = len(built)
            for n in range(8):
                app.chart.show_snapshot(snapshot(T0 + n), history, view())
                await asyncio.sleep(0.25)
            assert len(built) == count
            show()
            await pilot.pause()
            app.chart.show_snapshot(snapshot(T0 + 10), history, view())
            await until(pilot, lambda count=count: len(built) > count)  # type: ignore[misc]


async def test_another_metric_or_direction_is_drawn_without_waiting_for_the_next_second() -> None:
    app, history = ChartApp(), filled()
    async with app.run_test(size=(120, 14)) as pilot:
        app.chart.show_snapshot(snapshot(T0), history, view())
        await until(pilot, lambda: has_curves(app.chart))
        app.chart.builder._due += 3600  # the next one of the same subject
        app.chart.show_snapshot(snapshot(T0), history, view(chart_metrics=("utilization",)))
        assert "GPU utilization" in rows(app.chart)[0] and "100%" in rows(app.chart)[1]
        await until(pilot, lambda: has_curves(app.chart))
        before = rows(app.chart)
        app.chart.show_snapshot(snapshot(T0), history, view(chart_metrics=("utilization",), chart_newest_right=False))
        await until(pilot, lambda: rows(app.chart) != before)


async def test_ascii_only_has_no_other_character() -> None:
    app = ChartApp()
    async with app.run_test(size=(120, 14)) as pilot:
        app.chart.show_snapshot(snapshot(T0), filled(), view(ASCII, chart_metrics=("memory", "temperature")))
        await until(pilot, lambda: any("00000" in row for row in rows(app.chart)))
        assert all(row.isascii() for row in rows(app.chart)), rows(app.chart)


async def test_several_metrics_stand_side_by_side_or_say_what_is_missing() -> None:
    app, three = ChartApp(), ("memory", "utilization", "power")
    async with app.run_test(size=(200, 14)) as pilot:
        app.chart.show_snapshot(snapshot(T0), filled(), view(chart_metrics=three))
        title = rows(app.chart)[0]
        assert "memory used" in title and "GPU utilization" in title and "power" in title
        await until(pilot, lambda: has_curves(app.chart))
        assert {line_width(line) for line in app.chart.lines} == {200}
        await pilot.resize_terminal(80, 10)
        app.chart.show_snapshot(snapshot(T0), filled(), view(chart_metrics=three))
        assert "memory used" in rows(app.chart)[0] and "power" not in rows(app.chart)[0]
        await until(pilot, lambda: has_curves(app.chart))
        assert {line_width(line) for line in app.chart.lines} == {80} and len(app.chart.lines) == 10


def test_panes_never_overlap_and_fill_the_widget() -> None:
    metrics = ("memory", "utilization", "power", "temperature", "pcie_rx")
    for count in range(1, 6):
        for width in range(20, 321, 7):
            for height in range(4, 60):
                places = arrange(metrics[:count], width, height)
                assert places and places[0].metric == "memory"
                taken = [set(range(p.y, p.y + p.height)) for p in places]
                assert max(p.y + p.height for p in places) == height and len(places) <= 4
                assert all(p.width >= 8 and p.height >= 4 for p in places)
                for a, p in enumerate(places):
                    for b, q in enumerate(places[:a]):
                        if taken[a] & taken[b]:
                            assert q.x + q.width <= p.x


def test_only_cells_that_differ_are_written_whatever_the_spans() -> None:
    old = (("abc   ", "g0"), ("def", "g1"), (" " * 31, "faint"))
    new = (("abc", "g0"), ("   ", "faint"), ("dXf", "g1"), (" " * 31, "g3"))
    assert [(r.x, r.width) for r in changed_regions(0, old, new, 40)] == [(7, 1)]
    assert [(r.x, r.width) for r in changed_regions(0, (), new, 40)] == [(0, 40)]


async def test_a_tick_over_ssh_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """8 noisy curves at 200x14, a picture every 1.5 s: at most 1.5 KB a picture on the average."""
    written: list[int] = []
    console = Console(color_system="truecolor", force_terminal=True)
    update = exact_output.ExactCompositor.render_partial_update

    def counted(self: exact_output.ExactCompositor) -> Any:
        result = update(self)
        if result:
            written.append(len(result.render_segments(console).encode()))
        return result

    monkeypatch.setattr(exact_output.ExactCompositor, "render_partial_update", counted)
    random.seed(1)
    app, history = ChartApp(), filled(8, noise=6)
    async with app.run_test(size=(200, 14)) as pilot:
        exact_output.install(app.screen)
        app.screen.refresh(layout=True)
        await pilot.pause()
        app.chart.show_snapshot(snapshot(T0, 8, 6), history, view())
        await until(pilot, lambda: has_curves(app.chart))
        written.clear()
        pictures = 24
        for n in range(1, pictures + 1):
            last = app.chart.picture
            for part in range(3):
                now = snapshot(T0 + n * 1.5 + part / 2, 8, 6)
                history.add(now)
            app.chart.builder._due = 0.0
            app.chart.show_snapshot(now, history, view())
            await until(pilot, lambda last=last: app.chart.picture is not last)  # type: ignore[misc]
        await pilot.pause()
    assert written
    assert sum(written) / pictures < 1536, written
