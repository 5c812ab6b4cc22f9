#!/usr/bin/env python3
"""Whether gputop stays as small as it started: thousands of polls in one process, and a dashboard left open.

As a script it is the polling process itself: `endurance.py POLLS`, one JSON line; `endurance.py churn PROCESSES POLLS`
a dashboard under which processes come and go, in compressed time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import places
import usage
from session import Session, Setup

WARM = 500  # polls before the first look: caches and history rings are filled


def _now() -> usage.Memory:
    return usage.memory([os.getpid()])


def poll(polls: int) -> dict[str, Any]:
    """Run gputop's own poller on the driver this process finds, as fast as it goes."""
    from gputop.history.gpu_history import History
    from gputop.procfs.proc_host_reader import ProcHostReader
    from gputop.sampling.bus import Bus
    from gputop.sampling.poller import Poller
    from gputop.sources.nvml import NvmlSource

    poller = Poller(NvmlSource(), ProcHostReader(), Bus(), interval=0.001, history=History())
    poller.want("endurance", None)
    done, at = threading.Event(), {}
    count, publish = 0, poller._publish

    def counted(snapshot: Any) -> None:
        nonlocal count
        publish(snapshot)
        count += 1
        if count in (WARM, WARM + polls):
            at[count] = (time.monotonic(), _now())
            if count > WARM:
                done.set()

    poller._publish = counted  # type: ignore[method-assign]
    poller.start()
    if not done.wait(1800):
        return {"ok": False, "polls": count, "error": str(poller.error)}
    (t0, before), (t1, after) = at[WARM], at[WARM + polls]
    return {
        "ok": True,
        "polls": polls,
        "seconds": round(t1 - t0, 1),
        "descriptors": [before.descriptors, after.descriptors],
        "threads": [before.threads, after.threads],
        "growth_kib": after.private - before.private,
    }


CHURN_WARM_PROCESSES = 1_000  # what remembers so many of the dead is full then
CHURN_ROWS = 12  # processes at a time


class _Investigator:
    """Knows of everybody what a rule may ask."""

    def context(self, facts: Any) -> Any:
        from gputop.leaks.process_context import ProcessContext
        from gputop.model.owner import Owner, Relative

        parents = (Relative(4000, "slurmstepd", "slurmstepd: [88123.0]", 1), Relative(1, "systemd", None, 1))
        owner = Owner(where=f"slurm {88000 + facts.key.pid % 97}", slurm_job=str(facts.key.pid))
        return ProcessContext(facts, facts.read_at, owner, parents, True, True, children=(), holds_device=True)

    def owner(self, facts: Any) -> Any:
        return self.context(facts).owner

    def scan(self, with_maps: bool = False) -> Any:
        from gputop.leaks.holders.holder import HolderScan

        return HolderScan(time.time(), 0.1, (), 400)

    def is_alive(self, key: Any) -> bool:
        return True

    def forget(self, living: Any) -> None: ...


class _Churn:
    """A sampler whose processes live a few polls each; time goes by as fast as it is read."""

    def __init__(self, processes: int, polls: int) -> None:
        from gputop.history.gpu_history import History
        from gputop.sampling.bus import Bus

        self.bus, self.history = Bus(), History()
        self.latest: Any = None
        self.interval, self.released = 0.1, False
        self.started, self._every = 0, polls / processes
        self._polls, self._now, self._rows = 0, time.time(), []  # type: ignore[var-annotated]

    def want(self, consumer: str, pids: Any, every: float = 1.0) -> None: ...

    def refresh(self) -> None: ...

    def details(self, key: Any) -> None:
        return None

    def take(self) -> None:
        from gputop.model import Driver, Gpu, GpuProcess, Host, HostFacts, ProcessKey, Snapshot
        from gputop.sampling.messages import ProcessExited, ProcessStarted, SnapshotTaken

        self._polls += 1
        self._now += self.interval
        while self.started < self._polls / self._every:
            n = self.started = self.started + 1
            pid = 10_000 + n * 7 % 4_000_000
            command = (
                f"python3 /home/user{n % 50}/run_{n}/train.py --config conf/{n}.yaml --seed {n} --output /scratch/{n}"
            )
            key = ProcessKey(pid, n)
            facts = HostFacts(
                key, self._now, self._now, 4000, pid, pid, 1000 + n % 50, f"user{n % 50}", "python3", command, "R", 9,
                99.0, 1.0, 3 << 30,
            )  # fmt: skip
            row = GpuProcess(pid, f"GPU-{n % 2}", "C", n % 2, exists=True, host=facts)
            self._rows.append(row)
            self.bus.publish(ProcessStarted(self._now, row))
            if len(self._rows) > CHURN_ROWS:
                self.bus.publish(ProcessExited(self._now, self._rows.pop(0)))
        from dataclasses import replace

        rows = tuple(replace(row, memory_bytes=(row.pid * 997 + self._polls) % (9 << 30)) for row in self._rows)
        gpus = tuple(
            Gpu(
                n, f"GPU-{n}", "NVIDIA H200", self._now, memory_total_bytes=141 << 30, memory_used_bytes=60 << 30,
                utilization_gpu_percent=self._polls % 101, temperature_celsius=40 + self._polls % 20,
                power_watts=300.0 + self._polls % 50,
            )
            for n in range(2)
        )  # fmt: skip
        self.latest = Snapshot(self._now, Host("node"), Driver("580"), gpus, rows, interval=self.interval)
        self.history.add(self.latest)
        self.bus.publish(SnapshotTaken(self.latest))


