"""How the dashboard ends without a key: by a signal, or with its terminal."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_LOOK: Final = 5.0  # seconds; a pty that is closed wakes the thread at once, a serial line may not


class EndingSignals:
    """SIGTERM, SIGHUP and SIGINT from now on. Noted until :meth:`hand_over`: the screen may be half up by then."""

    def __init__(self) -> None:
        self._noted: list[int] = []
        for number in _SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: object) -> None:
        self._noted.append(number)

    def hand_over(self, end: Callable[[int], Any]) -> None:
        """Call *end* with 128 + n at signal n, on the running event loop; for one noted before, too."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, _ended, end, 128 + number)
        if self._noted:
            _ended(end, 128 + self._noted[0])


def _ended(end: Callable[[int], Any], status: int) -> None:
    """There is nothing to restore on a terminal that is gone, and writing to it may block for ever."""
    if not _is_there():
        os._exit(status)
    end(status)


def end_with_terminal() -> None:
    """End the process as soon as its terminal is gone, also where nobody sends SIGHUP (it may be blocked): Textual
    would spin on a dead stdin (textual#6690), or wait for ever for a writer that died."""
    if _is_there():
        threading.Thread(target=_watch, name="gputop-terminal", daemon=True).start()


def _watch() -> None:
    poll = select.poll()
    poll.register(sys.__stdin__.fileno(), 0)  # type: ignore[union-attr]  # only that it hangs up
    while not poll.poll(_LOOK * 1000) and _is_there():
        pass
    os._exit(128 + signal.SIGHUP)


def _is_there() -> bool:
    stream = sys.__stdin__
    return stream is not None and not stream.closed and os.isatty(stream.fileno())
