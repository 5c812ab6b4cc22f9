"""One report after the other out of snapshots: remembers, looks up what pays, scans where it must, judges."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from gputop.leaks.dead_pids import find_dead_pids
from gputop.leaks.holders.holder import HeldDevice, HolderScan
from gputop.leaks.process_context import Investigator, ProcessContext
from gputop.leaks.process_history import ProcessHistory
from gputop.leaks.report import DeadPid, LeakReport, UnattributedMemory
from gputop.leaks.rules import Case
from gputop.leaks.stragglers import Member, stragglers
from gputop.leaks.unattributed import UnattributedClock, explain_unattributed
from gputop.leaks.verdicts import judge, judge_dead_pid, nothing_to_ask, worst_first
from gputop.model import (
    PROCESSES_UNRELIABLE,
    GpuProcess,
    HostFacts,
    LeakVerdict,
    MemoryBreakdown,
    ProcessKey,
    Snapshot,
    Verdict,
    memory_breakdown,
    memory_by_gpu,
    replace,
)
from gputop.model.owner import Owner
from gputop.settings import Settings

#: Contexts of processes are read again after this long, within a budget of time a step.
AGAIN_SECONDS: Final = 10.0
BUDGET_SECONDS: Final = 0.02
FIRST_BUDGET_SECONDS: Final = 0.1  # for those never looked at
#: Open files of all processes are looked at again after this long, as long as there is something to explain.
SCAN_SECONDS: Final = (15.0, 30.0, 60.0)
MAPS_SECONDS: Final = 60.0


class LeakFinder:
    """Finds leaks, a step at a time. One thread owns it."""

    def __init__(self, investigator: Investigator, clock: Callable[[], float] = time.monotonic) -> None:
        self.history = ProcessHistory()
        self.scan: HolderScan | None = None
        self._investigator = investigator
        self._clock = clock
        self._unattributed_clock = UnattributedClock()
        self._known: dict[ProcessKey, tuple[float, ProcessContext]] = {}
        self._owners_of_holders: dict[ProcessKey, Owner] = {}
        self._scanned_for: frozenset[object] = frozenset()
        self._scans = 0  # in a row for the same things
        self._scanned_at = self._maps_at = float("-inf")

    def step(self, snapshot: Snapshot, settings: Settings, scan_now: bool = False) -> LeakReport:
        """The report on *snapshot*. Takes milliseconds, and up to seconds where it scans."""
        snapshot = _reliable(snapshot)
        self.history.observe(snapshot)
        breakdowns = tuple(memory_breakdown(gpu, snapshot.processes) for gpu in snapshot.gpus)
        self._unattributed_clock.observe(snapshot, breakdowns, settings.leak_gap_mib)
        processes = _by_key(snapshot)
        self._look(processes)
        dead_pids, unattributed = self._explain(snapshot, breakdowns)
        if self._scan_if_needed(snapshot, dead_pids, unattributed, scan_now):
            dead_pids, unattributed = self._explain(snapshot, breakdowns)
            holders = {found.holder.key: found.holder for dead_pid in dead_pids for found in dead_pid.holders}
            self._owners_of_holders = {key: self._investigator.owner(one.facts) for key, one in holders.items()}
        verdicts, notes = self._judge(snapshot, settings, processes, dead_pids)
        return LeakReport(
            taken_at=snapshot.steady_at,
            verdicts=verdicts,
            notes=notes,
            dead_pids=dead_pids,
            unattributed=unattributed,
            breakdowns=breakdowns,
            stragglers=stragglers(self._members(processes)),
            owners={key: known.owner for key, (_, known) in self._known.items()} | self._owners_of_holders,
            scan=self.scan,
            unsure=tuple(_unsure(snapshot, breakdowns, unattributed, self.scan)),
        )

    # ------------------------------------------------------------------ looking

    def _look(self, processes: dict[ProcessKey, list[GpuProcess]]) -> None:
        """Read the context of those never looked at, then again of those looked at the longest ago."""
        now = self._clock()
        self._known = {key: known for key, known in self._known.items() if key in processes}
        self._investigator.forget(processes.keys() | self._owners_of_holders.keys())
        hosts = {key: rows[0].host for key, rows in processes.items()}
        new = [key for key, host in hosts.items() if host is not None and key not in self._known]
        old = sorted((at, key) for key, (at, known) in self._known.items() if _is_old(now - at, known, hosts[key]))
        for keys, budget in ((new, FIRST_BUDGET_SECONDS), ([key for _, key in old], BUDGET_SECONDS)):
            until = time.perf_counter() + budget
            for key in keys:
                host = hosts[key]
                found = self._investigator.context(host) if host is not None else None
                if found is not None:
                    self._known[key] = now, found
                    self.history.note_relatives(key, found.ancestors, found.children)
                if time.perf_counter() > until:
                    break

    def _explain(
        self, snapshot: Snapshot, breakdowns: tuple[MemoryBreakdown, ...]
    ) -> tuple[tuple[DeadPid, ...], tuple[UnattributedMemory, ...]]:
        dead_pids = find_dead_pids(snapshot, self.history, self.scan, self._reused_pids(snapshot))
        cards = (
            explain_unattributed(gpu, breakdown, self._unattributed_clock, snapshot, self.scan)
            for gpu, breakdown in zip(snapshot.gpus, breakdowns, strict=True)
        )
        return dead_pids, tuple(card for card in cards if card is not None)

    def _reused_pids(self, snapshot: Snapshot) -> dict[int, HostFacts]:
        """Listed pids whose process now has no GPU open. Not clients of MPS, whose server has it for them."""
        no_gpu = {key for key, (_, known) in self._known.items() if known.holds_device is False}
        if not no_gpu:
            return {}
        rows = (process for process in snapshot.processes if process.kind != "M" and process.host is not None)
        return {row.pid: row.host for row in rows if row.host is not None and row.key in no_gpu}

    def _scan_if_needed(
        self,
        snapshot: Snapshot,
        dead_pids: tuple[DeadPid, ...],
        unattributed: tuple[UnattributedMemory, ...],
        scan_now: bool,
    ) -> bool:
        """Scan for dead pids and unattributed memory that are new, now and then for old ones, when a holder is gone, or
        when asked."""
        now = self._clock()
        what: frozenset[object] = frozenset(
            (*((dead_pid.pid, dead_pid.memory) for dead_pid in dead_pids), *(card.gpu_uuid for card in unattributed))
        )
        if not what and not scan_now:
            if self.scan is not None and now - self._scanned_at > SCAN_SECONDS[-1]:
                self.scan = None
            self._scanned_for, self._scans = what, 0
            return False
        wait = SCAN_SECONDS[min(self._scans, len(SCAN_SECONDS)) - 1] if self._scans else 0.0
        new = what - self._scanned_for
        gone = self.scan is not None and not all(
            self._investigator.is_alive(found.holder.key) for dead_pid in dead_pids for found in dead_pid.holders
        )
        if not (scan_now or new or gone or now - self._scanned_at >= wait):
            return False
        unexplained = any(dead_pid.scanned and not dead_pid.holders for dead_pid in dead_pids) or any(
            self.scan is not None and not card.holders for card in unattributed
        )
        with_maps = scan_now or (unexplained and now - self._maps_at >= MAPS_SECONDS)
        self.scan = self._investigator.scan(with_maps)
        self._scanned_at = self._clock()
        self._maps_at = self._scanned_at if with_maps else self._maps_at
        self._scans = 1 if new or scan_now else self._scans + 1
        self._scanned_for = what
        return True

    # ------------------------------------------------------------------- judging

    def _judge(
        self,
        snapshot: Snapshot,
        settings: Settings,
        processes: dict[ProcessKey, list[GpuProcess]],
        dead_pids: tuple[DeadPid, ...],
    ) -> tuple[tuple[LeakVerdict, ...], tuple[LeakVerdict, ...]]:
        now = snapshot.steady_at
        totals = {gpu.uuid: gpu.memory_total_bytes for gpu in snapshot.gpus}
        names = {gpu.uuid: f"GPU {gpu.index}" for gpu in snapshot.gpus}
        found: list[LeakVerdict] = []
        for dead_pid in dead_pids:
            if (verdict := judge_dead_pid(dead_pid, settings, now, names, self.scan)) is not None:
                found.append(verdict)
        held = {holder.key: holder.devices for holder in (self.scan.holders if self.scan is not None else ())}
        dead = {dead_pid.pid for dead_pid in dead_pids}
        for key, rows in processes.items():
            if key.pid in dead:
                continue
            case = self._case(key, rows, totals, held, settings)
            if case is not None and (verdict := judge(case, settings, now)) is not None:
                found.append(verdict)
        ordered = worst_first(found)
        notes = tuple(verdict for verdict in ordered if verdict.verdict is Verdict.NOTE)
        return ordered[: len(ordered) - len(notes)], notes

    def _case(
        self,
        key: ProcessKey,
        rows: list[GpuProcess],
        totals: dict[str, int | None],
        held: dict[ProcessKey, tuple[HeldDevice, ...]],
        settings: Settings,
    ) -> Case | None:
        """None where nothing is known yet, or there is nothing to ask."""
        record, known = self.history.of(key), self._known.get(key)
        facts = rows[0].host
        if facts is None or record is None or known is None:
            return None
        idle = 0.0 if record.quiet_since is None else record.last_seen - record.quiet_since
        if nothing_to_ask(facts, known[1], bool(record.parent_changes), idle, settings):
            return None
        memory = memory_by_gpu(rows)
        return Case(
            context=replace(known[1], facts=facts) if known[1].facts is not facts else known[1],
            memory=tuple(sorted(memory.items(), key=lambda entry: -(entry[1] or 0))),
            gpu_bytes=max((totals.get(uuid) or 0 for uuid in memory), default=None),
            first_seen=record.first_seen,
            memory_since=record.memory_since,
            idle_since=record.idle_since,
            cpu_percent_idle=record.cpu_share_since_quiet(),
            stopped_since=record.stopped_since,
            stuck_since=record.stuck_since,
            parent_changes=tuple(record.parent_changes),
            held=held.get(key, ()),
        )

    def _members(self, processes: dict[ProcessKey, list[GpuProcess]]) -> list[Member]:
        members = []
        for key, (_, known) in self._known.items():
            if known.owner.rank is None:
                continue
            workers = None if known.children is None else len(known.children)
            for row in processes[key]:
                parent = row.host.parent_pid if row.host is not None else None
                members.append(Member(key, row.gpu_uuid, row.gpu_index, row.memory_bytes, known.owner, parent, workers))
        return members


def _is_old(age: float, known: ProcessContext, facts: HostFacts | None) -> bool:
    return age >= AGAIN_SECONDS or facts is None or facts.parent_pid != known.facts.parent_pid


def _by_key(snapshot: Snapshot) -> dict[ProcessKey, list[GpuProcess]]:
    """The rows of each process that the host has."""
    found: dict[ProcessKey, list[GpuProcess]] = {}
    for process in snapshot.processes:
        if process.host is not None and process.exists is not False:
            found.setdefault(process.key, []).append(process)
    return found


def _reliable(snapshot: Snapshot) -> Snapshot:
    """Nobody is accused because of a list with entries that cannot be right: pids in it may be anybody's."""
    unreliable = {gpu.uuid for gpu in snapshot.gpus if gpu.processes_error == PROCESSES_UNRELIABLE}
    if not unreliable:
        return snapshot
    return replace(snapshot, processes=tuple(p for p in snapshot.processes if p.gpu_uuid not in unreliable))


