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
_NEVER: Final = -9e9  # monotonic


class SlowTiers(threading.Thread):
    """Reads the medium and slow tiers of *source*, one GPU after the other, and counts the GPUs. Each GPU's own clock
    decides what is due when it is told to :meth:`go`."""

    def __init__(self, source: Source, gate: DriverGate) -> None:
        super().__init__(daemon=True, name="gputop-slow-tiers")
        self._source, self._gate = source, gate
        self._wake = threading.Event()
        self._ended = False
        self.sweeper: Sweeper | None = None  # whose GPUs they are
        self.gpus: int | None = None  # when counted last
        self.failure: SourceError | None = None  # why the source as a whole cannot be read

    def go(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self._ended = True
        self._wake.set()

    def run(self) -> None:
        medium: dict[int, float] = {}  # by slot: when it was read last (monotonic)
        slow: dict[int, float] = {}
        counted = 0.0
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._ended:
                return
            with self._gate.entered() as inside:
                sweeper = self.sweeper
                if not inside or sweeper is None:
                    medium.clear()
                    slow.clear()
                    continue
                try:
                    now = time.monotonic()
                    if now - counted >= COUNT_SECONDS:
                        counted = now
                        self.gpus = self._source.count()
                    self._round(sweeper, medium, slow)
                except SourceError as error:
                    self.failure = error
                except Exception as error:  # a fault of ours must not end the thread unseen: it is shown
                    self.failure = SourceError(f"internal error in the slow readings: {error!r}")

    def _round(self, sweeper: Sweeper, medium: dict[int, float], slow: dict[int, float]) -> None:
        """All that is due of the medium tier, and one GPU's slow tier: its calls are the expensive ones."""
        now = time.monotonic()
        slots = [slot for slot in range(sweeper.slots) if not sweeper.threads.is_being_read(slot)]
        for slot in slots:
            if now - medium.get(slot, _NEVER) >= MEDIUM_SECONDS * 0.9:
                medium[slot] = now
                self._source.read_medium(slot)
        due = [slot for slot in slots if now - slow.get(slot, _NEVER) >= SLOW_SECONDS]
        if due:
            slot = min(due, key=lambda slot: slow.get(slot, _NEVER))
            slow[slot] = now
            self._source.read_slow(slot)
