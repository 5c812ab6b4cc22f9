"""Reads from /proc what the leak rules want to know of one process: the :class:`Investigator` of a real machine."""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from gputop.leaks.holders.holder import HolderScan
from gputop.leaks.holders.scanner import FactsOf, HolderScanner
from gputop.leaks.process_context import ProcessContext
from gputop.model import HostFacts, ProcessKey, clean_text, replace
from gputop.model.owner import Owner, Relative
from gputop.procfs.devices import NvidiaDevices
from gputop.procfs.host_facts import command_line
from gputop.procfs.lookups import Lookups
from gputop.procfs.owner import cgroup_paths, environment_from, owner_from
from gputop.procfs.stat import Stat, process_directory, read_stat
from gputop.procfs.tmux import TmuxWindows

MAX_ANCESTORS: Final = 64
MAX_ENVIRONMENT_BYTES: Final = 1 << 20
DELETED: Final = " (deleted)"
_MARKS: Final = {"dockerenv": ".dockerenv", "containerenv": "run/.containerenv", "singularity": ".singularity.d"}
_TERMINAL: Final = re.compile(r"/dev/(pts/\d+|tty\w*)")
#: Slurm's cgroups of jobs (v2, v1), and a directory that is there as long as slurmd uses cgroups at all.
_SLURM_JOBS: Final = ("system.slice/*slurmstepd.scope/job_{}", "*/slurm*/uid_*/job_{}")
#: Where Kubernetes puts the namespace into a pod: /var/run is a link to /run in most images.
_NAMESPACE_FILES: Final = tuple(
    f"root/{run}/secrets/kubernetes.io/serviceaccount/namespace" for run in ("run", "var/run")
)
_NAMESPACE: Final = re.compile(rb"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # RFC 1123: nothing else is believed
T = TypeVar("T")
_SLURM: Final = ("system.slice/*slurmstepd.scope", "*/slurm*/uid_*", "*/slurm")


class ProcInvestigator:
    """See :class:`gputop.leaks.process_context.Investigator`. One thread owns it."""

    def __init__(
        self,
        facts_of: FactsOf,
        proc: Path | str = "/proc",
        devices: NvidiaDevices | None = None,
        cgroups: Path | str = "/sys/fs/cgroup",
        lookups: Lookups | None = None,
    ) -> None:
        """*lookups* are those of *facts_of*: what hangs for it is not asked again."""
        self._proc = str(proc)
        self._cgroups = str(cgroups)
        self._devices = devices or NvidiaDevices(proc)
        self._lookups = lookups or Lookups()
        self._scanner = HolderScanner(facts_of, proc, self._devices, self._lookups)
        self._holding: set[ProcessKey] = set()  # those seen to have a device open
        self._owners: dict[ProcessKey, Owner] = {}
        self._tmux = TmuxWindows(self._lookups)
        self._own_root = self._namespace("self")

    def scan(self, with_maps: bool = False) -> HolderScan:
        return self._scanner.scan(with_maps)

    def is_alive(self, key: ProcessKey) -> bool:
        stat = read_stat(f"{self._proc}/{key.pid}/stat")
        return stat is not None and stat.start_ticks == key.start_ticks and (stat.state not in "ZX" or stat.threads > 1)

    def forget(self, living: Iterable[ProcessKey]) -> None:
        living = set(living)
        self._owners = {key: owner for key, owner in self._owners.items() if key in living}
        self._holding &= living

    def owner(self, facts: HostFacts) -> Owner:
        if facts.key not in self._owners:
            found = self.context(facts)
            return Owner() if found is None else found.owner
        return self._owners[facts.key]

    def context(self, facts: HostFacts) -> ProcessContext | None:
        """Everything about one process, in a fraction of a millisecond to a few: it waits for nothing that a process
        stuck in the kernel (state D) could hold, and not for long, but once, for what else may hang."""
        try:
            with process_directory(self._proc, facts.key) as process:
                stat = read_stat("stat", process)
                return None if stat is None else self._read(process, facts, stat)
        except OSError:
            return None

    def _read(self, process: int, facts: HostFacts, stat: Stat) -> ProcessContext:
        status = _status(process)
        ancestors = self._ancestors(stat)
        terminal = _terminal(stat.terminal)
        #: Its memory is not asked for: in D that could hang, a zombie has none, one whose command line hangs is locked.
        asleep = stat.state in "DZX" or self._lookups.waits(("command", facts.key))
        environment = None if asleep else self._part(facts.key, "environment", _environment, None)
        ignores = _ignores_hangup(status)
        owner = self._owners.get(facts.key)
        if owner is None or (not owner.readable and environment is not None):
            owner = self._owner(process, facts, environment, ancestors, terminal, status, ignores)
            late = [f"its {name}" for name in ("environment", "cgroup") if self._is_late(facts.key, name)]
            if asleep and stat.state not in "ZX":
                late.append("its environment, which is not read while its memory may be locked")
            owner = replace(owner, late=tuple(late)) if late else owner
            if not asleep and not late:
                self._owners[facts.key] = owner
        job = (environment or {}).get("SLURM_JOB_ID")
        return ProcessContext(
            facts=facts,
            read_at=time.time(),
            owner=owner,
            ancestors=ancestors,
            leader_exists=self._exists_as_leader(stat.session_id),
            group_leader_exists=self._exists_as_leader(stat.group_id),
            ignores_hangup=ignores,
            has_terminal=stat.terminal != 0,
            lost_terminal=_lost_terminal(process),
            deleted_executable=_deleted(process, "exe"),
            deleted_directory=_deleted(process, "cwd"),
            waits_in=_waits_in(process),
            slurm_job_claimed=job if job and job.isdecimal() else None,
            slurm_job_running=self._job_is_running(job) if job and job.isdecimal() else None,
            children=_children(process, self._proc),
            holds_device=self._holds(facts.key, asleep),
        )

    def _owner(
        self,
        process: int,
        facts: HostFacts,
        environment: dict[str, str] | None,
        ancestors: tuple[Relative, ...],
        terminal: str | None,
        status: dict[bytes, bytes],
        ignores: bool | None,
    ) -> Owner:
        inside = [int(pid) for pid in status.get(b"NSpid", b"").split()[1:]]
        namespace = self._namespace(facts.key.pid)
        elsewhere = namespace is not None and self._own_root is not None and namespace != self._own_root
        window = None
        socket = (environment or {}).get("TMUX", "").partition(",")[0]
        if socket and facts.uid == os.geteuid():
            window = self._tmux.window(socket, (facts.key.pid, *(relative.pid for relative in ancestors)))
        cgroups = cgroup_paths(self._part(facts.key, "cgroup", lambda process: _bytes(process, "cgroup"), b""))
        in_pod = elsewhere and any("kubepods" in path for path in cgroups)
        return owner_from(
            facts,
            cgroups,
            environment,
            ancestors,
            terminal,
            executable=_link(process, "exe"),
            pids_inside=inside,
            root_mount=self._part(facts.key, "root's mount", _root_mount, None) if elsewhere else None,
            marks=self._part(facts.key, "root directory", _marks, ()) if elsewhere else (),
            ignores_hangup=ignores,
            window=window,
            namespace=self._part(facts.key, "namespace", _pod_namespace, None) if in_pod else None,
        )

    def _holds(self, key: ProcessKey, asleep: bool) -> bool | None:
        if key not in self._holding and self._devices.present():
            held = self._part(
                key, "open devices", lambda process: self._devices.held_by(process, with_maps=not asleep), None
            )
            if not held:
                return None if held is None else False
            self._holding.add(key)
        return True if key in self._holding else None

    def _part(self, key: ProcessKey, name: str, read: Callable[[int], T], otherwise: T) -> T:
        """What *read* makes of the process's directory, open as a descriptor; *otherwise* as long as it hangs."""

        def call() -> T:
            try:
                with process_directory(self._proc, key) as process:
                    return read(process)
            except OSError:
                return otherwise

        found: T = self._lookups.one((name, key), call, otherwise)
        return found

    def _is_late(self, key: ProcessKey, name: str) -> bool:
        return self._lookups.waits((name, key))

    def _ancestors(self, stat: Stat) -> tuple[Relative, ...]:
        """The parent first, up to pid 1; the parent's command line with it."""
        found: list[Relative] = []
        child = stat
        while child.parent_pid > 0 and len(found) < MAX_ANCESTORS:
            parent = read_stat(f"{self._proc}/{child.parent_pid}/stat")
            if parent is None or parent.start_ticks > child.start_ticks:  # hidden; or gone, and its pid reused
                break
            command = None
            if not found and parent.state not in "DZX":
                key = ProcessKey(child.parent_pid, parent.start_ticks)
                read = partial(command_line, self._proc, child.parent_pid)
                command = self._lookups.one(("command", key), read, None)
            found.append(Relative(child.parent_pid, clean_text(parent.comm), command, parent.start_ticks))
            child = parent
        return tuple(found)

    def _exists_as_leader(self, pid: int) -> bool | None:
        """Whether the leader of a session or group is still there. Its number is nobody else's as long as there is a
        member, so its start time need not be asked for."""
        if pid <= 0:
            return None
        seen = read_stat(f"{self._proc}/{pid}/stat")
        if seen is None:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return False
            except PermissionError:
                return True  # hidden (hidepid)
            return True
        return not (seen.state in "ZX" and seen.threads <= 1)

    def _job_is_running(self, job: str) -> bool | None:
        """Whether a cgroup of Slurm job *job* is on this machine; None where Slurm keeps no cgroups here."""
        if any(glob.glob(f"{self._cgroups}/{pattern.format(job)}") for pattern in _SLURM_JOBS):
            return True
        return False if any(glob.glob(f"{self._cgroups}/{pattern}") for pattern in _SLURM) else None

    def _namespace(self, pid: int | str) -> str | None:
        try:
            return os.readlink(f"{self._proc}/{pid}/ns/mnt")
        except OSError:
            return None


def _bytes(process: int, name: str, limit: int = 1 << 16) -> bytes:
    """The start of a file of the process; empty where it may not be read or is gone."""
    try:
        descriptor = os.open(name, os.O_RDONLY, dir_fd=process)
    except OSError:
        return b""
    try:
        parts = []
        while limit > 0 and (part := os.read(descriptor, min(limit, 1 << 16))):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _pod_namespace(process: int) -> str | None:
    """The namespace of the pod a process is in, by its service account's token; None where it has none."""
    for name in _NAMESPACE_FILES:
        try:
            file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=process)
        except OSError:
            continue
        try:
            text = os.read(file, 100).strip()
        except OSError:
            continue
        finally:
            os.close(file)
        if _NAMESPACE.fullmatch(text):
            return text.decode()
    return None