def churn(processes: int, polls: int, warm: int = CHURN_WARM_PROCESSES) -> dict[str, Any]:
    """A dashboard of 200 x 60, *processes* that come and go over *polls* snapshots. Growth is from when *warm* of them
    have been seen; CPU is that of a tick in the first tenth after that and in the last."""
    import asyncio

    from gputop.leaks import watch
    from gputop.monitor import Monitor
    from gputop.settings import DEFAULTS
    from gputop.ui.app import GputopApp

    watch.PERIOD = 0.02  # type: ignore[misc]  # of a day pressed into minutes
    sampler = _Churn(processes, polls)
    monitor = Monitor(sampler, sampler.bus, DEFAULTS, Path("/nowhere/config.toml"), investigator=_Investigator)  # type: ignore[arg-type]
    marks: list[tuple[int, float, int]] = []  # processes seen, CPU seconds, private KiB

    async def look() -> None:
        async with GputopApp(monitor).run_test(size=(200, 60)) as pilot:
            for n in range(polls):
                sampler.take()
                await asyncio.sleep(0.001)
                if n % max(1, polls // 40) == 0:
                    await pilot.pause()
                    marks.append((sampler.started, time.process_time(), _now().private))

    asyncio.run(look())
    steady = [mark for mark in marks if mark[0] >= warm] or marks
    ticks = max(1, polls // 40)
    spans = [1000 * (after[1] - before[1]) / ticks for before, after in pairwise(steady)]
    tenth = max(1, len(spans) // 10)
    return {
        "ok": True,
        "processes": sampler.started,
        "polls": polls,
        "growth_kib": steady[-1][2] - steady[0][2],
        "private_mib": [round(private / 1024, 1) for _, _, private in marks],
        "cpu_ms_a_tick": [round(sum(part) / len(part), 3) for part in (spans[:tenth], spans[-tenth:])],
    }


def run_polls(polls: int, setup: Setup, pids: Path) -> dict[str, Any]:
    """`poll` in a process of its own."""
    folder = places.run_folder()
    try:
        command = [sys.executable, __file__, str(polls)]
        done = subprocess.run(command, env=setup.environment(folder, pids), capture_output=True, text=True)
        if done.returncode:
            return {"ok": False, "error": (done.stderr.strip().splitlines() or ["no reason given"])[-1]}
        return dict(json.loads(done.stdout.splitlines()[-1]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def left_open(command: list[str], setup: Setup, pids: Path, seconds: float) -> dict[str, Any]:
    """The program in its pty for `seconds` after half a minute: the same figures."""
    with Session(command, setup, pids) as session:
        alive = session.pump(30)
        before = usage.memory(usage.tree(session.pid))
        alive = alive and session.pump(seconds)
        after = usage.memory(usage.tree(session.pid))
    return {
        "ok": alive,
        "seconds": seconds,
        "descriptors": [before.descriptors, after.descriptors],
        "threads": [before.threads, after.threads],
        "growth_kib": after.private - before.private,
    }


if __name__ == "__main__":
    if sys.argv[1] == "churn":
        print(json.dumps(churn(int(sys.argv[2]), int(sys.argv[3]))), flush=True)
    else:
        print(json.dumps(poll(int(sys.argv[1]))), flush=True)
    os._exit(0)
