"""The process lists, in every layout drivers have written them, and per-process utilization."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import pytest

from gputop.model import PROCESSES_UNRELIABLE as UNRELIABLE
from gputop.model import GpuProcess
from gputop.sources.nvml.readings import utilization
from gputop.sources.nvml.readings.processes import EntryLayoutProbe
from gputop.sources.source import Reading
from tests.driver import GIB, MIB, NOT_AVAILABLE, SimulatedDriver
from tests.unit.sources.nvml_source import calls, full, opened

KINDS = ("Compute", "Graphics", "MPSCompute")


def listed(reading: Reading) -> list[tuple[int, str, int | None]]:
    return sorted((process.pid, process.kind, process.memory_bytes) for process in reading.processes)


def without(*versions: str) -> list[str]:
    return [f"nvmlDeviceGet{kind}RunningProcesses{version}" for kind in KINDS for version in versions]


def three(driver: SimulatedDriver) -> list[tuple[int, str, int | None]]:
    driver.gpu(0).process(101, memory=GIB).process(102, memory=2 * GIB, kind="C+G").process(103, memory=3 * MIB)
    return [(101, "C", GIB), (102, "C+G", 2 * GIB), (103, "C", 3 * MIB)]


# ------------------------------------------------------------------------------------------------ layouts


@pytest.mark.parametrize("stride", [16, 24, 32])
def test_pids_and_memory_are_right_in_every_stride(driver: SimulatedDriver, stride: int) -> None:
    """535.43 to 535.86 wrote 32 bytes an entry: every entry after the first was scrambled (gpustat#161)."""
    driver.set(process_stride=stride)
    expected = three(driver)
    with opened(driver) as source:
        for _ in range(2):
            reading = source.read(0)
            assert listed(reading) == expected
            assert UNRELIABLE not in reading.gpu.notes
            assert reading.gpu.memory_unattributed_bytes == 3 * MIB


@pytest.mark.parametrize("stride", [16, 24, 32])
def test_a_stride_is_measured_when_the_first_process_comes(driver: SimulatedDriver, stride: int) -> None:
    driver.set(process_stride=stride)
    with opened(driver) as source:
        assert listed(source.read(0)) == []
        driver.gpu(0).process(101, memory=GIB)
        assert listed(source.read(0)) == [(101, "C", GIB)]
        expected = three(driver)
        assert listed(source.read(0)) == expected


@pytest.mark.parametrize(
    "missing",
    [without("_v3"), without("_v3", "_v2")],
    ids=["535.98 lost version 3", "430 has version 1 only"],
)
def test_old_drivers_lack_versions_of_the_list(tmp_path: Path, driver: SimulatedDriver, missing: list[str]) -> None:
    with SimulatedDriver(tmp_path / "old", missing_symbols=missing) as old:
        expected = three(old)
        with opened(old) as source:
            reading = source.read(0)
            assert listed(reading) == expected
            assert {(p.gpu_instance_id, p.compute_instance_id) for p in reading.processes} == {(None, None)}


def test_a_version_that_is_there_but_refuses_falls_back(driver: SimulatedDriver) -> None:
    expected = three(driver)
    driver.fault("call nvmlDeviceGet*RunningProcesses_v3 function_not_found")
    with opened(driver) as source:
        assert listed(source.read(0)) == expected


def test_no_list_at_all_is_said(tmp_path: Path, driver: SimulatedDriver) -> None:
    with SimulatedDriver(tmp_path / "none", missing_symbols=without("_v3", "_v2", "")) as old:
        old.gpu(0).process(101, memory=GIB)
        with opened(old) as source:
            reading = source.read(0)
    assert reading.processes == ()
    assert any("process list" in note and "not supported" in note for note in reading.gpu.notes)


@pytest.mark.parametrize(("written", "count", "capacity", "stride"), [
    (72, 3, 128, 24), (96, 3, 128, 32), (48, 3, 128, 16),
    (128 * 24, 3, 128, 24), (128 * 32, 1, 128, 32),  # a driver that clears the whole buffer first
])  # fmt: skip
def test_layouts(written: int, count: int, capacity: int, stride: int) -> None:
    layouts = EntryLayoutProbe()
    assert layouts.measure("list_v3", written, count, capacity) == stride
    assert layouts.of("list_v3") == stride


def test_a_stride_that_makes_no_sense_is_not_kept() -> None:
    layouts = EntryLayoutProbe()
    assert layouts.measure("list_v3", 71, 3, 128) == 24
    assert layouts.measure("list", 71, 3, 128) == 16
    assert layouts.of("list_v3") is None


# ------------------------------------------------------------------------------------------------- sizes


def test_a_thousand_processes(driver: SimulatedDriver) -> None:
    with driver.together():
        for pid in range(1000, 1900):
            driver.gpu(0).process(pid, memory=MIB)
    with opened(driver) as source:
        assert [process.pid for process in source.read(0).processes] == list(range(1000, 1900))


def test_a_list_that_grew_in_between_is_asked_again(driver: SimulatedDriver) -> None:
    expected = three(driver)
    driver.fault("call nvmlDeviceGetComputeRunningProcesses_v3 insufficient_size times 2")
    with opened(driver) as source:
        assert listed(source.read(0)) == expected


def test_insufficient_size_for_ever_ends(driver: SimulatedDriver) -> None:
    """nvtop froze: the driver asked for a larger buffer without end."""
    driver.gpu(0).process(101, memory=GIB, kind="C").process(102, memory=GIB, kind="G")
    line = "call nvmlDeviceGetComputeRunningProcesses_v3 insufficient_size"
    driver.fault(line)
    with opened(driver) as source:
        for _ in range(10):
            asked = calls(driver, "nvmlDeviceGetComputeRunningProcesses_v3")
            reading = source.read(0)
            assert asked() <= 4
            assert listed(reading) == [(102, "G", GIB)]
            assert UNRELIABLE in reading.gpu.notes
            assert reading.gpu.temperature_celsius is not None
        driver.clear_faults(line)
        reading = source.read(0)
        assert listed(reading) == [(101, "C", GIB), (102, "G", GIB)]
        assert UNRELIABLE not in reading.gpu.notes


# ------------------------------------------------------------------------------------------------ entries


def test_memory_that_is_not_told_is_unknown(driver: SimulatedDriver) -> None:
    """WSL: nvtop#432 printed 17179869184 GiB."""
    driver.gpu(0).process(101, memory=NOT_AVAILABLE, kind="C+G")
    with opened(driver) as source:
        reading = source.read(0)
    assert listed(reading) == [(101, "C+G", None)]
    assert reading.gpu.memory_unattributed_bytes is None
    assert UNRELIABLE not in reading.gpu.notes


@pytest.mark.parametrize("pid", [0, 0x7FFFFFFF])
def test_a_pid_that_cannot_be_is_left_out_and_said(driver: SimulatedDriver, pid: int) -> None:
    driver.gpu(0).process(pid, memory=GIB).process(102, memory=GIB)
    with opened(driver) as source:
        reading = source.read(0)
    assert listed(reading) == [(102, "C", GIB)]
    assert UNRELIABLE in reading.gpu.notes


def test_more_memory_than_the_gpu_has_is_left_out_and_said(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(memory_total=8 * GIB, memory_used=GIB).process(101, memory=9 * GIB).process(102, memory=GIB)
    with opened(driver) as source:
        reading = source.read(0)
        assert listed(reading) == [(102, "C", GIB)]
        assert UNRELIABLE in reading.gpu.notes
        driver.gpu(0).no_process(101)
        assert UNRELIABLE not in source.read(0).gpu.notes


def test_an_mps_client_is_kind_m(driver: SimulatedDriver) -> None:
    driver.gpu(0).process(101, memory=GIB, kind="M").process(102, memory=GIB, kind="C+M")
    with opened(driver) as source:
        assert listed(source.read(0)) == [(101, "M", GIB), (102, "M", GIB)]


def test_the_same_objects_while_nothing_changed(driver: SimulatedDriver) -> None:
    three(driver)
    with opened(driver) as source:
        first = source.read(0).processes
        assert source.read(0).processes is first
        driver.gpu(0).process(103, memory=4 * MIB)
        second = {process.pid: process for process in source.read(0).processes}
        before = {process.pid: process for process in first}
        assert second[101] is before[101] and second[102] is before[102]
        assert second[103].memory_bytes == 4 * MIB


def test_dead_pids_stay_listed(driver: SimulatedDriver) -> None:
    """gpustat drops them silently: memory held for a dead pid would have no row."""
    driver.gpu(0).process(4_100_000, memory=GIB)
    with opened(driver) as source:
        assert listed(source.read(0)) == [(4_100_000, "C", GIB)]


def test_no_permission_for_the_list_is_said_and_not_asked_every_tick(driver: SimulatedDriver) -> None:
    driver.fault("call nvmlDeviceGetComputeRunningProcesses_v3 no_permission")
    with opened(driver) as source:
        asked = calls(driver, "nvmlDeviceGetComputeRunningProcesses_v3")
        for _ in range(4):
            notes = source.read(0).gpu.notes
        assert any("process list" in note and "permission" in note for note in notes)
        assert asked() == 1


# -------------------------------------------------------------------------------------------- utilization


def shares(process: GpuProcess) -> tuple[int | None, ...]:
    return (
        process.sm_percent,
        process.memory_bandwidth_percent,
        process.encoder_percent,
        process.decoder_percent,
    )


def by_pid(reading: Reading) -> dict[int, tuple[int | None, ...]]:
    return {process.pid: shares(process) for process in reading.processes}


UNKNOWN = (None, None, None, None)


def test_utilization_by_process(driver: SimulatedDriver) -> None:
    driver.gpu(0).process(101, memory=GIB, sm=60, mem=20, enc=3, dec=4).process(102, memory=GIB)
    with opened(driver) as source:
        assert by_pid(source.read(0)) == {101: UNKNOWN, 102: UNKNOWN}  # nobody asked yet
        source.read_medium(0)
        assert by_pid(source.read(0)) == {101: (60, 20, 3, 4), 102: (0, 0, 0, 0)}


def test_a_busy_process_is_busy_although_the_clock_was_set_back(
    driver: SimulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is asked for samples newer than the newest, which was then an hour ahead."""
    driver.gpu(0).process(101, memory=GIB, sm=60)
    with opened(driver) as source:
        full(source)
        (usage,) = [one for one in gc.get_objects() if isinstance(one, utilization.ProcessUtilization) and one.samples]
        usage._last_seen += 3600 * 1_000_000
        usage._held.clear()
        monkeypatch.setattr(utilization, "steady_time", lambda: time.time() + 3600)
        assert by_pid(full(source))[101][0] == 60


def test_nobody_active_is_idle_and_not_unknown(driver: SimulatedDriver) -> None:
    """NOT_FOUND (nvtop#364 showed N/A)."""
    driver.gpu(0).process(101, memory=GIB)
    with opened(driver) as source:
        assert by_pid(full(source)) == {101: (0, 0, 0, 0)}


def test_a_value_is_held_where_the_driver_samples_more_slowly(
    driver: SimulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvtop#364/#448: the column flickered."""
    monkeypatch.setattr(utilization, "HOLD_SECONDS", 0.5)
    driver.gpu(0).process(101, memory=GIB, sm=60)
    with opened(driver) as source:
        source.read(0)
        source.read_medium(0)
        driver.gpu(0).process(101, memory=GIB)  # no sample any more
        source.read_medium(0)
        assert by_pid(source.read(0))[101][0] == 60
        time.sleep(0.6)
        source.read_medium(0)
        assert by_pid(source.read(0))[101][0] == 0


def test_a_value_of_a_process_that_left_is_not_held_for_its_successor(driver: SimulatedDriver) -> None:
    driver.gpu(0).process(101, memory=GIB, sm=60)
    with opened(driver) as source:
        source.read(0)
        source.read_medium(0)
        driver.gpu(0).no_processes().process(102, memory=GIB)
        source.read(0)
        source.read_medium(0)
        driver.gpu(0).process(101, memory=GIB)
        source.read(0)
        source.read_medium(0)
        assert by_pid(source.read(0)) == {101: (0, 0, 0, 0), 102: (0, 0, 0, 0)}


def test_garbage_samples_are_left_out(driver: SimulatedDriver) -> None:
    """nvtop#110: 100 samples, one with 37100 %, absurd times, 94 with pid 0."""
    driver.gpu(0).process(50554, memory=GIB).process(101, memory=GIB, sm=50)
    driver.gpu(0).sample(pid=50554, sm=37100, enc=50583, timestamp=2**63)
    driver.gpu(0).sample(pid=101, sm=99, timestamp=2**62)
    driver.gpu(0).sample(repeat=94)
    with opened(driver) as source:
        reading = full(source)
        assert by_pid(reading) == {50554: (0, 0, 0, 0), 101: (50, 0, 0, 0)}


def test_samples_of_long_ago_and_of_pids_not_listed_are_left_out(driver: SimulatedDriver) -> None:
    now = time.time_ns() // 1000
    driver.gpu(0).process(101, memory=GIB).process(102, memory=GIB)
    driver.gpu(0).sample(pid=101, sm=90, timestamp=now - 60_000_000)
    driver.gpu(0).sample(pid=999, sm=90, timestamp=now)
    driver.gpu(0).sample(pid=102, sm=10, timestamp=now - 200_000).sample(pid=102, sm=30, timestamp=now - 100_000)
    driver.gpu(0).sample(pid=102, sm=20, timestamp=now - 150_000)
    with opened(driver) as source:
        source.read(0)
        source.read_medium(0)
        reading = source.read(0)
    assert by_pid(reading) == {101: (0, 0, 0, 0), 102: (30, 0, 0, 0)}


@pytest.mark.parametrize("code", ["not_supported", "function_not_found"])
def test_utilization_not_told_is_unknown_and_not_idle(driver: SimulatedDriver, code: str) -> None:
    driver.gpu(0).process(101, memory=GIB, sm=50)
    driver.fault(f"call nvmlDeviceGetProcessUtilization {code}")
    with opened(driver) as source:
        asked = calls(driver, "nvmlDeviceGetProcessUtilization")
        assert by_pid(full(source)) == {101: UNKNOWN}
        assert asked() == 1


def test_utilization_that_always_wants_a_larger_buffer_ends(driver: SimulatedDriver) -> None:
    """go-nvml#11: INSUFFICIENT_SIZE with nothing running."""
    driver.gpu(0).process(101, memory=GIB)
    driver.fault("call nvmlDeviceGetProcessUtilization insufficient_size")
    with opened(driver) as source:
        source.read(0)
        asked = calls(driver, "nvmlDeviceGetProcessUtilization")
        source.read_medium(0)
        assert asked() <= 3


def test_a_gpu_without_processes_is_not_asked_for_their_utilization(driver: SimulatedDriver) -> None:
    """The call burns 2 ms."""
    with opened(driver) as source:
        asked = calls(driver, "nvmlDeviceGetProcessUtilization")
        full(source)
        assert asked() == 0


def test_a_moment_s_failure_of_the_utilization_is_unknown_then_back(driver: SimulatedDriver) -> None:
    driver.gpu(0).process(101, memory=GIB, sm=50)
    with opened(driver) as source:
        source.read(0)
        with driver.faulty("call nvmlDeviceGetProcessUtilization unknown"):
            source.read_medium(0)
            assert by_pid(source.read(0)) == {101: UNKNOWN}
        source.read_medium(0)
        assert by_pid(source.read(0))[101] != UNKNOWN
