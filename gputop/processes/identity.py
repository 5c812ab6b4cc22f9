"""Who a pid is: reads :class:`~gputop.model.HostFacts` of GPU processes from /proc, tick after tick, at little cost.

A process is found again by a descriptor of its /proc/PID/stat that stays open: reading it gives ESRCH once the
process is gone, even where another one bears the pid by then. Anything remembered goes with it.
"""

from __future__ import annotations

import errno
import os
import pwd
import resource
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from gputop.model import Host, HostFacts, ProcessKey, clean_text
from gputop.processes import ProcessDetails
from gputop.processes.host import HostLine, boot_time
from gputop.processes.proc_stat import MAX_PID, PAGE_BYTES, STAT_BYTES, TICKS_PER_SECOND, Stat, is_thread, parse_stat

#: CPU time is counted in ticks of 10 ms: over a shorter span than this, a percentage would be noise.
CPU_WINDOW_SECONDS: Final = 0.05
#: A process may change its title or owner without a trace in /proc/PID/stat; old ones do it less often than new ones.
LOOK_AGAIN_SECONDS: Final = (1.0, 10.0)
COMMAND_BYTES: Final = 4096  # the details have all of it


class ProcHostReader:
    """The :class:`~gputop.processes.HostReader` of a real machine. One thread owns it; only :meth:`exists` and
    :meth:`details` may be called from others."""

    def __init__(self, proc: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = str(proc)
        self._clock = clock
        self._host = HostLine(proc)
        self._boot_time = boot_time(proc)
        self._known: dict[int, _Known] = {}
        self._open = 0
        self._open_limit = _share_of_descriptors()
        self.users = Users()

    def read(self, pids: Iterable[int], fresh: Collection[int] | None = None) -> Mapping[int, HostFacts]:
        """See :meth:`gputop.processes.HostReader.read`. Facts that did not change are the same object as before, with
        the ``read_at`` of when they were found."""
        if fresh is not None and not isinstance(fresh, set | frozenset | dict):
            fresh = frozenset(fresh)
        found: dict[int, HostFacts] = {}
        asked: set[int] = set()
        known = self._known
        for pid in pids:
            if pid in asked:  # on several GPUs: CPU use is a difference, which the first look uses up
                continue
            asked.add(pid)
            seen = known.get(pid)
            stale = seen is None or fresh is None or pid in fresh
            facts = self._look(pid) if stale or seen is None else seen.facts
            if facts is not None:
                found[pid] = facts
        if len(known) > len(found):
            for pid in known.keys() - found.keys():
                self._forget(pid)
        return found

    def exists(self, pid: int) -> bool | None:
        """See :meth:`gputop.processes.HostReader.exists`. A zombie exists. Works on hidden pids too (hidepid)."""
        if not 0 < pid <= MAX_PID:
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False if self._host.pids_are_host else None
        except PermissionError:
            pass
        return not is_thread(self._proc, pid)

    def machine(self) -> Host:
        """See :meth:`gputop.processes.HostReader.machine`. CPU use is that of the last second or more."""
        return self._host.read()

    def details(self, key: ProcessKey) -> ProcessDetails | None:
        """See :meth:`gputop.processes.HostReader.details`. Takes milliseconds (all pids are looked at for children)."""
        from gputop.processes.details import read_details  # needed on a key press only

        known = self._known.get(key.pid)
        facts = known.facts if known is not None and known.key == key else None
        return read_details(self._proc, key, facts, self.facts_of)

    def facts_of(self, pid: int, stat: Stat) -> HostFacts:
        """Facts of a process that is not followed: everything but its CPU use."""
        known = _Known(pid, stat)
        known.describe(self._proc, stat, self.users)
        return known.facts_from(stat, self._boot_time)

    def close(self) -> None:
        """Close all descriptors; the reader can be used again."""
        for pid in list(self._known):
            self._forget(pid)
        self._host.close()

    def _look(self, pid: int) -> HostFacts | None:
        """Read the process anew; None, and nothing remembered, when it is gone."""
        try:
            line = self._line(pid)
            if line is None:
                self._forget(pid)
                return None
            return self._update(pid, line)
        except (ProcessLookupError, ValueError):
            self._forget(pid)
            return None

    def _line(self, pid: int) -> bytes | None:
        """/proc/PID/stat, through the open descriptor where there is one."""
        known = self._known.get(pid)
        if known is not None and known.descriptor >= 0:
            try:
                return os.pread(known.descriptor, STAT_BYTES, 0)
            except ProcessLookupError:  # exited; the pid may be somebody else's by now
                self._forget(pid)
        try:
            descriptor = os.open(f"{self._proc}/{pid}/stat", os.O_RDONLY)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return None
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._open:
                return None
            self._hold_none()
            return self._line(pid)
        line = b""
        try:
            line = os.pread(descriptor, STAT_BYTES, 0)
            known = self._meet(pid, parse_stat(line))
            if known is not None and self._open < self._open_limit:
                known.descriptor, descriptor = descriptor, -1
                self._open += 1
            return line if known is not None else None
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _meet(self, pid: int, stat: Stat) -> _Known | None:
        """The process as it is known, or is from now on; None where the pid is only a thread's number: /proc answers
        for those too, and a dead process' pid may come back as one."""
        known = self._known.get(pid)
        if known is not None:
            if known.key.start_ticks == stat.start_ticks:
                return known
            self._forget(pid)
        if is_thread(self._proc, pid):
            return None
        self._known[pid] = known = _Known(pid, stat)
        return known

    def _update(self, pid: int, line: bytes) -> HostFacts:
        known = self._known[pid]
        now = self._clock()
        if line == known.line and known.at_rest and now < known.look_again_at:
            assert known.facts is not None
            known.at = now
            return known.facts
        stat = parse_stat(line)
        known.line = line
        known.count_cpu(stat, now)
        if known.has_changed(stat) or now >= known.look_again_at:
            known.describe(self._proc, stat, self.users)
            known.look_again_at = now + _patience(stat)
            if known.descriptor >= 0:
                os.pread(known.descriptor, 1, 0)  # ESRCH: the paths just read may have been the pid's next bearer's
        return known.facts_from(stat, self._boot_time)

    def _forget(self, pid: int) -> None:
        known = self._known.pop(pid, None)
        if known is not None and known.descriptor >= 0:
            self._open -= 1
            os.close(known.descriptor)

    def _hold_none(self) -> None:
        """Out of descriptors: hold none any more, open the file at each look."""
        self._open = self._open_limit = 0
        for known in self._known.values():
            if known.descriptor >= 0:
                os.close(known.descriptor)
                known.descriptor = -1


class _Known:
    """What is remembered of one process between looks."""

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

    def describe(self, proc: str, stat: Stat, users: Users) -> None:
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


def _patience(stat: Stat) -> float:
    """Seconds until owner and command line are looked at again: as long as the process is old, within bounds."""
    soonest, latest = LOOK_AGAIN_SECONDS
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - stat.start_ticks / TICKS_PER_SECOND
    return soonest if stat.state == "D" else min(max(age, soonest), latest)


def _same(old: HostFacts, new: HostFacts) -> bool:
    """Whether they differ in nothing but ``read_at``; what changes most is compared first."""
    return (
        old.cpu_seconds == new.cpu_seconds
        and old.cpu_percent == new.cpu_percent
        and old.host_memory_bytes == new.host_memory_bytes
        and old.state == new.state
        and old.threads == new.threads
        and (old.parent_pid, old.group_id, old.session_id) == (new.parent_pid, new.group_id, new.session_id)
        and (old.uid, old.user, old.name, old.command) == (new.uid, new.user, new.name, new.command)
    )


class Users:
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


def _share_of_descriptors() -> int:
    """How many files to keep open: a quarter of what the soft limit allows, and not all of a huge one."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4096 if soft == resource.RLIM_INFINITY else min(4096, soft // 4)
