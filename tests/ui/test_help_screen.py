"""F1, and F6: all keys are told, and the sort is chosen without surprises."""

from __future__ import annotations

import pytest

from gputop.model.columns import COLUMNS
from gputop.settings import DEFAULTS
from gputop.ui.help_screen import HelpScreen
from gputop.ui.keys import KEYS
from gputop.ui.processes.sort_screen import SortScreen
from tests.ui.screens import TORN_KEYS, VIEW, Stage, flat, monitor_of, showing, strike


def whole_text(app: Stage) -> str:
    """Everything there is, scrolled through."""
    text = app.text()
    for _ in range(60):
        before = app.over._first
        strike(app.over, "pagedown")
        text += "\n" + app.text()
        if app.over._first == before:
            break
    return text


@pytest.mark.parametrize("size", [(80, 24), (60, 12), (200, 60)])
async def test_every_key_column_and_bar_part_is_explained(size: tuple[int, int]) -> None:
    async with showing(lambda: HelpScreen(monitor_of()), size) as (app, _):
        text = whole_text(app)
    for key in KEYS:
        assert key.shown in text
    for column in COLUMNS.values():
        assert column.heading in text
    for glyph in (VIEW.glyphs.dead_pid, VIEW.glyphs.unattributed, VIEW.glyphs.reserved, VIEW.glyphs.peak):
        assert f" {glyph} " in text
    for words in ("nvidia-smi", "100 is one core", "mem>10G", "power cap", "at least one"):
        assert words in flat(text)


async def test_ascii_help_is_ascii() -> None:
    async with showing(lambda: HelpScreen(monitor_of(settings=DEFAULTS.changed(ascii=True)))) as (app, _):
        assert whole_text(app).isascii()


@pytest.mark.parametrize("key", ["escape", "q", "f1", "question_mark"])
async def test_help_closes(key: str) -> None:
    async with showing(lambda: HelpScreen(monitor_of())) as (app, pilot):
        await pilot.press(key)
        await pilot.pause()
        assert app.over is None


def chooser() -> SortScreen:
    return SortScreen(monitor_of())


@pytest.mark.parametrize(
    ("keys", "result"),
    [
        (["enter"], ("gpu_mem", False)),
        (["down", "enter"], ("sm", False)),
        (["I", "enter"], ("gpu_mem", True)),
        (["right", "left", "enter"], ("gpu_mem", False)),
        (["home", "enter"], ("gpu", False)),
        (["I", "down", "escape"], ("gpu_mem", False)),
        (["down", "q"], ("gpu_mem", False)),
    ],
)
async def test_sort_is_chosen(keys: list[str], result: object) -> None:
    monitor = monitor_of()
    async with showing(lambda: SortScreen(monitor)) as (app, pilot):
        await pilot.press(*keys)
        await pilot.pause()
        assert app.over is None
        assert (monitor.settings.sort, monitor.settings.sort_reverse) == result


async def test_sort_begins_at_the_column_of_now_and_shows_the_way() -> None:
    async with showing(chooser) as (app, pilot):
        assert "▸ GPU-MEM  ▾" in app.text()
        await pilot.press("I")
        assert "▸ GPU-MEM  ▴" in app.text()


async def test_torn_letters_choose_no_sort() -> None:
    async with showing(chooser) as (app, pilot):
        await pilot.press(*TORN_KEYS[1:])
        assert app.results == [] and "▸ GPU-MEM  ▾" in app.text()


async def test_every_column_can_be_reached_in_a_small_window() -> None:
    async with showing(chooser, (60, 12)) as (app, pilot):
        await pilot.press("home")
        for column in [*DEFAULTS.columns, *(id_ for id_ in COLUMNS if id_ not in DEFAULTS.columns)]:
            assert f"▸ {COLUMNS[column].heading}" in app.text()
            await pilot.press("down")
