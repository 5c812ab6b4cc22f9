"""Files made to exhaust the machine or keep it busy: memory and time in proportion to the file, in child and parent."""

from __future__ import annotations

import gzip
import json
import pickle
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gputop.torch_files.safe_pickle import UnreadableFile
from gputop.torch_files.snapshot.json_report import facts
from gputop.torch_files.snapshot.memory_snapshot import open_snapshot
from gputop.torch_files.snapshot.summary import summary
from gputop.torch_files.trace.profiler_trace import open_trace

CASES = Path(__file__).parents[2] / "data" / "cases"


def measured(code: str, *arguments: str) -> tuple[str, float, int]:
    """What a Python of its own prints, its CPU seconds and the most memory it or a child of it had, in MiB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = f"import resource\n{code}\nprint(max(resource.getrusage(n).ru_maxrss for n in (0, -1)) // 1024)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    said, _, peak = done.stdout.rstrip("\n").rpartition("\n")
    return said, after.ru_utime - before.ru_utime, int(peak)


READ_SNAPSHOT = """
import sys; from pathlib import Path
from gputop.torch_files.snapshot.memory_snapshot import UnreadableFile, open_snapshot
try: print(len(open_snapshot(Path(sys.argv[1])).devices))
except UnreadableFile as error: print(error)
"""


def test_a_gzip_of_a_thousand_times_its_size_is_refused_before_it_fills_the_memory() -> None:
    said, _, peak = measured(READ_SNAPSHOT, str(CASES / "f1_gzN.pickle.gz"))
    assert "refused" in said and "64 times its size" in said
    assert peak < 250


def test_a_gzip_bomb_behind_a_real_snapshot_is_refused_too(tmp_path: Path) -> None:
    real = gzip.compress(pickle.dumps({"segments": [], "device_traces": [], "more": 1}, 4)[:-1])
    path = tmp_path / "x.pickle.gz"
    path.write_bytes(real + gzip.compress(b"N" * 50_000_000))
    with pytest.raises(UnreadableFile, match="refused"):
        open_snapshot(path)


def test_thousands_of_devices_take_seconds_not_minutes() -> None:
    started = time.process_time()
    snapshot = open_snapshot(CASES / "e22_manydev.pickle")
    assert len(snapshot.devices) == 4000
    assert len(facts(snapshot, snapshot.devices)["devices"]) == 4000
    summary(snapshot, snapshot.devices)
    assert time.process_time() - started < 10


def test_a_trace_of_thousands_of_devices_takes_seconds_too(tmp_path: Path) -> None:
    events = [
        {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": n,
         "args": {"Bytes": 512, "Addr": n, "Device Type": 1, "Device Id": n}}
        for n in range(20_000)
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    started = time.process_time()
    assert len(open_trace(path).curves) == 20_000
    assert time.process_time() - started < 10


def test_a_trace_whose_gzip_unpacks_without_end_is_cut_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    event = b'{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1},\n'
    path.write_bytes(gzip.compress(b'{"traceEvents":[' + event * 1_000_000))
    started = time.process_time()
    trace = open_trace(path)
    assert any("times its size" in note for note in trace.events.notes)
    assert trace.events.seen < 600_000 and time.process_time() - started < 30


def test_an_oom_after_thousands_of_mapped_segments_is_explained_in_time(tmp_path: Path) -> None:
    trace: list[dict[str, Any]] = [{"action": "oom", "size": 1 << 30, "device_free": 0, "stream": 0}]
    base, size = 1 << 40, 2 << 20
    trace += [{"action": "segment_unmap", "addr": base + n * size, "size": size, "stream": 0} for n in range(30_000)]
    trace += [
        {"action": "segment_map", "addr": base + n * size + 4096, "size": 512, "stream": 0} for n in range(30_000)
    ]
    segment = {"device": 0, "address": 1 << 20, "total_size": 512, "stream": 0, "is_expandable": True,
               "blocks": [{"size": 512, "state": "inactive"}]}  # fmt: skip
    path = tmp_path / "mapped.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [trace]}))
    snapshot = open_snapshot(path)
    started = time.process_time()
    facts(snapshot, snapshot.devices)
    assert time.process_time() - started < 10


def test_thousands_of_ooms_are_counted_and_the_newest_explained(tmp_path: Path) -> None:
    """A search for the largest batch runs out of memory on purpose."""
    trace: list[dict[str, Any]] = [
        {"action": "oom", "size": 1 << 30, "device_free": 0, "stream": 0} for _ in range(20_000)
    ]
    path = tmp_path / "ooms.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    snapshot = open_snapshot(path)
    started = time.process_time()
    (device,) = facts(snapshot, snapshot.devices)["devices"]
    assert len(device["oom_events"]) + device["oom_events_left_out"] == 20_000
    assert device["oom_events"][-1]["event_index"] == 19_999
    assert time.process_time() - started < 10
