"""Threads that read GPUs, such that one that hangs in the driver holds up none of the others.

All GPUs share one daemon thread that reads them in turn: the driver serialises most calls anyway. A GPU whose read
takes longer than :data:`LATE_SECONDS` keeps that thread to itself, and a new one takes the others from then on. When it
has answered in time again for a while, it goes back to the others and its thread ends.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from gputop.sources.source import Reading, SourceError

LATE_SECONDS: Final = 0.1  # a GPU may keep the others waiting
ROUNDS_IN_TIME: Final = 3  # after which a GPU that was late may share a thread again

Read = Callable[[int], Reading]


class _ReaderThread(threading.Thread):
    """Reads its slots one after the other, a round each time it is told to."""

    def __init__(self, owner: ReaderThreads, slots: list[int]) -> None:
        super().__init__(daemon=True, name=f"gputop-reader-{next(owner._numbers)}")
        self.owner, self.slots = owner, slots
        self.go = threading.Event()
        self.ended = False
        self.busy = False  # between go and the end of a round; guarded by owner._lock
        self.current: int | None = None
        self.since = 0.0
        self.in_time = 0  # rounds

    def run(self) -> None:
        owner = self.owner
        while True:
            self.go.wait()
            self.go.clear()
            if self.ended:
                return
            read = owner._read
            for slot in tuple(self.slots):
                with owner._lock:
                    if slot not in self.slots:
                        continue  # another thread has it now
                    self.current, self.since = slot, time.monotonic()
                reading, failure = None, None
                try:
                    reading = read(slot)
                except SourceError as error:
                    failure = error
                except Exception as error:  # a fault of ours must not end the thread unseen: it is shown
                    failure = SourceError(f"internal error while reading GPU {slot}: {error!r}")
                with owner._lock:
                    self.current = None
                    self.in_time = self.in_time + 1 if time.monotonic() - self.since < LATE_SECONDS else 0
                    if failure is not None:
                        owner.failure = failure
                    elif reading is not None:
                        owner.readings[slot] = reading
            with owner._lock:
                self.busy = False
                owner._round_ended.notify_all()


class ReaderThreads:
    """Reads *slots* each time it is told to :meth:`start`; *apart*: each in a thread of its own from the beginning.
    ``readings`` has the newest of each slot, ``failure`` why the source as a whole cannot be read."""

    def __init__(self, read: Read, slots: Iterable[int], apart: bool = False) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._round_ended = threading.Condition(self._lock)
        self._numbers = itertools.count(1)
        self.readings: dict[int, Reading] = {}
        self.failure: SourceError | None = None
        self._threads: list[_ReaderThread] = []
        slots = list(slots)
        for group in [[slot] for slot in slots] if apart else [slots] if slots else []:
            self._add(group)

    def _add(self, slots: list[int]) -> _ReaderThread:
        thread = _ReaderThread(self, slots)
        self._threads.append(thread)
        thread.start()
        return thread

    def start(self, read: Read | None = None) -> None:
        """Have every slot read that is not being read still; with *read* from now on, where that is given."""
        with self._lock:
            self._read = read or self._read
            for thread in self._threads:
                if not thread.busy:
                    thread.busy = True
                    thread.go.set()

    def wait(self, until: float = 0.0) -> set[int]:
        """Wait for all that was started, for a GPU that is late no longer than *until* (monotonic). Returns the slots
        that are late. Takes at most about three times :data:`LATE_SECONDS` beyond that, however many GPUs hang."""
        deadline = max(until, time.monotonic() + 3 * LATE_SECONDS)
        with self._lock:
            while True:
                now = time.monotonic()
                waiting = any(thread.busy and (now < until or not self._stuck(thread, now)) for thread in self._threads)
                self._split(now)
                if not waiting or now >= deadline:
                    break
                several = len(self._threads) > 1
                self._round_ended.wait(min(deadline - now, LATE_SECONDS / 4 if several else LATE_SECONDS))
            late = {thread.current for thread in self._threads if thread.busy and thread.current is not None}
        self._merge()
        return late

    def _stuck(self, thread: _ReaderThread, now: float) -> bool:
        return thread.current is not None and len(thread.slots) == 1 and now - thread.since > LATE_SECONDS

    def _split(self, now: float) -> None:
        """Take the other slots from a thread whose current one is late."""
        for thread in list(self._threads):
            current = thread.current
            if thread.busy and current is not None and len(thread.slots) > 1 and now - thread.since > LATE_SECONDS:
                others = [slot for slot in thread.slots if slot != current]
                thread.slots = [current]
                thread.in_time = 0
                following = next((n for n, slot in enumerate(others) if slot > current), len(others))
                fresh = self._add(others[following:] + others[:following])  # first those this round did not get to
                fresh.busy = True
                fresh.go.set()

    def _merge(self) -> None:
        """Let GPUs that answer in time again share the first thread that does."""
        with self._lock:
            prompt = [thread for thread in self._threads if not thread.busy and thread.in_time >= ROUNDS_IN_TIME]
            if len(prompt) < 2:
                return
            shared = max(prompt, key=lambda thread: len(thread.slots))
            for thread in prompt:
                if thread is not shared:
                    shared.slots = sorted(shared.slots + thread.slots)
                    thread.ended = True
                    thread.go.set()
                    self._threads.remove(thread)

    @property
    def count(self) -> int:
        """How many threads there are now."""
        return len(self._threads)

    def idle(self) -> bool:
        """Whether no thread is inside the driver."""
        with self._lock:
            return not any(thread.busy for thread in self._threads)

    def is_being_read(self, slot: int) -> bool:
        """Whether a thread is inside the driver for *slot*."""
        with self._lock:
            return any(thread.current == slot for thread in self._threads)

    def end(self) -> None:
        """End the idle threads; those inside the driver end when it lets them go."""
        with self._lock:
            for thread in self._threads:
                thread.ended = True
                thread.go.set()
            self._threads = []
