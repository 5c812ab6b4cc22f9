"""Textual's driver of the terminal, where real terminals need more than it does.

* Its input thread dies of any byte that is no UTF-8 and of reports with odd numbers (textual#6456, #6668); its output
  thread dies of a terminal that is not to be waited for (``O_NONBLOCK``, set by another program on the same terminal).
* It takes a size of 0 rows or columns as it is, as `docker exec`, `kubectl exec` and `script` give it at the start
  (moby#43229), and ``COLUMNS`` and ``LINES`` before the terminal's own size.
* After SIGSTOP, SIGTTIN or SIGTTOU it starts a second time on top of itself.

This is the one place that touches private parts of its drivers and its parser (``LinuxDriver._file``,
``_must_signal_resume``, ``_key_thread``, ``XTermParser``…), as ``exact_output`` is for its compositor. The version is
pinned, and tests/pty/test_terminal_faults.py runs each of these on a real pty.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TextIO

from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.events import Resize
from textual.geometry import Size
from textual.message import Message

FALLBACK_SIZE: Final = (80, 24)  # columns, rows: of a terminal that does not know its own
LARGEST_SIZE: Final = (2000, 1000)  # a serial line may say 65535 × 65535, which nobody could draw
TICK_SECONDS: Final = 0.1  # how often it is looked whether an Escape was a key of its own, and whether to end


def terminal_size() -> tuple[int, int]:
    """Columns and rows of the terminal that is drawn on. Where it says 0, what COLUMNS and LINES say, or 80×24."""
    size = (0, 0)
    for stream in (sys.__stderr__, sys.__stdin__, sys.__stdout__):
        try:
            size = os.get_terminal_size(stream.fileno())  # type: ignore[union-attr]
            break
        except (AttributeError, ValueError, OSError):  # not there, closed, not a terminal
            continue
    environment = (os.environ.get("COLUMNS", ""), os.environ.get("LINES", ""))
    told = [int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0 for text in environment]
    columns, rows = (
        min(own or other or usual, most)
        for own, other, usual, most in zip(size, told, FALLBACK_SIZE, LARGEST_SIZE, strict=True)
    )
    return columns, rows


class TerminalDriver(linux_driver.LinuxDriver):
    """Goes on whatever the terminal sends, and knows its size."""

    def __init__(self, *arguments: Any, size: tuple[int, int] | None = None, **options: Any) -> None:
        self._taking_back = False
        super().__init__(*arguments, size=size or terminal_size(), **options)
        self._file = WaitingOutput(sys.__stderr__, self._end_with)  # type: ignore[assignment, arg-type]

    def _end_with(self, error: Exception) -> None:
        """A fault in a thread of the terminal's ends the application like any other."""
        self._loop.call_soon_threadsafe(self._app._handle_exception, error)

    def start_application_mode(self) -> None:
        try:
            super().start_application_mode()  # type: ignore[no-untyped-call]
        except RuntimeError:  # no thread can be started: half begun is to be ended
            if self._writer_thread is not None and not self._writer_thread.is_alive():
                self._writer_thread = None
            elif self._writer_thread is not None:
                self.stop_application_mode()
                self.close()
            raise

    # ---------------------------------------------------------------------------- size

    def _get_terminal_size(self) -> tuple[int, int]:
        return terminal_size()

    def process_message(self, message: Message) -> None:
        if isinstance(message, Resize) and not all(
            0 < n <= most for n, most in zip(message.size, LARGEST_SIZE, strict=True)
        ):
            size = Size(*terminal_size())
            message = Resize(size, size)
        super().process_message(message)

    # --------------------------------------------------------------------------- input

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except Exception as error:
            self._end_with(error)

    def run_input_thread(self) -> None:
        poll = select.poll()
        poll.register(self.fileno, select.POLLIN)
        events = TerminalInput()
        while not self.exit_event.is_set():
            data = b""
            if poll.poll(TICK_SECONDS * 1000):
                data = self._read()
                if not data:
                    time.sleep(TICK_SECONDS)  # the terminal is gone, and exit_signals ends the program
            for event in events.of(data):
                self.process_message(event)

    def _read(self) -> bytes:
        try:
            return os.read(self.fileno, 4096)
        except OSError:
            if os.isatty(self.fileno):
                raise
            return b""

    # ---------------------------------------------------------------- stopped and continued

    def _sigcont_application(self, *_: object) -> None:
        left_in_order = self._must_signal_resume or self._key_thread is None  # or not begun with
        if left_in_order and not self._taking_back:  # else it would be begun with twice
            super()._sigcont_application()
        elif self._auto_restart:
            self._loop.call_soon_threadsafe(self._take_terminal_back)  # here, a lock of the output may be held

    def _take_terminal_back(self) -> None:
        """Stopped by a signal that nobody can see coming: the shell has set its own modes and written on the screen."""
        if not self._in_foreground():
            os.kill(os.getpid(), signal.SIGSTOP)  # continued by `bg`; `fg` sends another SIGCONT
            return
        self._taking_back = True
        try:
            self.suspend_application_mode()
            self._must_signal_resume = True
            self.resume_application_mode()
        finally:
            self._taking_back = False

    def _in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self.fileno) == os.getpgrp()
        except OSError:  # a terminal that is not our session's has no foreground for us
            return True


