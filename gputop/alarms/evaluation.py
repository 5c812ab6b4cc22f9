"""What one look at a snapshot says of a condition: whether it holds, for each GPU, process, Xid or pid it is about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from gputop.alarms.conditions import TESTS, Comparison, Condition, GpuLostCondition, Growth, ProcessGone, Scope, XidSeen
from gputop.alarms.metrics import is_idle, shown_size, shown_time
from gputop.alarms.state import IdleTime, MemoryTrend
from gputop.model import Gpu, GpuProcess, Snapshot, Xid
from gputop.model.selection import find
from gputop.sampling.messages import AlarmDetails
from gputop.text import shorten

LOST_AFTER: Final = 10.0  # seconds without an answer after which a GPU counts as lost
XID_SECONDS: Final = 600.0  # how long an Xid alarm stays, as on the dashboard
NO_ANSWER: Final = "the driver does not answer for it"


@dataclass(slots=True)
class Observation:
    """What one look says of one subject. None: it is not known."""

    holds: bool | None
    still: bool | None  # by the clear levels: whether a raised alarm stays
    gpu: Gpu | None = None
    process: GpuProcess | None = None
    values: tuple[float | None, ...] = ()  # of the condition's clauses
    xid: Xid | None = None
    words: str = ""  # where the values are not what is to be said
    unclear: str = ""  # why it is not known; empty: nothing worth a report

    @property
    def started(self) -> int | None:
        """Start ticks of the process: they tell its pid's next bearer from it."""
        return None if self.process is None else self.process.key.start_ticks


@dataclass(slots=True)
class _Trackers:
    started: int | None
    idle: IdleTime = field(default_factory=IdleTime)
    trends: dict[int, MemoryTrend] = field(default_factory=dict)  # by the clause's position


class Evaluation:
    """Looks for one condition. *exists* tells whether this machine has a pid (None: cannot be told)."""

    def __init__(self, condition: Condition, exists: Callable[[int], bool | None]) -> None:
        self.condition = condition
        self._exists = exists
        self._gpu_uuid: str | None = None  # of the GPU filter, once it was found
        self._last: GpuProcess | None = None  # of a process to be gone
        self._trackers: dict[str, _Trackers] = {}
        self._clauses = [clause for clause in condition.clauses if isinstance(clause, Comparison | Growth)]
        self._checks = [
            (clause.quantity.process[clause.unit.key], TESTS[clause.sign], clause.level)
            for clause in self._clauses
            if condition.scope is Scope.PROCESS and isinstance(clause, Comparison) and not clause.quantity.timed
        ]
        self._tracked = any(isinstance(clause, Growth) or clause.quantity.timed for clause in self._clauses)

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
        if condition.filters.gpu is not None:
            if self._gpu_uuid is None and (found := find(snapshot.gpus, condition.filters.gpu)) is not None:
                self._gpu_uuid = found.uuid  # an index may be another GPU's later
            gpus = {uuid: gpu for uuid, gpu in gpus.items() if uuid == self._gpu_uuid}
        if condition.scope is Scope.XID:
            yield from self._xids(gpus, snapshot.taken_at)
        elif condition.scope is Scope.PROCESS:
            yield from self._processes(snapshot, gpus, now, passed, known)
        elif isinstance(condition.clauses[0], GpuLostCondition):
            for gpu in gpus.values():
                yield gpu.uuid, _lost(gpu, snapshot.taken_at)
        else:
            for gpu in gpus.values():
                trackers = self._trackers.setdefault(gpu.uuid, _Trackers(None))
                values = self._values(gpu, None, readable(gpu), trackers, now, passed)
                yield gpu.uuid, self._judge(gpu, None, values)

    # -- GPUs and processes

    def _processes(
        self, snapshot: Snapshot, gpus: dict[str, Gpu], now: float, passed: float, known: Collection[str]
    ) -> Iterator[tuple[str, Observation]]:
        filters, kept, tracked, checks = self.condition.filters, self._trackers, self._tracked, self._checks
        picky = filters.user is not None or filters.command is not None
        up = {uuid for uuid, gpu in gpus.items() if readable(gpu)}
        there = set()
        trackers = _Trackers(None)
        for process in snapshot.processes:
            gpu = gpus.get(process.gpu_uuid)
            if gpu is None or (picky and not filters.let_through(process)):
                continue
            readable_now = process.gpu_uuid in up
            no = False
            if readable_now:
                for read, test, level in checks:
                    value = read(process, gpu)
                    if value is not None and not test(value, level):
                        no = True
                        break
            if no and not known and not tracked:
                continue
            subject = f"{process.gpu_uuid}/{process.pid}"
            if process.gpu_instance_id is not None:
                subject += f"/{process.gpu_instance_id}.{process.compute_instance_id}"
            if tracked:
                there.add(subject)
                trackers = self._trackers_of(subject, process.key.start_ticks)
                values = self._values(gpu, process, readable_now, trackers, now, passed)  # time goes on for all
                for value, clause in zip(values, self._clauses, strict=True):
                    no = no or (value is not None and not clause.holds(value))
            if subject in known or not no:
                if not tracked:
                    values = self._values(gpu, process, readable_now, trackers, now, passed)
                yield subject, self._judge(gpu, process, values)
        if len(kept) > len(there):  # a process on a GPU that cannot be read may be there still
            lost = {uuid for uuid in gpus if uuid not in up}
            for subject in [s for s in kept if s not in there and s.partition("/")[0] not in lost]:
                del kept[subject]

    def _trackers_of(self, subject: str, started: int | None) -> _Trackers:
        trackers = self._trackers.get(subject)
        if trackers is None or (None not in (trackers.started, started) and trackers.started != started):
            trackers = self._trackers[subject] = _Trackers(started)
        return trackers

    def _values(
        self, gpu: Gpu, process: GpuProcess | None, known: bool, trackers: _Trackers, now: float, passed: float
    ) -> list[float | None]:
        """What the clauses compare; None where it is not known."""
        values: list[float | None] = []
        for position, clause in enumerate(self._clauses):
            if isinstance(clause, Growth):
                memory = gpu.memory_used_bytes if process is None else process.memory_bytes
                trend = trackers.trends.setdefault(position, MemoryTrend(clause.window))
                values.append(trend.put(now, memory if known else None))
            elif not clause.quantity.timed:
                values.append(clause.read(gpu, process) if known else None)
            elif process is not None:
                seconds = trackers.idle.put(is_idle(process, gpu) if known else None, passed)
                values.append(seconds if known else None)
        return values

    def _judge(self, gpu: Gpu, process: GpuProcess | None, values: list[float | None]) -> Observation:
        holds: bool | None = True
        still: bool | None = True
        unclear = ""
        known = readable(gpu)
        for clause, value in zip(self._clauses, values, strict=True):
            if value is not None:
                holds = holds if clause.holds(value) else False
                still = still if clause.still(value) else False
                continue
            holds, still = holds and None, still and None
            if not known:
                unclear = "" if gpu.asleep else gpu.error or NO_ANSWER
            elif isinstance(clause, Comparison):
                unclear = f"{clause.quantity.words} is not told"
            elif (gpu.memory_used_bytes if process is None else process.memory_bytes) is None:
                unclear = "its memory is not told"
        return Observation(holds, still, gpu, process, tuple(values), unclear=unclear)

    def _xids(self, gpus: dict[str, Gpu], at: float) -> Iterator[tuple[str, Observation]]:
        (clause,) = self.condition.clauses
        assert isinstance(clause, XidSeen)
        for gpu in gpus.values():
            for xid in {xid.code: xid for xid in gpu.xids if clause.codes is None or xid.code in clause.codes}.values():
                fresh = at - xid.at < XID_SECONDS
                words = f"Xid {xid.code}: {xid.words}" if fresh else no_more(xid)
                yield f"{gpu.uuid}/xid {xid.code}", Observation(fresh, fresh, gpu, xid=xid, words=words)

    # -- processes that are to be gone

    def _gone(self, snapshot: Snapshot) -> tuple[str, Observation]:
        (clause,) = self.condition.clauses
        assert isinstance(clause, ProcessGone)
        all_readable = all(readable(gpu) or gpu.asleep for gpu in snapshot.gpus)
        if clause.pid is not None:
            subject, (gone, listed) = f"pid {clause.pid}", self._pid_gone(clause.pid, snapshot, all_readable)
        else:
            name = clause.name or ""
            subject, (gone, listed) = f"process {name}", _name_gone(name, snapshot, all_readable)
        if listed is not None and listed.exists is not False:
            self._last = listed
        words = "is there" if gone is False else "is gone" if self._last is not None else "is not there"
        if gone and listed is not None and listed.memory_bytes:
            words += f", yet {shown_size(listed.memory_bytes)} are still held in its name"
        gpu = None if self._last is None else snapshot.gpu(self._last.gpu_uuid)
        return subject, Observation(
            gone, gone, gpu, self._last, words=f"{subject} {words}", unclear="a GPU cannot be read"
        )

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
        lost = at - gpu.read_at >= LOST_AFTER
    else:
        lost = gpu.error is not None and not gpu.asleep
    return Observation(lost, lost, gpu, words=gpu.error or (NO_ANSWER if lost else "it is back"))


