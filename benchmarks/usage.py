"""What a process tree uses: CPU, memory, threads, descriptors, NVML calls; and the machine around it."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TICK = os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[int]:
    """The pid and all its descendants."""
    pids, todo = [], [pid]
    while todo:
        one = todo.pop()
        pids.append(one)
        for file in Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                todo += map(int, file.read_text().split())
    return pids


class Cpu(NamedTuple):
    """Seconds. The total of live processes is from their CPU clocks (nanoseconds); the split, and the time of
    children they have reaped, from /proc/PID/stat (clock ticks: coarse when small)."""

    total: float
    user: float
    system: float


def cpu(pids: Iterable[int]) -> Cpu:
    total = user = system = 0.0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            own_user, own_system, reaped_user, reaped_system = (int(x) / TICK for x in fields[11:15])
            live = time.clock_gettime((~pid << 3) | 2)  # the process's CPU clock: clock_getcpuclockid(3)
        except OSError:
            continue
        total += live + reaped_user + reaped_system
        user += own_user + reaped_user
        system += own_system + reaped_system
    return Cpu(total, user, system)


def machine_cpu() -> tuple[float, float]:
    """CPU seconds the whole machine has worked, and those stolen by its host."""
    fields = [int(x) / TICK for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4] - fields[7], fields[7]


def wait_quiet(percent: float, seconds: float = 2, limit: float = 120) -> None:
    """Wait until everything but this process uses less than `percent` of one CPU; 0: do not wait."""
    until = time.monotonic() + limit
    while percent and time.monotonic() < until:
        start, before = time.monotonic(), machine_cpu()[0] - time.process_time()
        time.sleep(seconds)
        busy = machine_cpu()[0] - time.process_time() - before
        if busy / (time.monotonic() - start) * 100 < percent:
            return


class Memory(NamedTuple):
    """KiB, and counts, over a tree. `private` is what would be freed if it ended."""

    rss: int
    pss: int
    private: int
    threads: int
    descriptors: int
    processes: int


def memory(pids: Iterable[int]) -> Memory:
    rss = pss = private = threads = descriptors = processes = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            threads += len(os.listdir(f"/proc/{pid}/task"))
            descriptors += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
        kib = {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+) kB", text, re.M)}
        rss += kib.get("Rss", 0)
        pss += kib.get("Pss", 0)
        private += kib.get("Private_Dirty", 0) + kib.get("Private_Clean", 0)
        processes += 1
    return Memory(rss, pss, private, threads, descriptors, processes)


# ------------------------------------------------------------------------------ NVML calls


class Counts(NamedTuple):
    at: float  # CLOCK_MONOTONIC of the flush
    calls: dict[str, tuple[int, int, float]]  # function: calls, errors, seconds inside


def read_counts(folder: Path) -> dict[str, Counts]:
    """What the simulated driver wrote (SIMNVML_COUNT), by file."""
    counts = {}
    for file in folder.glob("*.count"):
        head, *lines = file.read_text().splitlines()
        rows = (line.split() for line in lines)
        counts[file.name] = Counts(float(head.split()[-1]), {n: (int(c), int(e), float(s)) for n, c, e, s in rows})
    return counts


class CallRates(NamedTuple):
    by_function: dict[str, float]  # calls per second
    errors: float  # per second
    inside: float  # seconds per second, over all threads; waiting for events left out


def call_rates(before: dict[str, Counts], after: dict[str, Counts]) -> CallRates:
    by_function: dict[str, float] = {}
    errors = inside = 0.0
    for file, now in after.items():
        then = before.get(file)
        if then is None or now.at <= then.at:
            continue
        seconds = now.at - then.at
        for name, (calls, failed, spent) in now.calls.items():
            old_calls, old_failed, old_spent = then.calls.get(name, (0, 0, 0.0))
            if calls > old_calls:
                by_function[name] = by_function.get(name, 0) + (calls - old_calls) / seconds
            errors += (failed - old_failed) / seconds
            if not name.startswith("nvmlEventSetWait"):  # waiting for an event is no work
                inside += (spent - old_spent) / seconds
    return CallRates(dict(sorted(by_function.items(), key=lambda x: -x[1])), errors, inside)
