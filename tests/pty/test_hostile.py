"""Names of processes that would like to take over the terminal: real ones, through driver, /proc and screen."""

from __future__ import annotations

import re

from tests.driver import GIB, SimulatedDriver
from tests.pty.conftest import Start, StartWorker
from tests.pty.terminal import Terminal

_ARGUMENTS: tuple[bytes, ...] = (
    b"\x1b]0;owned\x07\x1b[31;5mred\x1b[2J\x1b[H",
    b"[/x][bold]markup[/bold] [link=file:///etc/passwd]click[/] [kthreadd] \\[x",
    "\u202egnp.exe\u202c \u2066isolated\u2069 zero\u200bwidth\ufeff".encode(),
    "漢字かな交じり文 👩‍👩‍👧‍👦 e\u0301\u0301 ﷽".encode(),
    b"\xff\xfe broken \xc3\x28 utf-8 \xed\xa0\x80",
    b"line\nbreak\r\ttab \x9b31m c1 \xc2\x9b31m \x7f",
    b"$(id) `id` {braces} %s %(x)s \\x1b",
)

_COMM = r"""
import ctypes, os
ctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[-1]), 0, 0, 0)
"""

#: All that gputop itself has a use for: colours, moves, erasing, modes, keyboard protocol, questions, mouse pointer.
_OWN = re.compile(
    rb"\x1b\[[\d;]*m|\x1b\[\d+(?:;\d+)?H|\x1b\[\d*[CJK]|\x1b\[\?[\d;]+[hl]|\x1b\[\?\d+\$p|\x1b\[[<>=]\d*u"
    rb"|\x1b\]22;\w+\x07|\x1b\[[>=]?c|\x1b\[6n|\x1b\[>0?q|\x1b\[\d* q"
)


def _foreign(terminal: Terminal) -> list[bytes]:
    """Escape sequences and control characters that are not gputop's own."""
    rest = _OWN.sub(b"", bytes(terminal.raw))
    return re.findall(rb"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f].{0,20}", rest)


def test_hostile_names_reach_neither_the_terminal_nor_crash_anything(
    gputop: Start, driver: SimulatedDriver, worker: StartWorker
) -> None:
    comms = [b"\x1b[31m\x1b]0;own", b"[/red]\n\x07\x9b5m", b"\xff\xfe\xe2\x80\xae[x", "漢字漢字".encode()]
    workers = [worker(_COMM, *_ARGUMENTS, comm.hex()) for comm in comms]
    with driver.together():
        driver.gpu(0).set(name="NVIDIA [/x]\x1b[31m H200\x07")
        for n, process in enumerate(workers):
            driver.gpu(n % 2).process(process.pid, memory=(n + 1) * GIB)
    terminal = gputop("-d", "200ms", driver=driver, columns=200, rows=50)
    assert all(str(process.pid) in terminal.text() for process in workers)
    terminal.press(*["right"] * 6)
    for key in ("enter", "F9", "F6", "/", "t"):
        before = terminal.text()
        terminal.press(key)
        terminal.wait_for(lambda before=before: terminal.text() != before)
        if key == "/":
            terminal.type("[/x] owned")
        terminal.press("pgdn", "esc")
    terminal.press("space", "space", "F9")
    terminal.wait_for("Send a signal")
    terminal.press("esc")
    assert terminal.process.poll() is None
    terminal.press("q")
    assert terminal.wait_end() == 0
    _assert_harmless(terminal)  # at the end: before, the last sequence may be on its way


def test_the_hostile_demo_is_harmless_too(gputop: Start) -> None:
    terminal = gputop("--demo=hostile", "--print-on-exit", "-d", "200ms")
    for key in ("enter", "F9", "t"):
        before = terminal.text()
        terminal.press(key)
        terminal.wait_for(lambda before=before: terminal.text() != before)
        terminal.press("esc")
    terminal.press("q")
    assert terminal.wait_end() == 0
    _assert_harmless(terminal)


def _assert_harmless(terminal: Terminal) -> None:
    assert _foreign(terminal) == []
    assert terminal.title == ""
    text = bytes(terminal.raw).decode()  # and it is UTF-8, all of it
    assert not re.search("[\u0080-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]", text)
