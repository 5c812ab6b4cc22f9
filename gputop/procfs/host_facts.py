"""Builds the :class:`~gputop.model.HostFacts` of a process, and remembers what /proc/PID/stat does not have."""

from __future__ import annotations

import dataclasses
import operator
import os
import pwd
import time
from typing import Final

from gputop.model import HostFacts, ProcessKey, clean_text
from gputop.procfs.stat import PAGE_BYTES, TICKS_PER_SECOND, Stat

#: CPU time is counted in ticks of 10 ms: over a shorter span than this, a percentage would be noise.
CPU_WINDOW_SECONDS: Final = 0.05
#: A process may change its title or owner without a trace in /proc/PID/stat; old ones do it less often than new ones.
LOOK_AGAIN_SECONDS: Final = (1.0, 10.0)
COMMAND_BYTES: Final = 4096  # the details have all of it


class TrackedProcess:
    """One process. :class:`~gputop.procfs.proc_host_reader.ProcHostReader` tells it when to look."""

    __slots__ = (
        "arguments_at", "at", "comm", "command", "cpu_percent", "cpu_ticks", "descriptor", "facts", "key", "line",
        "look_again_at", "name", "uid", "user",
    )  # fmt: skip

    def __init__(self, pid: int, stat: Stat) -> None:
        self.key = ProcessKey(pid, stat.start_ticks)
        self.descriptor = -1
        self.line = b""
        self.facts: HostFacts | None = None
        self.at = 0.0  # monotonic; when cpu_ticks were counted
        self.cpu_ticks = 0
        self.cpu_percent: float | None = None
        self.look_again_at = 0.0
        self.comm: bytes | None = None
        self.arguments_at = b""
        self.name = ""
        self.command: str | None = None
        self.uid: int | None = None
        self.user: str | None = None

    @property
    def at_rest(self) -> bool:
        """Whether facts of an unchanged line would be the same again."""
        return self.facts is not None and self.cpu_percent == 0.0

    def count_cpu(self, stat: Stat, now: float) -> None:
        if self.at:
            elapsed = now - self.at
            if elapsed < CPU_WINDOW_SECONDS:
                return
            self.cpu_percent = max(0.0, 100 * (stat.cpu_ticks - self.cpu_ticks) / TICKS_PER_SECOND / elapsed)
        self.at = now
        self.cpu_ticks = stat.cpu_ticks

    def has_changed(self, stat: Stat) -> bool:
        """Whether the process runs another program (exec) or gave itself another name."""
        return stat.comm != self.comm or stat.arguments_at != self.arguments_at

    def describe(self, proc: str, stat: Stat, users: UserNames) -> None:
        """Read what /proc/PID/stat does not have: the owner and the command line.

        The kernel reads a command line under the process's memory lock, which a thread stuck in a driver may hold:
        not in state D, and a zombie has none, so what is known stays."""
        pid = self.key.pid
        self.comm, self.arguments_at, self.name = stat.comm, stat.arguments_at, clean_text(stat.comm)
        self.uid = _owner(proc, pid)
        self.user = users.name(self.uid)
        if stat.state not in "DZX":
            self.command = command_line(proc, pid) or f"[{self.name}]"
        elif self.command is None:
            self.command = f"[{self.name}]"

    def facts_from(self, stat: Stat, boot_time: float | None) -> HostFacts:
        facts = HostFacts(
            key=self.key,
            read_at=time.time(),
            start_time=None if boot_time is None else boot_time + stat.start_ticks / TICKS_PER_SECOND,
            parent_pid=stat.parent_pid,
            group_id=stat.group_id,
            session_id=stat.session_id,
            uid=self.uid,
            user=self.user,
            name=self.name,
            command=self.command,
            state=stat.state,
            threads=stat.threads,
            cpu_percent=self.cpu_percent,
            cpu_seconds=stat.cpu_ticks / TICKS_PER_SECOND,
            host_memory_bytes=stat.resident_pages * PAGE_BYTES,
        )
        if self.facts is None or not _same(self.facts, facts):
            self.facts = facts
        return self.facts


def patience(stat: Stat) -> float:
    """Seconds until owner and command line are looked at again: as long as the process is old, within bounds."""
    soonest, latest = LOOK_AGAIN_SECONDS
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - stat.start_ticks / TICKS_PER_SECOND
    return soonest if stat.state == "D" else min(max(age, soonest), latest)


_all_but_time: Final = operator.attrgetter(
    *(field.name for field in dataclasses.fields(HostFacts) if field.name != "read_at")
)


def _same(old: HostFacts, new: HostFacts) -> bool:
    """Whether they differ in nothing but ``read_at``; what changes most is compared first."""
    return old.cpu_seconds == new.cpu_seconds and bool(_all_but_time(old) == _all_but_time(new))


class UserNames:
    """Names of users, each asked for once: the name service may be a slow network one."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def name(self, uid: int | None) -> str | None:
        """The name, the number as text where it has none, None for None."""
        if uid is None:
            return None
        if uid not in self._names:
            try:
                self._names[uid] = clean_text(pwd.getpwuid(uid).pw_name, limit=64)
            except KeyError:
                self._names[uid] = str(uid)
        return self._names[uid]


def command_line(proc: str, pid: int) -> str | None:
    """The command line, at most :data:`COMMAND_BYTES` of it; None for kernel threads and what may not be read."""
    try:
        descriptor = os.open(f"{proc}/{pid}/cmdline", os.O_RDONLY)
    except OSError:
        return None
    try:
        return command_from(os.read(descriptor, COMMAND_BYTES))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def command_from(raw: bytes) -> str | None:
    """The content of /proc/PID/cmdline in one line. Processes that rewrote their title leave NULs or spaces behind."""
    return clean_text(raw.rstrip(b"\0 ").replace(b"\0", b" "), limit=max(len(raw), 1)) or None


def _owner(proc: str, pid: int) -> int | None:
    """The effective user id. Of the directory: the files in it turn root's when a process makes itself undumpable."""
    try:
        return os.stat(f"{proc}/{pid}").st_uid
    except OSError:
        return None
