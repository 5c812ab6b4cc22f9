"""What is found out about GPU memory beyond who uses it: whose it is, who keeps it, and what is thought of that.

Frozen values, spoken by the leak watch, the screens, ``gputop leaks`` and the simulated machine. The rules that fill
them are in :mod:`gputop.leaks.verdicts`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gputop.leaks.holders.holder import HeldDevice, Holder, HolderScan
from gputop.model import HostFacts, LeakVerdict, MemoryBreakdown, ProcessKey, Verdict
from gputop.model.owner import Owner


class HolderEvidence(NamedTuple):
    """Why a holder is thought to hold a dead pid's memory."""

    holder: Holder
    device: HeldDevice
    how: str  # "process group 4711", "session 4711", "child of 4711 until 02:58", "not listed by the driver"
    certain: bool  # lineage is proven, not only likely


@dataclass(frozen=True, slots=True)
class DeadPid:
    """A pid that the driver lists and the host does not have, and those who keep its memory."""

    pid: int
    memory: tuple[tuple[str, int | None], ...]  # (GPU's UUID, bytes), the largest first
    since: float  # when gputop first saw it dead, epoch seconds
    known: HostFacts | None = None  # as gputop knew it alive
    saw_death: bool = False  # gputop saw it alive before, so *since* is the time of its death
    holders: tuple[HolderEvidence, ...] = ()  # the certain ones first
    scanned: bool = False  # whether holders were looked for since it is dead
    zombie: HostFacts | None = None  # what is left of it, where its parent has not reaped it
    reused_by: HostFacts | None = None  # who has the pid now, without a GPU of its own

    @property
    def memory_bytes(self) -> int | None:
        known = [bytes_ for _, bytes_ in self.memory if bytes_ is not None]
        return sum(known) if known else None

    @property
    def targets(self) -> tuple[ProcessKey, ...]:
        """Whom to end: those of certain lineage, or where there are none, the likely ones."""
        certain = tuple(found.holder.key for found in self.holders if found.certain)
        return tuple(dict.fromkeys(certain or (found.holder.key for found in self.holders)))


class Cause(NamedTuple):
    """A way in which memory is in use that no listed process accounts for."""

    name: str  # "another PID namespace"
    evidence: str
    advice: str
    weight: int  # 3 proven here, 2 likely, 1 possible


@dataclass(frozen=True, slots=True)
class UnattributedMemory:
    """Memory of a GPU that nobody listed accounts for, for long enough to be worth a card. Never called a leak."""

    gpu_uuid: str
    bytes: int
    since: float  # epoch seconds
    causes: tuple[Cause, ...]  # the likeliest first
    holders: tuple[Holder, ...] = ()  # unlisted holders of this GPU
    busy: bool = False  # R12: the GPU works, and no process is listed


class Straggler(NamedTuple):
    """A member of a job that differs from its peers."""

    job: str  # "slurm 88123", "torchrun 4711"
    process: ProcessKey
    gpu_uuid: str
    message: str  # "rank 3 holds 2.1 GiB more than its peers; it has 8 worker processes, they have 4"


@dataclass(frozen=True, slots=True)
class LeakReport:
    """All that is known at a moment; what the leaks view and ``gputop leaks`` show."""

    taken_at: float
    verdicts: tuple[LeakVerdict, ...] = ()  # the worst first, then the largest; no NOTE among them
    notes: tuple[LeakVerdict, ...] = ()
    dead_pids: tuple[DeadPid, ...] = ()
    unattributed: tuple[UnattributedMemory, ...] = ()
    breakdowns: tuple[MemoryBreakdown, ...] = ()  # in the GPUs' order
    stragglers: tuple[Straggler, ...] = ()
    owners: Mapping[ProcessKey, Owner] = field(default_factory=dict)
    scan: HolderScan | None = None
    unsure: tuple[str, ...] = ()  # what could not be told and why, with what to do

    def verdict_of(self, key: ProcessKey) -> LeakVerdict | None:
        """What is thought of the process; of one that holds a dead pid's memory, the verdict on that."""
        for verdict in (*self.verdicts, *self.notes):
            if verdict.process == key:
                return verdict
        return next((verdict for verdict in self.verdicts if key in verdict.targets), None)

    def dead_pid(self, pid: int) -> DeadPid | None:
        return next((dead_pid for dead_pid in self.dead_pids if dead_pid.pid == pid), None)

    def unattributed_on(self, uuid: str) -> UnattributedMemory | None:
        return next((found for found in self.unattributed if found.gpu_uuid == uuid), None)

    def breakdown(self, uuid: str) -> MemoryBreakdown | None:
        return next((found for found in self.breakdowns if found.gpu_uuid == uuid), None)

    def on(self, uuids: Collection[str]) -> LeakReport:
        """What of it concerns these GPUs."""
        return replace(
            self,
            verdicts=tuple(one for one in self.verdicts if any(uuid in uuids for uuid, _ in one.memory)),
            notes=tuple(one for one in self.notes if any(uuid in uuids for uuid, _ in one.memory)),
            dead_pids=tuple(one for one in self.dead_pids if any(uuid in uuids for uuid, _ in one.memory)),
            unattributed=tuple(one for one in self.unattributed if one.gpu_uuid in uuids),
            breakdowns=tuple(one for one in self.breakdowns if one.gpu_uuid in uuids),
            stragglers=tuple(one for one in self.stragglers if one.gpu_uuid in uuids),
        )

    def those(self, *verdicts: Verdict) -> tuple[LeakVerdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.verdict in verdicts)
