"""Sending signals, as the screens ask for it: by pidfd on a real machine, to nobody's harm on a simulated one."""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from gputop.model import ProcessKey
from gputop.signals.scope import RelatedProcesses


class Outcome(enum.Enum):
    """What became of a signal."""

    SENT = "sent"
    ALREADY_GONE = "already gone"
    PID_REUSED = "pid reused"
    NOT_PERMITTED = "not permitted"
    NOT_OWNER = "has no GPU open"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Target:
    """A process a signal is meant for, frozen when the key was pressed."""

    key: ProcessKey
    user: str | None = None
    command: str | None = None
    memory_bytes: int | None = None  # GPU memory it holds, over all GPUs
    gpu_uuids: tuple[str, ...] = ()
    related: bool = False  # a related process of the one chosen, so it need not hold a GPU itself


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a signal to one target, for the user."""

    target: Target
    outcome: Outcome
    message: str
    guarded: bool = True  # False: no pidfd on this kernel, only the start time was compared


class ProcessHandle(Protocol):
    """One process, opened before anything is sent: while the handle is open, no reused pid is mistaken for it."""

    target: Target

    def send(self, signal: int) -> Result: ...

    def exited(self) -> bool: ...

    def stuck_in(self) -> str | None:
        """Where in the kernel it is stuck (state D); None where it is not."""
        ...

    def close(self) -> None: ...


class Signals(Protocol):
    """The way to send signals; there is none under --read-only."""

    def open(self, target: Target) -> ProcessHandle | Result:
        """Open the process, or say why not (gone, reused, refused, not the owner)."""
        ...

    def related(self, of: Collection[ProcessKey]) -> RelatedProcesses:
        """The living processes related to those *of*, as they are now. May block."""
        ...
