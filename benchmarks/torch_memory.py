"""How fast a large memory snapshot opens and redraws, and what memory that takes.

    python benchmarks/torch_memory.py [ENTRIES] [--shape torch|shared|unshared] [--no-screen]

Makes a snapshot of ENTRIES (1 000 000) trace entries, opens it in a process of its own, and walks the viewer. *torch*
(some 150 MB): stacks of 22 frames, a frames list for every allocation and one for both entries of its end, as torch
writes them. 40 frames: *shared*, a list for every stack; *unshared*: one for every entry.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import viewer  # noqa: E402

MIB = 1 << 20
SLOT = 4 * MIB


def make(entries: int, shape: str = "torch", seed: int = 0) -> dict[str, Any]:
    """A trace of allocations and frees, and the dump that it ends in."""
    random_ = random.Random(seed)
    frames = [
        {"name": f"function_{n}", "filename": f"/home/ml/project/package_{n % 50}/module_{n % 400}.py", "line": n % 900}
        for n in range(5000)
    ]
    stacks = [random_.choices(frames, k=22 if shape == "torch" else 40) for _ in range(2000)]
    trace: list[dict[str, Any]] = []
    held: list[tuple[int, int, list[Any]]] = []
    free_slots = list(range(40_000, 0, -1))
    now = 1_750_000_000_000_000

    def add(action: str, address: int, size: int, frames_: list[Any]) -> None:
        nonlocal now
        now += 9
        entry = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": now, "compile_context": "N/A"}
        trace.append({**entry, "user_metadata": "", "frames": list(frames_) if shape == "unshared" else frames_})

    while len(trace) < entries:
        room = 20_000 + 10_000 * (len(trace) * 40 // entries % 2)
        if len(held) < room and random_.random() < 0.55:
            address, size, where = free_slots.pop() * SLOT, random_.randrange(1, SLOT), random_.choice(stacks)
            if shape == "torch":
                where = list(where)
            held.append((address, size, where))
            add("alloc", address, size, where)
        elif held:
            at = random_.randrange(len(held))
            held[at], held[-1] = held[-1], held[at]
            address, size, where = held.pop()
            free_slots.append(address // SLOT)
            if shape == "torch":
                where = list(where)
            add("free_requested", address, size, where)
            add("free_completed", address, size, where)
    segments = []
    of_slot = {address: (size, where) for address, size, where in held}
    for first in range(0, 40_001, 5):
        blocks = []
        for slot in range(first, first + 5):
            size, where = of_slot.get(slot * SLOT, (SLOT, []))
            state = "active_allocated" if slot * SLOT in of_slot else "inactive"
            facts = {"address": slot * SLOT, "size": SLOT, "requested_size": size, "state": state, "frames": where}
            blocks.append(facts)
        active = sum(1 for b in blocks if b["state"] != "inactive") * SLOT
        segments.append(
            {
                **{"device": 0, "address": first * SLOT, "total_size": 5 * SLOT, "allocated_size": active},
                **{"active_size": active, "requested_size": 0, "stream": 0, "segment_type": "large"},
                **{"segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks},
            }
        )
    return {"segments": segments, "device_traces": [trace], "allocator_settings": {}, "external_annotations": []}


MEASURE = """
import json, resource, sys, time
sys.path.insert(0, sys.argv[1])
started = time.perf_counter()
from pathlib import Path
from gputop.torch_files.snapshot.memory_snapshot import open_snapshot
from gputop.torch_files.snapshot.overview import overview
from gputop.torch_files.snapshot.groups import by_stack
from gputop.torch_files.snapshot.leaks import leaks
first = []
def progress(what, share):
    first or first.append(time.perf_counter() - started)
snapshot = open_snapshot(Path(sys.argv[2]), progress)
opened = time.perf_counter() - started
used = resource.getrusage(resource.RUSAGE_CHILDREN)
told = {"open_s": opened, "reader_cpu_s": used.ru_utime + used.ru_stime, "first_progress_s": first[0] if first else -1}
device = snapshot.devices[0]
def timed(name, work):
    at = time.perf_counter()
    work()
    told[name] = (time.perf_counter() - at) * 1000
timed("peak_ms", lambda: device.peak)
timed("overview_ms", lambda: overview(device))
timed("top_now_ms", lambda: by_stack(device, device.rows_at(device.last)))
timed("top_at_peak_ms", lambda: by_stack(device, device.rows_at(device.peak[0])))
timed("leaks_ms", lambda: leaks(device))
timed("curve_200_columns_ms", lambda: [device.most_live(n * device.entries // 200, (n + 1) * device.entries // 200) for n in range(200)])
told["parent_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
told["child_mb"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(json.dumps(told))
"""  # noqa: E501


BARE = """
import gc, pickle, sys, time
gc.disable()
at = time.perf_counter()
pickle.load(open(sys.argv[1], "rb"))
print(time.perf_counter() - at)
"""


def bare_load(path: Path) -> float:
    """What pickle.load alone takes here and now: 0.84 s for 147 MB where the machine is quiet."""
    out = subprocess.run([sys.executable, "-c", BARE, str(path)], check=True, capture_output=True, text=True)
    return float(out.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("entries", nargs="?", type=int, default=1_000_000)
    parser.add_argument("--shape", choices=("torch", "shared", "unshared"), default="torch")
    parser.add_argument("--no-screen", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.pickle"
        pid = subprocess.run(  # made elsewhere, so that its memory is not ours
            [sys.executable, __file__, "--make", str(options.entries), options.shape, str(path)], check=True
        )
        assert pid.returncode == 0
        print(f"{options.entries:,} entries, {path.stat().st_size / 1e6:.0f} MB")
        for _ in range(3):
            out = subprocess.run(
                [sys.executable, "-c", MEASURE, str(ROOT), str(path)], check=True, capture_output=True, text=True
            )
            print(f"  load {os.getloadavg()[0]:.1f}  bare pickle.load {bare_load(path):.2f} s", end="")
            print("  " + "  ".join(f"{name} {value:.3g}" for name, value in json.loads(out.stdout).items()))
        if not options.no_screen:
            viewer.first_frame(["torch-snapshot", str(path)], "Timeline")
            screen(path)
    print(f"peak of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


KEYS = {
    "timeline": ["t", "p", *["plus"] * 8, *["minus"] * 8, *["left"] * 10, *["right"] * 5, "z"],
    "allocations": ["a", *["down"] * 10, *["pagedown"] * 10, "end", "home", "w"],
    "tree": ["v", *["down"] * 10, "left", "right", *["pagedown"] * 5],
    "flame graph": ["v", *["down"] * 8, "right", "left", "enter", "z"],
    "leaks": ["l", *["down"] * 10, *["pagedown"] * 5],
    "segments": ["s", *["down"] * 10, *["pagedown"] * 20, "end", "home"],
    "overview": ["o", "pagedown", "home"],
}


def screen(path: Path) -> None:
    from gputop.ui.torch_viewers.snapshot.screen import TorchSnapshotScreen

    viewer.walk(lambda view: TorchSnapshotScreen([path], view), KEYS)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        started = time.perf_counter()
        with open(sys.argv[4], "wb") as file:
            pickle.dump(make(int(sys.argv[2]), sys.argv[3]), file, 4)
    else:
        main()
