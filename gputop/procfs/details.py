"""More about one process, read when somebody asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeVar

from gputop.model import HostFacts, ProcessKey, clean_text, replace
from gputop.procfs.devices import NvidiaDevices
from gputop.procfs.host_facts import command_from
from gputop.procfs.host_reader import ProcessDetails
from gputop.procfs.lookups import Lookups
from gputop.procfs.stat import Stat, process_directory, read_stat
from gputop.units import plural

FactsOf = Callable[[int, Stat], HostFacts]
T = TypeVar("T")

#: The environment is full of secrets, so only these names are shown, each of them whole: a pattern such as
#: APPTAINER_* would let APPTAINER_DOCKER_PASSWORD through.
SHOWN_ENVIRONMENT: Final = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MPS_PIPE_DIRECTORY", "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK", "PMIX_RANK",
    "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_USER", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_LOCALID",
    "PBS_JOBID", "LSB_JOBID", "JOB_ID",
    "CONDA_DEFAULT_ENV", "CONDA_PREFIX", "VIRTUAL_ENV", "JPY_PARENT_PID",
    "APPTAINER_CONTAINER", "APPTAINER_NAME", "SINGULARITY_CONTAINER", "SINGULARITY_NAME", "container",
    "KUBERNETES_SERVICE_HOST", "HOSTNAME",
)  # fmt: skip

MAX_ANCESTORS: Final = 64
MAX_ENVIRONMENT_BYTES: Final = 1 << 20
MAX_COMMAND_BYTES: Final = 1 << 17
WAIT_SECONDS: Final = 0.3  # for each part, once


def read_details(
    proc: str,
    key: ProcessKey,
    known: HostFacts | None,
    facts_of: FactsOf,
    lookups: Lookups | None = None,
    devices: NvidiaDevices | None = None,
) -> ProcessDetails | None:
    """Details of the process; None when it is gone or its pid was reused.

    *known* are its facts if it is followed already (with its CPU use); *facts_of* reads those of its relatives.
    Everything is read through an open /proc/PID, so nothing of a process that reused the pid can get in. What may hang
    is asked of *lookups*: a part that does not answer is left out, and a problem says so.
    """
    try:
        with process_directory(proc, key) as process:
            stat = read_stat("stat", process)
            if stat is None:
                return None
            inquiry = _Inquiry(proc, process, stat, known or facts_of(key.pid, stat), facts_of, lookups or Lookups())
            return inquiry.answer(devices or NvidiaDevices(proc))
    except OSError:
        return None


class _Inquiry:
    """One reading of one process, collecting what could not be read."""

    def __init__(
        self, proc: str, process: int, stat: Stat, facts: HostFacts, facts_of: FactsOf, lookups: Lookups
    ) -> None:
        self._proc, self._process, self._stat, self._facts, self._facts_of = proc, process, stat, facts, facts_of
        self._lookups = lookups
        self._denied: list[str] = []
        self._late: list[str] = []
        self._zombie = stat.state in "ZX"
        #: In state D a thread may hold the process's memory lock, and reading its memory would wait with it.
        self._stuck = stat.state == "D"

    def answer(self, devices: NvidiaDevices) -> ProcessDetails:
        with_maps = not (self._stuck or self._lookups.waits(("command", self._facts.key)))  # under the same lock
        held = self._part("open devices", lambda process: devices.held_by(process, with_maps), None)
        details = ProcessDetails(
            facts=self._with_whole_command(),
            cwd=self._link("cwd", "working directory"),
            executable=self._link("exe", "executable"),
            ancestors=self._ancestors(),
            children=self._children(),
            environment=self._environment(),
            nvidia_devices=held,
            cgroup=self._cgroup(),
        )
        if held is None and self._denied and "open devices" not in self._late:
            self._denied.append("open devices")
        return replace(details, late=tuple(self._late), problems=tuple(self._problems()))

    def _problems(self) -> list[str]:
        problems = []
        user = self._facts.user or "another user"
        if self._zombie and self._stat.threads <= 1:
            problems.append(f"already exited; its parent {self._stat.parent_pid} has not reaped it yet")
        elif self._zombie:
            problems.append(f"its main thread has exited, {plural(self._stat.threads - 1, 'thread')} still running")
        if self._stuck:
            problems.append("in uninterruptible sleep (state D): its environment was not read, because that could hang")
        if self._late or self._facts.waits_for:
            what = ", ".join(dict.fromkeys((*self._facts.waits_for, *self._late)))
            problems.append(f"no answer yet: {what}")
        if self._denied:
            way = f"run gputop as {user} or with sudo" if os.geteuid() else "a container or security module forbids it"
            problems.append(f"not permitted: {', '.join(self._denied)}; {way}")
        return problems

    def _part(self, name: str, read: Callable[[int], T], otherwise: T) -> T:
        """What *read* makes of the process's directory, open as a descriptor. Raises OSError."""
        key = self._facts.key

        def call() -> T:
            with process_directory(self._proc, key) as process:
                return read(process)

        part = "details", name, key
        answers = self._lookups.ask({part: call}, WAIT_SECONDS)
        if part not in answers:
            self._late.append(name)
            return otherwise
        answer: T = answers[part]
        return answer

    def _text(self, name: str, limit: int, label: str) -> bytes | None:
        """A file of the process; None where it does not answer. Raises OSError."""

        def read(process: int) -> bytes:
            left = limit
            with open(os.open(name, os.O_RDONLY, dir_fd=process), "rb", buffering=0) as file:
                parts = []
                while left > 0 and (part := file.read(min(left, 1 << 16))):
                    parts.append(part)
                    left -= len(part)
                return b"".join(parts)

        return self._part(label, read, None)

    def _with_whole_command(self) -> HostFacts:
        """The table's command lines are cut at some thousand characters."""
        if self._zombie or self._stuck or self._lookups.waits(("command", self._facts.key)):
            return self._facts
        try:
            raw = self._text("cmdline", MAX_COMMAND_BYTES, "command line")
        except OSError:
            return self._facts
        command = command_from(raw) if raw else None
        return replace(self._facts, command=command) if command else self._facts

    def _link(self, name: str, words: str) -> str | None:
        try:
            path = self._part(words, lambda process: os.readlink(name, dir_fd=process), None)
            return None if path is None else clean_text(os.fsencode(path))
        except PermissionError:
            self._denied.append(words)
        except OSError:
            pass  # kernel threads and zombies have none
        return None

    def _environment(self) -> tuple[tuple[str, str], ...] | None:
        if self._stuck or self._zombie:
            return None
        try:
            raw = self._text("environ", MAX_ENVIRONMENT_BYTES, "environment")
        except PermissionError:
            self._denied.append("environment")
            return None
        except OSError:
            return None
        if raw is None:
            return None
        found: dict[str, bytes] = {}
        for entry in raw.split(b"\0"):
            name, separator, value = entry.partition(b"=")
            if separator:
                found.setdefault(name.decode("utf-8", "replace"), value)  # as getenv: the first one counts
        return tuple((name, clean_text(found[name], limit=512)) for name in SHOWN_ENVIRONMENT if name in found)

    def _cgroup(self) -> str | None:
        """The unified path, else that of the longest of the others (cgroup v1)."""
        try:
            raw = self._text("cgroup", 1 << 14, "cgroup")
        except OSError:
            return None
        lines = (raw or b"").decode("utf-8", "surrogateescape").splitlines()
        paths = [(controllers == "", path) for _, controllers, path in (line.split(":", 2) for line in lines)]
        best = max(paths, key=lambda entry: (entry[1] != "/", entry[0], len(entry[1])), default=None)
        return clean_text(best[1]) if best is not None else None

    def _ancestors(self) -> tuple[HostFacts, ...]:
        """The parent first, up to pid 1."""
        found: list[HostFacts] = []
        child = self._stat
        while child.parent_pid > 0 and len(found) < MAX_ANCESTORS:
            parent = read_stat(f"{self._proc}/{child.parent_pid}/stat")
            if parent is None or parent.start_ticks > child.start_ticks:  # hidden; or gone, and its pid reused
                break
            found.append(self._facts_of(child.parent_pid, parent))
            child = parent
        return tuple(found)

    def _children(self) -> tuple[HostFacts, ...]:
        import psutil  # takes 30 ms; finds children where the kernel has no /proc/PID/task/*/children too

        psutil.PROCFS_PATH = self._proc
        try:
            pids = [child.pid for child in psutil.Process(self._facts.key.pid).children()]
        except psutil.Error:
            return ()
        found = []
        for pid in pids:
            stat = read_stat(f"{self._proc}/{pid}/stat")
            if stat is not None and stat.parent_pid == self._facts.key.pid:
                found.append(self._facts_of(pid, stat))
        return tuple(found)
