#!/usr/bin/env python3
"""What gputop costs without a screen: watch and serve on the simulated driver, and how long a scrape takes.

    headless.py --gpus 8 --procs 64 --refresh 0.5 --seconds 60
    headless.py --h200 -- watch --when 'memory > 90%' -d {ms}ms

One JSON line a command. The command ends on SIGTERM; how long that took is told too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import places
import usage
from session import Setup

PORT = 19836
COMMANDS = {
    "watch": [
        "watch", "-q", "-d", "{ms}ms", "--when", "memory > 90% for 10s", "--when", "temperature > 85C",
        "--when", "gpu lost", "--when", "process memory > 20GiB", "--when", "idle > 30min and memory > 1GiB",
    ],
    "serve": ["serve", "-d", "{ms}ms", "--listen", f"127.0.0.1:{PORT}"],
    "serve --processes": ["serve", "-d", "{ms}ms", "--listen", f"127.0.0.1:{PORT}", "--processes"],
}  # fmt: skip


def scrape() -> float:
    """Seconds one scrape takes, gzip as Prometheus asks for it."""
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/metrics", headers={"Accept-Encoding": "gzip"})
    start = time.perf_counter()
    with urllib.request.urlopen(request, timeout=10) as answer:
        answer.read()
    return time.perf_counter() - start


def main_thread(pid: int) -> float:
    """CPU seconds of the main thread: what is done with the readings. The others read (and answer scrapes)."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def measure(
    arguments: list[str], setup: Setup, pids: Path, seconds: float, warmup: float, every: float
) -> dict[str, Any]:
    """One run; a scrape each *every* seconds of the window where there is something to scrape (0: none)."""
    folder = places.run_folder()
    command = [sys.executable, "-m", "gputop", *setup.command(arguments)]
    env = setup.environment(folder, pids)
    child = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        time.sleep(warmup)
        serves = arguments[0] == "serve" and every > 0
        tree, scrapes, peak = usage.tree(child.pid), [], 0
        main_before = main_thread(child.pid)
        before, machine, own, start = usage.cpu(tree), usage.machine_cpu()[0], time.process_time(), time.monotonic()
        while (now := time.monotonic()) < start + seconds:
            if serves:
                scrapes.append(scrape())
            peak = max(peak, usage.memory(tree).pss)
            time.sleep(max(0.0, min(every or 5.0, start + seconds - now)))
        wall = time.monotonic() - start
        used = usage.cpu(tree).total - before.total
        in_main = main_thread(child.pid) - main_before
        other = usage.machine_cpu()[0] - machine - used - (time.process_time() - own)
        memory = usage.memory(tree)
        ended = time.monotonic()
        child.send_signal(signal.SIGTERM)
        _, said = child.communicate(timeout=10)
        ended = time.monotonic() - ended
    finally:
        child.kill()
        child.wait()
        shutil.rmtree(folder, ignore_errors=True)
    result: dict[str, Any] = {
        "command": " ".join(command[2:]), "gpus": setup.gpus, "procs": setup.procs, "refresh": setup.refresh,
        "h200": setup.h200, "seconds": round(wall, 1), "cpu_percent": round(100 * used / wall, 2),
        "main_thread_percent": round(100 * in_main / wall, 2),
        "pss_mib": round(max(peak, memory.pss) / 1024, 1), "threads": memory.threads,
        "end_s": round(ended, 3), "status": child.returncode, "other_percent": round(100 * other / wall, 1),
    }  # fmt: skip
    if scrapes:
        ms = sorted(1000 * x for x in scrapes)
        result["scrapes"] = len(ms)
        result["scrape_ms"] = {"median": round(statistics.median(ms), 1), "p95": round(ms[int(len(ms) * 0.95)], 1)}
    if child.returncode:
        result["error"] = said.decode(errors="replace").strip().splitlines()[-3:]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--procs", type=int, default=64, help="processes per GPU")
    parser.add_argument("--refresh", type=float, default=0.5, help="seconds")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--warmup", type=float, default=8)
    parser.add_argument("--scrape-every", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument("--h200", action="store_true", help="calls cost what a real H200's do")
    parser.add_argument("--quiet", type=float, default=0, metavar="PERCENT", help="wait for a quieter machine")
    parser.add_argument("command", nargs="*", help="gputop's arguments; none: watch and serve")
    a = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    setup = Setup(gpus=a.gpus, procs=a.procs, refresh=a.refresh, h200=a.h200)
    with places.GpuProcesses(a.gpus, a.procs) as processes:
        for arguments in [a.command] if a.command else COMMANDS.values():
            usage.wait_quiet(a.quiet)
            result = measure(arguments, setup, processes.file, a.seconds, a.warmup, a.scrape_every)
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
