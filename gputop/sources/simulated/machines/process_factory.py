"""Adds the processes of a simulated machine: users, their terminals, and trees of processes in them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from gputop.model import clean_text
from gputop.sources.simulated.population import BOOTED_BEFORE_SECONDS, NEVER, GpuShare, Population, SimulatedProcess
from gputop.sources.simulated.workloads import Workload
from gputop.units import GIB, MIB

USERS: Final = {
    "root": 0, "gdm": 120, "triton": 998, "vllm": 997, "ml": 1001, "cv": 1002, "alice": 1003, "bob": 1004,
    "carol": 1005, "dmitri": 1006, "emre": 1007, "yuki": 1008, "nlp": 1009, "speech": 1010, "zhang": 1011,
    "olamide": 1012,
}  # fmt: skip

OTHER_UID: Final = 1042  # whoever is not in USERS
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def on(
    gpus: int | Iterable[int], workload: Workload, kind: str = "C", instance: int | None = None
) -> tuple[GpuShare, ...]:
    """The same workload on one or several GPUs."""
    return tuple(GpuShare(gpu, workload, kind, instance) for gpu in ((gpus,) if isinstance(gpus, int) else gpus))


@dataclass
class ProcessFactory:
    """Adds processes with plausible pids and parents. ``ago`` is how long before the simulation's start they began."""

    population: Population
    rng: random.Random
    _pid: int = 0
    _shells: dict[str, SimulatedProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        boot = BOOTED_BEFORE_SECONDS - 1.0
        self._init = self._add(
            1, 0, "systemd", "/sbin/init splash", "root", boot, rss=13 * MIB, executable="/usr/lib/systemd/systemd"
        )
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
        self, pid: int, parent: int, name: str, command: str, user: str, ago: float, rss: int = 9 * MIB, **more: object
    ) -> SimulatedProcess:
        pid = pid or self._take()
        uid = USERS.get(user, OTHER_UID)
        texts = clean_text(name)[:15], clean_text(command), clean_text(user)  # as the real reader does
        made = SimulatedProcess(pid, parent, *texts, uid, -ago, rss=rss, **more)  # type: ignore[arg-type]
        made.group = made.session = pid
        return self.population.add(made)

    def shell(self, user: str, window: str = "0", ago: float = 3 * DAY) -> SimulatedProcess:
        """A bash in a tmux window of *user*'s, no younger than *ago*."""
        tmux = self._terminal(
            user, lambda: self._add(0, 1, "tmux: server", "tmux new -s main", user, ago + HOUR), ago + HOUR
        )
        return self._terminal(f"{user}:{window}", lambda: self._add(0, tmux.pid, "bash", "-bash", user, ago), ago)

    def _terminal(self, key: str, make: Callable[[], SimulatedProcess], ago: float) -> SimulatedProcess:
        if key not in self._shells:
            self._shells[key] = make()
            self._pid += self.rng.randrange(2, 30)
        shell = self._shells[key]
        shell.started = min(shell.started, -ago)
        return shell

    def run(
        self,
        user: str,
        command: str,
        uses: tuple[GpuShare, ...] = (),
        *,
        ago: float = HOUR,
        rss: float = 3.0,
        cpu: float = 100.0,
        rest: float = 0.0,
        threads: int = 40,
        parent: SimulatedProcess | None = None,
        name: str | None = None,
        pid: int = 0,
        gap: int = 40,
        executable: str | None = None,
        **more: object,
    ) -> SimulatedProcess:
        """One process. *rss* in GiB; *cpu* is what it uses of a core while its GPU is busy, *rest* always. Without
        *parent* it belongs to a shell of its own user's. Up to *gap* pids after it are others'. *more* goes to
        SimulatedProcess."""
        if pid and parent is None:
            self._pid = max(3, pid - 99)  # its shell comes a little before it
        if parent is None:
            parent = self.shell(user, str(self.rng.randrange(4)), ago + self.rng.uniform(0.2, 9) * HOUR)
        if pid:
            self._pid = pid + 1
        program = command.split(" ", 1)[0]
        made = self._add(
            pid,
            parent.pid,
            name or program.rsplit("/", 1)[-1],
            command,
            user,
            ago,
            uses=uses,
            rss=int(rss * GIB),
            cpu_busy=cpu,
            cpu_rest=rest,
            threads=threads,
            cwd=f"/home/{user}" if USERS.get(user, OTHER_UID) > 1000 else "/",
            executable=executable or (program if program.startswith("/") else f"/home/{user}/venv/bin/{program}"),
            **more,
        )
        if parent.pid > 2:  # a job of its shell, or of its parent's group
            made.session = parent.session
            made.group = made.pid if parent.name == "bash" else parent.group
        self._pid += self.rng.randrange(gap + 1)
        return made

    def service(
        self, user: str, command: str, uses: tuple[GpuShare, ...] = (), ago: float = 11 * DAY, **more: object
    ) -> SimulatedProcess:
        """A process that systemd started."""
        return self.run(user, command, uses, ago=ago, parent=self._init, **more)  # type: ignore[arg-type]

    def data_workers(self, parent: SimulatedProcess, count: int, cpu: float = 60.0) -> None:
        """DataLoader workers: forked, without a GPU context of their own, gone when the parent is."""
        for k in range(count):
            self.run(
                parent.user,
                parent.command,
                ago=-parent.started - 20.0 - k * 0.1,
                rss=1.4,
                cpu=cpu,
                threads=9,
                parent=parent,
                name="pt_data_worker",
                gap=0,
                executable=parent.executable,
                job=parent.job,
                follows_parent=True,
            )

    def torchrun(
        self,
        user: str,
        script: str,
        gpus: Iterable[int],
        workload: Callable[[int], Workload],
        *,
        ago: float,
        workers: int = 0,
        job: str | None = None,
    ) -> None:
        """A torchrun with a rank on each GPU, and *workers* data workers a rank."""
        gpus = list(gpus)
        command = f"/opt/conda/bin/python /opt/conda/bin/torchrun --nproc-per-node {len(gpus)} {script}"
        launcher = self.run(
            user, command, ago=ago, rss=0.4, cpu=0.0, rest=0.4, threads=12, name="torchrun", job=job, leads=True
        )
        for rank, gpu in enumerate(gpus):
            child = self.run(
                user,
                f"/opt/conda/bin/python -u {script}",
                on(gpu, workload(rank)),
                ago=ago - 6.0,
                rss=7.4,
                cpu=101.0,
                rest=2.0,
                threads=74,
                parent=launcher,
                gap=0,
                job=job,
                environment=(
                    ("RANK", str(rank)),
                    ("LOCAL_RANK", str(rank)),
                    ("WORLD_SIZE", str(len(gpus))),
                    ("TORCHELASTIC_RUN_ID", "none"),
                ),
            )
            self.data_workers(child, workers)
        self._pid += self.rng.randrange(5, 60)


