"""What gputop remembers of GPU processes while it watches: a verdict needs a history, and /proc has none.

Fed with snapshots, one after the other, by one thread. Times are the snapshots' ``steady_at``: a clock that is set does
not make a busy process look idle. Bounded: the oldest dead are forgotten first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from gputop.leaks.thresholds import BUSY_CPU_PERCENT
from gputop.model import GpuProcess, HostFacts, ProcessKey, Snapshot
from gputop.model.owner import Relative

MAX_GONE: Final = 384  # processes that are no longer on a GPU
MAX_CHILDREN: Final = 512
#: Readings further apart than this leave the time between them unwatched (a suspended laptop, released handles).
MAX_PAUSE_SECONDS: Final = 120.0


@dataclass(slots=True)
class GpuUse:
    """A process on one GPU. Times are epoch seconds."""

    memory: int | None = None
    since: float = 0.0  # memory has been the same since then, as far as was watched
    peak: int | None = None
    peak_at: float = 0.0
    watched_since: float | None = None  # its utilization has been known in every reading since then; None: not now
    active_at: float | None = None  # when it was last seen to use the GPU


@dataclass(frozen=True, slots=True)
class ParentChange:
    """A process was seen to lose its parent, which means that the parent died."""

    at: float
    old: Relative  # as far as it was known
    new_pid: int
    old_was_on_gpu: bool


@dataclass(slots=True)
class ProcessRecord:
    """One process, from when gputop first saw it."""

    key: ProcessKey
    first_seen: float
    last_seen: float
    facts: HostFacts | None = None  # the newest; of a dead process the last
    gpu_uses: dict[tuple[str, int | None], GpuUse] = field(default_factory=dict)  # by GPU's UUID and MIG GPU instance
    parent_changes: list[ParentChange] = field(default_factory=list)
    ancestors: tuple[Relative, ...] = ()  # as they were last looked up, the parent first
    children: dict[ProcessKey, float] = field(default_factory=dict)  # and when they were last seen to be
    stopped_since: float | None = None  # in state T at every look since
    stuck_since: float | None = None  # in state D at every look since, and no CPU time used
    quiet_since: float | None = None  # neither GPU nor more than BUSY_CPU_PERCENT of a core used since
    quiet_cpu_seconds: float | None = None  # its CPU time then
    seen_alive: bool = False
    seen_dead_at: float | None = None  # when the driver first listed it and the host did not have it, or as a zombie

    @property
    def memory_since(self) -> float | None:
        """Since when its memory is the same on all its GPUs."""
        return max((use.since for use in self.gpu_uses.values()), default=None)

    @property
    def idle_since(self) -> float | None:
        """Since when it used none of its GPUs, nor the CPU; None where it does, or where that cannot be told."""
        if self.quiet_since is None or not self.gpu_uses:
            return None
        starts = [use.watched_since for use in self.gpu_uses.values()]
        return None if None in starts else self.quiet_since

    @property
    def last_active(self) -> float | None:
        """When it was last seen to use a GPU."""
        return max((use.active_at for use in self.gpu_uses.values() if use.active_at is not None), default=None)

    def cpu_share_since_quiet(self) -> float | None:
        """Percent of a core since :attr:`quiet_since`; None where too little time has gone by."""
        if self.facts is None or self.quiet_since is None or self.quiet_cpu_seconds is None:
            return None
        passed = self.last_seen - self.quiet_since
        if passed < 1 or self.facts.cpu_seconds is None:
            return None
        return 100 * max(0.0, self.facts.cpu_seconds - self.quiet_cpu_seconds) / passed


class ProcessHistory:
    """What is remembered of all GPU processes. Not thread-safe: one thread owns it."""

    def __init__(self) -> None:
        self.records: dict[ProcessKey, ProcessRecord] = {}
        self._newest: dict[int, ProcessKey] = {}  # pid: the process that had it last
        self.now = 0.0

    def observe(self, snapshot: Snapshot) -> None:
        """What is seen now."""
        now, before = snapshot.steady_at, self.now
        self.now = now
        paused = now - before > MAX_PAUSE_SECONDS
        unknown = {gpu.uuid for gpu in snapshot.gpus if not gpu.processes_known}
        seen: dict[ProcessKey, list[GpuProcess]] = {}
        for process in snapshot.processes:
            seen.setdefault(self._key_of(process), []).append(process)
        for key, processes in seen.items():
            record = self.records.get(key)
            if record is None:
                record = self.records[key] = ProcessRecord(key, now, now)
                self._newest[key.pid] = key
            record.last_seen = now
            if processes[0].host is not None:
                self._update_facts(record, processes[0].host, now)
            if processes[0].exists is not False:
                record.seen_alive = True
            elif record.seen_dead_at is None:
                record.seen_dead_at = now
            self._update_use(record, processes, now, paused, unknown)
        if unknown:
            self._unwatch(unknown, seen)
        if len(self.records) - len(seen) > MAX_GONE:
            self._forget(seen.keys())

    def of(self, key: ProcessKey) -> ProcessRecord | None:
        return self.records.get(key)

    def last_of(self, pid: int) -> ProcessRecord | None:
        """The last process with this pid."""
        key = self._newest.get(pid)
        return None if key is None else self.records.get(key)

    def before(self, key: ProcessKey) -> ProcessRecord | None:
        """The process that had the pid before this one."""
        found = [record for other, record in self.records.items() if other.pid == key.pid and other != key]
        return max(found, key=lambda record: record.last_seen, default=None)

    def note_relatives(
        self, key: ProcessKey, ancestors: tuple[Relative, ...], children: Iterable[ProcessKey] | None
    ) -> None:
        """What was looked up of a process: it is what can be said of its parent once that is dead."""
        record = self.records.get(key)
        if record is None:
            return
        if ancestors and (record.facts is None or record.facts.parent_pid == ancestors[0].pid):
            record.ancestors = ancestors
        for child in children or ():
            record.children.pop(child, None)  # so that the newest are the last
            record.children[child] = self.now
        for child in list(record.children)[:-MAX_CHILDREN]:
            del record.children[child]

    def parent_of(self, child: ProcessKey) -> tuple[ProcessRecord, float] | None:
        """Who *child* was seen to be a child of, and when last."""
        found = [(record, record.children[child]) for record in self.records.values() if child in record.children]
        return max(found, key=lambda one: one[1], default=None)

    # -------------------------------------------------------------------- bookkeeping

    def _key_of(self, process: GpuProcess) -> ProcessKey:
        """Of a pid that the host does not have, the last process with it."""
        if process.host is not None:
            return process.host.key
        known = self._newest.get(process.pid)
        return known if known is not None and process.exists is not True else ProcessKey(process.pid, None)

    def _update_facts(self, record: ProcessRecord, facts: HostFacts, now: float) -> None:
        old = record.facts
        if old is facts:
            return
        if old is not None and old.parent_pid != facts.parent_pid and old.parent_pid is not None:
            parent = self.last_of(old.parent_pid)
            known = parent.facts if parent is not None else None
            relative = next((one for one in record.ancestors if one.pid == old.parent_pid), None)
            if known is not None:
                relative = Relative(known.key.pid, known.name or "", known.command, known.key.start_ticks)
            record.parent_changes.append(
                ParentChange(
                    now,
                    relative or Relative(old.parent_pid, ""),
                    facts.parent_pid or 0,
                    bool(parent and parent.gpu_uses),
                )
            )
            del record.parent_changes[:-8]
        record.facts = facts
        record.stopped_since = (record.stopped_since or now) if facts.state == "T" else None
        at_work = old is not None and old.cpu_seconds != facts.cpu_seconds  # reading a slow disk, block after block
        if facts.state != "D":
            record.stuck_since = None
        elif record.stuck_since is None or at_work:
            record.stuck_since = now

    def _unwatch(self, unknown: Collection[str], seen: Collection[ProcessKey]) -> None:
        """Those not *seen* may be at work on GPUs whose process lists are *unknown*."""
        for key, record in self.records.items():
            if key not in seen and any(uuid in unknown for uuid, _ in record.gpu_uses):
                record.quiet_since = None
                for use in record.gpu_uses.values():
                    use.watched_since = None

    def _update_use(
        self, record: ProcessRecord, processes: list[GpuProcess], now: float, paused: bool, unknown: Collection[str]
    ) -> None:
        active, known = False, True
        for process in processes:
            place = process.gpu_uuid, process.gpu_instance_id
            use = record.gpu_uses.get(place)
            if use is None:
                use = record.gpu_uses[place] = GpuUse(since=now)
            memory = process.memory_bytes
            if memory != use.memory:
                use.memory, use.since = memory, now
            if memory is not None and (use.peak is None or memory > use.peak):
                use.peak, use.peak_at = memory, now
            if process.sm_percent is None:
                use.watched_since, known = None, False
                continue
            if use.watched_since is None or paused:
                use.watched_since = now
            if process.sm_percent or process.encoder_percent or process.decoder_percent:
                use.active_at, active = now, True
        here = {(process.gpu_uuid, process.gpu_instance_id) for process in processes}
        if len(record.gpu_uses) > len(here):
            uses = record.gpu_uses
            record.gpu_uses = {place: use for place, use in uses.items() if place in here or place[0] in unknown}
            for place in record.gpu_uses.keys() - here:  # whether it works there is not told
                record.gpu_uses[place].watched_since, known = None, False
        facts = record.facts
        if active or not known or facts is None or (facts.cpu_percent or 0.0) >= BUSY_CPU_PERCENT:
            record.quiet_since = None
        elif record.quiet_since is None or paused:
            record.quiet_since, record.quiet_cpu_seconds = now, facts.cpu_seconds

    def _forget(self, here: Collection[ProcessKey]) -> None:
        """Make room: those seen last the longest ago go, down to three quarters."""
        gone = sorted(
            (record for key, record in self.records.items() if key not in here), key=lambda record: record.last_seen
        )
        for record in gone[: len(gone) - MAX_GONE * 3 // 4]:
            del self.records[record.key]
            if self._newest.get(record.key.pid) == record.key:
                del self._newest[record.key.pid]
