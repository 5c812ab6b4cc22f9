"""A box over the dashboard, which goes on underneath at the price it has without the box."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.screen import Screen

from gputop.ui.processes.sort_screen import SortScreen
from gputop.ui.toolkit.line_widget import LineWidget
from gputop.ui.toolkit.palette import THEMES
from gputop.ui.toolkit.textual_seams import exact_output
from tests.ui.screens import monitor_of, until


class Below(Screen[None]):
    DEFAULT_CSS = "Below > LineWidget { height: 24; }"

    def __init__(self) -> None:
        super().__init__()
        exact_output.install(self)
        self.board = LineWidget()

    def compose(self) -> ComposeResult:
        yield self.board


class Bench(App[None]):
    CSS = "Screen { background: $background; }"  # as the application has it

    def __init__(self) -> None:
        super().__init__()
        self.below = Below()
        for theme in THEMES:
            self.register_theme(theme)

    def get_default_screen(self) -> Screen[None]:
        return self.below


async def test_change_under_a_dialog_does_not_repaint_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[Any] = []
    usual = exact_output.ExactCompositor.render_update

    def watched(self: Any, *given: Any, **named: Any) -> Any:
        updates.append(sorted(tuple(region) for region in self._dirty_regions))
        return usual(self, *given, **named)

    app = Bench()
    async with app.run_test(size=(80, 24)) as pilot:
        app.below.board.show([(("memory 10", "text"),)])
        await app.push_screen(SortScreen(monitor_of()))
        await pilot.pause(0.2)
        monkeypatch.setattr(exact_output.ExactCompositor, "render_update", watched)
        for n in range(11, 15):
            app.below.board.show([((f"memory {n}", "text"),)])
            before = len(updates)
            await until(lambda: len(updates) > before, "the update")  # noqa: B023
            await asyncio.sleep(0.05)
    late = updates[-3:]  # the first may still be that of the opening
    assert all(width * height < 20 for update in late for _, _, width, height in update), updates


async def test_dashboard_is_seen_around_the_dialog() -> None:
    app = Bench()
    async with app.run_test(size=(80, 24)) as pilot:
        app.below.board.show([(("the dashboard goes on", "text"),)] * 24)
        app.push_screen(SortScreen(monitor_of()))
        await pilot.pause(0.2)
        strips = app.screen._compositor.render_strips()
        assert "".join(segment.text for segment in strips[0]).startswith("the dashboard goes on")
        assert any("Sort by" in "".join(segment.text for segment in strip) for strip in strips)
