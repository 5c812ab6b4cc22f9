"""The host side of a simulated machine, as :class:`gputop.procfs.host_reader.HostReader` wants it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gputop.model import Host, HostFacts, ProcessKey, TorchReport
from gputop.procfs.host_reader import ProcessDetails
from gputop.sources.simulated.machine import SimulatedWorld
from gputop.sources.simulated.noise import noise, smooth
from gputop.sources.simulated.population import SimulatedProcess


class SimulatedHost:
    """Answers from the simulated machine only; nothing of the real /proc is read."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._kept: dict[int, HostFacts] = {}
        self._machine: tuple[int, int, Host] | None = None

    def read(self, pids: Iterable[int], fresh: Collection[int] | None = None) -> Mapping[int, HostFacts]:
        with self._world.lock:
            t = self._world.now()
            found: dict[int, HostFacts] = {}
            for pid in pids:
                process = self._world.population.alive(pid, t)
                if process is None:
                    continue
                known = self._kept.get(pid)
                again = fresh is None or pid in fresh or known is None or known.key.start_ticks != process.start_ticks
                found[pid] = self._facts(process, t, known) if again or known is None else known
        self._kept = found
        return dict(found)

    def exists(self, pid: int) -> bool | None:
        with self._world.lock:
            return self._world.population.alive(pid, self._world.now()) is not None

    def machine(self) -> Host:
        with self._world.lock:
            t = self._world.now()
            version, second = self._world.population.version, int(t)
            if self._machine is None or self._machine[:2] != (second, version):
                self._machine = (second, version, self._host(float(second)))
            return self._machine[2]

    def torch_reports(self, facts: Mapping[int, HostFacts]) -> Mapping[int, TorchReport]:
        return {}

    def details(self, key: ProcessKey) -> ProcessDetails | None:
        with self._world.lock:
            t = self._world.now()
            population = self._world.population
            process = population.alive(key.pid, t)
            if process is None or (key.start_ticks is not None and process.start_ticks != key.start_ticks):
                return None
            ancestors = []
            parent = population.alive(process.parent, t)
            while parent is not None:
                ancestors.append(self._facts(parent, t, None))
                parent = population.alive(parent.parent, t)
            children = [
                p for p in population.processes.values() if p.parent == process.pid and p.started <= t < p.ends_at
            ]
            return ProcessDetails(
                facts=self._facts(process, t, None),
                cwd=process.cwd,
                executable=process.executable,
                ancestors=tuple(ancestors),
                children=tuple(self._facts(child, t, None) for child in children),
                environment=self.environment_of(process),
                nvidia_devices=self._devices(process),
                cgroup=self.cgroup_of(process),
                problems=("environment and open files: not permitted",) if process.uid == 0 else (),
            )

    # ------------------------------------------------------------------ facts

    def _cpu(self, process: SimulatedProcess, t: float) -> float:
        if process.stopped or process.stuck:
            return 0.0
        wobble = 0.85 + 0.3 * noise(int(t), process.pid)
        busy = 0.0
        if process.cpu_busy:
            use = process.uses[0] if process.uses else None
            busy = process.cpu_busy * (process.load(use, t).busy if use is not None else smooth(t / 4.0, process.pid))
        return round((process.cpu_rest + busy) * wobble, 1)

    def _facts(self, process: SimulatedProcess, t: float, known: HostFacts | None) -> HostFacts:
        second = float(int(t))
        at = self._world.epoch + t
        cpu = self._cpu(process, second)
        state = "T" if process.stopped else "D" if process.stuck else "R" if cpu > 60.0 else "S"
        # A thousand pids are asked for again and again, and most of them rest.
        if (
            known is not None
            and cpu == known.cpu_percent == 0.0
            and at - known.read_at < 5.0
            and (known.state, known.parent_pid, known.key.start_ticks) == (state, process.parent, process.start_ticks)
        ):
            return known
        age = max(0.0, t - process.started)
        return HostFacts(
            key=process.key,
            read_at=at,
            start_time=self._world.epoch + process.started,
            parent_pid=process.parent,
            group_id=process.group or process.pid,
            session_id=process.session or process.pid,
            uid=process.uid,
            user=process.user,
            name=process.name,
            command=process.command,
            state=state,
            threads=process.threads,
            cpu_percent=cpu,
            cpu_seconds=round(age * (process.cpu_rest + 0.8 * process.cpu_busy) / 100.0, 2),
            host_memory_bytes=int(process.rss * (1.0 + 0.02 * smooth(second / 30.0, process.pid))) // 4096 * 4096,
        )

    def _host(self, t: float) -> Host:
        world = self._world
        processes = [p for p in world.population.processes.values() if p.started <= t < p.ends_at]
        cpu = sum(self._cpu(p, t) for p in processes) / world.cpu_count + 0.6 + noise(int(t), 99)
        used = world.memory_base_bytes + sum(p.rss for p in processes)
        load = cpu * world.cpu_count / 100.0
        averages = [load * (0.94 + 0.08 * smooth(t / over, 7)) for over in (20.0, 90.0, 240.0)]
        return Host(
            name=world.name,
            cpu_percent=round(min(100.0, cpu), 1),
            cpu_count=world.cpu_count,
            memory_total_bytes=world.memory_bytes,
            memory_used_bytes=min(used, world.memory_bytes),
            load=(round(averages[0], 2), round(averages[1], 2), round(averages[2], 2)),
            pids_are_host=True,
        )

    # ---------------------------------------------------------------- details

    def environment_of(self, process: SimulatedProcess) -> tuple[tuple[str, str], ...] | None:
        if process.uid == 0:
            return None
        found = []
        if process.uses:
            found.append(("CUDA_VISIBLE_DEVICES", ",".join(str(g) for g in sorted({u.gpu for u in process.uses}))))
        if process.job is not None:
            found.append(("SLURM_JOB_ID", process.job))
        if process.cwd != "/":
            found.append(("VIRTUAL_ENV", f"/home/{process.user}/venv"))
        return (*found, *process.environment)

    def facts_of(self, process: SimulatedProcess, t: float) -> HostFacts:
        """Its facts at *t*, which is told under the world's lock."""
        return self._facts(process, t, None)

    def _devices(self, process: SimulatedProcess) -> tuple[str, ...] | None:
        if process.uid == 0:
            return None
        gpus = {use.gpu for use in process.uses}
        owner = self._world.population.processes.get(process.held_from or 0)
        if owner is not None:
            gpus |= {use.gpu for use in owner.uses}
        if not gpus:
            return ()
        return (*(f"/dev/nvidia{gpu}" for gpu in sorted(gpus)), "/dev/nvidia-uvm", "/dev/nvidiactl")

    def cgroup_of(self, process: SimulatedProcess) -> str:
        if process.cgroup:
            return process.cgroup
        if process.job is not None:
            return f"/system.slice/slurmstepd.scope/job_{process.job}/step_0/user/task_0"
        if process.uid < 1000:
            while process.parent > 1:
                process = self._world.population.processes[process.parent]
            return f"/system.slice/{process.name}.service"
        return f"/user.slice/user-{process.uid}.slice/session-{process.session % 97}.scope"
