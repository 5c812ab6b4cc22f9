"""What the poller asks of the host: facts about pids and the machine. /proc answers, or a simulation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gputop.model import Host, HostFacts, ProcessKey, TorchReport


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
    late: tuple[str, ...] = ()  # what did not answer in time: "environment"
    problems: tuple[str, ...] = ()
