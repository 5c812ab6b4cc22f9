"""The line of /proc/PID/stat, the one file about a process that anybody may read and whose reading cannot block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from gputop.model import ProcessKey

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
#: More than 52 numbers of 20 digits and the longest comm (64 bytes, kernel workers) can fill.
STAT_BYTES: Final = 2048
#: No pid is greater on any Linux (PID_MAX_LIMIT); the driver's are 32 bits of anything.
MAX_PID: Final = 1 << 22

_PF_KTHREAD: Final = 0x00200000  # include/linux/sched.h


class Stat(NamedTuple):
    """What is used of /proc/PID/stat (man 5 proc_pid_stat)."""

    comm: bytes
    state: str
    parent_pid: int
    group_id: int
    session_id: int
    flags: int
    cpu_ticks: int  # user and system, all threads
    threads: int
    start_ticks: int
    resident_pages: int
    terminal: int  # device number of the controlling terminal, 0: none
    arguments_at: bytes  # where the command line lies: moves with exec. b"0" for who may not ptrace
    fields: list[bytes]  # all that follow the comm

    @property
    def is_kernel_thread(self) -> bool:
        return bool(self.flags & _PF_KTHREAD)

    def number(self, field: int) -> int:
        """The number that man 5 proc_pid_stat calls *field*; for what is used in one place."""
        return int(self.fields[field - 3])


def parse_stat(line: bytes) -> Stat:
    """Parse the line. The comm may hold anything, ``)`` and line breaks too, so its end is the *last* ``)``.

    Raises ValueError for a line that is none.
    """
    end = line.rindex(b")")
    f = line[end + 2 :].split()
    if len(f) < 22:
        raise ValueError("not a line of /proc/PID/stat")
    return Stat(
        comm=line[line.index(b"(") + 1 : end],
        state=f[0].decode("ascii", "replace"),
        parent_pid=int(f[1]),
        group_id=int(f[2]),
        session_id=int(f[3]),
        flags=int(f[6]),
        cpu_ticks=int(f[11]) + int(f[12]),
        threads=int(f[17]),
        start_ticks=int(f[19]),
        resident_pages=int(f[21]),
        terminal=int(f[4]),
        arguments_at=f[45] if len(f) > 45 else b"0",
        fields=f,
    )


def read_stat(path: str, dir_fd: int | None = None) -> Stat | None:
    """Open, read and parse once; None where the process is gone or hidden (hidepid)."""
    try:
        descriptor = os.open(path, os.O_RDONLY, dir_fd=dir_fd)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    try:
        return parse_stat(os.read(descriptor, STAT_BYTES))
    except ProcessLookupError:
        return None
    finally:
        os.close(descriptor)


@contextmanager
def process_directory(proc: str, key: ProcessKey) -> Iterator[int]:
    """/proc/PID, open as a descriptor: nothing of a process that reuses the pid is read through it. Raises
    ProcessLookupError where the process is gone, other OSError where it is hidden."""
    process = os.open(f"{proc}/{key.pid}", os.O_RDONLY | os.O_DIRECTORY)
    try:
        stat = read_stat("stat", process)
        if stat is None or stat.start_ticks != key.start_ticks:
            raise ProcessLookupError
        yield process
    finally:
        os.close(process)


def is_thread(proc: str, pid: int) -> bool:
    """Whether *pid* is the number of a thread that is not its process's first one (Tgid of /proc/PID/status)."""
    try:
        with open(f"{proc}/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"Tgid:"):
                    return int(line.split()[1]) != pid
    except OSError:
        pass
    return False
