"""The processes of a simulated machine: who lives, who dies of what, and whose GPU memory outlives whom."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gputop.model import ProcessKey
from gputop.sources.simulated.boards import MIB
from gputop.sources.simulated.rhythm import noise
from gputop.sources.simulated.workloads import REST, Load, Workload

TICKS_PER_SECOND: Final = 100
HARMLESS: Final = frozenset({0, signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH})
NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Use:
    """One process's share of one GPU (or MIG instance)."""

    gpu: int
    workload: Workload
    kind: str = "C"
    instance: int | None = None  # GPU instance id; the compute instance is always 0


@dataclass(slots=True, eq=False)
class SimulatedProcess:
    """A process. Times are seconds of the machine's story; memory bytes; cpu percent of a core."""

    pid: int
    parent: int
    name: str
    command: str
    user: str
    uid: int
    started: float
    uses: tuple[Use, ...] = ()
    cpu_rest: float = 0.0
    cpu_busy: float = 0.0  # added while its GPU is fully busy
    rss: int = 8 * MIB
    threads: int = 1
    cwd: str = "/"
    executable: str = "/usr/bin/python3.12"
    job: str | None = None  # Slurm
    ignores_term: bool = False
    stopped: bool = False
    stuck: bool = False  # D: in a driver call that does not return
    follows_parent: bool = False  # a data worker notices its parent's death and ends
    leads: bool = False  # ended in good order, it ends its children too (torchrun, mpirun)
    inherited_from: int | None = None  # pid whose CUDA context it got by fork and keeps alive
    pending: int = 0  # a fatal signal that waits for SIGCONT
    ends_at: float = NEVER
    dies_of: str = ""
    successor: Callable[[float], SimulatedProcess] | None = None  # who takes its place, given the time of its end
    group: int = 0
    session: int = 0
    passed: bool = False  # its end has been dealt with

    @property
    def start_ticks(self) -> int:
        return int((self.started + BOOTED_BEFORE) * TICKS_PER_SECOND)

    @property
    def key(self) -> ProcessKey:
        return ProcessKey(self.pid, self.start_ticks)

    def load(self, use: Use, t: float) -> Load:
        if self.stopped or self.stuck or not self.started <= t < self.ends_at:
            return REST
        return use.workload.load(t)

    def released_at(self) -> float:
        """When its GPU memory is free again after its end, unless somebody inherited it (0.1 s per 20 GiB seen)."""
        return self.ends_at + 0.08 + 0.3 * noise(self.pid, 17)


#: The machine's clock ticks count from its boot, this long before the story began.
BOOTED_BEFORE: Final = 23.4 * 86400.0


@dataclass(slots=True)
class Population:
    """All processes by pid, those that hold GPU memory by GPU. ``advance`` brings it to a time; time never runs back.

    ``ghosts`` are pids that ended but whose memory lives on in processes that inherited it by fork: NVML goes on
    listing them.
    """

    gpu_count: int
    processes: dict[int, SimulatedProcess] = field(default_factory=dict)
    on_gpu: list[list[tuple[SimulatedProcess, Use]]] = field(default_factory=list)
    version: int = 0  # changes whenever somebody comes, goes or is signalled
    _ending: list[SimulatedProcess] = field(default_factory=list)  # those with an end in sight
    _heirs: dict[int, set[int]] = field(default_factory=dict)  # pid: those who inherited its context
    _highest_pid: int = 0

    def __post_init__(self) -> None:
        self.on_gpu = [[] for _ in range(self.gpu_count)]

    def add(self, process: SimulatedProcess) -> SimulatedProcess:
        self.processes[process.pid] = process
        for use in process.uses:
            self.on_gpu[use.gpu].append((process, use))
        if process.inherited_from is not None:
            self._heirs.setdefault(process.inherited_from, set()).add(process.pid)
        if process.ends_at < NEVER:
            self._ending.append(process)
        self._highest_pid = max(self._highest_pid, process.pid)
        self.version += 1
        return process

    def new_pid(self) -> int:
        return self._highest_pid + 3 + int(40 * noise(self._highest_pid, 5))

    def alive(self, pid: int, t: float) -> SimulatedProcess | None:
        process = self.processes.get(pid)
        return process if process is not None and process.started <= t < process.ends_at else None

    def holders(self, pid: int, t: float) -> list[SimulatedProcess]:
        """Living processes that keep the GPU memory of *pid* alive though it may be gone."""
        heirs = (self.alive(heir, t) for heir in sorted(self._heirs.get(pid, ())))
        return [heir for heir in heirs if heir is not None]

    def end(self, process: SimulatedProcess, at: float, cause: str) -> None:
        if process.ends_at > at:
            if process.ends_at == NEVER:
                self._ending.append(process)
            process.ends_at, process.dies_of = at, cause
            self.version += 1

    def advance(self, t: float) -> None:
        """Let those end whose time has come, and forget those whose memory is released too."""
        if not self._ending:
            return
        while due := [p for p in self._ending if p.ends_at <= t and not p.passed]:
            self._pass_on(min(due, key=lambda p: (p.ends_at, p.pid)))
        while freed := [p for p in self._ending if p.released_at() <= t and not self._heirs.get(p.pid)]:
            for process in freed:
                self._bury(process)

    def _pass_on(self, process: SimulatedProcess) -> None:
        process.passed = True
        for child in [p for p in self.processes.values() if p.parent == process.pid]:
            child.parent = 1
            if child.follows_parent:
                self.end(child, process.ends_at + 0.2 + noise(child.pid, 3), "its parent is gone")
            elif process.leads and process.dies_of != "SIGKILL":
                self.signal(child, signal.SIGTERM, process.ends_at)
        if process.successor is not None:
            self.add(process.successor(process.ends_at))
        self.version += 1

    def _bury(self, process: SimulatedProcess) -> None:
        self._ending.remove(process)
        self.processes.pop(process.pid, None)
        for use in process.uses:
            self.on_gpu[use.gpu].remove((process, use))
        if process.inherited_from is not None:
            self._heirs.get(process.inherited_from, set()).discard(process.pid)
        self.version += 1

    def signal(self, process: SimulatedProcess, number: int, t: float) -> None:
        """What *number* does to *process*: at once for SIGSTOP and SIGCONT, after a plausible time where it is fatal."""
        self.version += 1
        if number in HARMLESS:
            return
        if number in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
            process.stopped = True
        elif number == signal.SIGCONT:
            process.stopped = False
            if process.pending:
                pending, process.pending = process.pending, 0
                self.signal(process, pending, t)
        elif process.stuck:
            process.pending = number  # even SIGKILL waits until the driver lets go
        elif number == signal.SIGKILL:
            self.end(process, t + 0.03 + 0.05 * noise(process.pid, 11), "SIGKILL")
        elif process.stopped:
            process.pending = number
        elif not (process.ignores_term and number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)):
            self.end(process, t + 0.1 + 0.7 * noise(process.pid, 13), signal.Signals(number).name)

    def release_stuck(self, gpu: int, t: float) -> None:
        """The driver lets go of the calls that hung on *gpu*: what was pending is delivered."""
        for process, use in list(self.on_gpu[gpu]):
            if process.stuck and use.gpu == gpu:
                process.stuck = False
                if process.pending:
                    pending, process.pending = process.pending, 0
                    self.signal(process, pending, t)
