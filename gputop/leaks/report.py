"""What is found out about GPU memory beyond who uses it: whose it is, who keeps it, and what is thought of that.

Frozen values, spoken by the leak watch, the screens, ``gputop leaks`` and the simulated machine. The rules that fill
them are in :mod:`gputop.leaks.verdicts`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from gputop.model import HostFacts, LeakVerdict, ProcessKey, Verdict

# -------------------------------------------------------------------------- owners


@dataclass(frozen=True, slots=True)
class Container:
    """The container a process is in, as its cgroup and root directory tell (facts/nvml.md §5)."""

    engine: str  # "docker", "podman", "kubernetes", "lxc", "nspawn", "apptainer", "enroot", "container"
    id: str | None = None  # 64 hex digits, or the name where the engine has names only
    pod: str | None = None  # Kubernetes: the pod's UID
    pid_inside: int | None = None  # what the process calls itself (NSpid of /proc/PID/status)


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
    readable: bool = True  # False: another user's, so what only its environment tells is not known

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


@dataclass(frozen=True, slots=True)
class Circumstances:
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
    slurm_job_lives: bool | None = None  # whether a cgroup of that job exists on this machine
    children: tuple[ProcessKey, ...] | None = None  # child processes
    holds_device: bool | None = None  # False: it has no NVIDIA device open or mapped, so no GPU memory is its own


# ------------------------------------------------------------------------- holders


class HeldDevice(NamedTuple):
    """An NVIDIA device that a process has open or mapped."""

    path: str  # "/dev/nvidia3", whatever its name is where the process opened it
    minor: int | None  # N of /dev/nvidiaN (GpuFacts.minor_number); None for nvidiactl, nvidia-uvm…
    descriptors: tuple[int, ...]  # empty: only mapped
    mapped: bool = False


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has an NVIDIA device open: GPU memory lives as long as any of these does."""

    facts: HostFacts
    devices: tuple[HeldDevice, ...]
    benign: str | None = None  # why it is none to worry about: "a monitor", "the display server"

    @property
    def key(self) -> ProcessKey:
        return self.facts.key

    def holds(self, minor: int) -> HeldDevice | None:
        """Its grip on /dev/nvidiaN."""
        return next((device for device in self.devices if device.minor == minor), None)


@dataclass(frozen=True, slots=True)
class HolderScan:
    """One look at the open files of all processes."""

    taken_at: float
    took: float  # seconds
    holders: tuple[Holder, ...]
    inspected: int  # processes whose open files could be read
    denied: tuple[tuple[str, int], ...] = ()  # (user, number of processes that were not permitted), most first
    hidden: bool = False  # others' processes are not even listed (hidepid)
    with_maps: bool = False  # memory maps were read too
    own_namespace: bool = False  # only the processes of this PID namespace were there to look at
    cut_short: bool = False  # it took too long (a hanging network file system) and was ended

    @property
    def denied_count(self) -> int:
        return sum(count for _, count in self.denied)

    @property
    def complete(self) -> bool:
        return not (self.denied or self.hidden or self.own_namespace or self.cut_short)

    def words(self) -> str:
        """What was looked at and what was not: "412 processes inspected, 37 of root not permitted: run as root"."""
        said = "the scan took too long and was cut short" if self.cut_short else f"{self.inspected} processes inspected"
        if self.denied:
            named = ", ".join(f"{count} of {user}" for user, count in self.denied[:3])
            more = sum(count for _, count in self.denied[3:])
            said += f", {named}{f' and {more} of others' if more else ''} not permitted: run gputop as root"
        if self.hidden:
            said += ", others' processes are hidden (hidepid): run gputop as root"
        if self.own_namespace:
            said += ", none outside this container: run gputop on the host"
        return said


class Hold(NamedTuple):
    """Why a holder is thought to keep a ghost's memory."""

    holder: Holder
    device: HeldDevice
    how: str  # "process group 4711", "session 4711", "child of 4711 until 02:58", "not listed by the driver"
    certain: bool  # lineage is proven, not only likely


@dataclass(frozen=True, slots=True)
class Ghost:
    """A pid that the driver lists and the host does not have, and those who keep its memory."""

    pid: int
    memory: tuple[tuple[str, int | None], ...]  # (GPU's UUID, bytes), the largest first
    since: float  # when gputop first saw it dead, epoch seconds
    known: HostFacts | None = None  # as gputop knew it alive
    saw_death: bool = False  # gputop saw it alive before, so *since* is the time of its death
    holds: tuple[Hold, ...] = ()  # the certain ones first
    scanned: bool = False  # whether holders were looked for since it is dead
    reused_by: HostFacts | None = None  # who bears the pid now, without a GPU of its own

    @property
    def memory_bytes(self) -> int | None:
        known = [bytes_ for _, bytes_ in self.memory if bytes_ is not None]
        return sum(known) if known else None

    @property
    def targets(self) -> tuple[ProcessKey, ...]:
        """Whom to end: those of certain lineage, or where there are none, the likely ones."""
        certain = tuple(hold.holder.key for hold in self.holds if hold.certain)
        return tuple(dict.fromkeys(certain or (hold.holder.key for hold in self.holds)))


