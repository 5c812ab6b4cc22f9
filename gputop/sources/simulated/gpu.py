"""The physics of one simulated GPU: from what its processes ask for to watts, degrees, megahertz and bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from gputop.model import Xid
from gputop.sources.simulated.boards import MIB, Board
from gputop.sources.simulated.population import Population
from gputop.sources.simulated.rhythm import clamp, noise
from gputop.sources.simulated.workloads import TICK, Load

CONTEXT_OVERHEAD = 43 * MIB  # used minus the sum over pids on an H200 with seven processes
IDLE, POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL = 0x01, 0x04, 0x08, 0x20, 0x40

#: Bytes per second that a PCIe lane carries by generation, after encoding.
PCIE_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.56e9}


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG instance of the layout."""

    gpu_instance_id: int
    profile: str  # "3g.71gb"
    memory_mib: int
    share: float  # of the SMs
    uuid: str


@dataclass(frozen=True, slots=True)
class Ailment:
    """What is wrong with a GPU, besides its load. Story seconds."""

    cooling_from: float = math.inf  # the airflow fails…
    cooling_factor: float = 1.0  # …and a watt warms it by so much more
    lost: tuple[float, float] | None = None  # from, to
    answers_after: float = 0.0  # a read takes so long…
    ill_from: float = 0.0  # …from then on
    hangs_from: float | None = None
    xids: tuple[Xid, ...] = ()  # at: story seconds
    corrected_per_minute: float = 0.0
    corrected: int = 0
    uncorrected: int = 0
    rows_corrected: int = 0
    rows_uncorrected: int = 0
    remap_pending: bool = False
    sleeps: tuple[float, float] | None = None  # asleep so long, then awake so long, over and over


class Physics(NamedTuple):
    load: Load
    demand: float  # watts it would take without a limit
    watts: float
    degrees: float
    clock_sm: int
    reasons: int


