"""How fast and in how much memory a large profiler trace is read: ``python benchmarks/torch_trace.py [--mb 300]``.

The trace is made of one real step's events (kineto's own formatting, ~300 bytes an event) with moved times.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

OP = """  {{
    "ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 4711, "tid": 4711,
    "ts": {ts:.3f}, "dur": {dur:.3f},
    "args": {{
      "External id": {id}, "Record function id": 0, "Concrete Inputs": ["", "", "", "1", "1"], "Input type": ["float", "float", "float", "Scalar", "Scalar"], "Input Strides": [[1], [128, 1], [1, 128], [], []], "Input Dims": [[256], [{rows}, 128], [128, 256], [], []], "Ev Idx": {id}
    }}
  }},
"""  # noqa: E501
MEMORY = """  {{
    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 4711, "tid": 4711,
    "ts": {ts:.3f},
    "args": {{
      "Total Reserved": {reserved}, "Total Allocated": {allocated}, "Bytes": {bytes}, "Device Id": 0, "Device Type": 1, "Addr": {id}, "finished": false, "Ev Idx": {id}
    }}
  }},
"""  # noqa: E501


def make(path: Path, megabytes: int) -> int:
    """Write the trace; how many events are in it."""
    events = 0
    ts = 5186354592720.335
    with open(path, "w") as file:
        file.write(
            '{\n  "schemaVersion": 1,\n  "profile_memory": 1,\n  "baseTimeNanoseconds": 1,\n  "traceEvents": [\n'
        )
        while file.tell() < megabytes * 1_000_000:
            block = []
            for _ in range(200):
                events += 4
                rows = 32 * (1 + events % 7)
                block.append(OP.format(name="aten::linear", ts=ts, dur=50, id=events, rows=rows))
                block.append(OP.format(name="aten::addmm", ts=ts + 5, dur=40, id=events + 1, rows=rows))
                block.append(MEMORY.format(ts=ts + 9, reserved=1 << 33, allocated=1 << 32, bytes=4096, id=events))
                block.append(MEMORY.format(ts=ts + 20, reserved=1 << 33, allocated=1 << 32, bytes=-4096, id=events))
                ts += 60
            file.write("".join(block))
        file.write('  {"ph": "M", "name": "end"}\n  ]\n}\n')
    return events


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mb", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        events = make(path, options.mb)
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
