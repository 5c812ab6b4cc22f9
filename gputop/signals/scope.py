"""Who belongs together: descendants, process group and session, for scopes of a signal. Pure functions of a list."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from gputop.model import HostFacts, ProcessKey


class SignalScope(enum.Enum):
    """How far a signal reaches, as the user chooses it."""

    PROCESS = "this process"
    DESCENDANTS = "this process and its descendants"
    GROUP = "its process group"
    SESSION = "its session"
    TAGGED = "all tagged"
    HOLDERS = "those that hold the memory"


class RelatedProcesses(NamedTuple):
    """The relatives of some processes, themselves left out; each as read at one moment."""

    descendants: tuple[HostFacts, ...] = ()
    group: tuple[HostFacts, ...] = ()
    session: tuple[HostFacts, ...] = ()

    def of(self, scope: SignalScope) -> tuple[HostFacts, ...]:
        """Those that *scope* takes in beside the processes themselves."""
        return {
            SignalScope.DESCENDANTS: self.descendants,
            SignalScope.GROUP: self.group,
            SignalScope.SESSION: self.session,
        }.get(scope, ())


def related_among(everyone: Sequence[HostFacts], of: Collection[ProcessKey]) -> RelatedProcesses:
    """The relatives of those of *of* that live and are the same processes still.

    A group or session is known by a number that nobody else can have as long as one of its members lives. So it is
    asked of a living member each time and never kept (a stored process-group id may be another one's by now).
    """
    members = [facts for facts in everyone if facts.key in of]
    own = {facts.key.pid for facts in members}
    groups = {facts.group_id for facts in members if facts.group_id}
    sessions = {facts.session_id for facts in members if facts.session_id}
    return RelatedProcesses(
        descendants=tuple(_descendants(everyone, own)),
        group=tuple(facts for facts in everyone if facts.group_id in groups and facts.key.pid not in own),
        session=tuple(facts for facts in everyone if facts.session_id in sessions and facts.key.pid not in own),
    )


def _descendants(everyone: Iterable[HostFacts], roots: Collection[int]) -> list[HostFacts]:
    """Parents before children. A "parent" that started later than its child has reused that pid."""
    children: dict[int, list[HostFacts]] = {}
    started: dict[int, int] = {}
    for facts in everyone:
        children.setdefault(facts.parent_pid or 0, []).append(facts)
        started[facts.key.pid] = facts.key.start_ticks or 0
    found: list[HostFacts] = []
    seen = set(roots)
    queue = list(roots)
    while queue:
        parent = queue.pop(0)
        for child in children.get(parent, ()):
            if child.key.pid not in seen and (child.key.start_ticks or 0) >= started.get(parent, 0):
                seen.add(child.key.pid)
                found.append(child)
                queue.append(child.key.pid)
    return found
