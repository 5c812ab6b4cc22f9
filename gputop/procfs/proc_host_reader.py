"""Who a pid is: reads :class:`~gputop.model.HostFacts` of GPU processes from /proc, tick after tick, at little cost.

A process is found again by a descriptor of its /proc/PID/stat that stays open: reading it gives ESRCH once the
process is gone, even where another one has the pid by then. Anything remembered goes with it.
"""

from __future__ import annotations

import errno
import os
import resource
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gputop.model import Host, HostFacts, ProcessKey, TorchReport, replace
from gputop.procfs.host_facts import TrackedProcess, describe, patience
from gputop.procfs.host_reader import ProcessDetails
from gputop.procfs.lookups import Lookups
from gputop.procfs.machine import MachineReader, boot_time
from gputop.procfs.stat import MAX_PID, STAT_BYTES, Stat, is_thread, parse_stat
from gputop.procfs.user_names import UserNames

if TYPE_CHECKING:
    from gputop.torch_monitor.reports import TorchReports

LATE_ANSWER_SECONDS: Final = 0.1  # until it is looked whether a late answer has come


class ProcHostReader:
    """The :class:`~gputop.procfs.host_reader.HostReader` of a real machine. One thread owns it; only :meth:`exists` and
    :meth:`details` may be called from others."""

    def __init__(self, proc: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = str(proc)
        self._clock = clock
        self._host = MachineReader(proc)
        self._boot_time = boot_time(proc)
        self._known: dict[int, TrackedProcess] = {}
        self._open = 0
        self._open_limit = _share_of_descriptors()
        self.lookups = Lookups()
        self.users = UserNames(self.lookups)
        self._to_describe: list[tuple[TrackedProcess, Stat]] = []
        self._torch: TorchReports | None = None
        self._last_machine = Host()
        self._last_torch: Mapping[int, TorchReport] = {}

    def read(self, pids: Iterable[int], fresh: Collection[int] | None = None) -> Mapping[int, HostFacts]:
        """See ``HostReader.read``. Facts that did not change are the same object as before, with
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
            facts = self._look(pid) if seen is None or fresh is None or pid in fresh else seen.facts
            if facts is not None:
                found[pid] = facts
        if self._to_describe:
            self._describe(found)
        if len(known) > len(found):
            for pid in known.keys() - found.keys():
                self._forget(pid)
        return found

    def exists(self, pid: int) -> bool | None:
        """See ``HostReader.exists``. A zombie exists. Works on hidden pids too (hidepid)."""
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
        """See ``HostReader.machine``. CPU use is that of the last second or more."""
        host: Host = self.lookups.one("machine", self._host.read, None)  # files of lxcfs in a container
        slow: list[str] = [] if host is not None else ["the machine's own figures (/proc/stat, /proc/meminfo)"]
        self._last_machine = host or self._last_machine
        waiting = sorted({word for known in self._known.values() for word in known.waits_for})
        return replace(self._last_machine, slow=(*slow, *waiting)) if slow or waiting else self._last_machine

    def torch_reports(self, facts: Mapping[int, HostFacts]) -> Mapping[int, TorchReport]:
        """See ``HostReader.torch_reports``."""
        if self._torch is None:
            from gputop.torch_monitor.reports import TorchReports  # not needed for the first picture

            self._torch = TorchReports()
        self._last_torch = self.lookups.one("torch", partial(self._torch.read, facts), self._last_torch)
        return self._last_torch

    def details(self, key: ProcessKey) -> ProcessDetails | None:
        """See ``HostReader.details``. Takes milliseconds (all pids are looked at for children)."""
        from gputop.procfs.details import read_details  # needed on a key press only

        known = self._known.get(key.pid)
        facts = known.facts if known is not None and known.key == key else None
        return read_details(self._proc, key, facts, self.facts_of, self.lookups)

    def facts_of(self, pid: int, stat: Stat) -> HostFacts:
        """Facts of a process that is not followed: everything but its CPU use."""
        known = TrackedProcess(pid, stat)
        describe(self._proc, [(known, stat)], self.lookups, self.users)
        return known.facts_from(stat, self._boot_time)

    def close(self) -> None:
        """Close all descriptors; the reader can be used again."""
        for pid in list(self._known):
            self._forget(pid)
        self._host.close()
        if self._torch is not None:
            self._torch.close()

    def _look(self, pid: int) -> HostFacts | None:
        """Read the process anew; None where it is to be described first, and, nothing remembered, when it is gone."""
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

    def _meet(self, pid: int, stat: Stat) -> TrackedProcess | None:
        """The process as it is known, or is from now on; None where the pid is only a thread's number: /proc answers
        for those too, and a dead process' pid may come back as one."""
        known = self._known.get(pid)
        if known is not None:
            if known.key.start_ticks == stat.start_ticks:
                return known
            self._forget(pid)
        if is_thread(self._proc, pid):
            return None
        self._known[pid] = known = TrackedProcess(pid, stat)
        return known

    def _update(self, pid: int, line: bytes) -> HostFacts | None:
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
            self._to_describe.append((known, stat))
            return None
        return known.facts_from(stat, self._boot_time)

    def _describe(self, found: dict[int, HostFacts]) -> None:
        """Look at owners and command lines, all at once, and add the facts to *found*."""
        processes, self._to_describe = self._to_describe, []
        describe(self._proc, processes, self.lookups, self.users)
        now = self._clock()
        for known, stat in processes:
            known.look_again_at = now + (LATE_ANSWER_SECONDS if known.waits_for else patience(stat))
            try:
                if known.descriptor >= 0:
                    os.pread(known.descriptor, 1, 0)  # ESRCH: what was read may be of a process that reused the pid
            except ProcessLookupError:
                self._forget(known.key.pid)
            else:
                found[known.key.pid] = known.facts_from(stat, self._boot_time)

    def _forget(self, pid: int) -> None:
        known = self._known.pop(pid, None)
        if known is not None and known.waits_for:
            self.lookups.drop((("command", known.key),))
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


def _share_of_descriptors() -> int:
    """How many files to keep open: a quarter of what the soft limit allows, and not all of a huge one."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4096 if soft == resource.RLIM_INFINITY else min(4096, soft // 4)
