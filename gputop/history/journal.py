"""What happened while nobody looked: processes that came, died and jumped, GPUs that were lost, hot or held down.

Fed with every snapshot by one thread. Bounded: the oldest events and the oldest dead are forgotten first.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gputop import units
from gputop.model import Gpu, GpuProcess, HostFacts, ProcessKey, Severity, Snapshot, event_reasons
from gputop.settings import Settings

MOST_EVENTS: Final = 1000
MOST_EXITED: Final = 256
JUMP_BYTES: Final = units.GIB
JUMP_PAUSE_SECONDS: Final = 5.0  # jumps closer together are one
THROTTLE_PAUSE_SECONDS: Final = 60.0  # a reason must have been away to be news again
#: An event ends this far below its threshold: percent, degrees Celsius.
_HYSTERESIS: Final = {"memory": 2.0, "temperature": 3.0, "utilization": 5.0, "power": 5.0}


class EventKind(enum.Enum):
    """What an event is about, as the word the pane shows."""

    START = "start"
    EXIT = "exit"
    DEAD = "dead"  # died, and its memory stays
    LEAK = "leak"  # found by the leak rules
    FREED = "freed"  # a dead pid's memory came back
    JUMP = "jump"
    XID = "xid"
    THROTTLE = "throttle"
    LOST = "lost"
    BACK = "back"
    FULL = "full"  # memory over its critical threshold
    THRESHOLD = "limit"
    ALARM = "alarm"
    SIGNAL = "signal"
    MARK = "mark"


@dataclass(slots=True)
class JournalEvent:
    """Something that happened, at *at* (epoch seconds)."""

    at: float
    kind: EventKind
    message: str
    severity: Severity = Severity.NORMAL
    gpu_uuid: str | None = None
    gpu_index: int | None = None
    process: ProcessKey | None = None


@dataclass(frozen=True, slots=True)
class ExitedProcess:
    """A process that exited: what is to be said of it afterwards."""

    process: GpuProcess  # as seen last, on the GPU where it held most; memory_bytes is its peak over all GPUs
    facts: HostFacts | None
    exited_at: float
    first_seen: float

    @property
    def lived(self) -> float | None:
        """Seconds; None where the host never said when it started."""
        start = self.facts.start_time if self.facts is not None else None
        return None if start is None else max(0.0, self.exited_at - start)


@dataclass(slots=True)
class _Record:
    """One process as it is followed."""

    key: ProcessKey
    first_seen: float
    parts: list[GpuProcess]
    facts: HostFacts | None
    peak: int | None = None
    dead: bool = False
    died_at: float | None = None  # where it was seen to die; the driver may list it on while it takes memory down
    jumps: dict[tuple[str, int | None], tuple[JournalEvent, int]] = field(
        default_factory=dict
    )  # place: and bytes before


class Journal:
    """``events`` and ``exited`` are in order, the newest last; ``version`` changes whenever either does."""

    def __init__(self) -> None:
        self.events: deque[JournalEvent] = deque(maxlen=MOST_EVENTS)
        self.exited: deque[ExitedProcess] = deque(maxlen=MOST_EXITED)
        self.version = 0
        self._records: dict[int, _Record] | None = None  # by pid; None: nothing was seen yet
        self._before: tuple[GpuProcess, ...] = ()
        self._unread = False  # a process that is gone was on a GPU that did not answer: to be looked at again
        self._gpus: dict[str, Gpu] = {}
        self._xids: dict[str, float] = {}  # GPU's UUID: time of the newest known
        self._throttled: dict[tuple[str, int], float] = {}  # (UUID, bit): when it was seen last
        self._over: dict[tuple[str, str], Severity] = {}  # (UUID, quantity): the threshold it is over

    def observe(self, snapshot: Snapshot, settings: Settings) -> None:
        """What is seen now."""
        first = self._records is None
        for gpu in snapshot.gpus:
            self._observe_gpu(gpu, snapshot.taken_at, settings, first)
        if first or self._unread or snapshot.processes is not self._before:
            self._observe_processes(snapshot, first, settings)
        self._gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}

    def note(
        self, at: float, kind: EventKind, message: str, severity: Severity = Severity.INFO, gpu: Gpu | None = None
    ) -> None:
        """Something that others did or found: a signal sent, a moment marked, a leak, an alarm."""
        uuid, index = (None, None) if gpu is None else (gpu.uuid, gpu.index)
        self._add(JournalEvent(at, kind, message, severity, uuid, index))

    def exited_since(self, at: float) -> list[ExitedProcess]:
        """The newest first."""
        return [one for one in reversed(self.exited) if one.exited_at >= at]

    def _add(self, event: JournalEvent) -> None:
        self.events.append(event)
        self.version += 1

    # -------------------------------------------------------------------- GPUs

    def _observe_gpu(self, gpu: Gpu, now: float, settings: Settings, first: bool) -> None:
        name = f"GPU {gpu.index}"
        before = self._gpus.get(gpu.uuid)

        def add(kind: EventKind, message: str, severity: Severity, at: float = now) -> None:
            self._add(JournalEvent(at, kind, f"{name}: {message}", severity, gpu.uuid, gpu.index))

        for xid in gpu.xids:
            if xid.steady_at > self._xids.get(gpu.uuid, 0.0):
                self._xids[gpu.uuid] = xid.steady_at
                add(EventKind.XID, f"Xid {xid.code}: {xid.message}", xid.severity, xid.at)
        if gpu.error is not None:
            if before is None or before.error is None:
                add(EventKind.LOST, gpu.error, Severity.CRITICAL)
            return
        if before is not None and before.error is not None:
            add(EventKind.BACK, "is back", Severity.INFO)
        if gpu.late or gpu.asleep:
            return
        for reason in event_reasons(gpu.event_reasons_mask) or ():
            if reason.severity >= Severity.WARNING:
                seen = self._throttled.get((gpu.uuid, reason.bit))
                self._throttled[gpu.uuid, reason.bit] = now
                if seen is None or now - seen > THROTTLE_PAUSE_SECONDS:
                    add(EventKind.THROTTLE, f"clocks held down: {reason.label}", reason.severity)
        for quantity, value, unit in _measured(gpu):
            self._cross(gpu, quantity, value, unit, settings, now, first)

    def _cross(
        self, gpu: Gpu, quantity: str, value: float, unit: str, settings: Settings, now: float, first: bool
    ) -> None:
        thresholds = getattr(settings, f"threshold_{quantity}")
        place = gpu.uuid, quantity
        was = self._over.get(place, Severity.NORMAL)
        if thresholds is None:
            self._over.pop(place, None)
            return
        limits = ((Severity.CRITICAL, thresholds.critical), (Severity.WARNING, thresholds.warning))
        over = next((severity for severity, limit in limits if value >= limit), Severity.NORMAL)
        if over > was:
            limit = dict(limits)[over]
            message = f"GPU {gpu.index}: {quantity} {value:.0f}{unit}, the limit is {limit:g}{unit}"
            kind = EventKind.THRESHOLD
            if quantity == "memory" and over is Severity.CRITICAL:
                kind, message = EventKind.FULL, f"GPU {gpu.index} is full: {value:.0f}{unit} of its memory is used"
            if not first:
                self._add(JournalEvent(now, kind, message, over, gpu.uuid, gpu.index))
            self._over[place] = over
        elif over < was and value < dict(limits)[was] - _HYSTERESIS[quantity]:
            message = f"GPU {gpu.index}: {quantity} {value:.0f}{unit}, below {dict(limits)[was]:g}{unit} again"
            self._add(JournalEvent(now, EventKind.THRESHOLD, message, Severity.INFO, gpu.uuid, gpu.index))
            self._over[place] = over

    # --------------------------------------------------------------- processes

    def _observe_processes(self, snapshot: Snapshot, first: bool, settings: Settings) -> None:
        now, unit = snapshot.taken_at, settings.memory_unit
        records = self._records or {}
        changed = None if self._unread else _changed(self._before, snapshot.processes)
        self._unread = False
        found: dict[int, list[GpuProcess]] = {}
        for process in snapshot.processes:
            if changed is None or process.pid in changed:
                found.setdefault(process.pid, []).append(process)
        unread = {gpu.uuid for gpu in snapshot.gpus if not gpu.processes_known}
        for pid, parts in found.items():
            record, facts = records.get(pid), parts[0].host
            if record is not None and facts is not None and record.key.start_ticks not in (None, facts.key.start_ticks):
                self._exit(record, now, unit)
                record = None
            if record is None:
                record = records[pid] = _Record(parts[0].key, now, parts, facts, dead=parts[0].exists is False)
                if not first:
                    self._start(record, now, unit)
            else:
                self._follow(record, parts, now, unit)
            if facts is not None:
                record.key, record.facts = facts.key, facts
            total = _total(parts)
            if total is not None and (record.peak is None or total > record.peak):
                record.peak = total
        for pid in [pid for pid in records if pid not in found] if changed is None else ():
            if any(part.gpu_uuid in unread for part in records[pid].parts):
                self._unread = True
            else:
                self._exit(records.pop(pid), now, unit)
        self._records, self._before = records, snapshot.processes

    def _start(self, record: _Record, now: float, unit: str) -> None:
        message = f"{_label(record)} started on {_where(record.parts)}"
        self._process_event(record, now, EventKind.START, message, Severity.NORMAL)

    def _follow(self, record: _Record, parts: list[GpuProcess], now: float, unit: str) -> None:
        dead = parts[0].exists is False
        if dead and not record.dead:
            held = units.size(_total(parts), unit)
            message = f"{_label(record)} died{_after_life(record, now)}; the driver still lists it with {held}"
            self._process_event(record, now, EventKind.DEAD, message, Severity.WARNING)
            record.died_at = now
        record.dead = dead
        before = {(part.gpu_uuid, part.gpu_instance_id): part.memory_bytes for part in record.parts}
        for part in parts:
            place = part.gpu_uuid, part.gpu_instance_id
            old = before.get(place)
            if old is None or part.memory_bytes is None or old == part.memory_bytes:
                continue
            self._jump(record, part, old, part.memory_bytes, now, unit)
        record.parts = parts

    def _jump(self, record: _Record, part: GpuProcess, old: int, new: int, now: float, unit: str) -> None:
        """A change by JUMP_BYTES in one reading, or its continuation in the same direction."""
        place = part.gpu_uuid, part.gpu_instance_id
        event, start = record.jumps.get(place, (None, old))
        if event is not None and now - event.at <= JUMP_PAUSE_SECONDS and (new > old) == (old > start):
            event.at = now
            self.version += 1
        elif abs(new - old) >= JUMP_BYTES:
            event, start = (
                JournalEvent(now, EventKind.JUMP, "", Severity.INFO, part.gpu_uuid, part.gpu_index, record.key),
                old,
            )
            self._add(event)
            record.jumps[place] = event, start
        else:
            return
        sign = "+" if new > start else "-"
        event.message = (
            f"{_label(record)} {sign}{units.size(abs(new - start), unit)} on GPU {part.gpu_index} "
            f"({units.size(start, unit)} to {units.size(new, unit)})"
        )

    def _exit(self, record: _Record, now: float, unit: str) -> None:
        largest = max(record.parts, key=lambda part: part.memory_bytes or 0)
        if record.dead:
            message = f"the memory of dead {_label(record)} is back ({units.size(_total(record.parts), unit)})"
            self._process_event(record, now, EventKind.FREED, message, Severity.INFO)
            if record.died_at is None:
                return  # nobody saw it alive
        else:
            peak = (
                f"; peak {units.size(record.peak, unit)} on {_where(record.parts)}" if record.peak is not None else ""
            )
            message = f"{_label(record)} exited{_after_life(record, now)}{peak}"
            message += self._context(largest, unit)
            self._process_event(record, now, EventKind.EXIT, message, Severity.NORMAL)
            record.died_at = now
        part = GpuProcess(
            largest.pid, largest.gpu_uuid, largest.kind, largest.gpu_index, memory_bytes=record.peak, exists=False
        )
        self.exited.append(ExitedProcess(part, record.facts, record.died_at, record.first_seen))

    def _context(self, part: GpuProcess, unit: str) -> str:
        """How full its GPU was when it was seen last, and who held most of it: what an out-of-memory death needs."""
        gpu = self._gpus.get(part.gpu_uuid)
        if gpu is None or not gpu.memory_total_bytes or gpu.memory_used_bytes is None:
            return ""
        usable = gpu.memory_total_bytes - (gpu.memory_reserved_bytes or 0)
        share = 100 * gpu.memory_used_bytes / max(1, usable)
        if share < 90:
            return ""
        others = [one for one in self._before if one.gpu_uuid == part.gpu_uuid and one.pid != part.pid]
        biggest = max(others, key=lambda one: one.memory_bytes or 0, default=None)
        said = f"; GPU {part.gpu_index} was {share:.0f} % full"
        if biggest is None or not biggest.memory_bytes:
            return f"{said}, of it alone"
        owner = f" ({biggest.host.user})" if biggest.host is not None and biggest.host.user else ""
        return f"{said}, the biggest beside it: {biggest.pid}{owner} with {units.size(biggest.memory_bytes, unit)}"

    def _process_event(self, record: _Record, now: float, kind: EventKind, message: str, severity: Severity) -> None:
        part = record.parts[0]
        self._add(JournalEvent(now, kind, message, severity, part.gpu_uuid, part.gpu_index, record.key))


def _changed(before: tuple[GpuProcess, ...], now: tuple[GpuProcess, ...]) -> set[int] | None:
    """Pids of which something changed; None where some came or went. Unchanged ones are the same objects, of which
    there may be a thousand at every tick."""
    if len(before) != len(now):
        return None
    changed = set()
    for old, new in zip(before, now, strict=True):
        if old is not new:
            if old.pid != new.pid or old.gpu_uuid != new.gpu_uuid:
                return None
            changed.add(new.pid)
    return changed


def _measured(gpu: Gpu) -> Iterable[tuple[str, float, str]]:
    """Quantities that have thresholds, as far as they are known: name, value, unit."""
    if gpu.memory_total_bytes and gpu.memory_used_bytes is not None:
        usable = max(1, gpu.memory_total_bytes - (gpu.memory_reserved_bytes or 0))
        yield "memory", 100 * gpu.memory_used_bytes / usable, "%"
    if gpu.temperature_celsius is not None:
        yield "temperature", gpu.temperature_celsius, "°C"
    if gpu.utilization_gpu_percent is not None:
        yield "utilization", gpu.utilization_gpu_percent, "%"
    if gpu.power_watts is not None and gpu.power_limit_watts:
        yield "power", 100 * gpu.power_watts / gpu.power_limit_watts, "%"


def _label(record: _Record) -> str:
    facts = record.facts
    if facts is None:
        return str(record.key.pid)
    command = (facts.command or facts.name or "")[:60]
    user = f" ({facts.user})" if facts.user else ""
    return f"{record.key.pid} {command}{user}"


def _where(parts: Iterable[GpuProcess]) -> str:
    indices = sorted({part.gpu_index for part in parts})
    return f"GPU {indices[0]}" if len(indices) == 1 else f"GPUs {', '.join(map(str, indices))}"


def _after_life(record: _Record, now: float) -> str:
    start = record.facts.start_time if record.facts is not None else None
    return "" if start is None else f" after {units.duration(now - start)}"


def _total(parts: Iterable[GpuProcess]) -> int | None:
    """Over all GPUs and instances; compute instances of one GPU instance share its memory."""
    largest: dict[tuple[str, int | None], int] = {}
    for part in parts:
        if part.memory_bytes is not None:
            place = part.gpu_uuid, part.gpu_instance_id
            largest[place] = max(part.memory_bytes, largest.get(place, 0))
    return sum(largest.values()) if largest else None
