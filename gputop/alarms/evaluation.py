"""What one look at a snapshot says of a condition: whether it holds, for each GPU, process, Xid or pid it is about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from gputop.alarms.condition import Condition, GpuLostCondition, Growth, ProcessGone, Scope, Threshold, XidSeen
from gputop.alarms.metrics import IDLE, is_idle
from gputop.alarms.timed_metrics import IdleTime, MemoryTrend
from gputop.filters.comparison import OPERATORS
from gputop.model import Gpu, GpuProcess, Snapshot, Xid
from gputop.model.selection import find
from gputop.units import short_duration, short_size

LOST_AFTER_SECONDS: Final = 10.0  # without an answer: then a GPU counts as lost
XID_SECONDS: Final = 600.0  # how long an Xid alarm stays, as on the dashboard
NO_ANSWER: Final = "the driver does not answer for it"


@dataclass(slots=True)
class Observation:
    """What one look says of one subject. None: it is not known."""

    holds: bool | None
    stays: bool | None  # by the clear levels: whether a raised alarm stays
    gpu: Gpu | None = None
    process: GpuProcess | None = None
    values: tuple[float | None, ...] = ()  # of the condition's clauses
    xid: Xid | None = None
    message: str = ""  # where the values are not what is to be said
    reason: str = ""  # why it is not known; empty: nothing worth a report

    @property
    def started(self) -> int | None:
        """Start ticks of the process: they tell its pid's next bearer from it."""
        return None if self.process is None else self.process.key.start_ticks


@dataclass(slots=True)
class _TimedMetrics:
    """What is kept of a GPU or process between looks."""

    started: int | None
    idle: IdleTime = field(default_factory=IdleTime)
    trends: dict[int, MemoryTrend] = field(default_factory=dict)  # by the clause's position