def _status(process: int) -> dict[bytes, bytes]:
    return dict(line.split(b":", 1) for line in _bytes(process, "status").splitlines() if b":" in line)


def _ignores_hangup(status: dict[bytes, bytes]) -> bool | None:
    mask = status.get(b"SigIgn")
    return None if mask is None else bool(int(mask, 16) & 1)


def _environment(process: int) -> dict[str, str] | None:
    """None where it may not be read (another user's)."""
    try:
        os.close(os.open("environ", os.O_RDONLY, dir_fd=process))
    except OSError:
        return None
    return environment_from(_bytes(process, "environ", MAX_ENVIRONMENT_BYTES))


def _link(process: int, name: str) -> str | None:
    try:
        return clean_text(os.fsencode(os.readlink(name, dir_fd=process)))
    except OSError:
        return None


def _deleted(process: int, name: str) -> str | None:
    path = _link(process, name)
    return path.removesuffix(DELETED) if path is not None and path.endswith(DELETED) else None


def _lost_terminal(process: int) -> str | None:
    """The terminal on one of the first three descriptors, where that was closed."""
    for descriptor in range(3):
        path = _link(process, f"fd/{descriptor}")
        if path is not None and path.endswith(DELETED) and (found := _TERMINAL.match(path)):
            return f"/dev/{found[1]}"
    return None


