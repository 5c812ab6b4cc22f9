"""Builds the :class:`~gputop.model.HostFacts` of processes, and remembers what /proc/PID/stat does not have."""

from __future__ import annotations

import dataclasses
import operator
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from gputop.model import HostFacts, ProcessKey, clean_text
from gputop.procfs.lookups import Key, Lookups
from gputop.procfs.stat import PAGE_BYTES, TICKS_PER_SECOND, Stat
from gputop.procfs.user_names import UserNames

#: CPU time is counted in ticks of 10 ms: over a shorter span than this, a percentage would be noise.
CPU_WINDOW_SECONDS: Final = 0.05
#: A process may change its title or owner without a trace in /proc/PID/stat; old ones do it less often than new ones.
LOOK_AGAIN_SECONDS: Final = (1.0, 10.0)
COMMAND_BYTES: Final = 4096  # the details have all of it


class TrackedProcess:
    """One process. :class:`~gputop.procfs.proc_host_reader.ProcHostReader` tells it when to look."""

    __slots__ = (
        "arguments_at", "at", "comm", "command", "cpu_percent", "cpu_ticks", "descriptor", "facts", "key", "line",
        "look_again_at", "name", "uid", "user", "waits_for",
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
        self.waits_for: tuple[str, ...] = ()

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
            waits_for=self.waits_for,
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


def describe(proc: str, processes: Sequence[tuple[TrackedProcess, Stat]], lookups: Lookups, users: UserNames) -> None:
    """Read of *processes* what /proc/PID/stat does not have: the owner and the command line.

    The kernel reads a command line under the process's memory lock, which a thread stuck in a driver may hold: one in
    state D is not asked, a zombie has none, and who does not answer otherwise is waited for by nobody. What is known
    stays."""
    calls: dict[Key, Callable[[], str | None]] = {}
    for known, stat in processes:
        known.uid = _owner(proc, known.key.pid)
        if stat.state not in "DZX":
            calls["command", known.key] = partial(command_line, proc, known.key.pid)
    answers = lookups.ask({**calls, **users.calls(known.uid for known, _ in processes)})
    users.take(answers)
    for known, stat in processes:
        key = "command", known.key
        late = key in calls and key not in answers
        if key in answers:
            known.command = answers[key]
        if late and known.has_changed(stat):
            known.command = None  # another program's
        known.comm, known.arguments_at, known.name = stat.comm, stat.arguments_at, clean_text(stat.comm)
        known.command = known.command or f"[{known.name}]"
        known.user = users.name(known.uid)
        waits_for = [f"the command line (/proc/{known.key.pid}/cmdline)"] if late else []
        if users.waits(known.uid):
            waits_for.append(f"the name of user {known.uid}")
        known.waits_for = tuple(waits_for)


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
