"""Pids that the driver lists and the host does not have, and which living processes keep their memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gputop.leaks.holders.holder import HeldDevice, Holder, HolderScan
from gputop.leaks.holders.unlisted import unlisted_holders
from gputop.leaks.process_history import ProcessHistory
from gputop.leaks.report import DeadPid, HolderEvidence
from gputop.model import HostFacts, ProcessKey, Snapshot, memory_by_pid, replace
from gputop.units import clock_or_day


def find_dead_pids(
    snapshot: Snapshot,
    history: ProcessHistory,
    scan: HolderScan | None = None,
    reused: Mapping[int, HostFacts] | None = None,
) -> tuple[DeadPid, ...]:
    """All dead pids of *snapshot* (which *history* has seen), the largest first, with their holders as of *scan*.
    *reused* are listed pids whose process now has no GPU open: the one that had is dead, and its pid was reused."""
    reused = reused or {}
    pids = [process.pid for process in snapshot.processes if process.exists is False or process.pid in reused]
    found = [_dead_pid(pid, snapshot, history, reused.get(pid)) for pid in dict.fromkeys(pids)]
    if scan is not None and found:
        found = _with_holders(found, snapshot, history, scan)
    return tuple(sorted(found, key=lambda dead_pid: -(dead_pid.memory_bytes or 0)))


def _dead_pid(pid: int, snapshot: Snapshot, history: ProcessHistory, reused_by: HostFacts | None) -> DeadPid:
    if reused_by is not None:
        now, record = history.of(reused_by.key), history.before(reused_by.key)
        since = now.first_seen if now is not None else snapshot.steady_at
    else:
        record = history.last_of(pid)
        since = record.seen_dead_at if record is not None and record.seen_dead_at is not None else snapshot.steady_at
    known = record.facts if record is not None else None
    zombie = next((process.host for process in snapshot.processes if process.pid == pid), None)
    return DeadPid(
        pid,
        _memory(snapshot, pid),
        since,
        known,
        saw_death=record is not None and record.seen_alive,
        reused_by=reused_by,
        zombie=None if reused_by is not None else zombie,
    )


def _memory(snapshot: Snapshot, pid: int) -> tuple[tuple[str, int | None], ...]:
    by_gpu = []
    for gpu in snapshot.gpus:
        here = [process for process in snapshot.processes if process.pid == pid and process.gpu_uuid == gpu.uuid]
        if here:
            by_gpu.append((gpu.uuid, memory_by_pid(here)[pid]))
    return tuple(sorted(by_gpu, key=lambda entry: -(entry[1] or 0)))


def _with_holders(
    dead_pids: list[DeadPid], snapshot: Snapshot, history: ProcessHistory, scan: HolderScan
) -> list[DeadPid]:
    minors = {gpu.uuid: gpu.facts.minor_number for gpu in snapshot.gpus}
    holders = [holder for holder in scan.holders if holder.benign is None]
    proven: dict[int, list[HolderEvidence]] = {}
    for dead_pid in dead_pids:
        proven[dead_pid.pid] = _proven(dead_pid, _minors(dead_pid, minors), holders, history)
    taken = {one.holder.key for found in proven.values() for one in found}
    free = [holder for holder in holders if holder.key not in taken]
    result = []
    for dead_pid in dead_pids:
        holders_of_it = proven[dead_pid.pid] + _likely(dead_pid, _minors(dead_pid, minors), free, snapshot)
        scanned = scan.taken_at >= dead_pid.since
        result.append(replace(dead_pid, holders=tuple(holders_of_it), scanned=scanned))
    return result


def _minors(dead_pid: DeadPid, minors: Mapping[str, int | None]) -> list[int | None]:
    """N of the /dev/nvidiaN of its GPUs; None where the driver does not say."""
    return [minors.get(uuid) for uuid, _ in dead_pid.memory]


def _held_device(holder: Holder, minors: Collection[int | None]) -> HeldDevice | None:
    """The device of one of these GPUs that it holds; of any, where one of them is not known."""
    for device in holder.devices:
        if device.minor is not None and (device.minor in minors or None in minors):
            return device
    return None


def _proven(
    dead_pid: DeadPid, minors: list[int | None], holders: list[Holder], history: ProcessHistory
) -> list[HolderEvidence]:
    """Those whose lineage leads to the dead pid: a process group and a session keep the number of a dead leader, and
    gputop remembers whose child it saw. Then the children of these."""
    found: dict[ProcessKey, HolderEvidence] = {}
    for holder in holders:
        device = _held_device(holder, minors)
        if device is not None and (how := _lineage(dead_pid, holder.facts, history)) is not None:
            found[holder.key] = HolderEvidence(holder, device, how, certain=True)
    while True:
        more = {}
        for holder in holders:
            parent = next((key for key in found if key.pid == holder.facts.parent_pid), None)
            if parent is not None and holder.key not in found and (device := _held_device(holder, minors)) is not None:
                more[holder.key] = HolderEvidence(
                    holder, device, f"child of {parent.pid}, which also holds it", certain=True
                )
        if not more:
            return list(found.values())
        found |= more


def _lineage(dead_pid: DeadPid, facts: HostFacts, history: ProcessHistory) -> str | None:
    if facts.group_id == dead_pid.pid:
        return f"process group {dead_pid.pid}"
    if facts.session_id == dead_pid.pid:
        return f"session {dead_pid.pid}"
    seen = history.parent_of(facts.key)
    if seen is not None and seen[0].key.pid == dead_pid.pid:
        return f"child of {dead_pid.pid} until {clock_or_day(seen[1])}"
    return None


def _likely(
    dead_pid: DeadPid, minors: list[int | None], holders: list[Holder], snapshot: Snapshot
) -> list[HolderEvidence]:
    """Those of unknown lineage that hold the device and use it for nothing of their own: not listed by the driver, no
    workers of a process that lives and is listed, and started before the pid died."""
    found = []
    for holder in unlisted_holders(holders, snapshot):
        facts = holder.facts
        device = _held_device(holder, minors)
        if device is None:
            continue
        if facts.start_time is not None and facts.start_time > dead_pid.since + 1:
            continue
        if dead_pid.known is not None and facts.group_id == dead_pid.known.group_id:
            how = f"in process group {facts.group_id}, like {dead_pid.pid}"
        elif dead_pid.known is not None and facts.uid != dead_pid.known.uid:
            continue
        else:
            how = "holds the device and is not in the driver's list"
        found.append(HolderEvidence(holder, device, how, certain=False))
    return found
