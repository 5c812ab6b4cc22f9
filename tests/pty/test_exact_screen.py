"""What is written bit by bit is what a full repaint would show, cell by cell; and it is little."""

from __future__ import annotations

import os
import re
import time

import pytest

from tests.driver import GIB, SimulatedDriver, build
from tests.pty.conftest import Start
from tests.pty.terminal import ENTER_SCREEN, Cell, Terminal, show


def _repainted(terminal: Terminal) -> list[list[Cell]]:
    """What Ctrl+L writes, on a screen that has seen nothing else."""
    mark = terminal.mark()
    terminal.press("ctrl+l")
    terminal.wait_for(lambda: terminal.mark() > mark)
    terminal.wait_quiet()
    return show(terminal.since(mark), *terminal.size).cells()


def assert_exact(terminal: Terminal) -> None:
    """Every cell, character and colours, is as a full repaint makes it. The screen must be at rest (paused)."""
    seen = as_seen(terminal.cells())
    fresh = as_seen(_repainted(terminal))
    assert differences(seen, fresh) == ""


def as_seen(cells: list[list[Cell]]) -> list[list[Cell]]:
    """*cells* without what cannot be seen: the colour and weight of a blank."""
    return [[_as_seen(cell) for cell in line] for line in cells]


def _as_seen(cell: Cell) -> Cell:
    if cell.data not in ("", " ") or cell.reverse or cell.underscore or cell.strikethrough:
        return cell
    return cell._replace(fg="default", bold=False, italics=False, blink=False)


def differences(seen: list[list[Cell]], expected: list[list[Cell]]) -> str:
    """Where the cells differ, in words; empty where they do not."""
    wrong = [(y, x) for y, line in enumerate(expected) for x, cell in enumerate(line) if cell != seen[y][x]]
    if not wrong:
        return ""
    lines = [f"{len(wrong)} cells are not what they should be:"]
    for y, x in wrong[:12]:
        lines.append(f"line {y}, column {x}: {seen[y][x]} instead of {expected[y][x]}")
    for y in sorted({y for y, _ in wrong})[:6]:
        lines += ["".join(cell.data for cell in cells[y]) for cells in (seen, expected)]
    return "\n".join(lines)


def _pause(terminal: Terminal) -> None:
    terminal.press("p")
    terminal.wait_for("PAUSED")
    terminal.wait_quiet(0.8)  # the chart's thread may just be drawing


@pytest.mark.parametrize(
    ("demo", "columns", "rows"),
    [("8xh200", 200, 60), ("crowd", 120, 40), ("hostile", 100, 30), ("mig", 140, 45), ("lost-gpu", 80, 24)],
)
def test_after_many_small_updates_every_cell_is_right(gputop: Start, demo: str, columns: int, rows: int) -> None:
    terminal = gputop(f"--demo={demo}", "-d", "100ms", columns=columns, rows=rows)
    time.sleep(2)
    terminal.press("down", "t", "down", "down", "space", "right", "I")
    time.sleep(2)
    _pause(terminal)
    assert_exact(terminal)
    terminal.press("p")
    for key, close in (("F9", "esc"), ("F6", "esc"), ("F2", "esc"), ("F1", "q"), ("enter", "esc"), ("ctrl+p", "esc")):
        before = terminal.text()
        terminal.press(key)
        terminal.wait_for(lambda before=before: terminal.text() != before)
        time.sleep(0.2)
        terminal.press(close)
    _pause(terminal)
    assert_exact(terminal)


def test_under_a_dialog_that_stays_open_the_cells_are_right(gputop: Start) -> None:
    terminal = gputop("--demo=8xh200", "-d", "100ms", columns=120, rows=40)
    terminal.press("p", "p")
    for key, shows, close in (("F6", "Sort by", "esc"), ("F9", "Send a signal", "esc")):
        _pause(terminal)
        terminal.press(key)
        terminal.wait_for(shows)
        terminal.press("down", "down", "up")
        terminal.wait_quiet()
        assert_exact(terminal)
        terminal.press(close)
        terminal.wait_gone(shows)
        terminal.press("p")
        terminal.wait_gone("PAUSED")
        time.sleep(1)


