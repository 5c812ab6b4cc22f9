"""What the driver does not say is unknown: a list that fails is not an empty one, a figure that fails is not 0.

The real source on the simulated driver, with a real process on it, and everything that concludes something from it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from gputop.alarms.conditions import parse
from gputop.alarms.engine import Alarms, once
from gputop.leaks import text as leaks_text
from gputop.leaks.finder import LeakFinder
from gputop.leaks.proc_investigator import ProcInvestigator
from gputop.leaks.report import LeakReport
from gputop.model import Snapshot, memory_breakdown, replace
from gputop.outputs.json_lines import as_dict
from gputop.outputs.prometheus import SnapshotCollector, XidCounts
from gputop.outputs.table import render
from gputop.procfs.devices import NvidiaDevices
from gputop.procfs.proc_host_reader import ProcHostReader
from gputop.sampling.journal import EventKind, Journal
from gputop.sampling.snapshot_builder import assemble
from gputop.settings import DEFAULTS
from gputop.sources.nvml import NvmlSource
from gputop.ui.gpus.remarks import remarks
from gputop.why.diagnosis import ObservedTrend, diagnose
from tests.driver import GIB, SimulatedDriver
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
