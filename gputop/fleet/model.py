"""Many machines at one moment, as frozen values. As in :mod:`gputop.model`, None means not known; it is never 0.

Text from outside went through ``clean_text`` before it got in here.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from gputop.model import Gpu, GpuProcess


class HostState(enum.StrEnum):
    """Whether a host can be believed now."""

    UP = "up"
    STALE = "stale"  # its last reading is older than it should be; the figures are those of then
    UNREACHABLE = "unreachable"  # it does not answer: its GPUs are remembered, their figures unknown


class GpuState(enum.StrEnum):
    """What a GPU is to somebody who looks for one (see ``states``)."""

    FREE = "free"
    BUSY = "busy"
    IDLE_HELD = "idle"  # somebody has it and has not used it for a while
    BROKEN = "broken"
    UNREACHABLE = "unreachable"  # its host is
    UNKNOWN = "unknown"  # what is known does not tell


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """Who uses a GPU, as far as the source knows: a process, a pod or a job of it."""

    user: str | None = None
    job: str | None = None  # of Slurm or another batch system
    pod: str | None = None
    namespace: str | None = None
    container: str | None = None
    unit: str | None = None  # systemd's
    rank: int | None = None  # in a distributed job
    process: str | None = None  # its name
    pid: int | None = None
    memory_bytes: int | None = None

    @property
    def label(self) -> str:
        """The few words that say most: ``ml 88123``, ``team-a/trainer-0``, ``python``. Empty where nothing is known."""
        pod = f"{self.namespace}/{self.pod}" if self.namespace and self.pod else self.pod
        parts = (self.user, self.job or pod or self.unit or self.container)
        return " ".join(part for part in parts if part) or self.process or ""


@dataclass(frozen=True, slots=True)
class FleetGpu:
    """A GPU of a host. What the source does not know of it is None in ``gpu``."""

    gpu: Gpu
    state: GpuState
    usages: tuple[GpuUsage, ...] = ()
    problem: str | None = None  # the worst thing about it, in words; a GPU need not be broken to have one


@dataclass(frozen=True, slots=True)
class FleetHost:
    """A host and its GPUs, in the order of their indices."""

    name: str
    state: HostState = HostState.UP
    reason: str | None = None  # why it is stale or unreachable, and what to do, in words
    age_seconds: float | None = None  # of its reading
    gpus: tuple[FleetGpu, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)  # the site's own: cluster, rack, partition…
    processes: tuple[GpuProcess, ...] = ()  # where the source knows them
    driver_version: str | None = None

    def count(self, state: GpuState) -> int:
        return sum(gpu.state is state for gpu in self.gpus)

    @property
    def gpus_free(self) -> int:
        return self.count(GpuState.FREE)

    @property
    def models(self) -> tuple[tuple[str, int], ...]:
        """(model, how many), the most frequent first."""
        counts: dict[str, int] = {}
        for gpu in self.gpus:
            counts[gpu.gpu.name] = counts.get(gpu.gpu.name, 0) + 1
        return tuple(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))

    @property
    def utilization_percent(self) -> float | None:
        """The mean of its GPUs that tell."""
        known = [gpu.gpu.utilization_gpu_percent for gpu in self.gpus if gpu.gpu.utilization_gpu_percent is not None]
        return sum(known) / len(known) if known else None

    @property
    def memory_used_bytes(self) -> int | None:
        known = [gpu.gpu.memory_used_bytes for gpu in self.gpus if gpu.gpu.memory_used_bytes is not None]
        return sum(known) if known else None

    @property
    def memory_total_bytes(self) -> int | None:
        known = [gpu.gpu.memory_total_bytes for gpu in self.gpus if gpu.gpu.memory_total_bytes is not None]
        return sum(known) if known else None

    @property
    def power_watts(self) -> float | None:
        known = [gpu.gpu.power_watts for gpu in self.gpus if gpu.gpu.power_watts is not None]
        return sum(known) if known else None

    @property
    def temperature_celsius(self) -> int | None:
        """The hottest GPU."""
        known = (gpu.gpu.temperature_celsius for gpu in self.gpus)
        return max((celsius for celsius in known if celsius is not None), default=None)

    @property
    def problem(self) -> str | None:
        """The worst there is to say: why it cannot be reached, else of a broken GPU, else of any."""
        if self.state is HostState.UNREACHABLE:
            return self.reason
        of_gpus = [gpu for gpu in self.gpus if gpu.problem]
        worst = min(of_gpus, key=lambda gpu: gpu.state is not GpuState.BROKEN, default=None)
        return f"GPU {worst.gpu.index}: {worst.problem}" if worst is not None else self.reason

    @property
    def top_usage(self) -> GpuUsage | None:
        """Who uses most of its GPUs (by :attr:`GpuUsage.label`), the first of those who use as many."""
        counts: dict[str, int] = {}
        first: dict[str, GpuUsage] = {}
        for gpu in self.gpus:
            for label, usage in {usage.label: usage for usage in gpu.usages if usage.label}.items():
                counts[label] = counts.get(label, 0) + 1
                first.setdefault(label, usage)
        return first[max(counts, key=lambda label: counts[label])] if counts else None


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over some GPUs. Each GPU is in exactly one of the counts by state; sums are of those that tell."""

    hosts: int = 0
    hosts_stale: int = 0
    hosts_unreachable: int = 0
    gpus: int = 0  # all that are known, the remembered ones of unreachable hosts too
    gpus_free: int = 0
    gpus_busy: int = 0
    gpus_idle_held: int = 0
    gpus_broken: int = 0
    gpus_unreachable: int = 0
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    power_watts: float | None = None
    utilization_percent: float | None = None  # mean


@dataclass(frozen=True, slots=True)
class FleetGroup:
    """The GPUs that have *label* for what was grouped by: a user, a job, a model, a cluster… A GPU that two users share
    is in the group of each; what nobody has is in the group "" (nobody, none)."""

    label: str
    totals: Totals


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """What a source answers to a view: the sums of everything, and the rows that are seen.

    ``totals`` is None until something was read for the first time. Where reading fails, the figures are those of
    ``taken_at``, and ``problems`` say in words what failed and what to do.
    """

    taken_at: float  # seconds since the epoch: when the figures were read
    source: str  # "prometheus https://…", "ssh", "simulated"
    totals: Totals | None = None  # of the whole fleet, whatever the view filters
    by_model: Mapping[str, Totals] = field(default_factory=dict)
    hosts: tuple[FleetHost, ...] = ()  # rows *first* to *first* + count of those that pass the filter, in order
    first: int = 0
    hosts_matched: int = 0  # how many pass the filter
    matched: Totals | None = None  # sums of those hosts; None where the view filters nothing
    groups: tuple[FleetGroup, ...] = ()  # where the view groups: largest first
    problems: tuple[str, ...] = ()


class Quantity(enum.StrEnum):
    """What has a history."""

    UTILIZATION = "utilization"  # percent, mean
    MEMORY = "memory"  # bytes used, sum
    POWER = "power"  # watts, sum
    FREE = "free"  # GPUs that are free
    TEMPERATURE = "temperature"  # °C, the hottest


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    quantity: Quantity
    start: float  # seconds since the epoch
    end: float
    points: int = 240  # at most that many
    host: str | None = None  # None: the whole fleet
    by_gpu: bool = False  # of a host: a series for each GPU, by UUID


@dataclass(frozen=True, slots=True)
class History:
    """Values at ``times``; None where nothing was recorded (a gap). Without ``by_gpu`` the only series is ""."""

    request: HistoryRequest
    times: tuple[float, ...] = ()
    series: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    problem: str | None = None  # why there is none, in words
