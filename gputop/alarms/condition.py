"""A condition: clauses that must all hold, of which GPUs or processes, and for how long."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from gputop.alarms.metrics import IDLE
from gputop.filters.comparison import OPERATORS, Comparison
from gputop.model import Gpu, GpuProcess
from gputop.units import short_duration, short_size


class Scope(enum.Enum):
    """What a condition is asked of."""

    GPU = "gpu"
    PROCESS = "process"
    XID = "xid"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Threshold(Comparison[...]):
    """``memory > 90% clear 85%``: a raised alarm stays until *clear*, in the comparison's unit, is passed."""

    clear: float

    def read(self, gpu: Gpu, process: GpuProcess | None) -> float | None:
        """The value now; None where it is not known. Idle time is kept by the evaluation, and asked there."""
        reading = self.field.readings[self.unit]
        return reading(gpu) if process is None else reading(process, process.host, gpu.memory_total_bytes)

    def missing(self, gpu: Gpu, process: GpuProcess | None) -> str:
        """What is not known where its value is not: a percentage lacks what is measured, or what that is a share of."""
        if not self.field.whole:
            return self.field.label
        others = (replace(self, unit=unit).read(gpu, process) for unit in self.field.readings if unit is not self.unit)
        return self.field.whole if any(value is not None for value in others) else self.field.label

    def stays(self, value: float) -> bool:
        return OPERATORS[self.operator](value, self.clear)

    def describe(self, value: float) -> str:
        return f"{self.field.label} {self.unit.show(value)}"


@dataclass(frozen=True, slots=True)
class Growth:
    """``memory grows > 1GiB/10min``: what is compared is the trend over *window* seconds, in bytes per window."""

    level: float
    clear: float
    window: float

    def holds(self, value: float) -> bool:
        return value > self.level

    def stays(self, value: float) -> bool:
        return value > self.clear

    def describe(self, value: float) -> str:
        verb = "grows" if value >= 0 else "shrinks"
        return f"memory {verb} {short_size(abs(value))} in {short_duration(self.window)}"


@dataclass(frozen=True, slots=True)
class GpuLostCondition:
    """``gpu lost``: an error in its readings, not there any more, or without an answer for some time."""


@dataclass(frozen=True, slots=True)
class XidSeen:
    """``xid 48,79``; None: any."""

    codes: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class ProcessGone:
    """``pid 1234 gone`` or ``process vllm gone``: no such process on this machine's GPUs."""

    pid: int | None = None
    name: str | None = None


Clause = Threshold | Growth | GpuLostCondition | XidSeen | ProcessGone


@dataclass(frozen=True, slots=True)
class Selection:
    """Which GPUs and processes a condition is about; empty: all."""

    gpus: tuple[str, ...] = ()  # indices, UUIDs or PCI ids
    tests: tuple[Callable[[GpuProcess], bool], ...] = ()

    def has(self, process: GpuProcess) -> bool:
        for test in self.tests:  # a plain loop: this is asked of every process, every tick
            if not test(process):
                return False
        return True


@dataclass(frozen=True, slots=True)
class Condition:
    """All *clauses* must hold, for *hold_seconds*. *text* is what was written, and names its alarms."""

    text: str
    scope: Scope
    clauses: tuple[Clause, ...]
    selection: Selection = Selection()
    hold_seconds: float = 0.0

    @property
    def needs_time(self) -> bool:
        """Whether it cannot be told from one look."""
        return any(
            isinstance(clause, Growth | XidSeen) or (isinstance(clause, Threshold) and clause.field is IDLE)
            for clause in self.clauses
        )

    @property
    def host_pids(self) -> tuple[int, ...] | None:
        """The processes of which fresh facts of /proc are needed; None: all."""
        pids = []
        for clause in self.clauses:
            if isinstance(clause, ProcessGone):
                if clause.pid is None:
                    return None
                pids.append(clause.pid)
            elif isinstance(clause, Threshold) and clause.field.from_host:
                return None
        return tuple(pids)


def host_pids(conditions: Iterable[Condition]) -> tuple[int, ...] | None:
    """The processes of which *conditions* need fresh facts of /proc; None: all."""
    found: list[int] = []
    for condition in conditions:
        pids = condition.host_pids
        if pids is None:
            return None
        found += pids
    return tuple(found)
