"""To whom a process belongs: container, job, unit, terminal, rank; and its ancestors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Container:
    """The container a process is in, as its cgroup and root directory tell."""

    engine: str  # "docker", "podman", "kubernetes", "lxc", "nspawn", "apptainer", "enroot", "container"
    id: str | None = None  # 64 hex digits, or the name where the engine has names only
    pod: str | None = None  # Kubernetes: the pod's UID
    pid_inside: int | None = None  # what the process calls itself (NSpid of /proc/PID/status)
    pod_name: str | None = None  # Kubernetes: the host name inside, which is the pod's name unless it asked for another
    namespace: str | None = None  # Kubernetes: that of its service account


@dataclass(frozen=True, slots=True)
class Owner:
    """To whom a process belongs. None: it does not belong to such a thing, or that may not be read."""

    where: str = ""  # few words for a column: "slurm 88123", "docker 3fa9c81d02ab", "tmux 2:serve", "ssh pts/3"
    container: Container | None = None
    slurm_job: str | None = None
    slurm_step: str | None = None
    batch_job: str | None = None  # of PBS, LSF or Grid Engine, with its system: "pbs 4711.head"
    unit: str | None = None  # systemd's service or scope: "vllm.service"
    unit_of_user: bool = False  # the unit is one of systemd --user's
    multiplexer: str | None = None  # "tmux 2:serve", "screen 4711.train"
    terminal: str | None = None  # "pts/3"
    remote: bool = False  # under sshd
    login_session: str | None = None  # N of session-N.scope
    notebook: bool = False  # a Jupyter kernel
    detached: str | None = None  # "nohup", "setsid": deliberately without a terminal
    environment: str | None = None  # of Python: "conda ml", "venv /home/ml/venv"
    rank: int | None = None  # in a distributed job
    local_rank: int | None = None
    world_size: int | None = None
    run_id: str | None = None  # torchrun's
    visible_devices: str | None = None  # CUDA_VISIBLE_DEVICES, None where unset or not readable
    device_order: str | None = None  # CUDA_DEVICE_ORDER
    stop_with: str | None = None  # the command of whoever manages it: "scancel 88123", "systemctl stop vllm.service"
    readable: bool = True  # False: its environment was not read, so what only that tells is not known
    late: tuple[str, ...] = ()  # what did not answer, or was not asked because that could hang: "its environment"

    def facts(self) -> tuple[tuple[str, str], ...]:
        """(label, text) for the details, only what is known."""
        container = self.container
        rows: list[tuple[str, str | None]] = []
        if container is not None:
            rows.append((container.engine, container.id or "yes"))
            rows.append(("pod", container.pod))
            rows.append(("pid inside", None if container.pid_inside is None else str(container.pid_inside)))
        step = f" step {self.slurm_step}" if self.slurm_step else ""
        rows += [
            ("slurm job", f"{self.slurm_job}{step}" if self.slurm_job else None),
            ("batch job", self.batch_job),
            ("unit", f"{self.unit} of systemd --user" if self.unit and self.unit_of_user else self.unit),
            ("session", self.login_session),
            ("terminal", self.multiplexer or self._terminal()),
            ("detached", self.detached),
            ("notebook", "Jupyter kernel" if self.notebook else None),
            ("python", self.environment),
            ("rank", self._rank()),
            ("run id", self.run_id),
            ("CUDA_VISIBLE_DEVICES", self.visible_devices),
            ("CUDA_DEVICE_ORDER", self.device_order),
            ("stop with", self.stop_with),
        ]
        return tuple((label, text) for label, text in rows if text is not None)

    def _terminal(self) -> str | None:
        return f"{self.terminal} over ssh" if self.terminal and self.remote else self.terminal

    def _rank(self) -> str | None:
        if self.rank is None:
            return None
        of = "" if self.world_size is None else f" of {self.world_size}"
        return f"{self.rank}{of}" + ("" if self.local_rank is None else f", local rank {self.local_rank}")


class Relative(NamedTuple):
    """An ancestor of a process, or one it had."""

    pid: int
    name: str
    command: str | None = None
    start_ticks: int | None = None
