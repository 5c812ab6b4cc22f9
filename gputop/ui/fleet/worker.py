"""A daemon thread that does the newest thing asked for: what waits is replaced, what runs is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from textual.message_pump import MessagePump

T = TypeVar("T")


class NewestOnly:
    """Runs work off *owner*'s event loop and hands its result back on it. An engine that answers in 30 s has one call
    waiting behind the one in progress, however many keys were pressed."""

    def __init__(self, owner: MessagePump, name: str) -> None:
        self._owner = owner
        self._ready = threading.Condition()
        self._waiting: Callable[[], None] | None = None
        self._ended = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, work: Callable[[], T], then: Callable[[T], Any]) -> None:
        """Do *work* next, then *then* with its result on the event loop; what waited until now is dropped."""

        def job() -> None:
            try:
                result = work()
            except Exception as error:
                self._owner.call_later(_raise, error)
            else:
                if not self._ended:
                    self._owner.call_later(then, result)

        with self._ready:
            self._waiting = job
            self._ready.notify()

    def end(self) -> None:
        """Do nothing any more; what runs is not waited for."""
        with self._ready:
            self._ended, self._waiting = True, None
            self._ready.notify()

    def _run(self) -> None:
        while True:
            with self._ready:
                self._ready.wait_for(lambda: self._waiting is not None or self._ended)
                job, self._waiting = self._waiting, None
            if job is None:
                return
            job()


def _raise(error: Exception) -> None:
    raise error
