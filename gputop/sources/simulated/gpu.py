"""The physics of one simulated GPU: from the load of its processes to watts, degrees and megahertz."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gputop.model import Xid
from gputop.sources.simulated.machines.gpu_models import GpuModel
from gputop.sources.simulated.noise import clamp, noise
from gputop.sources.simulated.population import Population
from gputop.sources.simulated.workloads import REST, SAMPLES_PER_SECOND, Load

IDLE, POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL = 0x01, 0x04, 0x08, 0x20, 0x40
WARM_UP_SECONDS: Final = 14.0  # time constant of a heat sink
SLOW_SECONDS: Final = 5  # the pace of the slow tier
FORGOTTEN_SECONDS: Final = 300  # what was so long ago has no influence on the temperature any more


@dataclass(frozen=True, slots=True)
class SimulatedInstance:
    """A MIG instance of the layout."""

    gpu_instance_id: int
    profile: str  # "3g.71gb"
    memory_mib: int
    uuid: str


@dataclass(frozen=True, slots=True)
class SimulatedFault:
    """What is wrong with a GPU, besides its load. Times are simulated seconds."""

    cooling_from: float = math.inf  # the airflow fails over a minute…
    cooling_factor: float = 1.0  # …and then a watt warms it by so much more
    lost: tuple[float, float] | None = None  # from, to
    answers_after: float = 0.0  # a read takes so long…
    slow_from: float = 0.0  # …from then on
    hangs_from: float | None = None
    xids: tuple[Xid, ...] = ()  # at: simulated seconds
    corrected: int = 0
    corrected_per_minute: float = 0.0
    uncorrected: int = 0
    rows_corrected: int = 0
    rows_uncorrected: int = 0
    remap_pending: bool = False
    sleeps: tuple[float, float] | None = None  # asleep so long, then awake so long, over and over


class Physics(NamedTuple):
    """One GPU at one tick."""

    load: Load
    watts: float
    degrees: float
    clock_sm: int
    reasons: int  # nvmlClocksEventReason* bits

    @property
    def busy(self) -> bool:
        return self.load.busy >= 0.01 or self.load.encoder >= 0.01


class Slow(NamedTuple):
    """What the slow tier saw when it looked last."""

    second: int
    load: Load
    degrees: float


@dataclass(slots=True)
class SimulatedGpu:
    """One GPU: its model, its processes, and what is wrong with it."""

    index: int
    model: GpuModel
    uuid: str
    serial: str
    bus: str
    seed: int
    population: Population
    fault: SimulatedFault = SimulatedFault()
    instances: tuple[SimulatedInstance, ...] = ()
    hidden_bytes: int = 0  # taken by processes that the driver does not list here
    display: bool = False
    persistence: bool = True
    slow: Slow = Slow(-1, REST, 0.0)
    _second: int | None = None
    _degrees: float = 0.0
    _watts: list[float] = field(default_factory=lambda: [0.0, 0.0])
    _loads: tuple[float, int, list[Load]] = (math.nan, 0, [])

    # ------------------------------------------------------------------ load

    def loads(self, t: float) -> list[Load]:
        """What each of its processes asks for at *t*, in the population's order."""
        known_at, version, loads = self._loads
        if known_at != t or version != self.population.version:
            loads = [REST if use.still else process.load(use, t) for process, use in self.population.on_gpu[self.index]]
            self._loads = (t, self.population.version, loads)
        return loads

    def together(self, t: float) -> Load:
        """What all of them ask for, as far as one GPU can do it."""
        return _together(self.loads(t))

    def together_now(self, tick: float) -> Load:
        """The same between whole seconds; it leaves those of the second in place, since the process rows need them."""
        busy = [process.load(use, tick) for process, use in self.population.on_gpu[self.index] if not use.still]
        return _together(busy)

    # ----------------------------------------------------------- heat and power

    def _demand(self, load: Load) -> float:
        """Watts it would take without a limit."""
        model = self.model
        rest = model.idle_watts * (0.96 + 0.08 * noise(self.index, self.seed))
        if load.busy < 0.01 and load.encoder < 0.01:
            return rest
        heat = 0.4 * load.active + 0.6 * load.tensor + 0.42 * load.dram + 0.1 * load.encoder + 0.06 * load.decoder
        return rest + 0.035 * (model.limit_watts - rest) + (model.limit_watts * 1.2 - rest) * heat

    def _throttled(self, demand: float, degrees: float) -> tuple[float, float, int]:
        """(watts, share of the maximum clock, event reasons) at *degrees*."""
        model = self.model
        watts, share, reasons = demand, 1.0, 0
        if demand > model.limit_watts:
            share -= min(0.4, demand / model.limit_watts - 1.0)
            watts, reasons = model.limit_watts, POWER_CAP
        if degrees >= model.maximum - 1:
            brake = clamp(0.06 * (degrees - model.maximum + 2.0), 0.0, 0.5)
            share, watts, reasons = share - brake, watts * (1.0 - 0.9 * brake), reasons | SW_THERMAL
        if degrees >= model.slowdown:
            share, watts, reasons = share * 0.5, watts * 0.62, reasons | HW_SLOWDOWN | HW_THERMAL
        return watts, share, reasons

    def _target(self, watts: float, t: float) -> float:
        """The temperature it would reach if it went on like this."""
        fault, model = self.fault, self.model
        place = 0.94 + 0.14 * noise(self.index, self.seed + 1)  # some slots get the warmer air
        if t > fault.cooling_from:
            place *= 1.0 + (fault.cooling_factor - 1.0) * clamp((t - fault.cooling_from) / 60.0)
        return model.ambient + 5.0 * noise(self.index, self.seed + 2) - 2.0 + place * model.degrees_per_watt * watts

    def warm(self, t: float) -> None:
        """Bring temperature and average power to second floor(t), a second at a time. It steps in whole
        simulated seconds, so that how often somebody looks changes nothing."""
        second = math.floor(t)
        if self._second is None or second - self._second > FORGOTTEN_SECONDS:
            self._second = max(0, second - FORGOTTEN_SECONDS)
            means = [self._throttled(self._demand(self.together(self._second - 1.9 * k)), 0.0)[0] for k in range(16)]
            self._degrees = self._target(sum(means) / len(means), self._second)
            self._watts = means[:2]
            self._look(self._second, self.together(float(self._second)))
        for k in range(self._second + 1, second + 1):
            load = self.together(float(k))
            watts = self._throttled(self._demand(load), self._degrees)[0]
            self._degrees += (self._target(watts, float(k)) - self._degrees) / WARM_UP_SECONDS
            self._watts = [watts, self._watts[0]]
            if k % SLOW_SECONDS == 0:
                self._look(k, load)
        self._second = max(self._second, second)

    def _look(self, second: int, load: Load) -> None:
        self.slow = Slow(second, load, self._degrees)

    def physics(self, t: float) -> Physics:
        """The state at *t*, which must not lie before the second of an earlier call."""
        self.warm(t)
        step = math.floor(t * SAMPLES_PER_SECOND)
        load = self.together_now(step / SAMPLES_PER_SECOND)
        watts, share, reasons = self._throttled(self._demand(load), self._degrees)
        low, high = self.model.clock_sm
        if load.busy < 0.01 and load.encoder < 0.01:
            return Physics(load, watts, self._degrees, low, reasons | IDLE)
        clock = clamp(high * (share - 0.02 * noise(step, self.seed + 4)), low, high) // 15 * 15
        flicker = 0.985 + 0.03 * noise(step, self.seed + 6)  # the limit holds for the average, not for an instant
        return Physics(load, watts * flicker, self._degrees, int(clock), reasons)

    def average_watts(self, instant: float) -> float:
        """nvidia-smi's power.draw: an average over about a second."""
        return min(self.model.limit_watts * 1.004, (instant + self._watts[0] + self._watts[1]) / 3.0)

    # ------------------------------------------------------------------ state

    def is_lost(self, t: float) -> bool:
        lost = self.fault.lost
        return lost is not None and lost[0] <= t < lost[1]

    def is_asleep(self, t: float) -> bool:
        sleeps = self.fault.sleeps
        return sleeps is not None and t % (sleeps[0] + sleeps[1]) < sleeps[0]

    def fan_percents(self, degrees: float) -> tuple[int, ...]:
        """Fans stand still while it is cool."""
        curve = clamp((degrees - 44.0) / 42.0)
        speed = 0 if curve == 0.0 else 28 + int(72 * curve**1.3)
        return tuple(speed + (1 if k and speed else 0) for k in range(self.model.fans))


def _together(loads: list[Load]) -> Load:
    loads = [load for load in loads if load.busy > 0.0 or load.encoder > 0.0]
    if len(loads) < 2:
        return loads[0] if loads else REST
    quiet = 1.0
    for load in loads:
        quiet *= 1.0 - clamp(load.busy)
    _, active, occupancy, tensor, dram, rx, tx, nvlink, encoder, decoder = map(sum, zip(*loads, strict=True))
    crush = max(1.0, active / 0.97, dram / 0.93)  # they share SMs and bandwidth
    return Load(
        1.0 - quiet, active / crush, min(0.9, occupancy / crush), tensor / crush, dram / crush, rx, tx,
        min(1.0, nvlink), min(1.0, encoder), min(1.0, decoder),
    )  # fmt: skip
