"""A simulated machine: GPUs, processes and a clock, under one lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from gputop.model import Driver
from gputop.sources.simulated.boards import GIB
from gputop.sources.simulated.gpu import SimulatedGpu
from gputop.sources.simulated.population import Population


@dataclass(slots=True)
class World:
    """What source, host and signals share. ``now()`` is seconds of the story; hold ``lock`` around everything else.

    The state is a function of scenario, seed, time and the signals sent so far, however often somebody looks. The
    clock must not run backwards: where it does, time stands still.
    """

    name: str
    clock: Callable[[], float]
    epoch: float  # the clock's time at which the story's second 0 was
    gpus: list[SimulatedGpu]
    population: Population
    driver: Driver
    cpu_count: int = 64
    memory_bytes: int = 1024 * GIB
    memory_base_bytes: int = 11 * GIB  # kernel, page tables, daemons
    lock: threading.Lock = field(default_factory=threading.Lock)
    _latest: float = 0.0
    _back: set[int] = field(default_factory=set)  # GPUs that were lost and are back

    def now(self) -> float:
        """Seconds of the story now, with the population brought there."""
        t = max(self._latest, self.clock() - self.epoch)
        self._latest = t
        self.population.advance(t)
        for gpu in self.gpus:
            lost = gpu.ailment.lost
            if lost is not None and t >= lost[1] and gpu.index not in self._back:
                self._back.add(gpu.index)
                self.population.release_stuck(gpu.index, t)
        return t