def _terminal(number: int) -> str | None:
    """The name of a controlling terminal: tty_nr of /proc/PID/stat."""
    if number <= 0:
        return None
    major, minor = os.major(number), os.minor(number)
    if 136 <= major <= 143:
        return f"pts/{(major - 136) * 256 + minor}"
    return f"tty{minor}" if major == 4 and minor < 64 else f"ttyS{minor - 64}" if major == 4 else None


def _waits_in(process: int) -> str | None:
    name = clean_text(_bytes(process, "wchan", 128))
    return name if name not in ("", "0") else None


def _children(process: int, proc: str) -> tuple[ProcessKey, ...] | None:
    """Its children, of all its threads; None where this kernel does not list them (CONFIG_PROC_CHILDREN)."""
    found: list[ProcessKey] = []
    try:
        folder = os.open("task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=process)
    except OSError:
        return None
    try:
        tasks = os.listdir(folder)
        if tasks and not _exists(folder, f"{tasks[0]}/children"):
            return None
        for task in tasks:
            for pid in _bytes(folder, f"{task}/children").split():
                stat = read_stat(f"{proc}/{int(pid)}/stat")
                if stat is not None:
                    found.append(ProcessKey(int(pid), stat.start_ticks))
    except OSError:
        return None
    finally:
        os.close(folder)
    return tuple(found)


def _exists(folder: int, path: str) -> bool:
    try:
        os.stat(path, dir_fd=folder)
    except OSError:
        return False
    return True


def _marks(process: int) -> tuple[str, ...]:
    return tuple(mark for mark, path in _MARKS.items() if _exists(process, f"root/{path}"))


def _root_mount(process: int) -> str | None:
    """The line of /proc/PID/mountinfo about its root directory."""
    for line in _bytes(process, "mountinfo").splitlines():
        fields = line.split(b" ")
        if len(fields) > 4 and fields[4] == b"/":
            return clean_text(line)
    return None
