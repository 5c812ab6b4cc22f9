"""F2: every change applies at once, wrong values are explained, nothing is lost by accident."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gputop import units
from gputop.model import Gpu, Snapshot, clean_text, replace
from gputop.model.chart_metrics import CHART_METRICS
from gputop.monitor import Monitor
from gputop.sampling.bus import Bus
from gputop.settings import DEFAULTS, Settings, Thresholds
from gputop.settings_file import SettingsError
from gputop.ui.settings.screen import SettingsScreen
from gputop.ui.toolkit.glyphs import ASCII, UNICODE
from tests.ui.screens import TORN_KEYS, HandFed, flat, showing, strike
from tests.unit.ui.process_data import TAKEN_AT, gpu

PATH = Path("/nowhere/gputop/config.toml")
GPUS = tuple(gpu(n) for n in range(4))


class RecordingMonitor(Monitor):
    """Keeps what was to be saved, and saves nothing."""

    changes: list[Settings]
    problem: str | None

    def change(self, settings: Settings) -> str:
        self.changes.append(settings)
        self.use(settings)
        if self.problem is not None:
            raise SettingsError(self.problem)
        return f"Saved in {self.settings_path}"


class Desk:
    """A settings screen, and what it asked for."""

    def __init__(self, problem: str | None = None) -> None:
        self.changes: list[Settings] = []
        self.problem = problem

    @property
    def settings(self) -> Settings:
        return self.changes[-1]

    def screen(
        self, settings: Settings = DEFAULTS, gpus: tuple[Gpu, ...] = GPUS, problems: tuple[str, ...] = ()
    ) -> SettingsScreen:
        bus = Bus()
        sampler = HandFed(bus)
        monitor = RecordingMonitor(sampler, bus, settings, PATH, problems)
        monitor.changes, monitor.problem = self.changes, self.problem
        sampler.take(Snapshot(TAKEN_AT, gpus=gpus))
        return SettingsScreen(monitor)


def go_to(screen: SettingsScreen, name: str, label: str | None = None) -> None:
    screen._at = next(
        n for n, o in enumerate(screen._options) if o.name == name and (label is None or o.label.startswith(label))
    )


async def test_500_ms_is_one_key_away() -> None:
    desk = Desk()
    async with showing(desk.screen) as (app, pilot):
        assert "100 ms  250 ms  500 ms [1 s] 2 s  5 s" in app.text()
        await pilot.press("left")
        assert "[500 ms]" in app.text()
    assert [s.refresh for s in desk.changes] == [0.5]


@pytest.mark.parametrize(("keys", "seconds"), [(["left"] * 9, 0.1), (["right"] * 9, 5.0), (["right", "left"], 1.0)])
async def test_presets_stop_at_their_ends(keys: list[str], seconds: float) -> None:
    desk = Desk()
    async with showing(desk.screen) as (_, pilot):
        await pilot.press(*keys)
    assert desk.settings.refresh == seconds


@pytest.mark.parametrize(("typed", "seconds"), [("750ms", 0.75), ("1 m", 60.0), ("2.5s", 2.5)])
async def test_interval_can_be_typed_with_its_unit(typed: str, seconds: float) -> None:
    desk = Desk()
    async with showing(desk.screen) as (app, pilot):
        await pilot.press("enter", *("space" if c == " " else "full_stop" if c == "." else c for c in typed), "enter")
        assert desk.settings.refresh == seconds
        assert f"[{units.interval(seconds)}]" in app.text() or f"‹ {units.interval(seconds)} ›" in app.text()


async def test_a_bare_number_of_100_or_more_is_refused_though_it_can_only_mean_milliseconds() -> None:
    desk = Desk()
    async with showing(desk.screen) as (app, pilot):
        await pilot.press("enter", *"250", "enter")
        assert desk.settings.refresh == 0.25
        assert "250 alone is 250ms" in app.text()


@pytest.mark.parametrize(
    ("typed", "words"), [("30", "the unit is required"), ("5ms", "between 100 ms and 60 s"), ("x", "is not a time")]
)
async def test_wrong_interval_is_explained_in_place_and_changes_nothing(typed: str, words: str) -> None:
    desk = Desk()
    async with showing(desk.screen) as (app, pilot):
        await pilot.press("enter", *typed, "enter")
        lines = app.text().splitlines()
        row = next(n for n, line in enumerate(lines) if "Every" in line)
        assert words in flat("\n".join(line[18:] for line in lines[row + 1 : row + 3]))
        await pilot.press("escape")
        assert words not in app.text()
        assert app.over is not None, "Escape leaves the value, not the screen"
    assert desk.changes == []


async def test_letters_of_torn_escape_sequences_change_nothing() -> None:
    desk = Desk()
    async with showing(desk.screen) as (app, _):
        for n in range(len(app.over._options)):
            app.over._at = n
            strike(app.over, *TORN_KEYS[1:])
    assert desk.changes == []


async def test_escape_and_q_leave() -> None:
    for key in ("escape", "q", "f2"):
        async with showing(Desk().screen) as (app, pilot):
            await pilot.press(key)
            await pilot.pause()
            assert app.over is None


async def test_columns_are_hidden_shown_and_moved_and_the_cursor_stays_with_them() -> None:
    desk = Desk()
    async with showing(desk.screen) as (app, pilot):
        go_to(app.over, "columns", "USER")
        await pilot.press("space")
        assert "user" not in desk.settings.columns
        await pilot.press("space")
        assert desk.settings.columns == DEFAULTS.columns
        await pilot.press("left", "left")
        assert desk.settings.columns[:3] == ("user", "gpu", "pid")
        await pilot.press("right")
        assert desk.settings.columns[:3] == ("gpu", "user", "pid")
        assert "▸ [x] USER" in app.text()
        await pilot.press("d")
        assert desk.settings.columns == DEFAULTS.columns


async def test_last_column_and_last_metric_cannot_be_switched_off() -> None:
    desk = Desk()
    async with showing(lambda: desk.screen(DEFAULTS.changed(columns=("pid",), chart_metrics=("memory",)))) as (
        app,
        pilot,
    ):
        go_to(app.over, "columns", "PID")
        await pilot.press("space")
        assert "at least one column is needed" in app.text()
        go_to(app.over, "chart_metrics", "Memory used")
        await pilot.press("space")
        assert "a chart shows something" in app.text()
    assert desk.changes == []


async def test_metrics_keep_their_order() -> None:
    desk = Desk()
    async with showing(desk.screen) as (app, pilot):
        for label in ("SM clock", "GPU utilization", "GPU utilization", "Power", "NVLink, both directions"):
            go_to(app.over, "chart_metrics", label)
            await pilot.press("space")
    assert desk.settings.chart_metrics == ("utilization", "memory", "clock_sm")
    assert [m for m in CHART_METRICS if m in desk.settings.chart_metrics] == list(desk.settings.chart_metrics)


async def test_gpus_are_kept_by_uuid_and_all_of_them_is_no_choice() -> None:
    desk = Desk()
    async with showing(desk.screen) as (app, pilot):
        go_to(app.over, "gpus", "2")
        await pilot.press("space")
        assert desk.settings.gpus == tuple(GPUS[n].uuid for n in (0, 1, 3))
        await pilot.press("space")
        assert desk.settings.gpus == ()


async def test_last_gpu_stays_and_gpus_of_another_machine_are_kept() -> None:
    desk = Desk()
    async with showing(lambda: desk.screen(DEFAULTS.changed(gpus=("1", "GPU-feedfeed-0000")))) as (app, pilot):
        go_to(app.over, "gpus", "1")
        await pilot.press("space")
        assert "at least one GPU" in app.text() and desk.changes == []
        go_to(app.over, "gpus", "0")
        await pilot.press("space")
    assert desk.settings.gpus == (GPUS[0].uuid, GPUS[1].uuid, "GPU-feedfeed-0000")


async def test_theme_is_applied_at_each_step() -> None:
    desk = Desk()
    async with showing(desk.screen) as (app, pilot):
        themes = sorted(app.available_themes)
        go_to(app.over, "theme")
        await pilot.press("right", "left", "left")
    at = themes.index("gputop")
    assert [s.theme for s in desk.changes] == [themes[at + 1], "gputop", themes[at - 1]]


async def test_characters_change_at_once() -> None:
    desk = Desk()
    async with showing(desk.screen) as (app, pilot):
        go_to(app.over, "ascii")
        await pilot.press("right", "right")
        assert desk.settings.ascii is True
        assert app.text().isascii()


async def test_thresholds_step_are_typed_and_switched_off() -> None:
    desk = Desk()
    start = DEFAULTS.changed(threshold_memory=(80.0, 95.0), temperature_unit="F")
    async with showing(lambda: desk.screen(start)) as (app, pilot):
        go_to(app.over, "threshold_memory", "Memory used, warning")
        await pilot.press("right")
        assert desk.settings.threshold_memory == Thresholds(81, 95)
        await pilot.press("enter", "9", "9", "enter")
        assert "cannot come after the critical" in app.text()
        await pilot.press("escape", "enter", *"off", "enter")
        assert desk.settings.threshold_memory is None
        await pilot.press("right")
        assert desk.settings.threshold_memory is not None
        go_to(app.over, "threshold_temperature", "Temperature, warning")
        await pilot.press("enter", *"176", "enter")
        assert desk.settings.threshold_temperature is not None
        assert desk.settings.threshold_temperature.warning == 80.0


async def test_wide_numbers_and_nonsense_in_thresholds_are_explained() -> None:
    desk = Desk()
    async with showing(desk.screen) as (app, pilot):
        go_to(app.over, "threshold_memory", "Memory used, critical")
        for typed in ("inf", "nan", "1e9", "1e999", "٣٣٣", "", "80 %% 90"):
            await pilot.press("enter")
            app.over._entry.text = typed
            await pilot.press("enter")
            assert app.over._entry is not None and app.over._wrong, f"{typed!r} was taken"
            await pilot.press("escape")
    assert desk.changes == []


async def test_reset_of_one_needs_no_question_and_of_all_asks() -> None:
    desk = Desk()
    start = DEFAULTS.changed(refresh=0.1, tree=True)
    async with showing(lambda: desk.screen(start)) as (app, pilot):
        await pilot.press("d")
        assert desk.settings.refresh == DEFAULTS.refresh and desk.settings.tree
        await pilot.press("end", "enter", "enter")
        assert desk.settings.tree, "a second Enter is no yes"
        await pilot.press("enter")
        assert "y: yes" in app.text()
        await pilot.press("y")
        assert desk.settings == DEFAULTS


async def test_problem_of_saving_is_said_in_words() -> None:
    desk = Desk("Not saved: config.toml is not TOML: line 3")
    async with showing(desk.screen) as (app, pilot):
        await pilot.press("left")
        assert "Not saved: config.toml is not TOML" in app.text()


async def test_problems_of_the_file_and_its_place_are_shown() -> None:
    problem = "config.toml: refrsh: no such setting; left as it is (is refresh meant?)"
    async with showing(lambda: Desk().screen(problems=(problem,))) as (app, pilot):
        await pilot.press("end")
        text = " ".join(app.text().split())
        assert "no such setting" in text and str(PATH) in text


@pytest.mark.parametrize("size", [(80, 24), (60, 12), (200, 60)])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
async def test_cursor_is_always_seen_on_the_way_down_and_up(size: tuple[int, int], glyphs: Any) -> None:
    name = clean_text("[/x] 漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字\x1b[31m")
    gpus = tuple(replace(gpu(n), name=name) for n in range(16))
    desk = Desk()
    async with showing(lambda: desk.screen(DEFAULTS.changed(ascii=glyphs is ASCII), gpus), size) as (app, pilot):
        count = len(app.over._options)
        for key in ("down", "up"):
            for _ in range(count):
                page = app.text().splitlines()[2:-3]
                mark = glyphs.folded
                assert any(line[16:22].find(mark) >= 0 or line[14:20].find(mark) >= 0 for line in page)
                strike(app.over, key)
        await pilot.press("tab", "tab", "shift+tab")
    assert desk.changes == []


async def test_mouse_picks_a_preset_and_a_section() -> None:
    desk = Desk()
    async with showing(desk.screen) as (app, pilot):
        lines = app.text().splitlines()
        row = next(n for n, line in enumerate(lines) if "500 ms" in line)
        await pilot.click("LineWidget", offset=(lines[row].index("500 ms") + 1, row))
        assert desk.settings.refresh == 0.5
        row = next(n for n, line in enumerate(lines) if line.strip().startswith("Panels"))
        await pilot.click("LineWidget", offset=(5, row))
        assert app.over.option.name == "show_host"
