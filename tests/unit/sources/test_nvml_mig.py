"""MIG: instances with their own memory, processes with their ids, and what is unknown then."""

from __future__ import annotations

import time

from tests.driver import GIB, NO_PERMISSION, SimulatedDriver
from tests.unit.sources.nvml_source import TICK, calls, full, opened


def cut(driver: SimulatedDriver) -> None:
    """GPU 0 in two instances, with a gap between them."""
    with driver.together():
        driver.gpu(0).set(name="NVIDIA H200")
        driver.gpu(0).mig(0, profile="3g.71gb", gi=2, memory_total=71 * GIB, memory_used=5 * GIB, uuid="MIG-a")
        driver.gpu(0).mig(2, profile="1g.18gb", gi=9, ci=1, memory_total=18 * GIB, memory_used=GIB, uuid="MIG-b")
        driver.gpu(0).process(101, memory=4 * GIB, gi=2, ci=0).process(102, memory=GIB, gi=9, ci=1)
        driver.gpu(0).process(101, memory=GIB // 2, gi=9, ci=1)


def test_instances_with_their_memory(driver: SimulatedDriver) -> None:
    cut(driver)
    with opened(driver) as source:
        read = source.read(0).gpu
    first, second = read.mig
    assert (first.uuid, first.gpu_instance_id, first.compute_instance_id, first.name) == ("MIG-a", 2, 0, "3g.71gb")
    assert (first.memory_total_bytes, first.memory_used_bytes, first.error) == (71 * GIB, 5 * GIB, None)
    assert (second.uuid, second.gpu_instance_id, second.compute_instance_id) == ("MIG-b", 9, 1)
    assert (second.memory_total_bytes, second.memory_used_bytes) == (18 * GIB, GIB)


def test_processes_carry_their_instance_and_no_utilization(driver: SimulatedDriver) -> None:
    cut(driver)
    with opened(driver) as source:
        reading = full(source)
    rows = sorted(
        (p.pid, p.gpu_instance_id, p.compute_instance_id, p.memory_bytes, p.sm_percent) for p in reading.processes
    )
    assert rows == [(101, 2, 0, 4 * GIB, None), (101, 9, 1, GIB // 2, None), (102, 9, 1, GIB, None)]
    assert len({process.row for process in reading.processes}) == 3
    assert reading.gpu.utilization_gpu_percent is None
    assert reading.gpu.facts.mig_mode is True


def test_mig_that_is_off_is_a_plain_gpu(driver: SimulatedDriver) -> None:
    """nvtop#470: (0, 0) was taken for enabled, and an A100 had no process utilization."""
    driver.gpu(0).set(mig_mode=0).process(101, memory=GIB, sm=40)
    driver.gpu(1).set(mig_mode="!not_supported").process(102, memory=GIB, sm=40)
    with opened(driver) as source:
        off, none = full(source, 0), full(source, 1)
    assert (off.gpu.facts.mig_mode, none.gpu.facts.mig_mode) == (False, None)
    assert [reading.processes[0].sm_percent for reading in (off, none)] == [40, 40]
    assert off.gpu.utilization_gpu_percent is not None


def test_instances_that_change_are_enumerated_again(driver: SimulatedDriver) -> None:
    cut(driver)
    with opened(driver) as source:
        assert len(source.read(0).gpu.mig) == 2
        driver.gpu(0).no_mig(2)
        stale = source.read(0).gpu
        assert stale.error is None
        assert stale.mig[1].error is not None and stale.mig[1].memory_used_bytes is None
        source.read_medium(0)
        assert [instance.uuid for instance in source.read(0).gpu.mig] == ["MIG-a"]
        driver.gpu(0).mig(2, profile="2g.35gb", gi=5, memory_total=35 * GIB, uuid="MIG-c")
        source.read_slow(0)
        assert [instance.name for instance in source.read(0).gpu.mig] == ["3g.71gb", "2g.35gb"]


def test_switching_mig_on_and_off_while_running(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(utilization_gpu=77, mig_mode=0)
    with opened(driver) as source:
        assert full(source).gpu.utilization_gpu_percent == 77
        driver.gpu(0).set(utilization_gpu=None, mig_mode=1)
        driver.gpu(0).mig(0, gi=1, uuid="MIG-a")
        source.read_slow(0)
        read = full(source).gpu
        assert [instance.uuid for instance in read.mig] == ["MIG-a"]
        assert (read.utilization_gpu_percent, read.facts.mig_mode) == (None, True)
        driver.gpu(0).no_mig(0)
        driver.gpu(0).set(mig_mode=0, utilization_gpu=66)
        source.read_slow(0)
        read = full(source).gpu
        assert (read.mig, read.utilization_gpu_percent, read.facts.mig_mode) == ((), 66, False)


def test_without_the_right_to_the_whole_gpu_the_instances_are_asked(driver: SimulatedDriver) -> None:
    cut(driver)
    driver.gpu(0).set(memory_total=NO_PERMISSION)
    with opened(driver) as source:
        read = source.read(0)
        assert (read.gpu.error, read.gpu.memory_total_bytes, read.gpu.memory_is_shared) == (None, None, False)
        assert [instance.memory_used_bytes for instance in read.gpu.mig] == [5 * GIB, GIB]


def test_without_the_right_to_the_gpu_s_list_those_of_the_instances_are_asked(driver: SimulatedDriver) -> None:
    cut(driver)
    driver.fault("gpu 0 call nvmlDeviceGetComputeRunningProcesses_v3 no_permission times 1")
    with opened(driver) as source:
        for _ in range(2):
            reading = source.read(0)
            rows = sorted((p.pid, p.gpu_instance_id, p.compute_instance_id, p.memory_bytes) for p in reading.processes)
            assert rows == [(101, 2, 0, 4 * GIB), (101, 9, 1, GIB // 2), (102, 9, 1, GIB)]
            assert reading.gpu.notes == ()


def test_activity_of_an_instance_by_gpm(driver: SimulatedDriver) -> None:
    cut(driver)
    driver.gpu(0).gpm({2: 90.0}, gi=2).gpm({2: 10.0}, gi=9)
    with opened(driver) as source:
        source.read(0)
        source.read_medium(0)
        time.sleep(TICK)
        source.read_medium(0)
        assert [instance.sm_active_percent for instance in source.read(0).gpu.mig] == [90.0, 10.0]


def test_no_utilization_is_asked_in_mig_mode(driver: SimulatedDriver) -> None:
    cut(driver)
    with opened(driver) as source:
        asked = calls(driver, "nvmlDeviceGetProcessUtilization")
        full(source)
        assert asked() == 0
