#!/usr/bin/env python3
"""Whether gputop stays as small as it started: thousands of polls in one process, and a dashboard left open.

As a script it is the polling process itself: `endurance.py POLLS`, one JSON line.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
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
    from gputop.procfs.proc_host_reader import ProcHostReader
    from gputop.sampling.bus import Bus
    from gputop.sampling.history import History
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
    print(json.dumps(poll(int(sys.argv[1]))), flush=True)
    os._exit(0)