def test_a_view_over_the_dashboard_is_whole_when_its_contents_change_by_themselves(gputop: Start) -> None:
    """The dashboard below goes on drawing, which must not make the view forget what of it had changed."""
    terminal = gputop("--demo=leak", "-d", "200ms", columns=120, rows=40)
    terminal.press("L")
    terminal.wait_for("2 LEAK 92.0G")
    terminal.wait_quiet(1.0)
    assert_exact(terminal)
    terminal.press("esc")
    terminal.wait_gone("VERDICT")


def test_the_cursor_of_a_dialog_leaves_nothing_behind_while_the_dashboard_goes_on(gputop: Start) -> None:
    terminal = gputop("--demo=8xh200", "-d", "100ms", columns=120, rows=40)
    terminal.press("F6")
    terminal.wait_for("Sort by")

    def cursor() -> list[str]:
        return [line.partition("▸")[2].split()[0] for line in terminal.lines() if "▸ " in line and "│" in line]

    for expected in ("SM%", "CPU%", "HOST", "AGE", "WHERE", "COMMAND", "TYPE", "MEM%"):
        terminal.press("down")
        terminal.wait_for(lambda expected=expected: cursor() == [expected])
        time.sleep(0.05)
    terminal.press("esc")
    terminal.wait_gone("Sort by")


def test_a_gpu_that_is_lost_and_comes_back_leaves_no_trace(gputop: Start, driver: SimulatedDriver) -> None:
    driver.gpus = 4
    with driver.together():
        for n in range(4):
            driver.gpu(n).process(2**22 - 1 - n, memory=(n + 1) * GIB)
    terminal = gputop("-d", "100ms", driver=driver)
    for _ in range(2):
        with driver.faulty("gpu 2 lost"):
            terminal.wait_for("GPU is lost")
            time.sleep(0.5)
        terminal.wait_gone("▲ GPU is lost")
    _pause(terminal)
    assert_exact(terminal)


# ----------------------------------------------------------------------------------- how much is written


def _eight_by_eight() -> dict[str, str]:
    """8 GPUs with 8 real processes each, all of them busy: the driver moves them by itself."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    chosen = [pids[n % len(pids)] for n in range(64)] if len(pids) < 64 else pids[:64]
    return {
        "LD_LIBRARY_PATH": str(build()),
        "SIMNVML_GPUS": "8",
        "SIMNVML_PROCS": "8",
        "SIMNVML_GPM": "1",
        "SIMNVML_NAME": "NVIDIA H200",
        "SIMNVML_PIDS": " ".join(map(str, chosen)),
    }


def test_a_refresh_writes_little_and_the_first_paint_not_too_much(gputop: Start, driver: SimulatedDriver) -> None:
    """*driver* for its skip where there is no compiler. 200×60, 8 × 8, 500 ms, charts and all: 2.5 KB a refresh."""
    terminal = gputop("-d", "500ms", columns=200, rows=60, env=_eight_by_eight())
    assert re.search(r"\b64 processes|\b\d\d processes", terminal.text())
    first = terminal.since(0)
    first = first[first.index(ENTER_SCREEN) :]
    assert len(first) <= 60_000, f"the first paint took {len(first)} bytes"
    time.sleep(4)
    began, mark = time.monotonic(), terminal.mark()
    time.sleep(8)
    written, ticks = terminal.mark() - mark, (time.monotonic() - began) / 0.5
    assert ticks * 200 < written, "it stands still"
    assert written / ticks <= 2560, f"{written / ticks:.0f} bytes a refresh; by burst: {terminal.bursts(began)}"


def test_nothing_new_writes_next_to_nothing(gputop: Start, driver: SimulatedDriver) -> None:
    with driver.together():
        for n in range(2):
            driver.gpu(n).set(**STILL)
    terminal = gputop("-d", "200ms", driver=driver, settings="show_host = false\nshow_chart = false\n")
    time.sleep(3)
    mark = terminal.mark()
    time.sleep(3)
    written = terminal.mark() - mark
    assert written / 15 < 250, f"{written / 15:.0f} bytes a refresh, for a clock"


STILL = {
    "memory_used": 12 * GIB, "utilization_gpu": 50, "utilization_memory": 20, "temperature": 50, "power_watts": 300,
    "temperature_memory": 60, "clock_sm": 1500, "clock_memory": 3000, "pcie_rx_rate": 1e6, "pcie_tx_rate": 1e6,
    "utilization_encoder": 0, "utilization_decoder": 0, "event_reasons": 0, "performance_state": 0,
    "clock_graphics": 1500, "clock_video": 1500, "utilization_jpeg": 0, "utilization_ofa": 0,
}  # fmt: skip
