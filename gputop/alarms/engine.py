"""Alarms: rules looked at with every snapshot, each alarm raised once and cleared once.

For each condition and what it is asked of (a GPU, a process on a GPU, an Xid, a pid) there is one state:

    quiet ──holds──▶ pending ──held for its time──▶ raised ──beyond its clear level──▶ quiet

* What is not known (N/A, a GPU that is lost or late) freezes the state: it neither raises nor clears, and its time does
  not count. After :data:`UNCLEAR_AFTER_SECONDS` that is reported, once.
* A process that ends clears its alarms; one on a GPU that cannot be read is not taken for ended.
* Time is what was watched: a machine that slept, or a clock that was set, adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from gputop.alarms.condition import Condition, GpuLostCondition, Scope
from gputop.alarms.evaluation import XID_SECONDS, Evaluation, Observation, no_more, readable
from gputop.alarms.messages import alarm, not_known, what_is_so, who
from gputop.model import Snapshot
from gputop.model.selection import find
from gputop.sampling.messages import AlarmCleared, AlarmDetails, AlarmRaised, AlarmUnclear

UNCLEAR_AFTER_SECONDS: Final = 30.0
ASLEEP: Final = "the GPU is asleep and is not woken up to be read"

Event = AlarmRaised | AlarmCleared | AlarmUnclear


class Alarms:
    """All rules. *exists* tells whether this machine has a pid (None: cannot be told)."""

    def __init__(self, conditions: Iterable[Condition], exists: Callable[[int], bool | None] = lambda _: None) -> None:
        self._rules = [_Rule(condition, exists) for condition in conditions]
        self._looked_at: float | None = None  # steady
        self._now = 0.0  # seconds watched

    def look(self, snapshot: Snapshot) -> list[Event]:
        """What came of *snapshot*, the next one after the last."""
        passed = 0.0
        if self._looked_at is not None:
            passed = snapshot.steady_at - self._looked_at
            if not 0 <= passed <= 3 * snapshot.interval + 2:  # the machine slept
                passed = snapshot.interval
        self._looked_at = snapshot.steady_at
        self._now += passed
        return [event for rule in self._rules for event in rule.look(snapshot, self._now, passed)]

    @property
    def raised(self) -> list[AlarmDetails]:
        """The alarms raised now."""
        return [alarm for rule in self._rules for alarm in rule.raised()]

    def unknown_gpus(self, snapshot: Snapshot) -> list[str]:
        """The names after ``gpu:`` that are of no GPU of *snapshot*."""
        names = [name for rule in self._rules for name in rule.condition.selection.gpus]
        return [name for name in names if find(snapshot.gpus, name) is None]


def once(
    conditions: Iterable[Condition], snapshot: Snapshot, exists: Callable[[int], bool | None]
) -> tuple[list[AlarmDetails], list[AlarmDetails]]:
    """(what holds in *snapshot*, what cannot be told), whatever time it should hold for."""
    holding, unclear = [], []
    for condition in conditions:
        for subject, seen in Evaluation(condition, exists).of(snapshot):
            if seen.holds:
                holding.append(alarm(condition, subject, seen, what_is_so(condition, seen)))
            elif seen.holds is None:
                if seen.gpu is not None and seen.gpu.asleep:  # watched for long that is no news; asked once it is
                    seen.reason = ASLEEP
                unclear.append(alarm(condition, subject, seen, not_known(condition, seen)))
        if condition.scope is Scope.PROCESS:  # a GPU that cannot be read may have processes
            for gpu in snapshot.gpus:
                if not gpu.processes_known:
                    reason = gpu.error or gpu.processes_error or "it does not answer"
                    message = f"GPU {gpu.index} ({gpu.name}): {reason}"
                    unclear.append(AlarmDetails(condition.text, gpu.uuid, message, gpu))
    return holding, unclear


@dataclass(slots=True)
class _AlarmState:
    seen: Observation
    started: int | None
    raised: bool = False
    holding: bool = False  # at the last look that could tell
    held: float = 0.0
    unclear_for: float = 0.0
    reported: bool = False


class _Rule:
    """One condition and the states of all it is asked of. Quiet processes have none."""

    def __init__(self, condition: Condition, exists: Callable[[int], bool | None]) -> None:
        self.condition = condition
        self._evaluation = Evaluation(condition, exists)
        self._states: dict[str, _AlarmState] = {}

    def look(self, snapshot: Snapshot, now: float, passed: float) -> Iterator[Event]:
        at, states = snapshot.taken_at, self._states
        of_processes = self.condition.scope is Scope.PROCESS
        there = set()
        for subject, seen in self._evaluation.of(snapshot, now, passed, states):
            state = states.get(subject)
            if state is None and of_processes and not seen.holds:
                continue
            there.add(subject)
            if state is not None and of_processes and _another(state.started, seen.started):
                yield from self._end(subject, state, at, "the process is gone")
                state = None
            if state is None:
                state = states[subject] = _AlarmState(seen, seen.started)
            state.seen = seen
            if state.started is None:
                state.started = seen.started
            yield from self._step(subject, state, at, passed)
            if of_processes and seen.holds is False and not state.raised:
                del states[subject]
        if len(states) > len(there):
            yield from self._absent(snapshot, there, passed)

    def raised(self) -> Iterator[AlarmDetails]:
        for subject, state in self._states.items():
            if state.raised:
                yield self._alarm(subject, state.seen, what_is_so(self.condition, state.seen))

    def _step(self, subject: str, state: _AlarmState, at: float, passed: float) -> Iterator[Event]:
        seen = state.seen
        answer = seen.stays if state.raised else seen.holds
        if answer is None:
            state.unclear_for += passed
            if state.unclear_for >= UNCLEAR_AFTER_SECONDS and not state.reported and seen.reason:
                state.reported = True
                yield AlarmUnclear(at, self._alarm(subject, seen, not_known(self.condition, seen)), over=False)
            return
        if state.reported:
            message = f"{who(seen)}: can tell again whether {self.condition.text}"
            yield AlarmUnclear(at, self._alarm(subject, seen, message), over=True)
        was_clear, state.unclear_for, state.reported = not state.unclear_for, 0.0, False
        if state.raised:
            if not answer:
                state.raised = state.holding = False
                yield AlarmCleared(at, self._alarm(subject, seen, what_is_so(self.condition, seen)))
        elif answer:
            state.held += passed if state.holding and was_clear else 0.0
            state.holding = True
            if state.held >= self.condition.hold_seconds:
                state.raised, state.held = True, 0.0
                message = what_is_so(self.condition, seen, self.condition.hold_seconds)
                yield AlarmRaised(at, self._alarm(subject, seen, message))
        else:
            state.holding, state.held = False, 0.0

    def _absent(self, snapshot: Snapshot, there: set[str], passed: float) -> Iterator[Event]:
        """Subjects that this look does not show."""
        at, scope = snapshot.taken_at, self.condition.scope
        listed = {gpu.uuid for gpu in snapshot.gpus if readable(gpu) and gpu.processes_known}
        for subject in [subject for subject in self._states if subject not in there]:
            state = self._states[subject]
            seen = state.seen
            if scope is Scope.XID and seen.xid is not None:
                if snapshot.steady_at - seen.xid.steady_at >= XID_SECONDS:
                    yield from self._end(subject, state, at, no_more(seen.xid))
            elif scope is Scope.PROCESS and (seen.gpu is None or seen.gpu.uuid in listed):
                yield from self._end(subject, state, at, "the process is gone")
            elif scope is Scope.GPU and subject.startswith("slot:") and snapshot.gpus:
                yield from self._end(subject, state, at, "it answers")  # and goes on under its UUID
            else:
                lost = True if isinstance(self.condition.clauses[0], GpuLostCondition) else None
                message = "it is no longer there"
                state.seen = replace(seen, holds=lost, stays=lost, message=message, reason=message)
                yield from self._step(subject, state, at, passed)

    def _end(self, subject: str, state: _AlarmState, at: float, message: str) -> Iterator[Event]:
        del self._states[subject]
        if state.raised:
            yield AlarmCleared(at, self._alarm(subject, state.seen, f"{who(state.seen)}: {message}"))

    def _alarm(self, subject: str, seen: Observation, message: str) -> AlarmDetails:
        return alarm(self.condition, subject, seen, message)


def _another(before: int | None, now: int | None) -> bool:
    """Whether a pid is another process's than before, by their start times."""
    return None not in (before, now) and before != now
