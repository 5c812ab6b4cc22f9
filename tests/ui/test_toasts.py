"""Toasts stood there twice, outlived their screen and covered the keys."""

from __future__ import annotations

import pytest
from textual.widgets._toast import Toast

from gputop.ui.app import GputopApp
from tests.ui.screens import monitor_of, until
from tests.ui.test_monitor_screen import taken

SIZES = [(60, 12), (80, 24), (120, 40), (200, 60)]


def toasts(app: GputopApp) -> list[Toast]:
    return [toast for screen in app.screen_stack for toast in screen.query(Toast) if toast.region.height]


async def test_the_same_toast_comes_twice() -> None:
    app = GputopApp(monitor_of(taken(0, 1)))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        for _ in range(3):
            app.notify("No room for the chart.", markup=False)
        app.notify("Another.", markup=False)
        await until(lambda: toasts(app), "a toast")
        await pilot.pause(0.1)
        assert [notice.message for notice in app._notifications] == ["No room for the chart.", "Another."]


async def test_a_toast_is_over_when_the_screen_changes_but_for_its_last_word() -> None:
    app = GputopApp(monitor_of(taken(0, 1)))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        app.notify("of the dashboard", markup=False)
        await until(lambda: toasts(app), "a toast")
        await pilot.pause(0.6)
        app.notify("its last word", markup=False)
        await pilot.pause()
        await pilot.press("f6")
        await pilot.pause(0.2)
        assert [notice.message for notice in app._notifications] == ["its last word"]
        assert {toast._notification.message for toast in toasts(app)} == {"its last word"}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("key", ["", "f1", "f2", "f6", "f8", "e", "w"])
async def test_a_toast_covers_the_keys(size: tuple[int, int], key: str) -> None:
    app = GputopApp(monitor_of(taken(0, 1)))
    async with app.run_test(size=size, notifications=True) as pilot:
        await pilot.pause(0.05)
        if key:
            await pilot.press(key)
        await pilot.pause(0.05)
        app.notify("The holders of the memory of dead 50211 are looked for.", markup=False)
        await until(lambda: toasts(app), "a toast")
        for toast in toasts(app):
            if key == "f6":  # a dialog: its keys are in its lower edge, further up
                board = app.screen.query_one("LineWidget")
                assert toast.region.bottom <= board.region.bottom - 1
            else:
                assert toast.region.bottom <= size[1] - 2
