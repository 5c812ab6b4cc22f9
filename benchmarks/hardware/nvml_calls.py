#!/usr/bin/env python3
"""What gputop's calls into this machine's driver cost: wall and CPU time of each quantity of the fast tier, of whole
readings, and of several GPUs in turn beside a thread for each. $OUT/nvml-calls.json."""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import machine

PAUSE = 0.02  # seconds between calls: the driver's caches and the clocks are as in a monitor's life


def cost(call: Callable[[], object], times: int, pause: float = PAUSE) -> dict[str, float]:
    """Microseconds."""
    walls, cpus = [], []
    for _ in range(times):
        time.sleep(pause)
        wall, cpu = time.perf_counter(), time.thread_time()
        call()
        cpus.append((time.thread_time() - cpu) * 1e6)
        walls.append((time.perf_counter() - wall) * 1e6)
    walls.sort()
    return {"wall_p50": round(statistics.median(walls)), "wall_p95": round(walls[int(len(walls) * 0.95)]),
            "cpu_mean": round(statistics.mean(cpus))}  # fmt: skip


def quantities(fast: Any) -> dict[str, Callable[[], object]]:
    """What the fast tier reads, by the names it has there."""
    found: dict[str, Callable[[], object]] = {}
    for name, part in vars(fast).items():
        if name in ("processes", "gpm", "pcie") or not hasattr(part, "read"):
            continue
        found[name.strip("_")] = part.read
    for listing in fast.processes._own:
        found[f"processes {listing.letter}"] = listing.list.read
    if fast.gpm is not None:
        found["gpm, all metrics"] = lambda: fast.gpm.read(time.monotonic())
    else:
        found["pcie counters"] = lambda: fast.pcie.read(time.monotonic())
    return found


def threads(calls: list[Callable[[], object]]) -> None:
    """All at once, a thread each."""
    running = [threading.Thread(target=call) for call in calls]
    for one in running:
        one.start()
    for one in running:
        one.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=25)
    a = parser.parse_args()
    from gputop.sources.nvml import NvmlSource

    source = NvmlSource()
    source.open()
    slots = range(source.count())
    for slot in slots:
        for read in (source.read, source.read_medium, source.read_slow, source.read):
            read(slot)
    device = source._slots[0].device
    assert device is not None
    costs = {
        name: cost(call, a.times, 0.1 if "gpm" in name else PAUSE) for name, call in quantities(device._fast).items()
    }

    def sweep() -> None:
        for slot in slots:
            source.read(slot)

    costs["one GPU, the whole fast tier"] = cost(lambda: source.read(0), a.times, 0.1)
    costs[f"{len(slots)} GPU(s) in turn"] = cost(sweep, a.times, 0.1)
    costs[f"{len(slots)} GPU(s), a thread each"] = cost(
        lambda: threads([lambda slot=slot: source.read(slot) for slot in slots]), a.times, 0.1
    )  # fmt: skip
    costs["medium tier of one GPU"] = cost(lambda: source.read_medium(0), 10, 0.5)
    costs["slow tier of one GPU"] = cost(lambda: source.read_slow(0), 6, 0.3)
    print(f"== NVML through gputop, µs, {a.times} times (CPU of the calling thread)")
    print(
        machine.table(["GPU 0", "wall p50", "p95", "CPU mean"], [[name, *one.values()] for name, one in costs.items()])
    )
    machine.keep("nvml-calls.json", costs)


if __name__ == "__main__":
    main()
