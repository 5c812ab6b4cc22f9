"""What the host says about a pid, and what is done to it.

The protocols here are spoken by the poller (:class:`HostReader`) and by the screens that send signals
(:class:`Signals`); the real ones read /proc and use pidfds, the simulated ones belong to ``--demo``.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gputop.model import Host, HostFacts, ProcessKey, TorchReport
from gputop.processes.kin import Kin


class HostReader(Protocol):
    """Reads the host's side of processes. Not thread-safe: one thread owns it."""

    def read(self, pids: Iterable[int], fresh: Collection[int] | None = None) -> Mapping[int, HostFacts]:
        """Facts of *pids* that the host has. Those in *fresh* (None: all) are read anew; of the others the last known
        are given, or the first ones where there are none yet. What is kept of pids not asked for is dropped."""
        ...

    def exists(self, pid: int) -> bool | None:
        """Whether the host has the pid (EPERM means yes). None where that cannot be told: gputop runs in another PID
        namespace than the driver's pids."""
        ...

    def machine(self) -> Host:
        """The host line: CPU, memory, load."""
        ...

    def torch_reports(self, facts: Mapping[int, HostFacts]) -> Mapping[int, TorchReport]:
        """What those of *facts* that use gputop.torch_monitor tell, by pid."""
        ...

    def details(self, key: ProcessKey) -> ProcessDetails | None:
        """More about one process, for the details screen. None when it is gone or its pid was reused."""
        ...


@dataclass(frozen=True, slots=True)
class ProcessDetails:
    """What the details screen shows beside the table's columns. None: not permitted, or not known."""

    facts: HostFacts
    cwd: str | None = None
    executable: str | None = None
    ancestors: tuple[HostFacts, ...] = ()  # the parent first
    children: tuple[HostFacts, ...] = ()
    environment: tuple[tuple[str, str], ...] | None = None  # allow-listed names only
    nvidia_devices: tuple[str, ...] | None = None  # /dev/nvidia* it holds open
    cgroup: str | None = None
    problems: tuple[str, ...] = ()


class Outcome(enum.Enum):
    """What became of a signal."""

    SENT = "sent"
    ALREADY_GONE = "already gone"
    PID_REUSED = "pid reused: nothing sent"
    NOT_PERMITTED = "not permitted"
    NOT_OWNER = "not the owner of this GPU memory: nothing sent"
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
    kin: bool = False  # taken in because of its kinship, so it need not hold a GPU itself


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a signal to one target, in words for the user."""

    target: Target
    outcome: Outcome
    words: str
    guarded: bool = True  # False: no pidfd on this kernel, only the start time was compared


class Hold(Protocol):
    """A grip on one process, taken before anything is sent: as long as it is held, its pid cannot be mistaken."""

    target: Target

    def send(self, signal: int) -> Result: ...

    def exited(self) -> bool: ...

    def stuck_in(self) -> str | None:
        """Where in the kernel it is stuck (state D), in words; None where it is not."""
        ...

    def close(self) -> None: ...


class Signals(Protocol):
    """The way to send signals; there is none under --read-only."""

    def hold(self, target: Target) -> Hold | Result:
        """Take hold of the process, or say why not (gone, reused, refused, not the owner)."""
        ...

    def kin(self, of: Collection[ProcessKey]) -> Kin:
        """The living relatives of the processes *of*, as they are now. May block."""
        ...
