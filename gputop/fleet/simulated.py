"""``gputop fleet --demo[=N]``: N simulated hosts, most of them of 8 GPUs, with jobs, pods, idle and broken GPUs.

What it shows at a moment is a function of N, the seed and the clock. Unlike ``sources/simulated`` no process is
simulated: ten thousand GPUs are made in a fraction of a second. There is a past: of any time.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gputop.fleet.in_memory import snapshot_of
from gputop.fleet.model import (
    FleetGpu,
    FleetHost,
    FleetSnapshot,
    GpuUsage,
    History,
    HistoryRequest,
    HostState,
    Quantity,
)
from gputop.fleet.states import fleet_gpu
from gputop.fleet.view import FleetView
from gputop.model import Gpu
from gputop.sources.simulated.machines.gpu_models import GPU_MODELS, GpuModel
from gputop.sources.simulated.machines.plan import uuid
from gputop.sources.simulated.noise import noise, smooth
from gputop.units import MIB

HOSTS_DEFAULT: Final = 200
HOSTS_MOST: Final = 1250
_SLOT_SECONDS: Final = 5.0  # what is shown changes that often
_JOB_SECONDS: Final = 1500.0  # who uses what changes about that often
_HOSTS_A_JOB: Final = 8  # a large job has all GPUs of this many hosts in a row
_SAMPLED_GPUS: Final = 256  # of a large fleet, a history is that of so many, scaled

_USERS: Final = ("ml", "cv", "nlp", "alice", "bob", "carol", "dmitri", "yuki", "speech", "zhang", "olamide", "emre")
_TEAMS: Final = ("team-vision", "team-llm", "search", "ads-ranking", "research")
#: (GPU model, GPUs a host, parts of 20) in the order in which hosts have them.
_KINDS: Final = (("h100", 8, 9), ("h200", 8, 5), ("a100", 8, 3), ("b200", 8, 1), ("l40s", 4, 1), ("t4", 2, 1))


@dataclass(frozen=True, slots=True)
class _HostPlan:
    """What never changes about a host."""

    index: int
    name: str
    model: GpuModel
    uuids: tuple[str, ...]
    labels: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Work:
    """What a GPU does for a while."""

    usage: GpuUsage | None
    load: float = 0.0  # 0 to 1
    memory: float = 0.0  # share
    idle: bool = False


class SimulatedFleet:
    """A :class:`gputop.fleet.source.FleetSource` without any machine behind it."""

    name = "simulated"
    refresh_seconds = _SLOT_SECONDS
    timeout_seconds = 5.0
    has_past = True

    def __init__(self, hosts: int = HOSTS_DEFAULT, seed: int = 0, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._seed = seed
        self._plans = _plans(hosts, seed)
        self._lock = threading.Lock()
        self._made: tuple[int, tuple[FleetHost, ...]] = (-1, ())

    def open(self) -> None:
        """Nothing to connect to."""

    def close(self) -> None:
        """Nothing to let go of."""

    def poll(self, view: FleetView) -> FleetSnapshot:
        return snapshot_of(self.hosts(), view, self._clock(), self.name)

    def host(self, name: str) -> FleetHost | None:
        return next((host for host in self.hosts() if host.name == name), None)

    def hosts(self) -> tuple[FleetHost, ...]:
        now = self._clock()
        slot = int(now // _SLOT_SECONDS)
        with self._lock:
            if self._made[0] != slot:
                self._made = (slot, tuple(self._host(plan, slot * _SLOT_SECONDS) for plan in self._plans))
            return self._made[1]

    def history(self, request: HistoryRequest) -> History:
        points = max(2, request.points)
        step = (request.end - request.start) / (points - 1)
        times = tuple(request.start + k * step for k in range(points))
        plans = [plan for plan in self._plans if request.host in (None, plan.name)]
        if not plans:
            return History(request, problem=f"{request.host}: no such host")
        gpus = [(plan, index) for plan in plans for index in range(len(plan.uuids))]
        if request.by_gpu and request.host is not None:
            series = {
                plan.uuids[index]: tuple(self._quantity(request.quantity, [(plan, index)], at, 1.0) for at in times)
                for plan, index in gpus
            }
            return History(request, times, series)
        sampled = gpus[:: max(1, len(gpus) // _SAMPLED_GPUS)]
        scale = len(gpus) / len(sampled)
        return History(
            request, times, {"": tuple(self._quantity(request.quantity, sampled, at, scale) for at in times)}
        )

    # ------------------------------------------------------------------ one moment

    def _host(self, plan: _HostPlan, at: float) -> FleetHost:
        down, stale = self._is_down(plan, at), self._is_stale(plan, at)
        state = HostState.UNREACHABLE if down else HostState.STALE if stale else HostState.UP
        reason = (
            "no answer on port 9400: connection refused" if down
            else "no new reading for 2 min: the exporter may hang" if stale else None
        )  # fmt: skip
        age = 840.0 + plan.index if down else 131.0 if stale else 2.0 + plan.index % 9
        read_at = at - 131.0 if stale else at
        gpus = tuple(self._gpu(plan, index, read_at, state) for index in range(len(plan.uuids)))
        return FleetHost(plan.name, state, reason, age, gpus, plan.labels, (), "580.159.04")

    def _gpu(self, plan: _HostPlan, index: int, at: float, host: HostState) -> FleetGpu:
        model, bus = plan.model, f"00000000:{0x18 + index * 0x11:02X}:00.0"
        if host is HostState.UNREACHABLE:
            gone = Gpu(index, plan.uuids[index], model.name, at, pci_bus_id=bus)
            return fleet_gpu(gone, host=host)
        xid = 79 if self._rolls(plan, index, 71, 0.004, at, 7200) else None
        if xid is not None:
            return fleet_gpu(Gpu(index, plan.uuids[index], model.name, at, pci_bus_id=bus), xid=xid)
        work = self._work(plan, index, at)
        busy, used, watts, celsius = self._figures(plan, index, at, work)
        throttled = self._rolls(plan, index, 73, 0.006, at, 1800) and busy > 50
        total, reserved = model.memory_mib * MIB, model.reserved_mib * MIB
        gpu = Gpu(
            index,
            plan.uuids[index],
            model.name,
            at,
            pci_bus_id=bus,
            memory_total_bytes=total,
            memory_used_bytes=used,
            memory_reserved_bytes=reserved,
            memory_free_bytes=total - reserved - used,
            utilization_gpu_percent=round(busy),
            utilization_memory_percent=round(busy * 0.6),
            sm_active_percent=round(busy * 0.9, 1) if model.gpm else None,
            tensor_active_percent=round(busy * 0.55, 1) if model.gpm else None,
            dram_bandwidth_percent=round(busy * 0.4, 1) if model.gpm else None,
            temperature_celsius=round(celsius + (9 if throttled else 0)),
            temperature_memory_celsius=round(celsius + 6) if model.memory_maximum else None,
            power_watts=round(watts, 1),
            power_limit_watts=model.limit_watts,
            clock_sm_mhz=model.clock_sm[1 if busy > 2 else 0],
            event_reasons_mask=0x40 if throttled else 0,
        )
        usages = (work.usage,) if work.usage is not None else ()
        return fleet_gpu(gpu, usages, idle=work.idle, xid=31 if self._rolls(plan, index, 79, 0.003, at, 3600) else None)

    def _figures(self, plan: _HostPlan, index: int, at: float, work: _Work) -> tuple[float, int, float, float]:
        """Utilization in percent, memory in bytes, watts, °C."""
        model, seed = plan.model, self._seed + plan.index * 16 + index
        drift = smooth(at / 40.0, seed)
        busy = 0.0 if work.idle or not work.load else min(100.0, 100.0 * work.load * (0.85 + 0.2 * drift))
        room = (model.memory_mib - model.reserved_mib) * MIB
        used = int(room * work.memory * (0.97 + 0.03 * smooth(at / 300.0, seed + 1))) if work.memory else 0
        span = model.limit_watts - model.idle_watts
        watts = model.idle_watts * (1.0 + 0.04 * drift) + span * busy / 100.0 * (0.86 + 0.08 * drift)
        return busy, used, watts, model.ambient + model.degrees_per_watt * watts + 3.0 * noise(seed, 5)

    def _work(self, plan: _HostPlan, index: int, at: float) -> _Work:
        """Blocks of hosts run a large job, others serve or are shared GPU by GPU."""
        block = plan.index // _HOSTS_A_JOB
        turn = int(at / _JOB_SECONDS + noise(block, self._seed))
        roll = noise(block * 3 + turn * 5, self._seed + 41)
        if roll < 0.45 and len(plan.uuids) == 8:
            user = _USERS[int(noise(block + turn * 7, self._seed + 13) * len(_USERS))]
            job = str(88_000 + block * 13 + turn % 900)
            rank = plan.index % _HOSTS_A_JOB * 8 + index
            idle = noise(block + turn, self._seed + 15) < 0.08
            return _Work(GpuUsage(user=user, job=job, rank=rank, process="python"), 0.97, 0.88, idle)
        own = noise(plan.index * 16 + index + turn * 131, self._seed + 17)
        turn_host = noise(plan.index * 5 + turn * 17, self._seed + 19)
        if turn_host < 0.12:
            return _Work(None)  # a host that is free as a whole
        team = _TEAMS[int(noise(plan.index + index, self._seed + 23) * len(_TEAMS))]
        user = _USERS[int(noise(plan.index * 3 + index + turn, self._seed + 29) * len(_USERS))]
        if own < 0.16:
            return _Work(None)
        if own < 0.46:
            pod = f"llama-serve-{plan.index % 40}-{index}"
            usage = GpuUsage(pod=pod, namespace=team, container="engine", process="VLLM::EngineCore")
            return _Work(usage, 0.55, 0.91)
        if own < 0.60:
            return _Work(GpuUsage(user=user, process="python"), 0.0, 0.35, True)
        job = str(91_000 + plan.index * 3 + index + turn % 90)
        return _Work(GpuUsage(user=user, job=job, process="python"), 0.8, 0.6)

    def _is_down(self, plan: _HostPlan, at: float) -> bool:
        return self._rolls(plan, 0, 83, 0.012, at, 5400) or plan.index == 17

    def _is_stale(self, plan: _HostPlan, at: float) -> bool:
        return self._rolls(plan, 0, 89, 0.008, at, 2700)

    def _rolls(self, plan: _HostPlan, index: int, salt: int, share: float, at: float, period: int) -> bool:
        """Whether something that happens to *share* of all is so with this one now."""
        return noise(plan.index * 16 + index + int(at // period) * 977, self._seed + salt) < share

    def _quantity(self, quantity: Quantity, gpus: list[tuple[_HostPlan, int]], at: float, scale: float) -> float | None:
        values: list[float] = []
        for plan, index in gpus:
            if self._is_down(plan, at):
                continue
            work = self._work(plan, index, at)
            busy, used, watts, celsius = self._figures(plan, index, at, work)
            free = float(work.usage is None)
            values.append(
                {
                    Quantity.UTILIZATION: busy, Quantity.MEMORY: float(used), Quantity.POWER: watts,
                    Quantity.FREE: free, Quantity.TEMPERATURE: celsius,
                }[quantity]
            )  # fmt: skip
        if not values:
            return None
        if quantity is Quantity.UTILIZATION:
            return sum(values) / len(values)
        return max(values) if quantity is Quantity.TEMPERATURE else sum(values) * scale


def _plans(count: int, seed: int) -> tuple[_HostPlan, ...]:
    kinds = [kind for kind in _KINDS for _ in range(kind[2])]
    if count < len(kinds):
        kinds = [_KINDS[0], _KINDS[1], _KINDS[4]]
    digits = max(3, len(str(count)))
    plans = []
    for index in range(count):
        model_name, gpus, _ = kinds[index * len(kinds) // count] if count >= len(kinds) else kinds[index % len(kinds)]
        rng = random.Random(seed * 7919 + index)
        labels = {"cluster": ("helsinki", "oregon")[index * 2 // count], "rack": f"r{index // 16 + 1:02d}"}
        name = f"{model_name}-{index + 1:0{digits}d}"
        plans.append(
            _HostPlan(index, name, GPU_MODELS[model_name], tuple(uuid("GPU", rng) for _ in range(gpus)), labels)
        )
    return tuple(plans)
