"""However it ends, the terminal is as it was: alternate screen left, cursor shown, mouse off, modes restored."""

from __future__ import annotations

import os
import re
import shlex
import signal
import time
from pathlib import Path

import pytest

from tests.driver import SimulatedDriver
from tests.pty.conftest import GPUTOP, Start, environment
from tests.pty.terminal import ENTER_SCREEN, LEAVE_SCREEN, PATIENCE, Terminal

_ESCAPE = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>78]")


def _seen_after(terminal: Terminal) -> str:
    """What a user sees below the prompt after the program ended."""
    return _ESCAPE.sub(b"", terminal.left_behind).decode().strip()


def _assert_clean(terminal: Terminal) -> None:
    assert ENTER_SCREEN in terminal.raw and LEAVE_SCREEN in terminal.raw
    terminal.assert_restored()
    assert _seen_after(terminal) == ""


ENDS: dict[str, tuple[str | signal.Signals, int]] = {
    "q": ("q", 0),
    "F10": ("F10", 0),
    "Ctrl+C": ("ctrl+c", 0),
    "SIGTERM": (signal.SIGTERM, 143),
    "SIGHUP": (signal.SIGHUP, 129),
    "SIGINT": (signal.SIGINT, 130),
}


@pytest.mark.parametrize(("end", "status"), ENDS.values(), ids=ENDS)
def test_the_terminal_is_restored(gputop: Start, end: str | signal.Signals, status: int) -> None:
    terminal = gputop("--demo")
    terminal.press(end) if isinstance(end, str) else terminal.signal(end)
    assert terminal.wait_end() == status
    _assert_clean(terminal)


@pytest.mark.parametrize(
    ("opened", "end"),
    [("F1", signal.SIGTERM), ("F2", "ctrl+c"), ("F6", signal.SIGTERM), ("F9", "ctrl+c"), ("enter", signal.SIGTERM),
     ("slash", "ctrl+c"), ("ctrl+p", signal.SIGTERM)],
)  # fmt: skip
def test_the_terminal_is_restored_from_every_screen(gputop: Start, opened: str, end: str | signal.Signals) -> None:
    terminal = gputop("--demo")
    before = terminal.text()
    terminal.press("/" if opened == "slash" else opened)
    terminal.wait_for(lambda: terminal.text() != before)
    terminal.press(end) if isinstance(end, str) else terminal.signal(end)
    assert terminal.wait_end() == (0 if isinstance(end, str) else 143)
    _assert_clean(terminal)


def test_a_signal_in_the_first_moment_leaves_no_mess(gputop: Start) -> None:
    """The screen may be half up: before, while and after the signals are taken care of."""
    for number, wait in ((signal.SIGTERM, b"\x1b"), (signal.SIGINT, b"\x1b"), (signal.SIGTERM, ENTER_SCREEN)):
        terminal = gputop("--demo", drawn=None)
        terminal.wait_for(lambda wait=wait, terminal=terminal: wait in terminal.raw)
        terminal.signal(number)
        terminal.wait_end()
        terminal.assert_restored()


def test_the_last_table_stays_where_it_is_asked_for(gputop: Start) -> None:
    terminal = gputop("--demo", "--print-on-exit")
    terminal.press("q")
    assert terminal.wait_end() == 0
    terminal.assert_restored()
    said = _seen_after(terminal)
    assert "SIMULATED" in said and "41832" in said and "140.4" in said


# ------------------------------------------------------------------------------------ faults of ours

_FAULTY_KEY = """
from gputop.ui.processes.table import ProcessTable
def fail(self): raise RuntimeError("a bug \\x1b[31m[/x]")
ProcessTable.action_tag = fail
"""

_FAULTY_SWEEP = """
from gputop.sources.simulated import source
import gputop.sampling.sweeper as sweeper, time
assemble = sweeper.assemble
def fail(at, *arguments, **more):
    if time.monotonic() - started > 2.5: raise RuntimeError("a bug in the sweep")
    return assemble(at, *arguments, **more)
started = time.monotonic()
sweeper.assemble = fail
"""


