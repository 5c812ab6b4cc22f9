"""What the leak rules want to know of one process, and who finds it out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from gputop.leaks.holders.holder import HolderScan
from gputop.model import HostFacts, ProcessKey
from gputop.model.owner import Owner, Relative


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """What the leak rules want to know of one process beside its :class:`~gputop.model.HostFacts`. None: not
    permitted, or not known."""

    facts: HostFacts
    read_at: float
    owner: Owner = field(default_factory=Owner)
    ancestors: tuple[Relative, ...] = ()  # the parent first, up to pid 1
    leader_exists: bool | None = None  # the leader of its session
    group_leader_exists: bool | None = None
    ignores_hangup: bool | None = None  # SigIgn bit 0 of /proc/PID/status: nohup
    has_terminal: bool | None = None  # tty_nr of /proc/PID/stat
    lost_terminal: str | None = None  # "/dev/pts/3", deleted, on its descriptor 0, 1 or 2
    deleted_executable: str | None = None
    deleted_directory: str | None = None
    waits_in: str | None = None  # /proc/PID/wchan: where in the kernel
    slurm_job_claimed: str | None = None  # SLURM_JOB_ID of its environment
    slurm_job_running: bool | None = None  # whether a cgroup of that job exists on this machine
    children: tuple[ProcessKey, ...] | None = None  # child processes
    holds_device: bool | None = None  # False: it has no NVIDIA device open or mapped, so no GPU memory is its own


class Investigator(Protocol):
    """Finds out what the rules want to know. Slow (milliseconds to seconds): only ever called by the leak watch's own
    thread, or by ``gputop leaks``."""

    def context(self, facts: HostFacts) -> ProcessContext | None:
        """Of one process; None when it is gone or its pid was reused."""
        ...

    def owner(self, facts: HostFacts) -> Owner:
        """Only to whom it belongs; kept per :class:`~gputop.model.ProcessKey`."""
        ...

    def scan(self, with_maps: bool = False) -> HolderScan:
        """Look for all holders of NVIDIA devices."""
        ...

    def is_alive(self, key: ProcessKey) -> bool:
        """Whether the process is still there."""
        ...

    def forget(self, living: Iterable[ProcessKey]) -> None:
        """Drop what is kept of others than *living*."""
        ...
