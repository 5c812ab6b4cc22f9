"""Xid events: kept per GPU, stamped on arrival, never a spin."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gputop.model import Severity
from gputop.sources.nvml import event_watch
from gputop.sources.nvml.driver.xids import xid
from tests.driver import SimulatedDriver
from tests.unit.sources.nvml_source import calls, opened


def test_an_xid_is_shown_at_its_gpu_with_words(driver: SimulatedDriver) -> None:
    with opened(driver) as source:
        source.read(0), source.read(1)
        source.wait_events(0.01)
        before = time.time()
        driver.xid(1, 31)
        driver.xid(1, 79)
        source.wait_events(0.05)
        assert source.read(0).gpu.xids == ()
        first, second = source.read(1).gpu.xids
    assert (first.code, first.severity) == (31, Severity.WARNING)
    assert "page fault" in first.message
    assert (second.code, second.severity) == (79, Severity.CRITICAL)
    assert before <= first.at <= second.at <= time.time()


@pytest.mark.parametrize(
    ("code", "severity"),
    [(13, Severity.WARNING), (45, Severity.INFO), (48, Severity.CRITICAL), (63, Severity.INFO), (79, Severity.CRITICAL),
     (95, Severity.CRITICAL), (119, Severity.CRITICAL), (154, Severity.WARNING), (9999, Severity.WARNING)],
)  # fmt: skip
def test_every_xid_has_words_and_a_severity(code: int, severity: Severity) -> None:
    event = xid(code, 1.0)
    assert event.severity is severity and len(event.message) > 10


def test_an_instance_is_named(driver: SimulatedDriver) -> None:
    with opened(driver) as source:
        source.read(0)
        source.wait_events(0.01)
        driver.xid(0, 43, gi=3, ci=0)
        source.wait_events(0.05)
        assert "GPU instance 3" in source.read(0).gpu.xids[0].message


def test_the_newest_are_kept(driver: SimulatedDriver) -> None:
    with opened(driver) as source:
        source.read(0)
        source.wait_events(0.01)
        with driver.together():
            for code in range(1, 51):
                driver.xid(0, code)
        for _ in range(5):
            source.wait_events(0.05)
        assert [event.code for event in source.read(0).gpu.xids] == list(range(19, 51))


def test_the_xids_of_a_lost_gpu_stay(driver: SimulatedDriver) -> None:
    with opened(driver) as source:
        source.read(0)
        source.wait_events(0.01)
        driver.xid(0, 79)
        source.wait_events(0.05)
        driver.fault("gpu 0 lost")
        lost = source.read(0).gpu
        assert lost.error and [event.code for event in lost.xids] == [79]


def test_other_events_are_no_xids(driver: SimulatedDriver) -> None:
    with opened(driver) as source:
        source.read(0)
        source.wait_events(0.01)
        driver.event(0, 0x10, 5)
        source.wait_events(0.05)
        assert source.read(0).gpu.xids == ()


@pytest.mark.parametrize("fault", [
    "call nvmlEventSetCreate not_supported", "call nvmlDeviceGetSupportedEventTypes not_supported",
    "call nvmlDeviceRegisterEvents not_supported", "call nvmlDeviceRegisterEvents unknown",
    "call nvmlEventSetWait_v2 timeout", "call nvmlEventSetWait_v2 unknown", "call nvmlEventSetWait_v2 gpu_is_lost",
    "call nvmlEventSetCreate unknown",
])  # fmt: skip
def test_waiting_takes_its_time_whatever_the_driver_answers(driver: SimulatedDriver, fault: str) -> None:
    driver.fault(fault)
    with opened(driver) as source:
        source.read(0)
        created, waited = calls(driver, "nvmlEventSetCreate"), calls(driver, "nvmlEventSetWait_v2")
        started = time.monotonic()
        for _ in range(4):
            source.wait_events(0.05)
        assert time.monotonic() - started >= 0.2
        assert created() <= 1 and waited() <= 4


def test_without_the_symbols_waiting_just_takes_its_time(tmp_path: Path, driver: SimulatedDriver) -> None:
    missing = ["nvmlEventSetWait_v2", "nvmlEventSetWait"]
    with SimulatedDriver(tmp_path / "old", missing_symbols=missing) as old, opened(old) as source:
        source.read(0)
        started = time.monotonic()
        source.wait_events(0.05)
        assert time.monotonic() - started >= 0.05


def test_events_come_again_after_a_gpu_died(driver: SimulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_watch, "BACK_OFF_SECONDS", (0.0,))
    with opened(driver) as source:
        source.read(0), source.read(1)
        source.wait_events(0.01)
        driver.fault("gpu 0 lost")
        source.read(0)
        source.wait_events(0.01)
        source.wait_events(0.01)
        driver.xid(1, 13)
        source.wait_events(0.05)
        assert [event.code for event in source.read(1).gpu.xids] == [13]


def test_a_storm_of_events_does_not_hold_the_thread(driver: SimulatedDriver) -> None:
    with opened(driver) as source:
        source.read(0)
        source.wait_events(0.01)
        with driver.together():
            for _ in range(60):
                driver.xid(0, 13)
        waited = calls(driver, "nvmlEventSetWait_v2")
        source.wait_events(0.05)
        assert waited() <= event_watch.EVENTS_PER_WAIT
