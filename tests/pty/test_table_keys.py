"""The process table under real keys and a real mouse: filter, sort, tags, and a cursor that stays on its process."""

from __future__ import annotations

import re
import time

from tests.driver import GIB, SimulatedDriver
from tests.pty.conftest import Start, StartWorker, cursor_line
from tests.pty.terminal import Terminal

_HEADING = re.compile(r" PID.? ?USER")


def _pids(terminal: Terminal) -> list[int]:
    """Pids of the rows in sight, from top to bottom."""
    lines = terminal.lines()
    head = next((n for n, line in enumerate(lines) if _HEADING.search(line)), None)
    if head is None:
        return []  # something is over it
    column = lines[head].index("USER")
    found = (re.search(r"(\d+) $", line[:column]) for line in lines[head + 1 : -2])
    return [int(match[1]) for match in found if match]


def _cursor_pid(terminal: Terminal) -> int:
    match = re.match(r"\D*[×\d]*\s+(\d+)", cursor_line(terminal))
    assert match, f"no cursor:\n{terminal.framed()}"
    return int(match[1])


def test_a_filter_hides_at_every_key_and_escape_brings_all_back(gputop: Start) -> None:
    terminal = gputop("--demo=8xh200", rows=50)
    everything = _pids(terminal)
    terminal.press("/")
    terminal.wait_for("Filter:")
    for typed, shown in (("axo", "axolotl"), ("lotl user:n", "axolotl")):
        terminal.type(typed)
        terminal.wait_for(lambda: len(_pids(terminal)) == 1)
        assert shown in terminal.text()
    terminal.press("enter")
    terminal.wait_for("filter: axolotl user:n")
    assert "1 of 15 processes" in terminal.words()
    terminal.press("/")
    terminal.press("ctrl+u")
    terminal.type("mem>100G gpu:0,1")
    terminal.wait_for("2 of 15 processes")
    terminal.press("esc")
    terminal.wait_for(lambda: _pids(terminal) == everything)
    terminal.press("/")
    terminal.type("mem>lots")
    terminal.wait_for("Filter?")  # no sense in it: said so, and nothing hidden
    assert set(_pids(terminal)) == set(everything)
    terminal.type(" [/bold] nobody-has-this")
    terminal.wait_for("no process matches the filter")


def test_sorting_by_another_column_and_the_other_way_round(gputop: Start) -> None:
    terminal = gputop("--demo=8xh200", rows=50)
    by_memory = _pids(terminal)
    terminal.press("I")
    terminal.wait_for(lambda: _pids(terminal) == by_memory[::-1])
    terminal.press("I")
    terminal.wait_for(lambda: _pids(terminal) == by_memory)
    terminal.press("F6")
    terminal.wait_for("Sort by")
    terminal.press("home", "down", "enter")  # the second column: PID
    terminal.wait_for(lambda: _pids(terminal) == sorted(by_memory))
    terminal.press("F6")
    terminal.wait_for("Sort by")
    terminal.press("I", "enter")
    terminal.wait_for(lambda: _pids(terminal) == sorted(by_memory, reverse=True))


def test_tags_stick_through_a_sort_and_a_filter(gputop: Start) -> None:
    terminal = gputop("--demo=8xh200", rows=50)
    first, second = _pids(terminal)[:2]
    axolotl = int(terminal.line("axolotl").split()[1])
    terminal.press("space", "space")
    terminal.click(40, terminal.row("axolotl"))
    terminal.wait_for(lambda: _cursor_pid(terminal) == axolotl)
    terminal.press("space")
    terminal.wait_for("3 tagged")
    terminal.press("I")
    terminal.press("/")
    terminal.type("axolotl")
    terminal.press("enter")
    terminal.wait_for("2 hidden")
    terminal.press("F9")
    terminal.wait_for("Not included, tagged but hidden by the filter")
    assert re.search(rf"{axolotl} .* Not included.*: .*{first} .*{second} ", terminal.words())
    terminal.press("esc")
    terminal.press("/", "esc")
    terminal.press("U")
    terminal.wait_gone("tagged")


def test_the_cursor_stays_on_its_process_when_rows_above_vanish_and_others_come(
    gputop: Start, driver: SimulatedDriver, worker: StartWorker
) -> None:
    workers = [worker() for _ in range(6)]
    with driver.together():
        for n, process in enumerate(workers[:5]):
            driver.gpu(n % 2).process(process.pid, memory=(10 - n) * GIB, while_alive=True)
    terminal = gputop("-d", "200ms", driver=driver)
    terminal.wait_for(lambda: len(_pids(terminal)) == 5)
    terminal.press("down", "down", "down")
    mine = workers[3].pid
    terminal.wait_for(lambda: _cursor_pid(terminal) == mine)
    workers[0].process.kill()
    workers[1].process.kill()
    terminal.wait_for(lambda: _pids(terminal)[:3] == [process.pid for process in workers[2:5]])
    assert _cursor_pid(terminal) == mine
    driver.gpu(0).process(workers[5].pid, memory=40 * GIB)
    terminal.wait_for(lambda: _pids(terminal)[0] == workers[5].pid)
    assert _cursor_pid(terminal) == mine
    driver.gpu(1).process(mine, memory=60 * GIB)
    terminal.wait_for(lambda: _pids(terminal)[0] == mine)
    assert _cursor_pid(terminal) == mine
    terminal.press("F9")
    terminal.wait_for("Send a signal")
    assert re.search(rf"│ +{mine} ", terminal.text()), terminal.framed()


