"""What the driver does not say is unknown: a list that fails is not an empty one, a figure that fails is not 0.

The real source on the simulated driver, with a real process on it, and everything that concludes something from it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from gputop.alarms.conditions import parse
from gputop.alarms.engine import Alarms, once
from gputop.cli import run
from gputop.history.journal import EventKind, Journal
from gputop.leaks import text as leaks_text
from gputop.leaks.finder import LeakFinder
from gputop.leaks.proc_investigator import ProcInvestigator
from gputop.leaks.report import Cause, LeakReport, UnattributedMemory
from gputop.model import PROCESSES_UNRELIABLE, Gpu, Snapshot, memory_breakdown, replace
from gputop.outputs.json_lines import as_dict
from gputop.outputs.prometheus import SnapshotCollector, XidCounts
from gputop.outputs.table import render
from gputop.procfs.devices import NvidiaDevices
from gputop.procfs.proc_host_reader import ProcHostReader
from gputop.sampling.snapshot_builder import assemble
from gputop.settings import DEFAULTS
from gputop.sources.nvml import NvmlSource
from gputop.sources.nvml.query import APP_FIELDS, GPU_FIELDS
from gputop.ui.gpus.remarks import memory_parts, memory_remark, remarks
from gputop.why.diagnosis import ObservedTrend, diagnose
from tests.driver import GIB, MIB, NOT_AVAILABLE, SimulatedDriver
from tests.unit.children import child

LISTS = "nvmlDeviceGet*RunningProcesses*"
CODES = ("unknown", "timeout", "no_permission", "not_supported", "insufficient_size", "in_use", "gpu_is_lost")


class NoDevices(NvidiaDevices):
    """Who has a GPU open cannot be told here, whatever GPUs there are."""

    def present(self) -> bool:
        return False


class Machine:
    """gputop's reading of the simulated driver, snapshot after snapshot, seconds apart by their own clock."""

    def __init__(self, driver: SimulatedDriver) -> None:
        driver.load()
        self.driver, self.source, self.host = driver, NvmlSource(), ProcHostReader()
        self.source.open()
        self.at = time.time()
        self.finder = LeakFinder(ProcInvestigator(self.host.facts_of, devices=NoDevices()))

    def read(self, after: float = 1.0, slow: bool = False) -> Snapshot:
        self.at += after
        slots = range(self.source.count())
        for slot in slots if slow else ():
            self.source.read(slot)
            self.source.read_medium(slot)
            self.source.read_slow(slot)
        readings = [self.source.read(slot) for slot in slots]
        pids = {process.pid for reading in readings for process in reading.processes}
        facts = self.host.read(pids)
        exists = {pid: self.host.exists(pid) for pid in pids - facts.keys()}
        taken = [replace(reading.gpu, read_at=self.at) for reading in readings]
        snapshot = assemble(self.at, readings, facts, exists, host=self.host.machine(), steady=self.at)
        return replace(snapshot, gpus=tuple(taken))

    def report(self, seconds: int = 8) -> LeakReport:
        """What `gputop leaks` says after watching for some seconds."""
        for _ in range(seconds):
            report = self.finder.step(self.read(slow=True), DEFAULTS)
        return report

    def close(self) -> None:
        self.source.close()
        self.host.close()


@pytest.fixture
def machine(driver: SimulatedDriver) -> Iterator[Machine]:
    made = Machine(driver)
    yield made
    made.close()


@pytest.fixture
def living(driver: SimulatedDriver) -> Iterator[int]:
    """A living process with 5 GiB on GPU 0."""
    with child() as process:
        driver.gpu(0).process(process.pid, memory=5 * GIB, sm=50)
        yield process.pid


def exposition(snapshot: Snapshot) -> str:
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: snapshot, XidCounts(), clock=lambda: snapshot.taken_at))
    return generate_latest(registry).decode()


# ------------------------------------------------------------------ a list that fails


