"""How fast and in how much memory a large profiler trace is read: ``python benchmarks/torch_trace.py [--mb 1000]``.

The trace is that of a training run on an H200 (tests/data/h200), as kineto wrote it, over and over with moved times:
*plain* with shapes and memory, *stacks* also with Python's functions and the stack of every op.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import resource
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--shape", choices=tuple(REAL), default="plain")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        events = make(path, options.mb, options.shape)
        size = path.stat().st_size / 1e6
        if os.fork():  # the child's peak of memory is its own, not that of the writing
            os.wait()
            return
        from gputop.memory.profiler_trace import open_trace

        begun, cpu = time.perf_counter(), time.process_time()
        trace = open_trace(path)
        read, read_cpu = time.perf_counter() - begun, time.process_time() - cpu
        rows = trace.rows()
        total = time.perf_counter() - begun
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{size:.0f} MB, {events:,} events: read in {read:.1f} s = {size / read:.0f} MB/s "
              f"({size / read_cpu:.0f} MB a CPU second), with the table of {len(rows)} rows {total:.1f} s = "
              f"{size / total:.0f} MB/s; peak memory {peak:.0f} MB (goal 50 MB/s, under 500 MB for 1 GB)")  # fmt: skip
        os._exit(0)


if __name__ == "__main__":
    main()
