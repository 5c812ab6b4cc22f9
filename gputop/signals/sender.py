"""Signals to processes, sent to the right one or not at all.

The order is what makes it safe: open whatever process has the pid now (a pidfd), *then* read its start time and
compare it with that of the row the user chose. From there on the pid may be given away; the signal goes to the process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Final

from gputop.model import HostFacts, ProcessKey, clean_text, replace
from gputop.procfs.devices import NvidiaDevices
from gputop.procfs.host_facts import command_line
from gputop.procfs.lookups import Lookups
from gputop.procfs.machine import pids_are_host
from gputop.procfs.stat import MAX_PID, TICKS_PER_SECOND, Stat, is_thread, process_directory, read_stat
from gputop.procfs.user_names import UserNames
from gputop.signals import pidfd as pidfds
from gputop.signals.names import signal_name
from gputop.signals.protocol import Outcome, Result, Target
from gputop.signals.scope import RelatedProcesses, related_among

HELD_SECONDS: Final = 0.3  # its open files may be on a server that does not answer
_UNGUARDED: Final = " (no pidfd on this kernel: a reused pid cannot be ruled out)"


class ProcSignals:
    """Signals on a real machine. May be used from any thread; :meth:`open` can take
    milliseconds."""

    def __init__(self, proc: Path = Path("/proc"), devices: NvidiaDevices | None = None) -> None:
        self._proc = str(proc)
        self._devices = devices or NvidiaDevices(proc)
        self._lookups = Lookups()
        self._users = UserNames(self._lookups)

    def open(self, target: Target) -> ProcHandle | Result:
        """See :meth:`gputop.signals.protocol.Signals.open`. Nothing is sent, whether it may be sent is asked."""
        pid, start_ticks = target.key
        refused = self._refuse(pid)
        if refused is not None:
            return Result(target, Outcome.REFUSED, refused)
        if start_ticks is None:
            return self._unknown(target)
        pidfd: int | None = None
        try:
            pidfd = pidfds.open_pidfd(pid)
        except pidfds.NoPidfd:
            thread = is_thread(self._proc, pid)
        except ProcessLookupError:
            return Result(target, Outcome.ALREADY_GONE, "already gone")
        except OSError:
            thread = True
        else:
            thread = False
        if thread:
            return Result(target, Outcome.PID_REUSED, f"pid {pid} is now a thread of another process: nothing sent")
        handle = ProcHandle(target, self._proc, pidfd)
        result = handle.check() or (None if target.related else self._refuse_if_no_device(handle))
        if result is None:
            return handle
        handle.close()
        return result

    def related(self, of: Collection[ProcessKey]) -> RelatedProcesses:
        """See :meth:`gputop.signals.protocol.Signals.related`. Reads the stat of every process: some 20 us each."""
        everyone = []
        for name in os.listdir(self._proc):
            if name.isdecimal() and (stat := read_stat(f"{self._proc}/{name}/stat")) is not None:
                everyone.append(self._facts(int(name), stat))
        found = related_among(everyone, of)
        shown = {facts.key: facts for facts in (*found.descendants, *found.group, *found.session)}
        commands = self._lookups.ask({
            ("command", key): partial(command_line, self._proc, key.pid)
            for key, facts in shown.items() if facts.state not in ("D", "Z")
        })  # fmt: skip
        whole = {key: self._described(facts, commands.get(("command", key))) for key, facts in shown.items()}
        return RelatedProcesses(*(tuple(whole[facts.key] for facts in part) for part in found))

    def _facts(self, pid: int, stat: Stat) -> HostFacts:
        return HostFacts(
            key=ProcessKey(pid, stat.start_ticks),
            read_at=time.time(),
            parent_pid=stat.parent_pid,
            group_id=stat.group_id,
            session_id=stat.session_id,
            name=clean_text(stat.comm),
            state=stat.state,
            threads=stat.threads,
        )

    def _described(self, facts: HostFacts, command: str | None) -> HostFacts:
        """With what takes a system call more for each. A command line that does not answer is not waited for."""
        pid = facts.key.pid
        try:
            uid: int | None = os.stat(f"{self._proc}/{pid}").st_uid
        except OSError:
            uid = None
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        return replace(
            facts,
            command=command or (f"[{facts.name}]" if self._lookups.waits(("command", facts.key)) else None),
            uid=uid,
            user=None if uid is None else self._users.name(uid) or str(uid),
            start_time=booted + (facts.key.start_ticks or 0) / TICKS_PER_SECOND,
        )

    def _refuse(self, pid: int) -> str | None:
        """Why this pid is never sent anything."""
        if pid == 1:
            return "pid 1 is init: gputop never signals it"
        if not 0 < pid <= MAX_PID:
            return f"{pid} is not a valid pid: nothing sent"
        try:
            if int(os.readlink(f"{self._proc}/self")) != os.getpid():
                return "/proc shows the pids of another namespace: nothing sent"
        except (OSError, ValueError):
            return f"{self._proc} is missing, so the process cannot be checked: nothing sent"
        if pid == os.getpid():
            return "this is gputop itself: press q or F10 to quit"
        if pid in self._ancestors() or pid == os.getsid(0):
            return "gputop runs under this process and would die with it: nothing sent. Use another terminal"
        return None

    def _ancestors(self) -> set[int]:
        found: set[int] = set()
        pid = os.getppid()
        while pid > 0 and pid not in found:
            found.add(pid)
            stat = read_stat(f"{self._proc}/{pid}/stat")
            pid = stat.parent_pid if stat is not None else 0
        return found

    def _unknown(self, target: Target) -> Result:
        """A row of which the host had nothing: no start time, so nothing to know the process by."""
        pid = target.key.pid
        if read_stat(f"{self._proc}/{pid}/stat") is None:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                if pids_are_host(self._proc):
                    return Result(
                        target, Outcome.ALREADY_GONE, "already gone: the driver lists a process that has exited"
                    )
                message = f"pid {pid} is outside gputop's PID namespace: nothing sent. Run gputop on the host"
                return Result(target, Outcome.ALREADY_GONE, message)
            except PermissionError:
                pass
            message = f"hidden by {self._proc} (hidepid): run gputop as {target.user or 'its owner'} or with sudo"
            return Result(target, Outcome.NOT_PERMITTED, message)
        message = f"its start time is not known, so pid {pid} may be another process by now: nothing sent"
        return Result(target, Outcome.REFUSED, message)

    def _refuse_if_no_device(self, handle: ProcHandle) -> Result | None:
        """Why the process cannot be the one that holds the GPU memory. Not being able to tell is no reason."""
        if not self._devices.present():
            return None
        stat, key = handle.stat(), handle.target.key

        def held_by() -> tuple[str, ...] | None:
            try:
                with process_directory(self._proc, key) as process:
                    return self._devices.held_by(process, with_maps=stat is not None and stat.state != "D")
            except OSError:
                return None  # gone: sending will find out

        held = self._lookups.one(("devices", key), held_by, None, HELD_SECONDS)
        if held == () and handle.stat() is not None:
            message = "it has no NVIDIA device open, so this GPU memory is not its own: nothing sent"
            return Result(handle.target, Outcome.NOT_OWNER, message)
        return None


class ProcHandle:
    """One process: a pidfd, or on old kernels (*pidfd* None) its start time only, compared right before
    anything is sent. Close it."""

    def __init__(self, target: Target, proc: str, pidfd: int | None) -> None:
        self.target = target
        self._proc = proc
        self._pidfd = pidfd

    @property
    def guarded(self) -> bool:
        return self._pidfd is not None

    def stat(self) -> Stat | None:
        """The process's /proc/PID/stat; None when it was reaped (another process's is not given)."""
        stat = read_stat(f"{self._proc}/{self.target.key.pid}/stat")
        return stat if stat is not None and stat.start_ticks == self.target.key.start_ticks else None

    def state(self) -> str | None:
        """The letter of /proc: T is stopped, D stuck in the kernel; None when it was reaped."""
        stat = self.stat()
        return stat.state if stat is not None else None

    def exited(self) -> bool:
        """Whether it ended (with all threads), reaped or not. After that it holds no GPU memory of its own."""
        if self._pidfd is not None:
            return pidfds.has_exited(self._pidfd)
        stat = self.stat()
        return stat is None or _is_zombie(stat)

    def unreaped_by(self) -> int | None:
        """The parent that has not reaped it: it is a zombie. None: it is none, or gone."""
        stat = self.stat()
        return stat.parent_pid if stat is not None and _is_zombie(stat) else None

    def stuck_in(self) -> str | None:
        """See :meth:`gputop.signals.protocol.ProcessHandle.stuck_in` (/proc/PID/wchan)."""
        if self.state() != "D":
            return None
        try:
            with open(f"{self._proc}/{self.target.key.pid}/wchan", "rb") as file:
                place = clean_text(file.read(128))
        except OSError:
            place = ""
        return place if place not in ("", "0") else "a function that cannot be read"

    def check(self) -> Result | None:
        """Why nothing can be sent; None where it can."""
        pid = self.target.key.pid
        stat = read_stat(f"{self._proc}/{pid}/stat")
        if stat is None and not self.exited():  # hidden (hidepid)
            return self._permission() or self._result(Outcome.REFUSED, f"hidden by {self._proc}: nothing sent")
        if stat is None:
            return self._result(Outcome.ALREADY_GONE, "already gone")
        if stat.start_ticks != self.target.key.start_ticks:
            name = clean_text(stat.comm)
            return self._result(Outcome.PID_REUSED, f"pid {pid} was reused and is now {name!r}: nothing sent")
        if stat.is_kernel_thread:
            return self._result(Outcome.REFUSED, "a kernel thread: it ignores signals")
        if _is_zombie(stat):
            message = f"already exited; its parent {stat.parent_pid} has not reaped it yet"
            return self._result(Outcome.ALREADY_GONE, message)
        return self._permission()

    def send(self, signal: int) -> Result:
        """See ``ProcessHandle.send``. The message says where the signal will not act, or not yet."""
        stat = self.stat()
        if _is_zombie(stat) or (stat is None and not self.guarded):
            return self.check() or self._result(Outcome.ALREADY_GONE, "already gone")
        status = _Status.read(self._proc, self.target.key.pid)
        try:
            self._deliver(signal)
        except OSError as error:
            return self._failure(error)
        name = signal_name(signal)
        hindrance = _hindrance(stat, status, signal) if stat is not None else None
        return self._result(Outcome.SENT, f"{name} sent" + (f": {hindrance}" if hindrance else ""))

    def close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _permission(self) -> Result | None:
        try:
            self._deliver(0)
        except OSError as error:
            return self._failure(error)
        return None

    def _deliver(self, signal: int) -> None:
        if self._pidfd is not None:
            try:
                return pidfds.send_signal(self._pidfd, signal)
            except pidfds.NoPidfd:
                self.close()  # unguarded from here on
        if self.stat() is None:
            raise ProcessLookupError
        os.kill(self.target.key.pid, signal)

    def _failure(self, error: OSError) -> Result:
        if isinstance(error, ProcessLookupError):
            return self._result(Outcome.ALREADY_GONE, "already gone")
        if isinstance(error, PermissionError):
            if os.geteuid() == 0:
                return self._result(Outcome.NOT_PERMITTED, "forbidden even to root by a container or security module")
            owner = self.target.user or "another user"
            return self._result(Outcome.NOT_PERMITTED, f"owned by {owner}: run gputop as that user, or with sudo")
        return self._result(Outcome.FAILED, os.strerror(error.errno) if error.errno else str(error))

    def _result(self, outcome: Outcome, message: str) -> Result:
        if outcome is Outcome.SENT and not self.guarded:
            message += _UNGUARDED
        return Result(self.target, outcome, message, self.guarded)


class _Status:
    """What /proc/PID/status says of signals."""

    def __init__(self, text: bytes) -> None:
        fields = dict(line.split(b":", 1) for line in text.splitlines() if b":" in line)
        self.ignored = int(fields.get(b"SigIgn", b"0"), 16)
        self.handled = int(fields.get(b"SigCgt", b"0"), 16)
        #: First process of a PID namespace other than gputop's: the kernel protects it as it does pid 1.
        self.is_container_init = fields.get(b"NSpid", b"").split()[1:][-1:] == [b"1"]

    @classmethod
    def read(cls, proc: str, pid: int) -> _Status:
        try:
            with open(f"{proc}/{pid}/status", "rb") as file:
                return cls(file.read())
        except OSError:
            return cls(b"")


def _is_zombie(stat: Stat | None) -> bool:
    """A zombie with living threads still has its memory, and can be killed."""
    return stat is not None and stat.state in "ZX" and stat.threads <= 1


def _hindrance(stat: Stat, status: _Status, signal: int) -> str | None:
    """Why a signal that was sent does nothing, or nothing yet. *stat* is that of just before."""
    if signal in (0, SIGKILL, SIGCONT, SIGSTOP):
        return (
            "it is stuck in the kernel (state D) and dies when that call returns"
            if stat.state == "D" and signal
            else None
        )
    bit = 1 << (signal - 1)
    if status.ignored & bit:
        return f"the process ignores {signal_name(signal)}"
    if status.is_container_init and not status.handled & bit:
        return f"the init of a container only gets signals that it handles, not {signal_name(signal)}"
    if stat.state == "t":
        return "a debugger has stopped it (state t): the signal is pending until it continues"
    if stat.state == "T":
        return "it is stopped (state T): the signal is pending until SIGCONT"
    if stat.state == "D":
        return "it is stuck in the kernel (state D): the signal is pending until that call returns"
    return None
