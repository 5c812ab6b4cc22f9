"""Graceful termination: SIGTERM to the first process, then to the others, SIGKILL to those left after the grace time.

A parent that is asked first can end its workers itself (DataLoader, torchrun, vLLM). Nothing is ever sent to a number:
each process is held open by a pidfd before the first signal, and those that appear later are found through living
relatives.
"""

from __future__ import annotations

import enum
import signal
import time
from collections.abc import Callable, Sequence

from gputop.model import HostFacts, ProcessKey, Snapshot
from gputop.signals.protocol import Signals, Target
from gputop.signals.scope import SignalScope
from gputop.signals.termination_state import ProcessTermination, TerminationState
from gputop.signals.terminations import Terminations
from gputop.signals.timeouts import GRACE_SECONDS, LEADER_ALONE_SECONDS


class TerminationStep(enum.Enum):
    LEADER = "SIGTERM to the first"
    OTHERS = "SIGTERM to the others"
    KILL = "SIGKILL to those left"
    DONE = "done"


class GracefulTermination:
    """Driven from outside: when :attr:`due` says so, call :meth:`act` (it may block: not on the event loop)."""

    def __init__(
        self,
        terminations: Terminations,
        signals: Signals,
        scope: SignalScope = SignalScope.PROCESS,
        grace: float = GRACE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.terminations, self.scope, self.grace = terminations, scope, grace
        self.step = TerminationStep.LEADER
        self.joined = 0  # members that appeared after the first signal
        self._signals, self._clock = signals, clock
        self._began = self._asked = clock()

    @property
    def due(self) -> bool:
        """Whether :meth:`act` has something to do now."""
        now = self._clock()
        match self.step:
            case TerminationStep.LEADER:
                return True
            case TerminationStep.OTHERS:
                leader = self.terminations.all[0].state is TerminationState.RUNNING
                return not leader or now - self._began >= LEADER_ALONE_SECONDS
            case TerminationStep.KILL:
                return now - self._asked >= self.grace or not self._left()
        return False

    @property
    def seconds_left(self) -> float | None:
        """Until SIGKILL; None where it is not counted down to."""
        if self.step not in (TerminationStep.OTHERS, TerminationStep.KILL) or not self._left():
            return None
        return max(0.0, self.grace - (self._clock() - self._asked))

    def stop(self) -> None:
        """Send nothing more."""
        self.step = TerminationStep.DONE

    def act(self, snapshot: Snapshot | None) -> None:
        """Do what is due."""
        terminations = self.terminations
        match self.step:
            case TerminationStep.LEADER:
                self._began = self._asked = self._clock()
                ready = terminations.those(TerminationState.READY)
                alone = self.scope in (SignalScope.DESCENDANTS, SignalScope.GROUP, SignalScope.SESSION)
                terminations.send(signal.SIGTERM, ready[:1] if alone else ready, snapshot)
                self.step = TerminationStep.OTHERS if len(ready) > 1 and alone else TerminationStep.KILL
            case TerminationStep.OTHERS:
                self._join()
                terminations.watch()
                terminations.send(signal.SIGTERM, terminations.those(TerminationState.READY), snapshot)
                self._asked = self._clock()
                self.step = TerminationStep.KILL
            case TerminationStep.KILL:
                terminations.watch()
                self._join()
                terminations.send(
                    signal.SIGKILL, terminations.those(TerminationState.RUNNING, TerminationState.READY), snapshot
                )
                self._join()  # who was forked between the look and the signal
                terminations.send(signal.SIGKILL, terminations.those(TerminationState.READY), snapshot)
                self.step = TerminationStep.DONE

    def _left(self) -> list[ProcessTermination]:
        return self.terminations.those(TerminationState.RUNNING, TerminationState.READY)

    def _join(self) -> None:
        """Add members that appeared since, as far as a living member leads to them."""
        if self.scope not in (SignalScope.DESCENDANTS, SignalScope.GROUP, SignalScope.SESSION):
            return
        known = {termination.target.key for termination in self.terminations.all}
        living = {termination.target.key for termination in self._left()}
        if not living:
            return
        new = [facts for facts in self._signals.related(living).of(self.scope) if facts.key not in known]
        if new:
            self.joined += len(new)
            self.terminations.adopt(targets_of(new), {facts.key: facts for facts in new})
            self.terminations.open_handles(self._signals)


def targets_of(relatives: Sequence[HostFacts]) -> list[Target]:
    """Targets for processes that need not be on a GPU."""
    return [Target(facts.key, facts.user, facts.command or facts.name, related=True) for facts in relatives]


def with_related(
    chosen: Sequence[Target], relatives: Sequence[HostFacts]
) -> tuple[list[Target], dict[ProcessKey, HostFacts]]:
    """*chosen* and then their *relatives*, each once; and the relatives' facts."""
    known = {target.key for target in chosen}
    more = [facts for facts in relatives if facts.key not in known]
    return [*chosen, *targets_of(more)], {facts.key: facts for facts in more}
