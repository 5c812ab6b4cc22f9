"""Look-ups that may never return, such that whoever needs the answer of one waits for no other.

A process's command line, environment and maps are read under its memory lock, which a thread stuck in a driver may
hold; a file on a dead NFS server, a FUSE mount (lxcfs) and the name service (LDAP, SSSD) take as long as they like.
Such calls are made in daemon threads. One that is late keeps its thread to itself and another one makes the rest; who
asked goes on without the answer, and is given it when it asks again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Final

LATE_SECONDS: Final = 0.01  # a call may keep those behind it waiting
WAIT_SECONDS: Final = 0.1  # whoever asks waits for an answer, once a call
MAX_CALLS: Final = 1024
MAX_THREADS: Final = 64  # as many calls may hang; then the others wait for them

NOT_YET: Final = -1.0

Key = Hashable


class _Call:
    __slots__ = ("answer", "asked_at", "began_at", "done", "error", "function", "key")

    def __init__(self, key: Key, function: Callable[[], Any], now: float) -> None:
        self.key, self.function, self.asked_at = key, function, now
        self.began_at = NOT_YET
        self.done = False
        self.answer: Any = None
        self.error: Exception | None = None


class Lookups:
    """Makes calls that may hang. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._answered = threading.Condition(self._lock)
        self._queue: deque[_Call] = deque()
        self._running: set[_Call] = set()
        self._calls: dict[Key, _Call] = {}  # asked for, and the answer not given yet
        self._threads = self._idle = 0

    def ask(self, wanted: Mapping[Key, Callable[[], Any]], wait: float = WAIT_SECONDS) -> dict[Key, Any]:
        """The answers of those calls that have one, *wait* seconds after they were first asked for at the latest. One
        that goes on is not made again. A call must not hold anything that its asker takes back meanwhile.

        Raises what a call raised.
        """
        with self._lock:
            now = time.monotonic()
            if len(self._calls) > MAX_CALLS:
                self._calls = {key: call for key, call in self._calls.items() if not call.done}  # nobody came for them
            mine = []
            for key, function in wanted.items():
                call = self._calls.get(key)
                if call is None:
                    call = self._calls[key] = _Call(key, function, now)
                    self._queue.append(call)
                mine.append(call)
            while True:
                self._staff(now)
                until = max((call.asked_at + wait for call in mine if not call.done), default=0.0)
                if now >= until:
                    break
                self._answered.wait(min(until - now, LATE_SECONDS) if self._queue else until - now)
                now = time.monotonic()
            done = [call for call in mine if call.done]
            for call in done:
                self._calls.pop(call.key, None)
        for call in done:
            if call.error is not None:
                raise call.error
        return {call.key: call.answer for call in done}

    def one(self, key: Key, function: Callable[[], Any], otherwise: Any, wait: float = WAIT_SECONDS) -> Any:
        """The answer of one call; *otherwise* as long as there is none."""
        return self.ask({key: function}, wait).get(key, otherwise)

    def waits(self, key: Key) -> bool:
        """Whether the call was asked for and has not answered yet."""
        call = self._calls.get(key)
        return call is not None and not call.done

    def drop(self, keys: Collection[Key]) -> None:
        """Nobody will ask for these again."""
        with self._lock:
            for key in keys:
                call = self._calls.pop(key, None)
                if call is not None and call.began_at == NOT_YET and not call.done:
                    self._queue.remove(call)

    def _staff(self, now: float) -> None:
        """See to it that somebody makes the calls in the queue. Called with the lock held."""
        if not self._queue:
            return
        if self._idle:
            self._work.notify()
        elif self._threads < MAX_THREADS and all(now - call.began_at >= LATE_SECONDS for call in self._running):
            self._threads += 1
            try:
                threading.Thread(target=self._run, daemon=True, name="gputop-lookups").start()
            except RuntimeError:  # no more threads for this user: those there are make the calls
                self._threads -= 1

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._queue:
                    if self._idle:  # one waits for work
                        self._threads -= 1
                        return
                    self._idle += 1
                    self._work.wait()
                    self._idle -= 1
                call = self._queue.popleft()
                call.began_at = time.monotonic()
                self._running.add(call)
            try:
                call.answer = call.function()
            except Exception as error:  # the asker's to handle
                call.error = error
            with self._lock:
                self._running.discard(call)
                call.done = True
                if not self._queue:
                    self._answered.notify_all()
