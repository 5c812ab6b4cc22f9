"""A program in a terminal: a pty with a present-day terminal's answers, its screen (pyte), and keys by name.

    with Terminal([sys.executable, "-m", "gputop", "--demo"], columns=120, rows=40, env=env) as terminal:
        terminal.wait_for("SIMULATED")
        terminal.press("F2", "down", "Enter")
        assert "Settings" in terminal.text()

A thread of its own reads what the program writes, so the program never waits for the test.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import pyte
import pyte.screens
from wcwidth import wcwidth

PATIENCE = 30.0  # seconds; other work may share the machine. What is waited for is looked at at every output.

ENTER_SCREEN, LEAVE_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"

#: As xterm codes them. Arrows, Home and End are sent with ``O`` where the program asks for it (DECCKM).
KEYS: Mapping[str, bytes] = {
    **{f"F{n}": b"\x1bO" + bytes([ord("P") + n - 1]) for n in range(1, 5)},
    **{f"F{n}": b"\x1b[%d~" % code for n, code in zip(range(5, 13), (15, 17, 18, 19, 20, 21, 23, 24), strict=True)},
    **{"up": b"\x1b[A", "down": b"\x1b[B", "right": b"\x1b[C", "left": b"\x1b[D", "home": b"\x1b[H", "end": b"\x1b[F"},
    **{"pgup": b"\x1b[5~", "pgdn": b"\x1b[6~", "delete": b"\x1b[3~", "shift+tab": b"\x1b[Z"},
    **{"enter": b"\r", "tab": b"\t", "esc": b"\x1b", "space": b" ", "backspace": b"\x7f"},
    **{f"ctrl+{letter}": bytes([ord(letter) - ord("a") + 1]) for letter in "abcdefghijklmnopqrstuvwxyz"},
}

Cell = pyte.screens.Char
Size = tuple[int, int]  # columns, rows


class Terminal:
    """A running program. As a context manager it is ended, whatever became of it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 120,
        rows: int = 40,
        env: Mapping[str, str],
        blocked: Sequence[signal.Signals] = (),
        streams: Mapping[str, Any] | None = None,
        told: Size | None = None,
    ) -> None:
        """*blocked*: signals the program never gets. *streams*: others than the terminal (``{"stdin": file}``). *told*:
        the size that the kernel tells of until the first resize, where it is another."""
        self.raw = bytearray()  # all that was written
        self.size: Size = (columns, rows)
        self._times: list[tuple[float, int]] = []  # when the raw output had grown to so many bytes
        self._screen = Screen(columns, rows)
        self._answers = Answers()
        self._changed = threading.Condition()
        self._closed = False
        self.master, self.slave = os.openpty()
        self._set_size(told or self.size)
        self.modes_before = termios.tcgetattr(self.slave)
        self._wake = os.pipe()

        def become_session() -> None:
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
            signal.pthread_sigmask(signal.SIG_BLOCK, blocked)

        given = {"stdin": self.slave, "stdout": self.slave, "stderr": self.slave} | dict(streams or {})
        self.process = subprocess.Popen(
            command, env=dict(env), start_new_session=True, preexec_fn=become_session, pass_fds=[self.slave], **given
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # ------------------------------------------------------------------ what it shows

    def lines(self) -> list[str]:
        """The screen as text, a line a row, as wide as the screen."""
        with self._changed:
            return list(self._screen.display)

    def text(self) -> str:
        return "\n".join(self.lines())

    def words(self) -> str:
        """The screen's text with one space where there is more: sentences may be broken into lines."""
        return " ".join(self.text().split())

    def line(self, containing: str) -> str:
        """The first line that has *containing* in it."""
        found = next((line for line in self.lines() if containing in line), None)
        assert found is not None, f"{containing!r} is not on the screen:\n{self.framed()}"
        return found

    def row(self, containing: str) -> int:
        return self.lines().index(self.line(containing))

    def cells(self) -> list[list[Cell]]:
        """Every cell with its character, colours and attributes."""
        with self._changed:
            return self._screen.cells()

    def framed(self) -> str:
        """The screen for a failure's message."""
        rule = "-" * self.size[0]
        return f"{rule}\n{self.text()}\n{rule}"

    @property
    def title(self) -> str:
        return self._screen.title

    # ------------------------------------------------------------------------ waiting

    def wait_for(self, what: str | re.Pattern[str] | Callable[[], object], seconds: float = PATIENCE) -> None:
        """Until a text (or what matches) is on the screen, or until *what()* is true."""
        self._wait(self._condition(what), _said(what), seconds)

    def wait_gone(self, text: str, seconds: float = PATIENCE) -> None:
        self._wait(lambda: text not in self.text(), f"{text!r} to go away", seconds)

    def _condition(self, what: str | re.Pattern[str] | Callable[[], object]) -> Callable[[], object]:
        if isinstance(what, str):
            return lambda: what in self.text() or what in self.words()
        if isinstance(what, re.Pattern):
            return lambda: what.search(self.text())
        return what

    def _wait(self, condition: Callable[[], object], said: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition():
            ended = self.process.poll() is not None
            with self._changed:
                self._changed.wait(0.05)
            if time.monotonic() > end or (ended and not condition()):
                why = f"the program ended ({self.process.returncode})" if ended else f"waited {seconds} s"
                raise AssertionError(f"{why}: {said}\n{self.framed()}")

    def wait_quiet(self, seconds: float = 0.4) -> None:
        """Until nothing was written for that long."""
        since = time.monotonic()
        end = since + PATIENCE
        while (now := time.monotonic()) - max(since, self._last_written()) < seconds:
            assert now < end, "it never stops writing"
            time.sleep(0.02)

    def _last_written(self) -> float:
        with self._changed:
            return self._times[-1][0] if self._times else 0.0

    def mark(self) -> int:
        """A place in the raw output: everything before it was written by now."""
        with self._changed:
            return len(self.raw)

    def since(self, mark: int) -> bytes:
        with self._changed:
            return bytes(self.raw[mark:])

    def bursts(self, since: float, gap: float = 0.02) -> list[int]:
        """Sizes of what was written together from the time *since* on (time.monotonic())."""
        sizes: list[int] = []
        last, before = -1.0, 0
        with self._changed:
            for at, length in self._times:
                if at >= since:
                    if at - last > gap:
                        sizes.append(0)
                    sizes[-1] += length - before
                    last = at
                before = length
        return sizes

    def wait_end(self, seconds: float = PATIENCE) -> int:
        """Until the program has ended: its exit status, negative for the signal that ended it."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds} s:\n{self.framed()}") from None
        self._drain()
        return status

    # ------------------------------------------------------------------------- acting

    def press(self, *keys: str) -> None:
        """Keys by name ("F2", "down", "ctrl+l"), or characters. A pause tells Esc from the begin of a sequence."""
        for key in keys:
            self.send(self.code(key))
            if key == "esc":
                time.sleep(0.25)

    def code(self, key: str) -> bytes:
        if len(key) == 1:
            return key.encode()
        code = KEYS[key if key.startswith("F") else key.lower()]
        application = self.raw.rfind(b"\x1b[?1h") > self.raw.rfind(b"\x1b[?1l")
        return code.replace(b"[", b"O") if application and code[-1:] in b"ABCDFH" and code[1:2] == b"[" else code

    def type(self, text: str) -> None:
        self.send(text.encode())

    def send(self, data: bytes) -> None:
        os.write(self.master, data)

    def send_torn(self, *parts: bytes, gap: float = 0.15) -> None:
        """Parts of an escape sequence with pauses between them, as a slow link delivers it."""
        for part in parts:
            self.send(part)
            time.sleep(gap)

    def click(self, column: int, row: int, button: int = 0) -> None:
        """Press and release (SGR coding), where the program asked for the mouse. Counted from 0."""
        self.send(b"\x1b[<%d;%d;%dM\x1b[<%d;%d;%dm" % (button, column + 1, row + 1, button, column + 1, row + 1))

    def wheel(self, column: int, row: int, down: bool) -> None:
        self.send(b"\x1b[<%d;%d;%dM" % (65 if down else 64, column + 1, row + 1))

    def resize(self, columns: int, rows: int) -> None:
        with self._changed:
            self.size = (columns, rows)
            self._screen.resize(rows, columns)
            self._set_size(self.size)

    def set_told(self, size: Size) -> None:
        """Let the kernel tell of a size which the screen does not have."""
        self._set_size(size)

    def _set_size(self, size: Size) -> None:
        columns, rows = size
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def hang_up(self) -> None:
        """Take the terminal away, as sshd does when the connection is lost."""
        self._stop_reading()
        os.close(self.slave)
        os.close(self.master)
        self.slave = self.master = -1

    # -------------------------------------------------------------------------- ending

    @property
    def left_behind(self) -> bytes:
        """What was written after the alternate screen was left: what stays in the scrollback."""
        return bytes(self.raw).rpartition(LEAVE_SCREEN)[2]

    def assert_restored(self) -> None:
        """The terminal is as the program found it."""
        raw = bytes(self.raw)
        for mode, words, initially in _MODES:
            found = list(re.finditer(rb"\x1b\[\?(?:\d+;)*" + mode + rb"(?:;\d+)*([hl])", raw))
            if found:
                assert (found[-1][1] == b"h") is initially, f"{words} is left {'on' if not initially else 'off'}"
        pushed, popped = len(re.findall(rb"\x1b\[>\d+u", raw)), len(re.findall(rb"\x1b\[<\d*u", raw))
        assert popped >= pushed, "the keyboard protocol is left on"
        assert termios.tcgetattr(self.slave) == self.modes_before, "the terminal's modes (stty) have changed"
        assert b"Traceback" not in raw

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._stop_reading()
        for descriptor in (self.master, self.slave, *self._wake):
            if descriptor >= 0:
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # ------------------------------------------------------------------------- reading

    def _read(self) -> None:
        while True:
            ready, _, _ = select.select([self.master, self._wake[0]], [], [])
            if self._wake[0] in ready:
                return
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            with self._changed:
                self.raw += data
                self._times.append((time.monotonic(), len(self.raw)))
                self._screen.feed(data)
                self._changed.notify_all()
            if answer := self._answers.to(data):
                with contextlib.suppress(OSError):
                    os.write(self.master, answer)

    def _drain(self) -> None:
        """What the program wrote last is read: the reader has nothing to do."""
        end = time.monotonic() + 1
        while select.select([self.master], [], [], 0)[0] and time.monotonic() < end:
            time.sleep(0.005)
        with self._changed:
            pass

    def _stop_reading(self) -> None:
        if self._reader.is_alive():
            os.write(self._wake[1], b"x")
            self._reader.join()


#: Modes, in words, and whether they are on in a terminal that nobody has touched.
_MODES = (
    (b"1049", "the alternate screen", False),
    (b"25", "the cursor", True),
    (b"7", "wrapping", True),
    (b"1", "application cursor keys", False),
    (b"1000", "the mouse", False),
    (b"1002", "the mouse's drags", False),
    (b"1003", "the mouse's moves", False),
    (b"1006", "the mouse's coding", False),
    (b"1015", "the mouse's coding", False),
    (b"1016", "the mouse's pixels", False),
    (b"1004", "focus reports", False),
    (b"2004", "bracketed paste", False),
    (b"2026", "synchronized output", False),
    (b"2048", "reports of resizing", False),
)


def _said(what: object) -> str:
    if callable(what):
        return "a condition"
    return repr(what.pattern if isinstance(what, re.Pattern) else what)


# ------------------------------------------------------------------------------ the terminal's side

_QUERY = re.compile(
    rb"\x1b\[(?P<da>[>=]?)0?c|\x1b\[(?P<dsr>\??[56])n|(?P<version>\x1b\[>0?q)|\x1b\[(?P<mode>\??\d+)\$p"
    rb"|\x1b\](?P<color>1[0-2]);\?(?:\x07|\x1b\\)|\x1b\[(?P<kitty>\?)u"
)
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-9;?<=>$]*|[P_^\]][^\x1b\x07]*\x1b?)?\Z")
# What pyte would print or misread: strings to the device, private sequences.
_STRIP = re.compile(
    rb"\x1b[P_^][^\x1b]*\x1b\\|\x1b\][^\x1b\x07]*(?:\x07|\x1b\\)"
    rb"|\x1b\[[<=>][0-9;]*[A-Za-z]|\x1b\[[0-9;?]*\$[a-z]"
)


class Answers:
    """Answers what a program asks its terminal: a colour terminal that knows synchronized output."""

    def __init__(self) -> None:
        self._rest = b""

    def to(self, data: bytes) -> bytes:
        data = self._rest + data
        tail = _UNFINISHED.search(data[-256:])
        self._rest = tail.group() if tail else b""
        return b"".join(self._answer(match) for match in _QUERY.finditer(data))

    def _answer(self, match: re.Match[bytes]) -> bytes:
        asked = {name: value.decode() for name, value in match.groupdict().items() if value is not None}
        if "da" in asked:
            return {"": b"\x1b[?62;22c", ">": b"\x1b[>41;390;0c", "=": b"\x1bP!|00000000\x1b\\"}[asked["da"]]
        if "dsr" in asked:
            return b"\x1b[0n" if asked["dsr"][-1] == "5" else b"\x1b[1;1R"
        if "version" in asked:
            return b"\x1bP>|Test(1)\x1b\\"
        if "mode" in asked:
            return f"\x1b[{asked['mode']};{2 if asked['mode'] == '?2026' else 0}$y".encode()
        if "color" in asked:
            colour = "0000/0000/0000" if asked["color"] == "11" else "ffff/ffff/ffff"
            return f"\x1b]{asked['color']};rgb:{colour}\x1b\\".encode()
        return b"\x1b[?0u"


class Screen(pyte.Screen):
    """What is fed to it, as a terminal would show it. pyte has no dim: here it is told as blinking."""

    def __init__(self, columns: int, lines: int) -> None:
        super().__init__(columns, lines)
        self._stream = pyte.Stream(self)
        self._stream.use_utf8 = False  # so that the line drawing character set works
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = b""
        self._wide: set[int] = set()  # lines on which there may be wide characters

    def feed(self, data: bytes) -> None:
        """Show *data*; what is between the marks of synchronized output (mode 2026) is shown at once or not yet."""
        data = self._rest + data
        begun = data.rfind(b"\x1b[?2026h")
        if begun > data.rfind(b"\x1b[?2026l"):
            end = begun
        else:
            tail = _UNFINISHED.search(data[-4096:])
            end = len(data) - (len(tail.group()) if tail else 0)
        self._rest = data[end:]
        self._stream.feed(self._decode(_STRIP.sub(b"", data[:end])))

    @property
    def display(self) -> list[str]:
        return ["".join(cell.data for cell in cells) for cells in self.cells()]

    def cells(self) -> list[list[Cell]]:
        """All cells; the right half of a wide character is empty."""
        return [[self.buffer[y][x] for x in range(self.columns)] for y in range(self.lines)]

    def draw(self, data: str) -> None:
        """As terminals do, and pyte does not: what is written over one half of a wide character blanks the other."""
        y = self.cursor.y
        super().draw(data)
        if not data.isascii():
            self._wide.update(range(y, self.cursor.y + 1))
        if y in self._wide:
            line = self.buffer[y]
            halves = [(x, cell) for x, cell in line.items() if not cell.data or _is_wide(cell.data)]
            for x, cell in halves:
                if (cell.data and line[x + 1].data) or (not cell.data and not _is_wide(line[x - 1].data)):
                    line[x] = cell._replace(data=" ")

    def select_graphic_rendition(self, *codes: int, **_: Any) -> None:
        out: list[int] = []
        rest = iter(codes or (0,))
        for code in rest:
            if code in (38, 48):
                kind = next(rest, 5)
                out += [code, kind, *(next(rest, 0) for _ in range(3 if kind == 2 else 1))]
            else:
                out += {2: [5], 22: [22, 25]}.get(code, [code])
        super().select_graphic_rendition(*out)

    def set_mode(self, *modes: int, **more: Any) -> None:
        super().set_mode(*modes, **more)
        if more.get("private") and 1049 in modes:
            self.erase_in_display(2)


def _is_wide(text: str) -> bool:
    return wcwidth(text[:1]) == 2


def show(data: bytes, columns: int, rows: int) -> Screen:
    """A fresh screen that was fed *data* only."""
    screen = Screen(columns, rows)
    screen.feed(data)
    return screen
