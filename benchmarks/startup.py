"""Programs from start to end: `--once` and its like, and how long quitting takes when the driver hangs."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import measure
import places
from session import Session, Setup


def once(commands: dict[str, list[str]], setup: Setup, pids: Path, runs: int = 15) -> dict[str, dict[str, Any]]:
    """Each command to its end, in turns, output to a file: wall and CPU milliseconds (medians)."""
    folder = places.run_folder()
    environment = setup.environment(folder, pids)
    walls: dict[str, list[float]] = {name: [] for name in commands}
    cpus: dict[str, list[float]] = {name: [] for name in commands}
    failed = set()
    try:
        for _ in range(runs + 1):
            for name, command in commands.items():
                with (folder / "out").open("wb") as out:
                    start = time.monotonic()
                    actions = [(os.POSIX_SPAWN_DUP2, out.fileno(), 1), (os.POSIX_SPAWN_DUP2, out.fileno(), 2)]
                    pid = os.posix_spawnp(command[0], command, environment, file_actions=actions)
                    _, status, used = os.wait4(pid, 0)
                    walls[name].append((time.monotonic() - start) * 1000)
                cpus[name].append((used.ru_utime + used.ru_stime) * 1000)
                if status:
                    failed.add(name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {  # the first run only fills the caches
        name: {"ok": name not in failed, "wall_ms": round(statistics.median(walls[name][1:]), 1),
               "cpu_ms": round(statistics.median(cpus[name][1:]), 1), "worst_ms": round(max(walls[name][1:]), 1)}
        for name in commands
    }  # fmt: skip


def quit_seconds(command: list[str], setup: Setup, pids: Path, faults: str = "", limit: float = 5) -> float | None:
    """Seconds from q to the program's end, 2 s after `faults` came; None: not within `limit`."""
    with Session(command, setup, pids) as session:
        measure.wait_ready(session)
        session.pump(1)
        if faults:
            session.scenario(faults)
        session.pump(2)
        pressed = session.send(b"q")
        return round(time.monotonic() - pressed, 3) if session.wait_end(limit) else None
