"""Threads that read GPUs, such that one that hangs in the driver holds up none of the others.

All GPUs share one lane (a daemon thread that reads them in turn: the driver serialises most calls anyway). A GPU whose
read takes longer than :data:`PATIENCE` keeps that lane to itself, and a new one takes the others from then on. When it
has answered in time again for a while, it goes back to the others and its lane ends.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from gputop.sources.source import Reading, SourceError

PATIENCE: Final = 0.1  # seconds a GPU may keep the others waiting
REFORMED: Final = 3  # reads in time after which a late GPU may share a lane again

Read = Callable[[int], Reading]


class _Lane(threading.Thread):
    def __init__(self, lanes: ReaderThreads, slots: list[int]) -> None:
        super().__init__(daemon=True, name=f"gputop-lane-{next(lanes._numbers)}")
        self.lanes, self.slots = lanes, slots
        self.go = threading.Event()
        self.ended = False
        self.busy = False  # between go and the end of a round; guarded by lanes._lock
        self.current: int | None = None
        self.since = 0.0
        self.in_time = 0  # rounds

    def run(self) -> None:
        lanes = self.lanes
        while True:
            self.go.wait()
            self.go.clear()
            if self.ended:
                return
            for slot in tuple(self.slots):
                with lanes._lock:
                    if slot not in self.slots:
                        continue  # another lane has it now
                    self.current, self.since = slot, time.monotonic()
                reading, failure = None, None
                try:
                    reading = lanes._read(slot)
                except SourceError as error:
                    failure = error
                except Exception as error:  # a fault of ours must not end the thread unseen: it is shown
                    failure = SourceError(f"internal error while reading GPU {slot}: {error!r}")
                with lanes._lock:
                    took = time.monotonic() - self.since
                    self.current = None
                    self.in_time = self.in_time + 1 if took < PATIENCE else 0
                    if failure is not None:
                        lanes.failure = failure
                    elif reading is not None:
                        lanes.readings[slot] = reading
                    lanes.took[slot] = took
            with lanes._lock:
                self.busy = False
                lanes._idle.notify_all()


class ReaderThreads:
    """Reads a set of slots at each :meth:`sweep`."""

    def __init__(self, read: Read, slots: Iterable[int]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._numbers = itertools.count(1)
        self.readings: dict[int, Reading] = {}
        self.took: dict[int, float] = {}
        self.failure: SourceError | None = None
        self._lanes: list[_Lane] = []
        slots = list(slots)
        if slots:
            self._add(slots)

    def _add(self, slots: list[int]) -> _Lane:
        lane = _Lane(self, slots)
        self._lanes.append(lane)
        lane.start()
        return lane

    def sweep(self) -> set[int]:
        """Have every slot read; returns those that are late. Takes at most about three times the patience, however
        many GPUs hang."""
        with self._lock:
            for lane in self._lanes:
                if not lane.busy:
                    lane.busy = True
                    lane.go.set()
        deadline = time.monotonic() + 3 * PATIENCE
        with self._lock:
            while True:
                now = time.monotonic()
                waiting = [lane for lane in self._lanes if lane.busy and not self._stuck(lane, now)]
                self._split(now)
                if not waiting or now >= deadline:
                    break
                self._idle.wait(min(deadline - now, PATIENCE / 4 if len(self._lanes) > 1 else PATIENCE))
            late = {lane.current for lane in self._lanes if lane.busy and lane.current is not None}
        self._merge()
        return late

    def _stuck(self, lane: _Lane, now: float) -> bool:
        return lane.current is not None and len(lane.slots) == 1 and now - lane.since > PATIENCE

    def _split(self, now: float) -> None:
        """Take the other slots from a lane whose current one is late."""
        for lane in list(self._lanes):
            if lane.busy and lane.current is not None and len(lane.slots) > 1 and now - lane.since > PATIENCE:
                others = [slot for slot in lane.slots if slot != lane.current]
                lane.slots = [lane.current]
                lane.in_time = 0
                later = others[others.index(s) :] if (s := self._after(lane.current, others)) is not None else []
                fresh = self._add(others)
                if later:
                    fresh.slots = later + [slot for slot in others if slot not in later]
                fresh.busy = True
                fresh.go.set()

    @staticmethod
    def _after(slot: int, others: list[int]) -> int | None:
        return next((other for other in others if other > slot), None)

    def _merge(self) -> None:
        """Let GPUs that answer in time again share the first lane that does."""
        with self._lock:
            calm = [lane for lane in self._lanes if not lane.busy and lane.in_time >= REFORMED]
            if len(calm) < 2:
                return
            home = max(calm, key=lambda lane: len(lane.slots))
            for lane in calm:
                if lane is not home:
                    home.slots = sorted(home.slots + lane.slots)
                    lane.ended = True
                    lane.go.set()
                    self._lanes.remove(lane)

    def idle(self) -> bool:
        """Whether no thread is inside the driver."""
        with self._lock:
            return not any(lane.busy for lane in self._lanes)

    def late_since(self, slot: int) -> float | None:
        """Monotonic time since when *slot* has been inside the driver, if it is."""
        with self._lock:
            return next((lane.since for lane in self._lanes if lane.current == slot), None)

    def end(self) -> None:
        """End the idle lanes; those inside the driver end when it lets them go."""
        with self._lock:
            for lane in self._lanes:
                lane.ended = True
                lane.go.set()
            self._lanes = []
