"""How fast and in how much memory a large profiler trace is read: ``python benchmarks/torch_trace.py [--mb 1000]``.

The trace is that of a training run on an H200 (tests/data/h200), as kineto wrote it, over and over with moved times:
*plain* with shapes and memory, *stacks* also with Python's functions and the stack of every op.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import viewer  # noqa: E402

REAL = {"plain": "torch_trace.json.gz", "stacks": "torch_trace_stacks.json.gz"}


def make(path: Path, megabytes: int, shape: str) -> int:
    """Write the trace; how many events are in it."""
    text = gzip.decompress((ROOT / "tests" / "data" / "h200" / REAL[shape]).read_bytes()).decode()
    head, _, rest = text.partition('"traceEvents": [')
    body = rest[: rest.rindex("]")].strip()
    parts = re.split(r'("(?:ts|id|External id|correlation)": )(\d+)', body)  # text, key, number, text, key, number, …
    numbers = [int(number) for number in parts[2::3]]
    is_time = [key == '"ts": ' for key in parts[1::3]]
    times = [number for number, time_ in zip(numbers, is_time, strict=True) if time_]
    steps = [max(times) - min(times) + 1_000_000 if time_ else 100_000 for time_ in is_time]
    copies = 0
    with open(path, "w") as file:
        file.write(f'{head}"traceEvents": [\n')
        while file.tell() < megabytes * 1_000_000:
            parts[2::3] = [str(number + copies * step) for number, step in zip(numbers, steps, strict=True)]
            file.write((",\n" if copies else "") + "".join(parts))
            copies += 1
        file.write("\n]\n}\n")
    return copies * body.count('"ph":')


KEYS = {
    "memory": ["m", "p", *["plus"] * 8, *["minus"] * 8, *["left"] * 10, *["right"] * 5, "z"],
    "ops": ["t", *["s"] * 5, *["down"] * 10, *["pagedown"] * 3],
    "overview": ["o", "pagedown", "home"],
}
JSON = """
import gc, json, sys, time
gc.disable()
at = time.perf_counter()
json.load(open(sys.argv[1]))
print(time.perf_counter() - at)
"""
MEASURE = """
import json, resource, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from gputop.torch_files.trace.profiler_trace import open_trace
at = time.perf_counter()
trace = open_trace(Path(sys.argv[2]))
read = time.perf_counter() - at
rows = len(trace.rows())
print(json.dumps([read, time.perf_counter() - at, rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def python(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--shape", choices=tuple(REAL), default="plain")
    parser.add_argument("--screen", action="store_true", help="also the viewer: its first picture, and keys")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path, part = Path(directory) / "trace.json", Path(directory) / "part.json"
        make(part, min(100, options.mb), options.shape)
        events = make(path, options.mb, options.shape)
        size = path.stat().st_size / 1e6
        json_rate = part.stat().st_size / 1e6 / float(python(JSON, str(part)))
        read, total, rows, peak = json.loads(python(MEASURE, str(ROOT), str(path)))
        print(f"{size:.0f} MB, {events:,} events, load {os.getloadavg()[0]:.1f}: read in {read:.1f} s = "
              f"{size / read:.0f} MB/s (json.load of a tenth: {json_rate:.0f} MB/s), with the table of {rows} rows "
              f"{total:.1f} s = {size / total:.0f} MB/s; peak memory {peak:.0f} MB")  # fmt: skip
        if options.screen:
            from gputop.ui.torch_viewers.trace.screen import TorchTraceScreen

            viewer.first_frame(["torch-trace", str(path)], "How it adds up", times=1)
            viewer.walk(lambda view: TorchTraceScreen(path, view), KEYS)


if __name__ == "__main__":
    main()
