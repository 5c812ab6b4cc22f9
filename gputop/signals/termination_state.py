"""How far it is with ending one process."""

from __future__ import annotations

import enum
import signal
from dataclasses import dataclass, field
from typing import Final

from gputop.model import HostFacts
from gputop.signals.protocol import ProcessHandle, Result, Target

#: After these a process is expected to end, so one that was stopped is continued (else they stay pending).
TERMINATION_SIGNALS: Final = frozenset(
    (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT)
)


class TerminationState(enum.Enum):
    """How far it is with one process."""

    WAITING = "being opened"
    READY = "ready"
    REFUSED = "nothing sent"
    GONE = "already gone"
    RUNNING = "sent, still running"
    EXITED = "exited, memory not seen back yet"
    RELEASED = "exited, memory back"
    KEPT = "exited, memory still used"


@dataclass(slots=True)
class ProcessTermination:
    """One process that is being ended. Times are the clock's; ``*_steady`` are epoch seconds by ``steady_time``."""

    target: Target
    memory: dict[str, int | None] = field(default_factory=dict)  # GPU's UUID -> bytes held there when frozen
    facts: HostFacts | None = None  # as of the snapshot it was chosen from
    state: TerminationState = TerminationState.WAITING
    handle: ProcessHandle | None = None
    result: Result | None = None  # the refusal, or the answer to the last signal
    continued: bool = False  # SIGCONT was sent too
    number: int | None = None  # the last signal
    sent_at: float = 0.0
    sent_steady: float = 0.0
    sent_wall: float = 0.0  # epoch seconds, to show
    exited_at: float = 0.0
    exited_steady: float = 0.0
    back_after: float = 0.0  # seconds from the signal to the memory being back
    back: set[str] = field(default_factory=set)  # GPUs on which it is
    listed: bool = False  # the driver still listed the pid when last looked
    stuck_in: str | None = None  # where in the kernel it is stuck after SIGKILL
    unreaped_by: int | None = None  # its parent, where it is a zombie because that has not reaped it
    respawned: HostFacts | None = None  # the process that came in its place

    @property
    def memory_bytes(self) -> int | None:
        """GPU memory over all GPUs; None where the driver says of none."""
        known = [bytes_ for bytes_ in self.memory.values() if bytes_ is not None]
        return sum(known) if known else self.target.memory_bytes
