"""Work that may block (a descriptor on a dead NFS mount, a process in the driver), off the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from textual.message_pump import MessagePump

T = TypeVar("T")


def in_background(owner: MessagePump, work: Callable[[], T], then: Callable[[T], Any]) -> None:
    """Run *work* in a daemon thread, then *then* with its result on *owner*'s event loop, unless *owner* is gone.

    Not Textual's workers: those are joined when the application quits, and a call that hangs would hang it too.
    An exception in *work* is raised on the event loop.
    """

    def run() -> None:
        try:
            result = work()
        except Exception as error:
            owner.call_later(_raise, error)
        else:
            owner.call_later(then, result)

    threading.Thread(target=run, name="gputop-background", daemon=True).start()


def _raise(error: Exception) -> None:
    raise error