def _unsure(
    snapshot: Snapshot,
    breakdowns: tuple[MemoryBreakdown, ...],
    unattributed: tuple[UnattributedMemory, ...],
    scan: HolderScan | None,
) -> list[str]:
    """What stands in the way of saying that there is no leak."""
    said = list(snapshot.problems)
    said += [
        f"GPU {gpu.index}: {gpu.error or 'the driver is slow to respond'}"
        for gpu in snapshot.gpus
        if gpu.error or gpu.late
    ]
    said += [
        f"GPU {gpu.index}: {parts.unknown}"
        for gpu, parts in zip(snapshot.gpus, breakdowns, strict=True)
        if not (gpu.error or gpu.late or gpu.asleep) and (gpu.processes_error or gpu.memory_used_bytes is None)
    ]
    if snapshot.host.pids_are_host is False:
        said.append("processes outside this container are not visible: run gputop on the host")
    unseen = {process.pid for process in snapshot.processes if process.exists is None}
    if unseen:
        said.append(f"{len(unseen)} listed pids may be dead or outside this container: run gputop on the host")
    if unattributed and scan is not None and not scan.complete:
        said.append(scan.summary())
    names = {gpu.uuid: gpu.index for gpu in snapshot.gpus}
    said += [
        f"GPU {names[card.gpu_uuid]}: memory is in use that no listed process accounts for" for card in unattributed
    ]
    return said