# --------------------------------------------------------------------- attribution


@dataclass(frozen=True, slots=True)
class Attribution:
    """Where every byte of a GPU is: used = living + ghosts + unattributed - shared. None: cannot be told."""

    gpu_uuid: str
    total: int | None
    used: int | None
    living: int | None  # of listed processes that live, the largest figure per pid
    ghosts: int | None  # of listed pids that do not exist
    unattributed: int | None
    shared: int | None  # what the processes' sum exceeds used by: counted at both ends (CUDA IPC)
    reserved: int | None
    free: int | None
    unknown: str | None = None  # why it cannot be told, in words


class Cause(NamedTuple):
    """A way in which memory is used that no listed process accounts for."""

    name: str  # "another PID namespace"
    words: str  # with the evidence there is
    advice: str
    weight: int  # 3 proven here, 2 likely, 1 possible


@dataclass(frozen=True, slots=True)
class Gap:
    """Memory of a GPU that nobody listed accounts for, for long enough to be worth a card. Never called a leak."""

    gpu_uuid: str
    bytes: int
    since: float  # epoch seconds
    causes: tuple[Cause, ...]  # the likeliest first
    holders: tuple[Holder, ...] = ()  # unlisted holders of this GPU
    busy: bool = False  # R12: the GPU works, and no process is listed


class Standout(NamedTuple):
    """A member of a job that differs from its peers."""

    job: str  # "slurm 88123", "torchrun 4711"
    process: ProcessKey
    gpu_uuid: str
    words: str  # "rank 3 holds 2.1 GiB more than its peers; it has 8 worker processes, they have 4"


# ------------------------------------------------------------------------- reports


@dataclass(frozen=True, slots=True)
class LeakReport:
    """All that is known at a moment; what the leaks view and ``gputop leaks`` show."""

    taken_at: float
    verdicts: tuple[LeakVerdict, ...] = ()  # the worst first, then the largest; no NOTE among them
    notes: tuple[LeakVerdict, ...] = ()
    ghosts: tuple[Ghost, ...] = ()
    gaps: tuple[Gap, ...] = ()
    attributions: tuple[Attribution, ...] = ()  # in the GPUs' order
    standouts: tuple[Standout, ...] = ()
    owners: Mapping[ProcessKey, Owner] = field(default_factory=dict)
    scan: HolderScan | None = None
    unsure: tuple[str, ...] = ()  # what could not be told and why, in words, with what to do

    def verdict_of(self, key: ProcessKey) -> LeakVerdict | None:
        """What is thought of the process; of one that holds a ghost's memory, the verdict on the ghost."""
        for verdict in (*self.verdicts, *self.notes):
            if verdict.process == key:
                return verdict
        return next((verdict for verdict in self.verdicts if key in verdict.targets), None)

    def ghost(self, pid: int) -> Ghost | None:
        return next((ghost for ghost in self.ghosts if ghost.pid == pid), None)

    def gap(self, uuid: str) -> Gap | None:
        return next((gap for gap in self.gaps if gap.gpu_uuid == uuid), None)

    def attribution(self, uuid: str) -> Attribution | None:
        return next((found for found in self.attributions if found.gpu_uuid == uuid), None)

    def on(self, uuids: Collection[str]) -> LeakReport:
        """What of it concerns these GPUs."""
        return replace(
            self,
            verdicts=tuple(one for one in self.verdicts if any(uuid in uuids for uuid, _ in one.memory)),
            notes=tuple(one for one in self.notes if any(uuid in uuids for uuid, _ in one.memory)),
            ghosts=tuple(one for one in self.ghosts if any(uuid in uuids for uuid, _ in one.memory)),
            gaps=tuple(card for card in self.gaps if card.gpu_uuid in uuids),
            attributions=tuple(one for one in self.attributions if one.gpu_uuid in uuids),
            standouts=tuple(one for one in self.standouts if one.gpu_uuid in uuids),
        )

    def those(self, *verdicts: Verdict) -> tuple[LeakVerdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.verdict in verdicts)


# -------------------------------------------------------------------- investigating


class Investigator(Protocol):
    """Finds out what the rules want to know. Slow (milliseconds to seconds): only ever called by the leak watch's own
    thread, or by ``gputop leaks``."""

    def circumstances(self, facts: HostFacts) -> Circumstances | None:
        """Of one process; None when it is gone or its pid was reused."""
        ...

    def owner(self, facts: HostFacts) -> Owner:
        """Only to whom it belongs; kept per :class:`~gputop.model.ProcessKey`."""
        ...

    def scan(self, with_maps: bool = False) -> HolderScan:
        """Look for all holders of NVIDIA devices."""
        ...

    def lives(self, key: ProcessKey) -> bool:
        """Whether the process is still there."""
        ...

    def forget(self, living: Iterable[ProcessKey]) -> None:
        """Drop what is kept of others than *living*."""
        ...
