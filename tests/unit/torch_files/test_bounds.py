"""Files made to exhaust the machine or keep it busy: memory and time in proportion to the file, in child and parent."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gputop import settings_file
from gputop.settings import DEFAULTS
from gputop.torch_files.safe_pickle import UnreadableFile
from gputop.torch_files.snapshot.json_report import facts
from gputop.torch_files.snapshot.memory_snapshot import open_snapshot
from gputop.torch_files.snapshot.summary import summary
from gputop.torch_files.trace.profiler_file import UnreadableTrace
from gputop.torch_files.trace.profiler_trace import open_trace

CASES = Path(__file__).parents[2] / "data" / "cases"


def measured(code: str, *arguments: str) -> tuple[str, float, int]:
    """What a Python of its own prints, its CPU seconds and the most memory it or a child of it had, in MiB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # not its own ru_maxrss, which is at least that of whoever started it
    own = "int(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
    code = f"import resource\n{code}\nprint(max({own}, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) // 1024)"
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


def test_a_recording_of_a_hundred_kilobytes_does_not_unpack_into_half_a_gigabyte() -> None:
    code = """
from gputop.recording.container import salvage
block = (131072 << 3 | 1 << 1).to_bytes(3, "little") + b"a"  # 128 KiB of one letter in four bytes
print(len(salvage(b"\\x28\\xb5\\x2f\\xfd\\x00\\x58" + block * 25_000)[0]))
"""
    said, _, peak = measured(code)
    assert said == "0" and peak < 250


def test_a_settings_file_of_many_megabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(b"#" * 20_000_000)
    settings, (problem,) = settings_file.load(path)
    assert settings == DEFAULTS and "larger than 1024 KiB" in problem


@pytest.mark.parametrize("name", sorted(path.name for path in CASES.iterdir()))
def test_no_byte_that_is_changed_makes_a_file_crash_or_hang(name: str, tmp_path: Path) -> None:
    """Each case with bytes changed, cut, doubled: read, or one sentence."""
    chosen, whole = random.Random(name), (CASES / name).read_bytes()
    for n in range(12):
        data = bytearray(whole)
        match n % 4:
            case 0 | 1:
                for _ in range(1 + n):
                    data[chosen.randrange(len(data))] = chosen.randrange(256)
            case 2:
                del data[chosen.randrange(len(data)) :]
            case _:
                at = chosen.randrange(len(data))
                data[at:at] = data[at : at + chosen.randrange(400)]
        path = tmp_path / f"{n}-{name}"
        path.write_bytes(data)
        started = time.process_time()
        try:
            if ".json" in name:
                trace = open_trace(path)
                trace.rows()
                for curve in trace.curves:
                    trace.held(curve, curve.peak.event)
            else:
                snapshot = open_snapshot(path)
                json.dumps(facts(snapshot, snapshot.devices), allow_nan=False)
                summary(snapshot, snapshot.devices)
        except (UnreadableFile, UnreadableTrace) as error:
            said = str(error)
            assert said and said.isprintable()
        assert time.process_time() - started < 15