def readable(gpu: Gpu) -> bool:
    """Whether the values of *gpu* are those of now."""
    return gpu.error is None and not gpu.late and not gpu.asleep


def no_more(xid: Xid) -> str:
    return f"no more Xid {xid.code} for {shown_time(XID_SECONDS)}"


# ------------------------------------------------------------------------------ words


def alarm(condition: Condition, subject: str, seen: Observation, words: str) -> AlarmDetails:
    """*words* about *seen*, as the bus carries it."""
    first = next((n for n, value in enumerate(seen.values) if value is not None), None)
    value = unit = None
    if first is not None:
        clause = condition.clauses[first]
        value, unit = seen.values[first], clause.unit.key if isinstance(clause, Comparison) else "bytes/window"
    code = None if seen.xid is None else seen.xid.code
    return AlarmDetails(condition.text, subject, words, seen.gpu, seen.process, value, unit, code)


def in_words(condition: Condition, seen: Observation, held: float = 0.0) -> str:
    """``GPU 0 (NVIDIA H200): memory 92%, for 10 s``."""
    if condition.scope is Scope.GONE:
        return seen.words
    said = seen.words or " and ".join(
        clause.words(value)
        for clause, value in zip(condition.clauses, seen.values, strict=True)
        if isinstance(clause, Comparison | Growth) and value is not None
    )
    return f"{who(seen)}: {said}" + (f", for {shown_time(held)}" if held else "")


def not_known(condition: Condition, seen: Observation) -> str:
    return f"{who(seen)}: it cannot be told whether {condition.text}: {seen.unclear or 'it is not known yet'}"


def who(seen: Observation) -> str:
    """``GPU 0 (NVIDIA H200)``, ``pid 41832 (ml, python train.py) on GPU 0``."""
    gpu, process = seen.gpu, seen.process
    if process is None:
        return "this machine" if gpu is None else f"GPU {gpu.index} ({gpu.name})"
    host = process.host
    known = () if host is None else (host.user, shorten(host.command or host.name or "", 60))
    words = ", ".join(word for word in known if word)
    return f"pid {process.pid}{f' ({words})' if words else ''} on GPU {process.gpu_index}"
