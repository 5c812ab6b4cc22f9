"""A simulated machine for ``gputop --demo``, the screenshots and the tests of the screen.

Plausible, moving, and reproducible: what it shows at a moment is a function of the scenario, the seed, the time on
its clock and the signals sent so far. It reads neither the driver nor /proc, and no signal leaves it.

``machine`` is the state behind it all, which the four sides read under one lock: ``source`` (what NVML would say),
``host`` (what /proc would), ``signals`` and ``investigator``. ``gpu`` has the physics, ``population`` the processes,
``workloads`` what a process asks of its GPU over time. Which machines there are is in ``machines``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from gputop.model import Driver
from gputop.sources.simulated.host import SimulatedHost
from gputop.sources.simulated.investigator import SimulatedInvestigator
from gputop.sources.simulated.machine import SimulatedWorld
from gputop.sources.simulated.machines.scenarios import SCENARIOS, UnknownScenario, build
from gputop.sources.simulated.signals import SimulatedSignals
from gputop.sources.simulated.source import SimulatedSource


@dataclass(frozen=True, slots=True)
class SimulatedMachine:
    """The sides of one machine."""

    name: str
    source: SimulatedSource
    host: SimulatedHost
    signals: SimulatedSignals
    investigator: SimulatedInvestigator


def simulated_machine(
    name: str = "", seed: int = 0, clock: Callable[[], float] = time.time, started_before: float = 0.0
) -> SimulatedMachine:
    """The machine called *name* (see SCENARIOS; also NxMODEL such as 4xh200). Raises UnknownScenario.

    *clock* tells epoch seconds and must not run backwards. The simulation begins *started_before* seconds before the
    call, so that a test can join it in the middle; negative: so long after it, which what goes wrong waits for.
    """
    plan = build(name, seed)
    world = SimulatedWorld(
        name=plan.host_name,
        clock=clock,
        epoch=clock() - started_before,
        gpus=plan.gpus,
        population=plan.population,
        driver=Driver("580.159.04", "13.580.159.04", "13.0"),
        cpu_count=plan.cpu_count,
        memory_bytes=plan.memory_bytes,
        memory_base_bytes=plan.memory_base_bytes,
    )
    host = SimulatedHost(world)
    investigator = SimulatedInvestigator(world, host)
    return SimulatedMachine(name, SimulatedSource(world), host, SimulatedSignals(world, host), investigator)


__all__ = ["SCENARIOS", "SimulatedMachine", "UnknownScenario", "simulated_machine"]
