"""Peoples a simulated machine: users, their terminals, and families of processes in them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from gputop.model import clean_text
from gputop.sources.simulated.boards import GIB, MIB
from gputop.sources.simulated.population import BOOTED_BEFORE, Population, SimulatedProcess, Use
from gputop.sources.simulated.workloads import Workload

USERS: Final = {
    "root": 0, "gdm": 120, "triton": 998, "vllm": 997, "ml": 1001, "cv": 1002, "alice": 1003, "bob": 1004, "carol": 1005,
    "dmitri": 1006, "emre": 1007, "yuki": 1008, "nlp": 1009, "speech": 1010, "zhang": 1011, "olamide": 1012,
}  # fmt: skip

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def on(gpus: int | Iterable[int], workload: Workload, kind: str = "C", instance: int | None = None) -> tuple[Use, ...]:
    """The same workload on one or several GPUs."""
    return tuple(Use(gpu, workload, kind, instance) for gpu in ((gpus,) if isinstance(gpus, int) else gpus))


@dataclass
class Crew:
    """Adds processes with plausible pids and parents. ``ago`` is how long before the story's beginning they started."""

    population: Population
    rng: random.Random
    _pid: int = 0
    _services: int = 0
    _shells: dict[str, SimulatedProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        boot = BOOTED_BEFORE - 1.0
        self._add(1, 0, "systemd", "/sbin/init splash", "root", boot, rss=13 * MIB, executable="/usr/lib/systemd/systemd")
        self._add(2, 0, "kthreadd", "[kthreadd]", "root", boot, rss=0)
        self._pid = 30_000 + self.rng.randrange(9_000)

    def skip_to(self, pid: int) -> None:
        """Let the next process have *pid*."""
        self._pid = pid

    def _take(self) -> int:
        pid = self._pid
        while pid in self.population.processes:
            pid += 1
        self._pid = pid + 1
        return pid

    def _add(
        self, pid: int, parent: int, name: str, command: str, user: str, ago: float, *, rss: int = 8 * MIB,
        group: int = 0, session: int = 0, **more: object,
    ) -> SimulatedProcess:  # fmt: skip
        return self.population.add(
            SimulatedProcess(
                pid, parent, clean_text(name)[:15], clean_text(command), clean_text(user), USERS.get(user, 1042), -ago,
                rss=rss, group=group or pid, session=session or pid, **more,  # type: ignore[arg-type]
            )
        )  # fmt: skip

    def shell(self, user: str, window: str = "0", ago: float = 3 * DAY) -> SimulatedProcess:
        """A bash in a tmux window of *user*'s."""
        key = f"{user}:{window}"
        if key not in self._shells:
            tmux = self._shells.get(user)
            if tmux is None:
                tmux = self._add(self._take(), 1, "tmux: server", "tmux new -s main", user, ago + HOUR, rss=9 * MIB)
                self._shells[user] = tmux
                self._pid += self.rng.randrange(2, 9)
            pid = self._take()
            self._shells[key] = self._add(pid, tmux.pid, "bash", "-bash", user, ago, session=pid, group=pid)
            self._pid += self.rng.randrange(2, 30)
        return self._shells[key]

    def run(
        self, user: str, command: str, uses: tuple[Use, ...] = (), *, ago: float = HOUR, rss: float = 3.0, cpu: float = 100.0,
        rest: float = 0.0, threads: int = 40, parent: SimulatedProcess | int | None = None, name: str | None = None,
        pid: int | None = None, job: str | None = None, executable: str | None = None, **more: object,
    ) -> SimulatedProcess:  # fmt: skip
        """One process. *rss* in GiB; *cpu* is what it uses of a core while its GPU is busy, *rest* always. Without
        *parent* it belongs to a shell of its own user."""
        if parent is None:
            parent = self.shell(user, str(self.rng.randrange(4)), ago + self.rng.uniform(0.2, 9) * HOUR)
        if pid is None:
            pid = self._take()
            self._pid += self.rng.randrange(1, 40)
        program = command.split(" ", 1)[0]
        parent_pid = parent if isinstance(parent, int) else parent.pid
        inherited = isinstance(parent, SimulatedProcess) and parent.name != "bash"
        return self._add(
            pid, parent_pid, name or program.rsplit("/", 1)[-1], command, user, ago, rss=int(rss * GIB), uses=uses,
            cpu_busy=cpu, cpu_rest=rest, threads=threads, job=job, cwd=f"/home/{user}" if USERS.get(user, 1042) > 1000 else "/",
            executable=executable or (program if program.startswith("/") else f"/home/{user}/venv/bin/{program}"),
            group=parent.group if inherited and isinstance(parent, SimulatedProcess) else pid,
            session=parent.session if isinstance(parent, SimulatedProcess) else pid, **more,
        )  # fmt: skip

    def service(self, user: str, command: str, uses: tuple[Use, ...] = (), **more: object) -> SimulatedProcess:
        """A process that systemd started."""
        return self.run(user, command, uses, parent=1, **({"ago": 11 * DAY} | more))  # type: ignore[arg-type]

    def data_workers(self, parent: SimulatedProcess, count: int, cpu: float = 60.0) -> list[SimulatedProcess]:
        """DataLoader workers: forked, without a GPU context of their own, gone when the parent is."""
        return [
            self.run(
                parent.user, parent.command, parent=parent, pid=self._take(), ago=-parent.started - 20.0 - k * 0.1, rss=1.4,
                cpu=cpu, threads=9, name="pt_data_worker", follows_parent=True, executable=parent.executable,
                job=parent.job,
            )
            for k in range(count)
        ]  # fmt: skip

    def torchrun(
        self, user: str, script: str, gpus: Iterable[int], workload: Callable[[int], Workload], *, ago: float,
        workers: int = 0, job: str | None = None, rss: float = 7.4,
    ) -> SimulatedProcess:  # fmt: skip
        """A torchrun with a rank on each GPU, and *workers* data workers a rank."""
        gpus = list(gpus)
        launcher = self.run(
            user, f"/opt/conda/bin/python /opt/conda/bin/torchrun --nproc-per-node {len(gpus)} {script}", ago=ago, rss=0.4,
            cpu=0.0, rest=0.4, threads=12, name="torchrun", job=job, leads=True,
        )  # fmt: skip
        for rank, gpu in enumerate(gpus):
            child = self.run(
                user, f"/opt/conda/bin/python -u {script}", on(gpu, workload(rank)), parent=launcher, pid=self._take(),
                ago=ago - 6.0, rss=rss, cpu=101.0, rest=2.0, threads=74, name="python", job=job,
            )  # fmt: skip
            self.data_workers(child, workers)
        self._pid += self.rng.randrange(5, 60)
        return launcher


def restarting(
    population: Population, first: SimulatedProcess, after: float, workload: Callable[[float], Workload], gpu: int,
    lives: Callable[[Workload], float] | None = None, cause: str = "out of memory",
) -> None:  # fmt: skip
    """Let *first* be started anew *after* seconds whenever it ends, with ``workload(start)``; where *lives* is given, each
    life ends by itself after so many seconds."""

    def settle(process: SimulatedProcess, work: Workload) -> None:
        process.successor = successor
        if lives is not None:
            process.ends_at, process.dies_of = process.started + lives(work), cause

    def successor(end: float) -> SimulatedProcess:
        start = end + after
        work = workload(start)
        born = SimulatedProcess(
            population.new_pid(), first.parent, first.name, first.command, first.user, first.uid, start, on(gpu, work),
            first.cpu_rest, first.cpu_busy, first.rss, first.threads, first.cwd, first.executable, first.job,
            group=first.group, session=first.session,
        )  # fmt: skip
        settle(born, work)
        return born

    first.successor = successor
    if lives is not None:
        population.end(first, lives(first.uses[0].workload), cause)
