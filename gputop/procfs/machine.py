"""The host line: CPU, memory and load of the machine, and whether its pids are the driver's pids."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from gputop.model import Host, clean_text

#: The inode of the initial PID namespace (PROC_PID_INIT_INO, include/linux/proc_ns.h): the one the driver counts in.
HOST_PID_NAMESPACE: Final = "pid:[4026531836]"
#: Reading /proc/stat makes the kernel sum all interrupts of all cores (about 1 ms on big machines): not every tick.
CPU_WINDOW_SECONDS: Final = 1.0


def pids_are_host(proc: Path | str = "/proc") -> bool | None:
    """Whether gputop sees the pids of the host (True) or those of a PID namespace of its own; None: cannot be told."""
    try:
        return os.readlink(f"{proc}/self/ns/pid") == HOST_PID_NAMESPACE
    except OSError:
        return None


def boot_time(proc: Path | str = "/proc") -> float | None:
    """When the machine was started, in seconds since the epoch (btime of /proc/stat)."""
    try:
        with open(f"{proc}/stat", "rb") as file:
            return next((float(line.split()[1]) for line in file if line.startswith(b"btime ")), None)
    except OSError:
        return None


class MachineReader:
    """Reads :class:`~gputop.model.Host`. Its two files stay open. Not thread-safe."""

    def __init__(self, proc: Path | str = "/proc") -> None:
        self._proc = str(proc)
        self._files: dict[str, int] = {}
        self._cpu: tuple[float, int, int] | None = None  # when, busy ticks, all ticks
        self._cpu_percent: float | None = None
        self._cpu_count = os.sysconf("SC_NPROCESSORS_ONLN")
        self.pids_are_host = pids_are_host(proc)

    def read(self) -> Host:
        total, used = self._memory()
        return Host(
            name=clean_text(os.uname().nodename.split(".")[0], limit=64),
            cpu_percent=self._cpu_use(),
            cpu_count=self._cpu_count if self._cpu_count > 0 else None,
            memory_total_bytes=total,
            memory_used_bytes=used,
            load=_load(),
            pids_are_host=self.pids_are_host,
        )

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def _start_of(self, name: str, bytes_: int) -> bytes:
        try:
            if name not in self._files:
                self._files[name] = os.open(f"{self._proc}/{name}", os.O_RDONLY)
            return os.pread(self._files[name], bytes_, 0)
        except OSError:
            return b""

    def _cpu_use(self) -> float | None:
        """Busy share of all cores since the look before, in percent. Waiting for I/O is not being busy."""
        now = time.monotonic()
        if self._cpu is not None and self._cpu_percent is not None and now - self._cpu[0] < CPU_WINDOW_SECONDS:
            return self._cpu_percent
        first = self._start_of("stat", 256).partition(b"\n")[0].split()
        if len(first) < 6 or first[0] != b"cpu":
            return None
        ticks = [int(field) for field in first[1:9]]  # without guest times, which are within user times
        total = sum(ticks)
        busy = total - ticks[3] - ticks[4]
        if self._cpu is None:
            self._cpu = now, busy, total
        elif (passed := total - self._cpu[2]) > 0:
            self._cpu_percent = min(100.0, max(0.0, 100 * (busy - self._cpu[1]) / passed))
            self._cpu = now, busy, total
        return self._cpu_percent

    def _memory(self) -> tuple[int | None, int | None]:
        """Total, and total minus available, in bytes (/proc/meminfo)."""
        total = available = None
        for line in self._start_of("meminfo", 512).splitlines():
            if line.startswith(b"MemTotal:"):
                total = int(line.split()[1]) * 1024
            elif line.startswith(b"MemAvailable:"):
                available = int(line.split()[1]) * 1024
                break
        return total, None if total is None or available is None else total - available


def _load() -> tuple[float, float, float] | None:
    try:
        return os.getloadavg()
    except OSError:
        return None
