"""Reports of monitored processes: what a real one publishes is read, what a hostile one writes is as if not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.model import Gpu, GpuProcess, HostFacts, ProcessKey, TorchDevice, TorchReport
from gputop.procfs.proc_host_reader import ProcHostReader
from gputop.sampling.snapshot_builder import SnapshotBuilder
from gputop.torch_monitor import reports, runtime_directory
from gputop.torch_monitor.reports import BadReport, TorchReports, ask, parse

ROOT = Path(__file__).resolve().parents[3]
KEY = ProcessKey(os.getpid(), runtime_directory.start_ticks(os.getpid()))
GIB = 1024**3


def good(**changes: Any) -> dict[str, Any]:
    device = {
        "index": 0, "uuid": "GPU-00000000-0000-4000-8000-000000000000", "pci_bus_id": "00000000:18:00.0",
        "allocated_bytes": 3 * GIB, "reserved_bytes": 5 * GIB, "active_bytes": 3 * GIB, "inactive_split_bytes": GIB,
        "retries": 2, "ooms": 0, "peak_bytes": 4 * GIB, "step_peak_bytes": 4 * GIB,
        "phases": [{"name": "forward", "seconds": 0.1, "peak_bytes": 4 * GIB, "kept_bytes": -5}],
    }  # fmt: skip
    return {
        "schema": runtime_directory.SCHEMA, "pid": KEY.pid, "start_ticks": KEY.start_ticks, "written_at": 1000.0,
        "torch": "2.11.0", "backend": "native", "steps": 7, "step_seconds": 0.5, "recording": True, "phase": "forward",
        "labels": [["epoch", "3"]], "devices": [device], "answers": [{"id": "a", "words": "done", "path": "/tmp/x"}],
    } | changes  # fmt: skip


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's runtime directory."""
    monkeypatch.setattr(runtime_directory, "candidates", lambda uid: [str(tmp_path / "gputop")])
    (tmp_path / "gputop").mkdir(mode=0o700)
    return tmp_path / "gputop"


def put(place: Path, value: Any) -> Path:
    path = place / f"{KEY.pid}.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def read(**changes: Any) -> TorchReport | None:
    facts = HostFacts(**({"key": KEY, "read_at": 0.0, "uid": os.getuid()} | changes))
    return TorchReports().read({KEY.pid: facts}).get(KEY.pid)


def test_a_report_is_read(place: Path) -> None:
    put(place, good())
    report = read()
    assert report is not None
    assert (report.torch_version, report.steps, report.recording, report.phase) == ("2.11.0", 7, True, "forward")
    (device,) = report.devices
    assert (device.cached_bytes, device.releasable_bytes) == (2 * GIB, GIB)
    assert device.phases[0].kept_bytes == -5
    assert report.labels == (("epoch", "3"),)


def test_an_unchanged_report_is_the_same_object(place: Path) -> None:
    put(place, good())
    reader, facts = TorchReports(), {KEY.pid: HostFacts(KEY, 0.0, uid=os.getuid())}
    first = reader.read(facts)[KEY.pid]
    assert reader.read(facts)[KEY.pid] is first
    put(place, good(steps=8))
    assert reader.read(facts)[KEY.pid].steps == 8


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": 2}, {"schema": "1"}, {"pid": 1}, {"start_ticks": 1}, {"start_ticks": None}, {"devices": 7},
        {"devices": [{}]}, {"devices": [7]}, {"steps": -1}, {"steps": True}, {"steps": 1 << 60}, {"written_at": "now"},
        {"written_at": 1e300}, {"labels": [["a"]]}, {"labels": {"a": 1}}, {"answers": [{}]}, {"answers": 3},
        {"phase": 3}, {"torch": ["2"]},
    ],
)  # fmt: skip
def test_a_report_of_another_shape_or_process_is_ignored(place: Path, changes: dict[str, Any]) -> None:
    put(place, good(**changes))
    assert read() is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 50_000, '{"schema": 1}', "\x00" * 100, '{"a": 1e999}'])
def test_what_is_no_report_is_ignored(place: Path, text: str) -> None:
    put(place, text)
    assert read() is None


def test_a_huge_file_is_not_read(place: Path) -> None:
    put(place, good(extra="x" * runtime_directory.MAX_BYTES))
    assert read() is None


