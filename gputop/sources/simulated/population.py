"""The processes of a simulated machine: which run, how each ends, and whose GPU memory outlives its owner."""

from __future__ import annotations

import heapq
import itertools
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from gputop.model import ProcessKey
from gputop.sources.simulated.noise import noise
from gputop.sources.simulated.workloads import REST, Idle, Load, Workload
from gputop.units import MIB

TICKS_PER_SECOND: Final = 100
IGNORED: Final = frozenset({0, signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH})
STOPPING: Final = frozenset({signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
CATCHABLE: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class GpuShare:
    """One process's share of one GPU (or MIG instance)."""

    gpu: int
    workload: Workload
    kind: str = "C"
    instance: int | None = None  # GPU instance id; the compute instance is always 0
    still: bool = field(init=False)  # nothing about it ever changes

    def __post_init__(self) -> None:
        object.__setattr__(self, "still", isinstance(self.workload, Idle))


@dataclass(slots=True, eq=False)
class SimulatedProcess:
    """A process. Times are simulated seconds; memory bytes; cpu percent of a core."""

    pid: int
    parent: int
    name: str
    command: str
    user: str
    uid: int
    started: float
    uses: tuple[GpuShare, ...] = ()
    cpu_rest: float = 0.0
    cpu_busy: float = 0.0  # added while its GPU is fully busy
    rss: int = 8 * MIB
    threads: int = 1
    cwd: str = "/"
    executable: str = "/usr/bin/python3.12"
    job: str | None = None  # Slurm
    cgroup: str = ""  # its path, where that does not follow from the rest
    environment: tuple[tuple[str, str], ...] = ()  # beside what follows from the rest
    ignores_term: bool = False
    stopped: bool = False
    stuck: bool = False  # D: in a driver call that does not return
    follows_parent: bool = False  # a data worker notices its parent's death and ends
    leads: bool = False  # ended in good order, it ends its children too (torchrun, mpirun)
    held_from: int | None = None  # pid whose CUDA context it got by fork and keeps alive
    pending: int = 0  # a fatal signal that waits for SIGCONT
    ends_at: float = NEVER
    dies_of: str = ""
    on_end: Callable[[SimulatedProcess, float], None] | None = None
    group: int = 0
    session: int = 0

    @property
    def start_ticks(self) -> int:
        return int((self.started + BOOTED_BEFORE_SECONDS) * TICKS_PER_SECOND)

    @property
    def key(self) -> ProcessKey:
        return ProcessKey(self.pid, self.start_ticks)

    def load(self, use: GpuShare, t: float) -> Load:
        if self.stopped or self.stuck or not self.started <= t < self.ends_at:
            return REST
        return use.workload.load(t)


#: The machine's clock ticks count from its boot, this long before the simulation began.
BOOTED_BEFORE_SECONDS: Final = 23.4 * 86400.0


@dataclass(slots=True)
class Population:
    """All processes by pid, and those that hold GPU memory by GPU. What changes by itself (ends, memory released later,
    restarts, whatever a scenario schedules) waits in a queue by its exact time; ``advance`` works it off, so that how
    often somebody looks changes nothing. Time never runs back.

    A process that has ended stays here until its GPU memory is released: for as long as somebody lives who inherited
    it by fork. NVML goes on listing such a pid.
    """

    gpu_count: int
    processes: dict[int, SimulatedProcess] = field(default_factory=dict)
    on_gpu: list[list[tuple[SimulatedProcess, GpuShare]]] = field(default_factory=list)
    version: int = 0  # changes whenever somebody comes, goes or is signalled
    _queue: list[tuple[float, int, Callable[[float], None]]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _inheritors: dict[int, set[int]] = field(default_factory=dict)  # pid: those who inherited its context
    _highest_pid: int = 0

    def __post_init__(self) -> None:
        self.on_gpu = [[] for _ in range(self.gpu_count)]

    # ------------------------------------------------------------------- time

    def at(self, t: float, action: Callable[[float], None]) -> None:
        """Do *action* at *t*."""
        heapq.heappush(self._queue, (t, next(self._numbers), action))

    def advance(self, t: float, before: Callable[[float], None] | None = None) -> None:
        """Do what is due up to *t*, in order; *before* is told the time of each change first."""
        while self._queue and self._queue[0][0] <= t:
            due, _, action = heapq.heappop(self._queue)
            if before is not None:
                before(due)
            action(due)
            self.version += 1

    # -------------------------------------------------------------- life and death

    def add(self, process: SimulatedProcess) -> SimulatedProcess:
        if process.pid in self.processes:
            raise ValueError(f"pid {process.pid} is taken")
        self.processes[process.pid] = process
        for use in process.uses:
            self.on_gpu[use.gpu].append((process, use))
        if process.held_from is not None:
            self._inheritors.setdefault(process.held_from, set()).add(process.pid)
        self._highest_pid = max(self._highest_pid, process.pid)
        self.version += 1
        return process

    def new_pid(self) -> int:
        return self._highest_pid + 3 + int(40 * noise(self._highest_pid, 5))

    def alive(self, pid: int, t: float) -> SimulatedProcess | None:
        process = self.processes.get(pid)
        return process if process is not None and process.started <= t < process.ends_at else None

    def holders(self, pid: int, t: float) -> list[SimulatedProcess]:
        """Living processes that keep the GPU memory of *pid* though it may be gone."""
        inheritors = (self.alive(inheritor, t) for inheritor in sorted(self._inheritors.get(pid, ())))
        return [inheritor for inheritor in inheritors if inheritor is not None]

    def end(self, process: SimulatedProcess, at: float, cause: str) -> None:
        """Let *process* end *at* a time, unless it does so earlier anyway."""
        if at < process.ends_at:
            process.ends_at, process.dies_of = at, cause
            self.at(at, lambda t: self._ended(process, t))

    def _ended(self, process: SimulatedProcess, t: float) -> None:
        if process.ends_at != t:  # it ended earlier than was planned
            return
        for child in [p for p in self.processes.values() if p.parent == process.pid]:
            child.parent = 1
            if child.follows_parent:
                self.end(child, t + 0.2 + noise(child.pid, 3), "its parent is gone")
            elif process.leads and process.dies_of != "SIGKILL":
                self.signal(child, signal.SIGTERM, t)
        if process.on_end is not None:
            process.on_end(process, t)
        # freed 0.1 s after the end was seen on an H200; a little more where there is much to free
        self.at(t + 0.08 + 0.3 * noise(process.pid, 17), lambda _: self._free(process))

    def _free(self, process: SimulatedProcess) -> None:
        if self._inheritors.get(process.pid):
            return
        self.processes.pop(process.pid, None)
        for use in process.uses:
            self.on_gpu[use.gpu].remove((process, use))
        if process.held_from is not None:
            inheritors = self._inheritors[process.held_from]
            inheritors.discard(process.pid)
            owner = self.processes.get(process.held_from)
            if not inheritors and owner is not None and owner.ends_at < process.ends_at:
                self._free(owner)

    # ---------------------------------------------------------------- signals

    def signal(self, process: SimulatedProcess, number: int, t: float) -> None:
        """What *number* does to *process*: at once for SIGSTOP and SIGCONT, a little later where it is fatal."""
        self.version += 1
        if number in IGNORED:
            return
        if number in STOPPING:
            process.stopped = True
        elif number == signal.SIGCONT:
            process.stopped = False
            self._deliver(process, t)
        elif process.stuck or (process.stopped and number != signal.SIGKILL):
            process.pending = signal.SIGKILL if process.pending == signal.SIGKILL else number
        elif number == signal.SIGKILL:
            self.end(process, t + 0.03 + 0.05 * noise(process.pid, 11), "SIGKILL")
        elif not (process.ignores_term and number in CATCHABLE):
            self.end(process, t + 0.1 + 0.7 * noise(process.pid, 13), f"signal {number}")

    def release(self, process: SimulatedProcess, t: float) -> None:
        """The driver lets go of the call that *process* was stuck in: what was pending is delivered."""
        process.stuck = False
        self._deliver(process, t)

    def _deliver(self, process: SimulatedProcess, t: float) -> None:
        pending, process.pending = process.pending, 0
        if pending:
            self.signal(process, pending, t)