def test_a_crash_restores_the_terminal_and_says_what_happened(gputop: Start, home: Path) -> None:
    terminal = gputop("--demo", before=_FAULTY_KEY)
    terminal.press("space")
    assert terminal.wait_end() == 70
    terminal.assert_restored()
    said = _seen_after(terminal)
    assert "RuntimeError" in said and "a bug" in said and len(said.splitlines()) <= 4, said
    assert "\x1b[31m" not in terminal.left_behind.decode()
    log = home / ".local" / "state" / "gputop" / "crash.log"
    assert "crash.log" in said and "RuntimeError" in log.read_text()  # for whoever mends it


def test_a_fault_of_ours_in_the_sweeping_thread_is_not_a_frozen_screen(gputop: Start) -> None:
    terminal = gputop("--demo", "-d", "500ms", before=_FAULTY_SWEEP)
    terminal.wait_for(lambda: "a bug in the sweep" in terminal.words() or terminal.process.poll() is not None)
    if terminal.process.poll() is None:
        terminal.press("q")
    terminal.wait_end()
    terminal.assert_restored()
    assert b"a bug in the sweep" in terminal.raw


# ------------------------------------------------------------------------------------ a hung driver


def test_quitting_does_not_wait_for_a_driver_that_hangs(gputop: Start, driver: SimulatedDriver) -> None:
    terminal = gputop("-d", "100ms", driver=driver)
    driver.fault("gpu 1 hang")
    terminal.wait_for("stale")
    pressed = time.monotonic()
    terminal.press("q")
    assert terminal.wait_end() == 0
    assert time.monotonic() - pressed < 2
    _assert_clean(terminal)


# ------------------------------------------------------------------------------------ a terminal that goes away


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.parametrize("blocked", [(), (signal.SIGHUP,)], ids=["hung up", "nobody says so"])
@pytest.mark.parametrize("refresh", ["500ms", "60s"])
def test_a_lost_connection_ends_it_and_nothing_spins(
    gputop: Start, blocked: tuple[signal.Signals, ...], refresh: str
) -> None:
    terminal = gputop("--demo", "-d", refresh, blocked=blocked)
    before = _cpu_ticks(terminal.process.pid)
    terminal.hang_up()
    end = time.monotonic() + PATIENCE
    spent = before
    while terminal.process.poll() is None:
        assert time.monotonic() < end, f"still there after {PATIENCE} s"
        try:
            spent = _cpu_ticks(terminal.process.pid)
        except (OSError, IndexError):
            break
        time.sleep(0.02)
    terminal.process.wait(5)
    assert (spent - before) / os.sysconf("SC_CLK_TCK") < 1.5, "it span"


# ------------------------------------------------------------------------------------------ Ctrl+Z


def test_ctrl_z_gives_the_shell_back_and_fg_the_screen(home: Path) -> None:
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with Terminal(shell, env={**environment(home), "PS1": "ready> "}) as terminal:
        terminal.wait_for("ready>")
        terminal.type(" ".join(map(shlex.quote, [*GPUTOP, "--demo"])) + "\n")
        terminal.wait_for("Quit")
        for opened in ("", "F2"):  # from another screen as well
            if opened:
                terminal.press(opened)
                terminal.wait_for("Refresh ─")
            mark = terminal.mark()
            terminal.press("ctrl+z")
            terminal.wait_for("Stopped")
            stopped = terminal.since(mark)
            for code in (LEAVE_SCREEN, b"\x1b[?25h", b"\x1b[?1003l"):
                assert stopped.rfind(code) > stopped.rfind(code[:-1] + (b"l" if code[-1:] == b"h" else b"h"))
            terminal.type("echo so$((1+1))far\n")
            terminal.wait_for("so2far")
            terminal.resize(*((100, 30) if opened else (120, 36)))  # meanwhile
            terminal.type("fg\n")
            terminal.wait_for(lambda opened=opened: ("Settings" if opened else "SIMULATED") in terminal.lines()[0])
            terminal.wait_gone("Stopped")
        terminal.press("esc", "q")
        terminal.wait_for("ready>")
        assert "SIMULATED" not in terminal.left_behind.decode()