@dataclass(slots=True)
class SimulatedGpu:
    index: int
    board: Board
    uuid: str
    serial: str
    bus: str
    seed: int
    population: Population
    ailment: Ailment = Ailment()
    instances: tuple[Instance, ...] = ()
    hidden_bytes: int = 0  # taken by processes that the driver does not list here
    display: bool = False
    persistence: bool = True
    _second: int = -(1 << 60)
    _degrees: float = 0.0
    _watts: list[float] = field(default_factory=lambda: [0.0, 0.0])

    # ------------------------------------------------------------------ load

    def loads(self, t: float) -> list[Load]:
        return [process.load(use, t) for process, use in self.population.on_gpu[self.index]]

    def together(self, t: float) -> Load:
        """What all of them ask for, as far as one GPU can do it."""
        loads = [load for load in self.loads(t) if load.busy > 0.0 or load.encoder > 0.0]
        if len(loads) == 1:
            return loads[0]
        if not loads:
            return Load()
        quiet = 1.0
        for load in loads:
            quiet *= 1.0 - clamp(load.busy)
        sums = [sum(column) for column in zip(*loads, strict=True)]
        crush = max(1.0, sums[1] / 0.97, sums[4] / 0.93)  # they share SMs and bandwidth
        return Load(
            1.0 - quiet, sums[1] / crush, min(0.9, sums[2] / crush), sums[3] / crush, sums[4] / crush, sums[5], sums[6],
            min(1.0, sums[7]), min(1.0, sums[8]), min(1.0, sums[9]),
        )  # fmt: skip

    # ----------------------------------------------------------- heat and power

    def _demand(self, load: Load) -> float:
        board = self.board
        heat = 0.40 * load.active + 0.60 * load.tensor + 0.42 * load.dram + 0.1 * load.encoder + 0.06 * load.decoder
        rest = board.idle_watts * (1.0 + 0.03 * (noise(self.index, self.seed) - 0.5))
        awake = 0.035 * (board.limit_watts - rest) if load.busy > 0.01 else 0.0
        return rest + awake + (board.limit_watts * 1.12 - rest) * heat

    def _resistance(self, t: float) -> float:
        spread = 1.0 + 0.1 * (noise(self.index, self.seed + 1) - 0.5)
        since = t - self.ailment.cooling_from
        worse = 1.0 + (self.ailment.cooling_factor - 1.0) * clamp(since / 60.0) if since > 0 else 1.0
        return self.board.degrees_per_watt * spread * worse

    def _throttled(self, demand: float, degrees: float) -> tuple[float, float, int]:
        """(watts, share of the maximum clock, event reasons) at *degrees*."""
        board = self.board
        watts, share, reasons = demand, 1.0, 0
        if demand > board.limit_watts:
            share -= 1.6 * (demand / board.limit_watts - 1.0)
            watts, reasons = board.limit_watts, reasons | POWER_CAP
        if degrees >= board.maximum - 1:
            brake = clamp(0.06 * (degrees - board.maximum + 2.0), 0.0, 0.5)
            share, watts, reasons = share - brake, watts * (1.0 - 0.9 * brake), reasons | SW_THERMAL
        if degrees >= board.slowdown:
            share, watts, reasons = share * 0.5, watts * 0.62, reasons | HW_SLOWDOWN | HW_THERMAL
        return watts, share, reasons

    def _target(self, watts: float, t: float) -> float:
        return self.board.ambient + (noise(self.index, self.seed + 2) - 0.5) * 4.0 + self._resistance(t) * watts

    def _warm(self, t: float) -> None:
        """Bring temperature and average power to second floor(t), one second at a time (time constants of 14 s up and
        down). The grid starts at the story's beginning, so that how often somebody looks changes nothing."""
        second = int(t // 1)
        if second <= self._second:
            return
        if second - self._second > 300:  # far ahead: what was long ago has no weight any more
            begin = second - 300 if self._second > -(1 << 59) else second
            means = [self._throttled(self._demand(self.together(begin - 1.9 * k)), 0.0)[0] for k in range(16)]
            self._degrees = self._target(sum(means) / len(means), begin)
            self._watts = means[:2]
            self._second = begin
        for k in range(self._second + 1, second + 1):
            watts = self._throttled(self._demand(self.together(float(k))), self._degrees)[0]
            self._degrees += (self._target(watts, float(k)) - self._degrees) / 14.0
            self._watts = [watts, self._watts[0]]
        self._second = second

    def physics(self, t: float) -> Physics:
        """The state at *t*, which must not lie before an earlier one's second."""
        self._warm(t)
        tick = math.floor(t * TICK) / TICK
        load = self.together(tick)
        demand = self._demand(load)
        watts, share, reasons = self._throttled(demand, self._degrees)
        if load.busy < 0.01 and load.encoder < 0.01:
            return Physics(load, demand, watts, self._degrees, self.board.clock_sm[0], reasons | IDLE)
        low, high = self.board.clock_sm
        clock = int(clamp(high * (share - 0.02 * noise(int(tick * TICK), self.seed + 4)), low, high) // 15 * 15)
        return Physics(load, demand, watts * (0.985 + 0.015 * noise(int(t * TICK), self.seed + 6)),
                       self._degrees, clock, reasons)  # fmt: skip

    def average_watts(self, instant: float) -> float:
        """nvidia-smi's power.draw: an average over about a second."""
        return (instant + self._watts[0] + self._watts[1]) / 3.0

    # ------------------------------------------------------------------ state

    def is_lost(self, t: float) -> bool:
        lost = self.ailment.lost
        return lost is not None and lost[0] <= t < lost[1]

    def is_asleep(self, t: float) -> bool:
        sleeps = self.ailment.sleeps
        return sleeps is not None and t % (sleeps[0] + sleeps[1]) < sleeps[0]

    def fan_percents(self, degrees: float) -> tuple[int, ...]:
        curve = clamp((degrees - 44.0) / 42.0)
        return tuple(int(100 * curve**1.2) + (1 if k and curve else 0) for k in range(self.board.fans))
