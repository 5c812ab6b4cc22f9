"""A simulated machine being built: its GPUs, its host, and the factory for its processes."""

from __future__ import annotations

import random
from dataclasses import dataclass

from gputop.sources.simulated.gpu import SimulatedGpu
from gputop.sources.simulated.machines.gpu_models import GpuModel
from gputop.sources.simulated.machines.process_factory import ProcessFactory
from gputop.sources.simulated.population import Population
from gputop.units import GIB


@dataclass
class MachinePlan:
    """What a scenario builds."""

    gpus: list[SimulatedGpu]
    factory: ProcessFactory
    seed: int
    host_name: str
    cpu_count: int
    memory_bytes: int
    memory_base_bytes: int  # kernel, page tables, daemons

    @property
    def population(self) -> Population:
        return self.factory.population


def plan(models: list[GpuModel], seed: int, host_name: str = "gpu01") -> MachinePlan:
    """A machine with a GPU of each of *models*, and no processes. A server has 16 cores and 256 GiB for each GPU."""
    population = Population(len(models))
    rng = random.Random(seed * 7919 + len(models))
    gpus = []
    for index, model in enumerate(models):
        bus = f"{index // 13:08X}:{0x18 + index % 13 * 0x11:02X}:00.0"
        serial = f"165{rng.randrange(10**10):010d}"
        gpus.append(SimulatedGpu(index, model, uuid("GPU", rng), serial, bus, seed + 1000 + index * 37, population))
    server = not models or models[0].server
    return MachinePlan(
        gpus,
        ProcessFactory(population, rng),
        seed,
        host_name,
        cpu_count=max(32, 16 * len(models)) if server else 32,
        memory_bytes=max(256, 256 * len(models)) * GIB if server else 128 * GIB,
        memory_base_bytes=(14 if server else 3) * GIB,
    )


def uuid(kind: str, rng: random.Random) -> str:
    digits = f"{rng.getrandbits(128):032x}"
    return f"{kind}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