def test_a_link_is_not_followed(place: Path, tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text(json.dumps(good()))
    (place / f"{KEY.pid}.json").symlink_to(tmp_path / "real.json")
    assert read() is None


def test_a_pipe_in_the_place_of_a_report_does_not_hang_the_dashboard(place: Path) -> None:
    os.mkfifo(place / f"{KEY.pid}.json")
    begun = time.monotonic()
    assert read() is None
    assert time.monotonic() - begun < 5


def test_a_directory_in_the_place_of_a_report(place: Path) -> None:
    (place / f"{KEY.pid}.json").mkdir()
    assert read() is None


def test_a_directory_open_to_others_is_not_believed(place: Path) -> None:
    put(place, good())
    place.chmod(0o777)
    assert read() is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_file_or_directory_of_somebody_else_is_not_believed(place: Path) -> None:
    path = put(place, good())
    os.chown(path, 65534, -1)
    assert read() is None
    os.chown(path, 0, -1)
    assert read() is not None
    os.chown(place, 65534, -1)
    assert read() is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_root_asks_a_users_process_with_a_file_that_the_user_can_read(place: Path) -> None:
    os.chown(put(place, good()), 65534, -1)
    os.chown(place, 65534, -1)
    ask(KEY, 65534, "dump")
    assert (place / f"{KEY.pid}.ask").stat().st_uid == 65534


def test_a_process_that_does_not_publish_cannot_be_asked(place: Path) -> None:
    with pytest.raises(OSError, match="only its user"):
        ask(KEY, os.getuid(), "dump")


def test_text_is_cleaned(place: Path) -> None:
    put(place, good(labels=[["a\x1b[2J", "\u202eb"]], phase="x\ny", devices=[good()["devices"][0] | {"uuid": "\x1b"}]))
    report = read()
    assert report is not None
    shown = f"{report.labels}{report.phase}"
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\n" not in shown
    assert report.devices[0].uuid is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from([*good(), *(f"devices.{name}" for name in good()["devices"][0])]), value=json_values)
def test_any_value_anywhere_gives_a_report_or_none(name: str, value: Any) -> None:
    report = good()
    if name.startswith("devices."):
        report["devices"][0][name.partition(".")[2]] = value
    else:
        report[name] = value
    try:
        assert isinstance(parse(report, KEY), TorchReport)
    except (BadReport, TypeError, ValueError, KeyError, AttributeError):
        pass  # what TorchReports ignores


# -- joined with the driver's processes


def test_torchs_device_is_the_gpu_with_its_uuid_or_pci_id() -> None:
    first, second = TorchDevice(0, uuid="GPU-b"), TorchDevice(1, pci_bus_id="0000:19:00.0")
    report = TorchReport(0.0, devices=(first, second))
    assert report.on(Gpu(1, "GPU-b", "", 0.0, pci_bus_id="00000000:18:00.0")) is first
    assert report.on(Gpu(0, "GPU-a", "", 0.0, pci_bus_id="00000000:19:00.0")) is second
    assert report.on(Gpu(2, "GPU-c", "", 0.0, pci_bus_id="00000001:19:00.0")) is None
    assert report.on(Gpu(2, "GPU-c", "", 0.0)) is None


def test_a_new_report_gives_a_new_row_and_the_same_one_the_same_row() -> None:
    assembler, processes = SnapshotBuilder(), (GpuProcess(7, "GPU-a", "C"),)
    report = TorchReport(1.0)
    (bare,) = assembler.join(processes, {}, {})
    (first,) = assembler.join(processes, {}, {}, {7: report})
    (again,) = assembler.join(processes, {}, {}, {7: report})
    (newer,) = assembler.join(processes, {}, {}, {7: TorchReport(2.0)})
    assert bare.torch is None
    assert first.torch is report
    assert again is first
    assert newer is not first


SCRIPT = """
import sys, time
from tests.unit.torch_monitor.fake_torch import FakeTorch
fake = sys.modules["torch"] = FakeTorch()
from gputop.torch_monitor import MemoryMonitor
fake.allocate(2 << 30)
with MemoryMonitor() as monitor:
    while True:
        with monitor.phase("forward"):
            pass
        monitor.step()
        print(flush=True)
        time.sleep(0.05)
"""


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own that trains, with a torch that is none."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.stdout.close()
    process.wait()


def test_a_running_process_is_read_and_asked_for_a_snapshot(training: subprocess.Popen[bytes]) -> None:
    reader = ProcHostReader()

    def look() -> TorchReport | None:
        facts = reader.read([training.pid])
        return reader.torch_reports(facts).get(training.pid)

    report = look()
    assert report is not None
    assert report.devices[0].allocated_bytes == 2 << 30
    key = reader.read([training.pid])[training.pid].key
    id_ = ask(key, os.getuid(), "dump")
    until = time.monotonic() + 30
    answer = None
    while answer is None and time.monotonic() < until:
        time.sleep(0.1)
        report = look()
        assert report is not None
        answer = next((one for one in report.answers if one.id == id_), None)
    assert answer is not None
    assert answer.path is not None
    assert Path(answer.path).is_file()
    reader.close()


def test_hundreds_of_other_processes_cost_a_listing_not_a_look_each(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    stat = os.stat

    def counted(name: Any, **more: Any) -> os.stat_result:
        looked.append(name)
        return stat(name, **more)

    monkeypatch.setattr(reports.os, "stat", counted)
    facts = {pid: HostFacts(ProcessKey(pid, 1), 0.0, uid=os.getuid()) for pid in range(1000, 1500)}
    assert TorchReports().read(facts) == {}
    assert looked == []