class Evaluation:
    """Looks for one condition. *exists* tells whether this machine has a pid (None: cannot be told)."""

    def __init__(self, condition: Condition, exists: Callable[[int], bool | None]) -> None:
        self.condition = condition
        self._exists = exists
        self._gpu_uuids: dict[str, str] = {}  # of the GPUs it names, once they were found
        self._last: GpuProcess | None = None  # of a process to be gone
        self._timed: dict[str, _TimedMetrics] = {}
        self._clauses = [clause for clause in condition.clauses if isinstance(clause, Threshold | Growth)]
        self._checks = [
            (clause.field.readings[clause.unit], OPERATORS[clause.operator], clause.level)
            for clause in self._clauses
            if condition.scope is Scope.PROCESS and isinstance(clause, Threshold) and clause.field is not IDLE
        ]
        self._is_timed = any(isinstance(clause, Growth) or clause.field is IDLE for clause in self._clauses)

    def of(
        self, snapshot: Snapshot, now: float = 0.0, passed: float = 0.0, known: Collection[str] = ()
    ) -> Iterator[tuple[str, Observation]]:
        """All subjects in *snapshot*; of processes, for which it mostly does not hold, only those for which it may, and
        the *known* ones. *now*: seconds watched; *passed*: since the last look."""
        condition = self.condition
        if condition.scope is Scope.GONE:
            yield self._gone(snapshot)
            return
        gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
        if names := condition.selection.gpus:
            for name in names:
                if name not in self._gpu_uuids and (found := find(snapshot.gpus, name)) is not None:
                    self._gpu_uuids[name] = found.uuid  # an index may be another GPU's later
            gpus = {uuid: gpu for uuid, gpu in gpus.items() if uuid in self._gpu_uuids.values()}
        if condition.scope is Scope.XID:
            yield from self._xids(gpus, snapshot.steady_at)
        elif condition.scope is Scope.PROCESS:
            yield from self._processes(snapshot, gpus, now, passed, known)
        elif isinstance(condition.clauses[0], GpuLostCondition):
            for gpu in gpus.values():
                yield gpu.uuid, _lost(gpu, snapshot.steady_at)
        else:
            for gpu in gpus.values():
                timed = self._timed.setdefault(gpu.uuid, _TimedMetrics(None))
                values = self._values(gpu, None, readable(gpu), timed, now, passed)
                yield gpu.uuid, self._judge(gpu, None, values)

    # -- GPUs and processes

    def _processes(
        self, snapshot: Snapshot, gpus: dict[str, Gpu], now: float, passed: float, known: Collection[str]
    ) -> Iterator[tuple[str, Observation]]:
        selection, kept, is_timed, checks = self.condition.selection, self._timed, self._is_timed, self._checks
        up = {uuid for uuid, gpu in gpus.items() if readable(gpu)}
        there = set()
        timed = _TimedMetrics(None)
        for process in snapshot.processes:
            gpu = gpus.get(process.gpu_uuid)
            if gpu is None or (selection.tests and not selection.has(process)):
                continue
            readable_now = process.gpu_uuid in up
            no = False
            if readable_now:
                for read, test, level in checks:
                    value = read(process, process.host, gpu.memory_total_bytes)
                    if value is not None and not test(value, level):
                        no = True
                        break
            if no and not known and not is_timed:
                continue
            subject = f"{process.gpu_uuid}/{process.pid}"
            if process.gpu_instance_id is not None:
                subject += f"/{process.gpu_instance_id}.{process.compute_instance_id}"
            if is_timed:
                there.add(subject)
                timed = self._timed_of(subject, process.key.start_ticks)
                values = self._values(gpu, process, readable_now, timed, now, passed)  # time goes on for all
                for value, clause in zip(values, self._clauses, strict=True):
                    no = no or (value is not None and not clause.holds(value))
            if subject in known or not no:
                if not is_timed:
                    values = self._values(gpu, process, readable_now, timed, now, passed)
                yield subject, self._judge(gpu, process, values)
        if len(kept) > len(there):  # a process on a GPU that cannot be read may be there still
            lost = {uuid for uuid, gpu in gpus.items() if uuid not in up or not gpu.processes_known}
            for subject in [s for s in kept if s not in there and s.partition("/")[0] not in lost]:
                del kept[subject]

    def _timed_of(self, subject: str, started: int | None) -> _TimedMetrics:
        timed = self._timed.get(subject)
        if timed is None or (None not in (timed.started, started) and timed.started != started):
            timed = self._timed[subject] = _TimedMetrics(started)
        return timed

    def _values(
        self, gpu: Gpu, process: GpuProcess | None, known: bool, timed: _TimedMetrics, now: float, passed: float
    ) -> list[float | None]:
        """What the clauses compare; None where it is not known."""
        values: list[float | None] = []
        for position, clause in enumerate(self._clauses):
            if isinstance(clause, Growth):
                memory = gpu.memory_used_bytes if process is None else process.memory_bytes
                trend = timed.trends.setdefault(position, MemoryTrend(clause.window))
                values.append(trend.put(now, memory if known else None))
            elif clause.field is not IDLE:
                values.append(clause.read(gpu, process) if known else None)
            elif process is not None:
                seconds = timed.idle.put(is_idle(process, gpu) if known else None, passed)
                values.append(seconds if known else None)
        return values

    def _judge(self, gpu: Gpu, process: GpuProcess | None, values: list[float | None]) -> Observation:
        holds: bool | None = True
        stays: bool | None = True
        reason = ""
        known = readable(gpu)
        for clause, value in zip(self._clauses, values, strict=True):
            if value is not None:
                holds = holds if clause.holds(value) else False
                stays = stays if clause.stays(value) else False
                continue
            holds, stays = holds and None, stays and None
            if not known:
                reason = "" if gpu.asleep else gpu.error or NO_ANSWER
            elif isinstance(clause, Threshold):
                reason = f"{clause.missing(gpu, process)} is not reported"
            elif (gpu.memory_used_bytes if process is None else process.memory_bytes) is None:
                reason = "its memory is not reported"
        return Observation(holds, stays, gpu, process, tuple(values), reason=reason)

    def _xids(self, gpus: dict[str, Gpu], at: float) -> Iterator[tuple[str, Observation]]:
        (clause,) = self.condition.clauses
        assert isinstance(clause, XidSeen)
        for gpu in gpus.values():
            for xid in {xid.code: xid for xid in gpu.xids if clause.codes is None or xid.code in clause.codes}.values():
                fresh = at - xid.steady_at < XID_SECONDS
                message = f"Xid {xid.code}: {xid.message}" if fresh else no_more(xid)
                yield f"{gpu.uuid}/xid {xid.code}", Observation(fresh, fresh, gpu, xid=xid, message=message)

    # -- processes that are to be gone

    def _gone(self, snapshot: Snapshot) -> tuple[str, Observation]:
        (clause,) = self.condition.clauses
        assert isinstance(clause, ProcessGone)
        unread = [gpu for gpu in snapshot.gpus if not gpu.processes_known]
        if clause.pid is not None:
            subject, (gone, listed) = f"pid {clause.pid}", self._pid_gone(clause.pid, snapshot, not unread)
        else:
            name = clause.name or ""
            subject, (gone, listed) = f"process {name}", _name_gone(name, snapshot, not unread)
        if listed is not None and listed.exists is not False:
            self._last = listed
        message = "is there" if gone is False else "is gone" if self._last is not None else "is not there"
        if gone and listed is not None and listed.memory_bytes:
            message += f", but {short_size(listed.memory_bytes)} is still held in its name"
        gpu = None if self._last is None else snapshot.gpu(self._last.gpu_uuid)
        reason = "a process on the GPUs cannot be seen from here"
        if unread:
            reason = f"GPU {unread[0].index}: {unread[0].error or unread[0].processes_error or NO_ANSWER}"
        return subject, Observation(gone, gone, gpu, self._last, message=f"{subject} {message}", reason=reason)

    def _pid_gone(self, pid: int, snapshot: Snapshot, all_readable: bool) -> tuple[bool | None, GpuProcess | None]:
        """Whether it is gone, and the process listed under its pid. One that left the GPUs but lives is not gone."""
        listed = next((process for process in snapshot.processes if process.pid == pid), None)
        if listed is not None:
            first = None if self._last is None else self._last.key.start_ticks
            if None not in (first, listed.key.start_ticks) and first != listed.key.start_ticks:
                return True, None  # its pid is another's
            return listed.exists is False, listed
        exists = self._exists(pid)
        if exists is not None:
            return not exists, None
        return (True if all_readable else None), None


def _name_gone(name: str, snapshot: Snapshot, all_readable: bool) -> tuple[bool | None, GpuProcess | None]:
    nameless = False
    for process in snapshot.processes:
        host = process.host
        if host is None:
            nameless = nameless or process.exists is not False
        elif process.exists is not False and (host.name == name or name in (host.command or "")):
            return False, process
    return (True if all_readable and not nameless else None), None


def _lost(gpu: Gpu, at: float) -> Observation:
    if gpu.late:
        lost = at - gpu.steady_at >= LOST_AFTER_SECONDS
    else:
        lost = gpu.error is not None and not gpu.asleep
    return Observation(lost, lost, gpu, message=gpu.error or (NO_ANSWER if lost else "it is back"))


def readable(gpu: Gpu) -> bool:
    """Whether the values of *gpu* are those of now."""
    return gpu.error is None and not gpu.late and not gpu.asleep


def no_more(xid: Xid) -> str:
    return f"no more Xid {xid.code} for {short_duration(XID_SECONDS)}"
