"""A simulated machine: GPUs, processes and a clock, under one lock."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from gputop.model import Driver
from gputop.sources.simulated.gpu import SimulatedGpu
from gputop.sources.simulated.population import Population, SimulatedProcess
from gputop.units import GIB


@dataclass(slots=True)
class SimulatedWorld:
    """What source, host and signals share. ``now()`` is in simulated seconds; hold ``lock`` around everything else.

    The state is a function of scenario, seed, time and the signals sent so far, however often somebody looks. The
    clock must not run backwards: where it does, time stands still.
    """

    name: str
    clock: Callable[[], float]
    epoch: float  # the clock's time at the simulation's second 0
    gpus: list[SimulatedGpu]
    population: Population
    driver: Driver
    cpu_count: int = 64
    memory_bytes: int = 1024 * GIB
    memory_base_bytes: int = 11 * GIB  # kernel, page tables, daemons
    lock: threading.Lock = field(default_factory=threading.Lock)
    _latest: float = -math.inf

    def now(self) -> float:
        """Simulated seconds now, with the population advanced to there."""
        self._latest = t = max(self._latest, self.clock() - self.epoch)
        self.population.advance(t, self._warm)
        return t

    def signal(self, process: SimulatedProcess, number: int) -> None:
        """Send signal *number* to *process*, now."""
        t = self.now()
        self._warm(t)
        self.population.signal(process, number, t)

    def _warm(self, t: float) -> None:
        """Settle what was before *t*, before the processes that caused it change."""
        for gpu in self.gpus:
            gpu.warm(t)
