"""What changes slowly is read less often, half an interval away from the sweeps, so that nobody waits for the other."""

from __future__ import annotations

import threading
import time
from typing import Final

from gputop.sampling.driver_gate import DriverGate
from gputop.sampling.sweeper import Sweeper
from gputop.sources.source import Source, SourceError

MEDIUM_SECONDS: Final = 1.0
SLOW_SECONDS: Final = 15.0
COUNT_SECONDS: Final = 5.0
HUNG_SECONDS: Final = 2.0  # a call may take; then another thread reads the other GPUs
MAX_HUNG: Final = 16  # threads that are given up; as many GPUs may hang
_NEVER: Final = -9e9  # monotonic


class SlowTiers(threading.Thread):
    """Reads the medium and slow tiers of *source*, one GPU after the other, and counts the GPUs. Each GPU's own clock
    decides what is due when it is told to :meth:`go`.

    A GPU whose call hangs keeps its thread; the others are read by the next one, and it is left out until the call
    comes back.
    """

    def __init__(self, source: Source, gate: DriverGate) -> None:
        super().__init__(daemon=True, name="gputop-slow-tiers")
        self._source, self._gate = source, gate
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._ended = False
        self._reader: threading.Thread | None = None  # that reads; one that was given up ends when its call comes back
        self._hung: set[tuple[Sweeper, int | None]] = set()  # slots, None: counting
        self._current: tuple[Sweeper, int | None] | None = None  # what is being read
        self._since = 0.0
        self._medium: dict[int, float] = {}  # by slot: when it was read last (monotonic)
        self._slow: dict[int, float] = {}
        self._counted = 0.0
        self.sweeper: Sweeper | None = None  # whose GPUs they are
        self.gpus: int | None = None  # when counted last
        self.failure: SourceError | None = None  # why the source as a whole cannot be read

    def go(self) -> None:
        with self._lock:
            current = self._current
            if current is not None and time.monotonic() - self._since >= HUNG_SECONDS and len(self._hung) < MAX_HUNG:
                self._hung.add(current)
                self._current = None
                self._reader = threading.Thread(target=self.run, daemon=True, name=self.name)
                self._reader.start()
        self._wake.set()

    def stop(self) -> None:
        self._ended = True
        self._wake.set()

    def run(self) -> None:
        me = threading.current_thread()
        if self._reader is None:
            self._reader = me
        while self._reader is me:
            self._wake.wait()
            if self._reader is not me:
                return  # what woke it is meant for the one that reads now
            self._wake.clear()
            if self._ended:
                return
            with self._gate.entered() as inside:
                sweeper = self.sweeper
                if not inside or sweeper is None:
                    self._medium.clear()
                    self._slow.clear()
                    continue
                try:
                    self._round(me, sweeper)
                except SourceError as error:
                    self.failure = error
                except Exception as error:  # a fault of ours must not end the thread unseen: it is shown
                    self.failure = SourceError(f"internal error in the slow readings: {error!r}")

    def _round(self, me: threading.Thread, sweeper: Sweeper) -> None:
        """All that is due of the medium tier, and one GPU's slow tier: its calls are the expensive ones."""
        now = time.monotonic()
        if now - self._counted >= COUNT_SECONDS and self._begin(me, sweeper, None):
            self._counted = now
            try:
                gpus = self._source.count()
            finally:
                counts = self._end(me, sweeper, None)
            if counts:
                self.gpus = gpus
        medium, slow = self._medium, self._slow
        slots = [slot for slot in range(sweeper.slots) if not sweeper.threads.is_being_read(slot)]
        for slot in slots:
            if now - medium.get(slot, _NEVER) >= MEDIUM_SECONDS * 0.9 and self._begin(me, sweeper, slot):
                medium[slot] = now
                try:
                    self._source.read_medium(slot)
                finally:
                    self._end(me, sweeper, slot)
        due = [slot for slot in slots if now - slow.get(slot, _NEVER) >= SLOW_SECONDS]
        for slot in sorted(due, key=lambda slot: slow.get(slot, _NEVER)):
            if self._begin(me, sweeper, slot):
                slow[slot] = now
                try:
                    self._source.read_slow(slot)
                finally:
                    self._end(me, sweeper, slot)
                return

    def _begin(self, me: threading.Thread, sweeper: Sweeper, slot: int | None) -> bool:
        """Whether *me* may make a call for the slot now: not one that was given up, nor where the last call hangs."""
        with self._lock:
            if self._reader is not me or (sweeper, slot) in self._hung:
                return False
            self._current, self._since = (sweeper, slot), time.monotonic()
            return True

    def _end(self, me: threading.Thread, sweeper: Sweeper, slot: int | None) -> bool:
        """The call came back. Whether *me* is still the thread that reads."""
        with self._lock:
            if self._reader is me:
                self._current = None
                return True
            self._hung.discard((sweeper, slot))
            return False
