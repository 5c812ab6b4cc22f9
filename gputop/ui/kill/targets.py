"""What F9 is about where the row, or the verdict, is one of a dead pid: those who keep its memory."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.leaks.report import DeadPid, LeakReport
from gputop.model import HostFacts, LeakVerdict, ProcessKey
from gputop.signals.memory_reclaim import HeldMemory
from gputop.signals.protocol import Target

HoldersAsTargets = tuple[list[Target], list[HeldMemory], dict[ProcessKey, HostFacts]]
"""The targets, the memory that they keep, and what is known of those that are on no GPU themselves."""


def holders_as_targets(dead_pids: Iterable[DeadPid]) -> HoldersAsTargets:
    """Each holder once, however many dead pids' memory it keeps."""
    targets: dict[ProcessKey, Target] = {}
    held: list[HeldMemory] = []
    known: dict[ProcessKey, HostFacts] = {}
    for dead_pid in dead_pids:
        wanted = set(dead_pid.targets)
        for hold in dead_pid.holders:
            facts = hold.holder.facts
            if facts.key in wanted and facts.key not in targets:
                targets[facts.key] = Target(facts.key, facts.user, facts.command or facts.name)
                known[facts.key] = facts
        held.append(HeldMemory(dead_pid.pid, dict(dead_pid.memory)))
    return list(targets.values()), held, known


def verdicts_as_targets(verdicts: Iterable[LeakVerdict], report: LeakReport) -> HoldersAsTargets:
    """What is to be ended to free the memory of *verdicts*."""
    chosen: dict[ProcessKey, Target] = {}
    dead_pids = []
    for verdict in verdicts:
        dead_pid = report.dead_pid(verdict.process.pid) if verdict.process.start_ticks is None else None
        if dead_pid is not None:
            dead_pids.append(dead_pid)
        elif verdict.process.start_ticks is not None:
            uuids = tuple(uuid for uuid, _ in verdict.memory)
            chosen[verdict.process] = Target(
                verdict.process, verdict.user, verdict.command, verdict.memory_bytes, uuids
            )
    targets, held, known = holders_as_targets(dead_pids)
    return [*chosen.values(), *(target for target in targets if target.key not in chosen)], held, known