class TerminalInput:
    """Events out of the bytes that a terminal sends, whatever they are."""

    #: A mouse report as xterm's first coding has it: three bytes, each 32 more than its value, none of them UTF-8.
    _X10_MOUSE: Final = re.compile(rb"\x1b\[M([\x20-\xff])([\x20-\xff])([\x20-\xff])", re.DOTALL)
    _X10_BEGUN: Final = re.compile(rb"\x1b\[M[\x20-\xff]{0,2}\Z")

    def __init__(self) -> None:
        self._parser = XTermParser()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._begun = b""  # of a mouse report
        self._waiting_since = 0.0

    def of(self, data: bytes) -> Iterator[Message]:
        """The events of *data*; without any, those that time alone brings: an Escape that nothing followed."""
        for character in self._decode(self._without_x10(data)):
            yield from self._parsed(character)
        yield from self._parsed("")

    def _parsed(self, character: str) -> list[Message]:
        try:
            return list(self._parser.feed(character) if character else self._parser.tick())
        except (ArithmeticError, ValueError, StopIteration, RuntimeError):
            # a key with the number 99999999999, a mouse in a window of 0 pixels: the parser has ended with it
            self._parser = XTermParser()
            return []

    def _without_x10(self, data: bytes) -> bytes:
        """Mouse reports in the present-day coding instead; one that is not complete waits for its rest."""
        data, before = self._begun + data, self._begun
        begun = self._X10_BEGUN.search(data)
        self._begun = begun.group() if begun is not None else b""
        if self._begun != before:
            self._waiting_since = time.monotonic()
        elif self._begun and time.monotonic() - self._waiting_since > TICK_SECONDS:
            self._begun, begun = b"", None  # it was none
        return self._X10_MOUSE.sub(_as_sgr, data[: begun.start()] if begun is not None else data)


def _as_sgr(report: re.Match[bytes]) -> bytes:
    button, column, row = (value[0] - 32 for value in report.groups())
    released = button & 3 == 3 and not button & 96  # of which button is not said
    return b"\x1b[<%d;%d;%d%s" % (button & ~3 if released else button, column, row, b"m" if released else b"M")


class WaitingOutput:
    """A text file on a terminal that waits where another program has made it one that is not to be waited for."""

    def __init__(self, file: TextIO, on_error: Callable[[Exception], object]) -> None:
        self._descriptor = file.fileno()
        self._encoding = file.encoding
        self._on_error = on_error
        self._pending: list[str] = []

    def fileno(self) -> int:
        return self._descriptor

    def write(self, text: str) -> None:
        self._pending.append(text)

    def flush(self) -> None:
        rest = "".join(self._pending).encode(self._encoding, "backslashreplace")
        self._pending.clear()
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])
            except OSError as error:
                if os.isatty(self._descriptor):  # else it is gone, and exit_signals ends the program
                    self._on_error(error)
                return
