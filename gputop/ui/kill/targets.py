"""Whom a signal from F9 would go to. Of a dead pid, that is whoever keeps its memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gputop.leaks.report import DeadPid, LeakReport, UnattributedMemory
from gputop.model import HostFacts, LeakVerdict, ProcessKey, replace
from gputop.signals.memory_reclaim import HeldMemory
from gputop.signals.protocol import Target
from gputop.signals.scope import SignalScope


class ChosenTargets(NamedTuple):
    """Frozen at the key press: what happens in the table afterwards changes nothing about it."""

    chosen: tuple[Target, ...] = ()
    hidden: tuple[Target, ...] = ()  # tagged, but the filter hides them: left out
    refused: tuple[tuple[Target, str], ...] = ()  # left out, and why in words


@dataclass(frozen=True, slots=True)
class KillRequest:
    """What the kill dialog is opened with: *targets*, frozen when the key was pressed, and what they are."""

    targets: tuple[Target, ...]
    scope: SignalScope = SignalScope.PROCESS
    hidden: tuple[Target, ...] = ()  # tagged, but a filter hides them: named and left out
    held: tuple[HeldMemory, ...] = ()  # memory of dead pids that the targets keep
    facts: Mapping[ProcessKey, HostFacts] = field(default_factory=dict)  # of targets on no GPU


def with_holders(
    chosen: Iterable[Target], dead_pids: Iterable[DeadPid], hidden: tuple[Target, ...] = ()
) -> KillRequest:
    """*chosen*, and those who keep the memory of *dead_pids*: each holder once, however many dead pids' it keeps."""
    targets = {target.key: target for target in chosen}
    scope = SignalScope.PROCESS if targets else SignalScope.HOLDERS
    held: list[HeldMemory] = []
    known: dict[ProcessKey, HostFacts] = {}
    for dead_pid in dead_pids:
        wanted = set(dead_pid.targets)
        for found in dead_pid.holders:
            facts = found.holder.facts
            if facts.key in wanted:
                known.setdefault(facts.key, facts)
                targets.setdefault(facts.key, Target(facts.key, facts.user, facts.command or facts.name))
        held.append(HeldMemory(dead_pid.pid, dict(dead_pid.memory)))
    if scope is SignalScope.PROCESS and len(targets) > 1:
        scope = SignalScope.TAGGED
    return KillRequest(tuple(targets.values()), scope, hidden, tuple(held), known)


def unlisted_to_end(found: UnattributedMemory) -> KillRequest:
    """Those who hold a GPU's unattributed memory, but for programs whose job that is (monitors, display servers)."""
    holders = [holder for holder in found.holders if holder.benign is None]
    return KillRequest(
        tuple(Target(one.key, one.facts.user, one.facts.command or one.facts.name) for one in holders),
        SignalScope.HOLDERS,
        facts={one.key: one.facts for one in holders},
    )


def verdicts_to_end(verdicts: list[LeakVerdict], report: LeakReport) -> KillRequest:
    """What is to be ended to free the memory of *verdicts*."""
    living: list[Target] = []
    dead_pids: list[DeadPid] = []
    for verdict in verdicts:
        if verdict.process.start_ticks is not None:
            uuids = tuple(uuid for uuid, _ in verdict.memory)
            living.append(Target(verdict.process, verdict.user, verdict.command, verdict.memory_bytes, uuids))
        elif (dead_pid := report.dead_pid(verdict.process.pid)) is not None:
            dead_pids.append(dead_pid)
    request = with_holders(living, dead_pids)
    return replace(request, scope=SignalScope.TAGGED) if len(verdicts) > 1 else request
