"""The demo's past: a newcomer's first look should find curves, not empty charts.

The simulated machine is started some minutes ago and its readings since then are put into the history. Where something
is to go wrong after one began to look (a GPU that will be lost, a run out of memory), its second 0 is now all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from gputop.history.gpu_history import History
from gputop.model import Snapshot
from gputop.sampling.snapshot_builder import SnapshotBuilder, assemble
from gputop.sources.source import Source

PAST_SECONDS: Final = 600.0
STEP_SECONDS: Final = 4.0
TRIALS: Final = 3
COMPUTING_SECONDS: Final = 0.3  # a machine that takes longer has a shorter past
BEGINS_NOW: Final = frozenset({"lost-gpu", "busy-oom", "slow", "hang"})


class RewindableClock:
    """Epoch seconds; some time ago until :meth:`catch_up`."""

    def __init__(self) -> None:
        self._now: float | None = None

    def rewind(self, seconds: float) -> None:
        self._now = time.time() - seconds

    @property
    def behind(self) -> float:
        """Seconds between it and the present."""
        return 0.0 if self._now is None else max(0.0, time.time() - self._now)

    def step(self, seconds: float) -> bool:
        """Go on, never back; False when the present is reached."""
        seconds = max(0.0, seconds)
        if self._now is None or self._now + seconds >= time.time():
            return False
        self._now += seconds
        return True

    def catch_up(self) -> None:
        self._now = None

    def __call__(self) -> float:
        return time.time() if self._now is None else self._now


def remember(source: Source, history: History, clock: RewindableClock) -> None:
    """Fill *history* with what *source*, which lives by *clock*, shows from then until now; later than then where the
    machine is too slow to compute all of it in :data:`COMPUTING_SECONDS`."""
    source.open()
    assembler = SnapshotBuilder()

    def read() -> Snapshot:
        readings = [source.read(slot) for slot in range(source.count())]
        return assemble(clock(), readings, {}, {}, assembler=assembler, interval=STEP_SECONDS)

    affordable = COMPUTING_SECONDS / max(_seconds_of(read) for _ in range(TRIALS))
    clock.step(clock.behind - max(2, affordable) * STEP_SECONDS)  # what is left out is the oldest: no gap before now
    while clock.step(STEP_SECONDS):
        history.add(read())
    clock.catch_up()
    source.close()


def _seconds_of(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