@dataclass(frozen=True, slots=True)
class Restart:
    """Starts a process anew *after* seconds when it has ended, as long as its parent lives.

    *workload* is told the new start; *lives* (where given) how long each life lasts. Without *always* a process that
    somebody killed stays away: only an end of its own, by *cause*, is answered.
    """

    population: Population
    after: float
    workload: Callable[[float], Workload]
    cause: str = "out of memory"
    lives: Callable[[Workload], float] | None = None
    always: bool = False

    def watch(self, process: SimulatedProcess) -> None:
        parent = process.parent
        process.on_end = lambda ended, t: self._ended(ended, t, parent)
        if self.lives is not None:
            born = max(0.0, process.started)
            self.population.end(process, born + self.lives(process.uses[0].workload), self.cause)

    def _ended(self, process: SimulatedProcess, t: float, parent: int) -> None:
        if process.parent != parent or not (self.always or process.dies_of == self.cause):
            return
        start = t + self.after
        (use,) = process.uses
        again = dataclasses.replace(
            process,
            pid=self.population.new_pid(),
            started=start,
            uses=(dataclasses.replace(use, workload=self.workload(start)),),
            stopped=False,
            pending=0,
            ends_at=NEVER,
            dies_of="",
        )
        self.population.add(again)
        self.watch(again)