def test_home_end_and_pages_go_through_a_thousand_processes(gputop: Start) -> None:
    terminal = gputop("--demo=thousand", columns=100, rows=30)
    assert re.search(r"1\d{3} processes|1000 processes", terminal.text())
    top = _pids(terminal)
    assert _cursor_pid(terminal) == top[0]
    terminal.press("pgdn")
    terminal.wait_for(lambda: _pids(terminal) != top or _cursor_pid(terminal) != top[0])
    terminal.press("end")
    terminal.wait_for(re.compile(r"↑ \d{3,4} +more"))
    assert _cursor_pid(terminal) == _pids(terminal)[-1]
    terminal.press("home")
    terminal.wait_for(lambda: _cursor_pid(terminal) == _pids(terminal)[0])
    terminal.wait_for(re.compile(r"↓ \d{3} more"))


def test_long_commands_scroll_sideways(gputop: Start) -> None:
    terminal = gputop("--demo", columns=80, rows=24)
    shown = terminal.line("41832")
    terminal.press("right", "right", "right")
    terminal.wait_for(lambda: terminal.line(" 41832 ")[55:] != shown[55:])
    terminal.press("left", "left", "left")
    terminal.wait_for(lambda: terminal.line(" 41832 ")[60:] == shown[60:])


def test_folding_a_process_on_several_gpus(gputop: Start, driver: SimulatedDriver, worker: StartWorker) -> None:
    pid = worker().pid
    driver.gpu(0).process(pid, memory=3 * GIB)
    driver.gpu(1).process(pid, memory=4 * GIB)
    terminal = gputop("-d", "200ms", driver=driver)
    terminal.press("t")
    terminal.wait_for(re.compile(rf"×2 +{pid} .* 7\.0G"))
    terminal.press("-")
    terminal.wait_for(lambda: len(_pids(terminal)) == 1)
    terminal.press("+")
    terminal.wait_for(lambda: "4.0G" in terminal.text() and "3.0G" in terminal.text())


# -------------------------------------------------------------------------------------- the mouse


def test_a_click_selects_a_row_and_a_click_on_a_heading_sorts(gputop: Start) -> None:
    terminal = gputop("--demo=8xh200", rows=50)
    pids = _pids(terminal)
    terminal.click(40, terminal.row(f" {pids[4]} "))
    terminal.wait_for(lambda: _cursor_pid(terminal) == pids[4])
    head = terminal.row("GPU-MEM")
    terminal.click(terminal.lines()[head].index("PID") + 1, head)
    terminal.wait_for(lambda: _pids(terminal) == sorted(pids))
    assert _cursor_pid(terminal) == pids[4]
    time.sleep(0.6)  # another click, not a double one
    terminal.click(terminal.lines()[head].index("PID") + 1, head)
    terminal.wait_for(lambda: _pids(terminal) == sorted(pids, reverse=True))


def test_the_wheel_scrolls_and_a_click_on_the_footer_is_its_key(gputop: Start) -> None:
    terminal = gputop("--demo=thousand", columns=120, rows=30)
    top = _pids(terminal)
    row = terminal.row(f" {top[2]} ")
    terminal.wheel(40, row, down=True)
    terminal.wait_for(re.compile(r"↑ 3 "))
    terminal.wheel(40, row, down=False)
    terminal.wait_for(lambda: _pids(terminal)[0] == top[0])
    terminal.click(terminal.lines()[-1].index("Settings"), 29)
    terminal.wait_for("Refresh ─")
    terminal.press("esc")
    terminal.wait_gone("Refresh ─")
    terminal.click(terminal.lines()[-1].index("Quit"), 29)
    assert terminal.wait_end() == 0


def test_without_the_mouse_its_modes_are_never_touched(gputop: Start) -> None:
    terminal = gputop("--demo", "--no-mouse")
    assert not re.search(rb"\x1b\[\?(?:100[0-3]|1006|1015|1016)h", terminal.raw)
    terminal.press("q")
    terminal.wait_end()
    again = gputop("--demo", settings="mouse = false\n")
    assert not re.search(rb"\x1b\[\?(?:100[0-3]|1006|1015|1016)h", again.raw)