@pytest.mark.parametrize("code", CODES[:-1])
def test_a_living_process_has_not_exited_because_its_list_failed(
    machine: Machine, driver: SimulatedDriver, living: int, code: str
) -> None:
    journal = Journal()
    journal.observe(machine.read(), DEFAULTS)
    with driver.faulty(f"call {LISTS} {code}"):
        for _ in range(3):
            snapshot = machine.read()
            journal.observe(snapshot, DEFAULTS)
            assert snapshot.processes == () and snapshot.gpus[0].processes_error is not None
            assert not snapshot.gpus[0].processes_known
    assert not journal.exited and not [event for event in journal.events if event.kind is EventKind.EXIT]


@pytest.mark.parametrize("code", CODES)
def test_process_gone_is_not_told_from_a_list_that_failed(
    machine: Machine, driver: SimulatedDriver, living: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`watch --when 'process python gone' --run …` ran its command."""
    monkeypatch.setattr("gputop.sources.nvml.readings.processes.PERMISSION_RETRY_SECONDS", 0.1)
    gone = parse("process python gone")
    alarms = Alarms([gone])
    assert alarms.look(machine.read()) == []
    with driver.faulty(f"gpu 0 call {LISTS} {code}"):
        for _ in range(4):
            snapshot = machine.read()
            assert [event for event in alarms.look(snapshot) if type(event).__name__ == "AlarmRaised"] == []
        holding, unclear = once([gone, parse("process memory > 1GiB")], snapshot, lambda _: None)
        assert holding == [] and len(unclear) == 2
        assert all("GPU 0" in alarm.message for alarm in unclear)
    driver.gpu(0).no_process(living)
    while not machine.read().gpus[0].processes_known:
        time.sleep(0.3)
    assert [type(event).__name__ for event in alarms.look(machine.read())] == ["AlarmRaised"]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("which", ["0", "*"])
def test_a_failed_list_is_unknown_in_every_output(
    machine: Machine, driver: SimulatedDriver, living: int, code: str, which: str
) -> None:
    driver.gpu(1).process(living, memory=GIB)
    driver.fault(f"{'' if which == '*' else 'gpu 0 '}call {LISTS} {code}")
    snapshot = machine.read(slow=True)
    plain = as_dict(snapshot)
    first, second = plain["gpus"]
    assert first["memory_living_bytes"] is first["memory_dead_bytes"] is first["memory_unattributed_bytes"] is None
    assert first["processes_error"] or first["error"]
    if which == "*":
        assert plain["processes"] is None
    else:
        assert [process["gpu_index"] for process in plain["processes"]] == [1]
        assert second["memory_living_bytes"] == GIB and second["processes_error"] is None
    table = render(snapshot, width=100)
    assert "No processes" not in table
    if which == "*":
        assert "Processes unknown" in table
    counts = [line for line in exposition(snapshot).splitlines() if line.startswith("gputop_gpu_processes{")]
    assert len(counts) == (0 if which == "*" else 1) and all(line.endswith(" 1.0") for line in counts)
    lines = [
        line for part in diagnose(snapshot, snapshot.gpus[0], LeakReport(0.0), ObservedTrend()) for line in part.lines
    ]
    assert "its processes are not known" in lines and "no process is listed" not in lines
    if not snapshot.gpus[0].error:
        said = remarks(snapshot.gpus[0], DEFAULTS, snapshot.taken_at)
        assert any("process list" in remark.message for remark in said)


@pytest.mark.parametrize("code", CODES[:-1])
def test_nothing_is_unattributed_and_nobody_accused_where_a_list_failed(
    machine: Machine, driver: SimulatedDriver, living: int, code: str
) -> None:
    with driver.faulty(f"gpu 0 call {LISTS} {code}"):
        report = machine.report()
        assert report.unattributed == () and report.verdicts == ()
        assert any("GPU 0" in said and "process list" in said for said in report.unsure)
        snapshot = machine.read()
        assert "not everything is known" in leaks_text.render(report, snapshot)


@pytest.mark.parametrize("kind", ["Compute", "Graphics", "MPSCompute"])
def test_each_of_the_three_lists_counts(machine: Machine, driver: SimulatedDriver, living: int, kind: str) -> None:
    """A graphics process is not gone because only the graphics list failed."""
    driver.gpu(0).process(living, memory=5 * GIB, kind={"Compute": "C", "Graphics": "G", "MPSCompute": "M"}[kind])
    journal = Journal()
    journal.observe(machine.read(), DEFAULTS)
    for code in ("unknown", "not_supported"):
        time.sleep(1.05 if kind != "Compute" else 0)  # empty ones are asked once a second
        with driver.faulty(f"call nvmlDeviceGet{kind}RunningProcesses* {code}"):
            snapshot = machine.read()
            journal.observe(snapshot, DEFAULTS)
            assert not snapshot.gpus[0].processes_known
            assert memory_breakdown(snapshot.gpus[0], snapshot.processes).living is None
    assert not journal.exited


def test_a_driver_that_never_had_an_mps_list_lists_everybody(tmp_path: Path, driver: SimulatedDriver) -> None:
    missing = [f"nvmlDeviceGet{kind}RunningProcesses{v}" for kind in ("MPSCompute",) for v in ("", "_v2", "_v3")]
    with SimulatedDriver(tmp_path / "old", missing_symbols=missing) as old:
        machine = Machine(old)
        assert machine.read().gpus[0].processes_known
        machine.close()


def test_what_is_not_told_of_idle_time_does_not_count(machine: Machine, driver: SimulatedDriver, living: int) -> None:
    """A process whose list failed for hours was not idle for hours."""
    driver.gpu(0).process(living, memory=5 * GIB)
    for _ in range(3):
        machine.finder.step(machine.read(slow=True), DEFAULTS)
    key = machine.read().processes[0].key
    record = machine.finder.history.of(key)
    assert record is not None and record.idle_since is not None
    with driver.faulty(f"call {LISTS} unknown"):
        machine.finder.step(machine.read(after=60), DEFAULTS)
        assert record.idle_since is None
    machine.finder.step(machine.read(after=60), DEFAULTS)
    assert record.idle_since is None or record.idle_since >= machine.at - 1


# ---------------------------------------------------------------- figures that fail


def test_used_memory_that_is_not_told_is_not_no_leak(machine: Machine, driver: SimulatedDriver, living: int) -> None:
    driver.fault("call nvmlDeviceGetMemoryInfo* unknown")
    report = machine.report()
    assert any("used memory" in said for said in report.unsure)
    assert "no leak found, but" in leaks_text.summary(report)


def test_utilization_samples_that_never_fit_are_unknown_not_0(
    machine: Machine, driver: SimulatedDriver, living: int
) -> None:
    assert machine.read(slow=True).processes[0].sm_percent == 50
    with driver.faulty("call nvmlDeviceGetProcessUtilization insufficient_size"):
        process = machine.read(slow=True).processes[0]
        assert process.sm_percent is process.memory_bandwidth_percent is process.encoder_percent is None


def test_whether_a_lost_gpu_has_gpm_is_not_known(machine: Machine, driver: SimulatedDriver) -> None:
    driver.fault("gpu 0 lost")
    assert as_dict(machine.read(slow=True))["gpus"][0]["facts"]["gpm"] is None


@pytest.mark.parametrize(("code", "gpm"), [("unknown", None), ("timeout", None), ("not_supported", False)])
def test_gpm_that_could_not_be_asked_for_is_not_known(
    machine: Machine, driver: SimulatedDriver, code: str, gpm: bool | None
) -> None:
    driver.gpu(0).gpm({2: 50})
    driver.fault(f"call nvmlGpmQueryDeviceSupport {code}")
    assert machine.read(slow=True).gpus[0].facts.gpm is gpm


# ------------------------------------------------------- lists and figures that cannot be


@pytest.mark.parametrize("stride", [20, 40])
def test_a_list_whose_entries_have_a_length_of_no_layout_is_not_believed(
    machine: Machine, driver: SimulatedDriver, living: int, stride: int
) -> None:
    """Drivers of the past have written others than those of nvml.h before; what is decoded then is anybody's pid."""
    for pid in range(3000, 3004):
        driver.gpu(0).process(pid, memory=300 * MIB)
    driver.set(process_stride=stride)
    gpu = machine.read().gpus[0]
    assert gpu.processes_error == PROCESSES_UNRELIABLE and gpu.memory_unattributed_bytes is None
    report = machine.report()
    assert report.verdicts == () and report.dead_pids == () and report.unattributed == ()
    assert any(PROCESSES_UNRELIABLE in said for said in report.unsure)
    assert any(remark.message == PROCESSES_UNRELIABLE for remark in remarks(gpu, DEFAULTS, machine.at))


def test_no_pid_of_an_unreliable_list_is_called_a_leak(machine: Machine, driver: SimulatedDriver) -> None:
    """R525 gave garbage among its pids: one of the others was a LEAK, with the advice to reset the GPU."""
    driver.gpu(0).process(0x7FFFFFFF, memory=GIB).process(4_100_001, memory=GIB)
    snapshot = machine.read()
    assert [process.pid for process in snapshot.processes] == [4_100_001]
    assert memory_breakdown(snapshot.gpus[0], snapshot.processes).by_dead_pid == ()
    report = machine.report()
    assert report.verdicts == () and any(PROCESSES_UNRELIABLE in said for said in report.unsure)


@pytest.mark.parametrize("fault", ["stride", "garbage", "unknown", "no mps list now"])
def test_query_prints_no_garbage_for_a_list_that_cannot_be(
    driver: SimulatedDriver, living: int, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It printed 17592186040320 MiB."""
    driver.gpu(0).process(3000, memory=300 * MIB)
    if fault == "stride":
        driver.set(process_stride=20)
    elif fault == "garbage":
        driver.gpu(0).process(3001, memory=1 << 63)
    else:
        driver.fault(f"call nvmlDeviceGet{'*' if fault == 'unknown' else 'MPSCompute'}RunningProcesses* unknown")
    driver.load()
    assert run(["query", "--compute-apps", "pid,used_memory", "--format", "csv,noheader", "-i", "0"]) == 0
    assert capsys.readouterr().out == "[Unknown Error], [Unknown Error]\n"


def test_0_mib_of_every_process_while_much_is_used_is_unknown(
    machine: Machine, driver: SimulatedDriver, living: int
) -> None:
    """In a container (HAMi-core#112)."""
    driver.gpu(0).set(memory_used=20 * GIB).process(living, memory=0).process(os.getpid(), memory=0)
    snapshot = machine.read()
    assert [process.memory_bytes for process in snapshot.processes] == [None, None]
    gpu = as_dict(snapshot)["gpus"][0]
    assert gpu["memory_living_bytes"] is gpu["memory_unattributed_bytes"] is None
    driver.gpu(0).process(living, memory=GIB)
    assert sorted(process.memory_bytes or 0 for process in machine.read().processes) == [0, GIB]


def test_more_memory_than_the_host_has_is_not_believed_on_a_board_that_shares_it(
    machine: Machine, driver: SimulatedDriver, living: int
) -> None:
    """36490545462% full."""
    driver.gpu(0).set(memory_total=0).process(3000, memory=1 << 63)
    snapshot = machine.read()
    gpu = snapshot.gpus[0]
    assert gpu.memory_is_shared and gpu.processes_error == PROCESSES_UNRELIABLE and gpu.memory_used_bytes is None
    driver.gpu(0).no_process(3000)
    assert machine.read().gpus[0].memory_used_bytes == 5 * GIB


def test_the_sum_of_those_that_are_known_is_not_what_a_shared_memory_board_uses(
    machine: Machine, driver: SimulatedDriver, living: int
) -> None:
    driver.gpu(0).set(memory_total=0).process(os.getpid(), memory=NOT_AVAILABLE)
    assert machine.read().gpus[0].memory_used_bytes is None


def test_more_used_than_there_is_cannot_be(machine: Machine, driver: SimulatedDriver) -> None:
    driver.gpu(0).set(memory_total=8 * GIB, memory_used=1 << 62)
    gpu = machine.read().gpus[0]
    assert (gpu.memory_total_bytes, gpu.memory_used_bytes) == (8 * GIB, None)


def test_no_string_of_the_driver_brings_control_characters(
    machine: Machine, driver: SimulatedDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    """`query --query-gpu=pci.bus_id` printed raw ESC bytes."""
    bad = "\x1b]0;owned\x07\u202e"
    driver.gpu(0).set(name=bad, uuid=bad, serial=bad, vbios=bad, part_number=bad, bus_id=bad)
    driver.set(driver=bad, nvml=bad)
    snapshot = machine.read(slow=True)
    for text in (json.dumps(as_dict(snapshot), ensure_ascii=False), render(snapshot), exposition(snapshot)):
        assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
    driver.load()
    for field in GPU_FIELDS:
        run(["query", "--gpu", field.name])
    run(["query", "--compute-apps", ",".join(field.name for field in APP_FIELDS)])
    said = capsys.readouterr()
    assert not {"\x1b", "\x07", "\u202e"} & {*said.out, *said.err}


def test_a_process_whose_name_is_not_ascii_is_called_by_it(
    driver: SimulatedDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen(["träning-学習", "600"], executable=shutil.which("sleep")) as process:
        driver.gpu(0).process(process.pid, memory=GIB)
        driver.load()
        run(["query", "--compute-apps", "process_name", "--format", "csv,noheader", "-i", "0"])
        process.kill()
    assert capsys.readouterr().out == "träning-学習\n"


# ---------------------------------------------------------------- what is said of it


@pytest.mark.parametrize("code", ["uninitialized", "invalid_argument", "not_ready", "invalid_state"])
def test_who_asks_once_is_not_told_that_it_goes_on(
    driver: SimulatedDriver, capsys: pytest.CaptureFixture[str], code: str
) -> None:
    """One-shots ended with "reconnecting"."""
    driver.fault(f"call nvmlDeviceGet* {code}")
    driver.load()
    run(["--once"])
    said = capsys.readouterr()
    assert said.out or said.err
    assert not {"reconnecting", "again"} & set(re.findall(r"\w+", said.out + said.err))


def test_memory_of_nobody_keeps_its_word_when_there_is_no_room_for_its_cause() -> None:
    """ "5.0G unattributed" turned into "19.7G ?" once the cause was known."""
    gpu = Gpu(0, "GPU-0", "NVIDIA L4", 0.0, memory_total_bytes=24 * GIB, memory_used_bytes=20 * GIB,
              memory_unattributed_bytes=19 * GIB)  # fmt: skip
    cause = Cause("another PID namespace", "gputop runs in a container", "run gputop on the host", 3)
    explained = UnattributedMemory("GPU-0", 19 * GIB, 0.0, (cause,))
    remark = memory_remark(gpu, memory_parts(gpu, ()), None, DEFAULTS, explained)
    assert remark is not None
    assert remark.text(60) == "19.0G unattributed: another PID namespace?" and remark.text(20) == "19.0G unattributed"
    busy = memory_remark(replace(gpu, memory_unattributed_bytes=0, memory_used_bytes=0), memory_parts(
        replace(gpu, memory_unattributed_bytes=0, memory_used_bytes=0), ()), None, DEFAULTS,
        UnattributedMemory("GPU-0", 0, 0.0, (cause,), busy=True))  # fmt: skip
    assert busy is not None and busy.text(16) == "▲ busy, unlisted"
