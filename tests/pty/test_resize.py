"""A window that is dragged about: no exception, nothing left over, the screen of a fresh start at that size."""

from __future__ import annotations

import re
import time

import pytest

from tests.driver import GIB, SimulatedDriver
from tests.pty.conftest import Start, StartWorker, drawn_whole
from tests.pty.terminal import Cell
from tests.pty.test_exact_screen import STILL, as_seen, assert_exact, differences

SIZES = [(80, 24), (60, 12), (59, 11), (300, 90), (61, 50), (200, 15), (10, 3), (120, 40), (1, 1), (99, 30), (100, 30)]


@pytest.mark.parametrize("demo", ["8xh200", "mig"])
def test_the_window_takes_any_size_while_it_runs(gputop: Start, demo: str) -> None:
    terminal = gputop(f"--demo={demo}", "-d", "100ms")
    for columns, rows in [*SIZES, (120, 40)]:
        terminal.resize(columns, rows)
        terminal.wait_for(lambda: drawn_whole(terminal))
        assert terminal.process.poll() is None
    for columns in range(62, 140, 4):  # dragged: no time to settle
        terminal.resize(columns, 12 + columns // 4)
        time.sleep(0.02)
    terminal.wait_for(lambda: drawn_whole(terminal))
    terminal.press("p")
    terminal.wait_for("PAUSED")
    terminal.wait_quiet(0.8)
    assert_exact(terminal)


@pytest.mark.parametrize(
    ("key", "shows"), [("F2", "Refresh ─"), ("F9", "Send a signal"), ("F1", "Every day ─"), ("/", "Filter:")]
)
def test_other_screens_take_any_size_too(gputop: Start, key: str, shows: str) -> None:
    terminal = gputop("--demo")
    terminal.press(key)
    terminal.wait_for(shows)
    for columns, rows in [(80, 24), (60, 12), (30, 5), (300, 90), (3, 2), (120, 40)]:
        terminal.resize(columns, rows)
        time.sleep(0.15)
        assert terminal.process.poll() is None
    terminal.wait_for(shows)
    terminal.press("esc")
    terminal.wait_gone(shows)
    terminal.wait_for(lambda: drawn_whole(terminal))


def _still(cells: list[list[Cell]]) -> list[list[Cell]]:
    """Without what two starts can never have in common: the clock and the duration of the sweep."""
    first = "".join(cell.data for cell in cells[0])
    for match in re.finditer(r"\d\d:\d\d(:\d\d)?|sweep +[\d.]+ ms", first):
        for x in range(*match.span()):
            cells[0][x] = cells[0][x]._replace(data="-")
    return as_seen(cells)


def test_after_a_resize_the_screen_is_that_of_a_fresh_start(
    gputop: Start, driver: SimulatedDriver, worker: StartWorker
) -> None:
    workers = [worker() for _ in range(4)]
    with driver.together():
        for n, process in enumerate(workers):
            driver.gpu(n % 2).set(**STILL).process(process.pid, memory=(n + 1) * GIB)
    settings = "show_host = false\nshow_chart = false\nshow_sparklines = false\n"
    settings += 'columns = ["gpu", "pid", "user", "gpu_mem", "sm", "command"]\n'
    moved = gputop("-d", "100ms", driver=driver, settings=settings)
    for columns, rows in [(80, 24), (160, 50), (60, 12), (120, 40)]:
        moved.resize(300, 20)
        moved.wait_for(lambda: drawn_whole(moved))
        moved.resize(columns, rows)
        fresh = gputop("-d", "100ms", driver=driver, columns=columns, rows=rows)
        try:
            moved.wait_for(lambda fresh=fresh: _still(moved.cells()) == _still(fresh.cells()), 10)
        except AssertionError:
            assert differences(_still(moved.cells()), _still(fresh.cells())) == ""
        fresh.close()


@pytest.mark.parametrize("arguments", [("-d", "60s"), ("-d", "200ms")])
def test_a_screen_that_gets_no_new_values_takes_its_new_size_too(gputop: Start, arguments: tuple[str, ...]) -> None:
    """Paused, or with a minute between two readings: every part is as wide as the screen at once."""
    terminal = gputop("--demo", *arguments, columns=120, rows=40)
    if arguments[1] != "60s":
        terminal.press("p")
        terminal.wait_for("PAUSED")
    for columns, rows in ((80, 24), (200, 50), (61, 20), (120, 40)):
        terminal.resize(columns, rows)
        terminal.wait_for(lambda: drawn_whole(terminal) and len(terminal.lines()) == terminal.size[1])
        clock = re.compile(r"\d\d:\d\d(:\d\d)?$")
        terminal.wait_for(lambda clock=clock: clock.search(terminal.lines()[0].rstrip()) is not None, 5)
        terminal.wait_for(lambda columns=columns: len(terminal.lines()[0].rstrip()) >= columns - 2, 5)
