"""Faults of the driver switched on and off while the dashboard runs: said in words, the rest goes on, it recovers."""

from __future__ import annotations

import time

import pytest

from tests.driver import GIB, NOT_SUPPORTED, SimulatedDriver
from tests.pty.conftest import Start
from tests.pty.terminal import Terminal


@pytest.fixture
def dashboard(gputop: Start, driver: SimulatedDriver) -> Terminal:
    """Four GPUs, five readings a second."""
    driver.gpus = 4
    with driver.together():
        for n in range(6):
            driver.gpu(n).set(name="NVIDIA H200", temperature=40 + n)
        for n in range(4):
            driver.gpu(n).process(2**22 - 1 - n, memory=(n + 1) * GIB)
    return gputop("-d", "200ms", driver=driver, columns=140, rows=45)


def _assert_live(terminal: Terminal, driver: SimulatedDriver, *gpus: int) -> None:
    """A new temperature of each of *gpus* is on the screen soon."""
    _assert_live.celsius += 1  # type: ignore[attr-defined]
    celsius = 50 + _assert_live.celsius % 30  # type: ignore[attr-defined]
    with driver.together():
        for n in gpus:
            driver.gpu(n).set(temperature=celsius)
    terminal.wait_for(lambda: terminal.text().count(f"{celsius}°C") >= len(gpus))


_assert_live.celsius = 0  # type: ignore[attr-defined]


def _assert_keys_answer_at_once(terminal: Terminal) -> None:
    for key, shows in (("F6", "Sort by"), ("F1", "Every day ─")):
        pressed = time.monotonic()
        terminal.press(key)
        terminal.wait_for(shows)
        assert time.monotonic() - pressed < 2, "a key had to wait for the driver"
        terminal.press("esc")
        terminal.wait_gone(shows)


def test_a_lost_gpu_is_one_red_panel_and_the_others_live(dashboard: Terminal, driver: SimulatedDriver) -> None:
    with driver.faulty("gpu 2 lost"):
        dashboard.wait_for("GPU is lost: it has fallen off the bus (see Xid 79 in `dmesg`)")
        assert dashboard.text().count("▲ GPU is lost") == 1
        _assert_live(dashboard, driver, 0, 1, 3)
        assert str(2**22 - 2) in dashboard.text(), "the processes of the others are gone"
    _assert_live(dashboard, driver, 0, 1, 2, 3)
    dashboard.wait_gone("▲ GPU is lost")
    dashboard.wait_for("GPU 2 is back")


def test_a_driver_that_answers_unknown_error_to_everything_is_said_and_it_recovers(
    dashboard: Terminal, driver: SimulatedDriver
) -> None:
    with driver.faulty("call nvmlDevice* unknown"):
        dashboard.wait_for("unknown error")
        _assert_keys_answer_at_once(dashboard)
    dashboard.wait_for("40°C")
    _assert_live(dashboard, driver, 0, 1, 2, 3)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("call nvml* no_driver", "kernel driver is not running"),
        ("call nvml* driver_mismatch", "kernel module and its library differ"),
        ("call nvml* uninitialized", "the connection to the driver was lost"),
    ],
)
def test_a_driver_that_goes_away_is_said_and_taken_up_again(
    dashboard: Terminal, driver: SimulatedDriver, fault: str, words: str
) -> None:
    with driver.faulty(fault):
        dashboard.wait_for(words)
        _assert_keys_answer_at_once(dashboard)
    dashboard.wait_for(lambda: all(f"4{n}°C" in dashboard.text() for n in range(4)))
    _assert_live(dashboard, driver, 0, 1, 2, 3)
    assert words not in dashboard.words()


def test_a_driver_that_is_loaded_anew_is_taken_up_without_a_word_too_many(
    dashboard: Terminal, driver: SimulatedDriver
) -> None:
    driver.reload_driver()
    _assert_live(dashboard, driver, 0, 1, 2, 3)
    assert "in trouble" not in dashboard.text()


def test_a_call_that_hangs_holds_up_neither_keys_nor_other_gpus_nor_the_end(
    dashboard: Terminal, driver: SimulatedDriver
) -> None:
    driver.fault("gpu 1 hang")
    dashboard.wait_for("stale ")
    _assert_keys_answer_at_once(dashboard)
    _assert_live(dashboard, driver, 0, 2, 3)
    driver.clear_faults()
    dashboard.wait_gone("stale")
    _assert_live(dashboard, driver, 1)
    driver.fault("call nvml* delay_ms 3600000")
    dashboard.wait_for("stale")
    pressed = time.monotonic()
    dashboard.press("q")
    assert dashboard.wait_end() == 0
    assert time.monotonic() - pressed < 2
    dashboard.assert_restored()


def test_a_gpu_that_answers_slowly_keeps_no_key_waiting(dashboard: Terminal, driver: SimulatedDriver) -> None:
    driver.fault("gpu 3 call nvmlDevice* delay_ms 1500")
    dashboard.wait_for("stale ")
    for _ in range(3):
        _assert_keys_answer_at_once(dashboard)
    _assert_live(dashboard, driver, 0, 1, 2)


def test_gpus_that_appear_and_go_are_shown_and_not(dashboard: Terminal, driver: SimulatedDriver) -> None:
    driver.gpus = 6
    dashboard.wait_for("6 × NVIDIA H200")
    driver.gpus = 1
    dashboard.wait_for(lambda: "41°C" not in dashboard.text() and "40°C" in dashboard.text())
    driver.gpus = 4
    dashboard.wait_for(lambda: all(f"4{n}°C" in dashboard.text() for n in range(4)))


def test_no_permission_for_one_gpu_is_said(dashboard: Terminal, driver: SimulatedDriver) -> None:
    with driver.faulty("gpu 0 call nvmlDevice* no_permission", "gpu 0 call nvmlDeviceGetMemoryInfo* no_permission"):
        dashboard.wait_for("no permission")
        _assert_live(dashboard, driver, 1, 2, 3)
    _assert_live(dashboard, driver, 0)


def test_values_that_are_not_supported_are_a_dash_and_never_zero(gputop: Start, driver: SimulatedDriver) -> None:
    names = ("utilization_gpu", "temperature", "power_watts", "power_average_watts", "power_instant_watts")
    nothing = dict.fromkeys(names, NOT_SUPPORTED)
    driver.gpus = 1
    driver.gpu(0).set(name="NVIDIA H200", **nothing)
    terminal = gputop("-d", "200ms", driver=driver, columns=80, rows=24)
    terminal.wait_for("—")
    assert " 0%" not in terminal.lines()[2] and "0°C" not in terminal.text() and " 0 W" not in terminal.text()


def test_an_xid_is_told(dashboard: Terminal, driver: SimulatedDriver) -> None:
    driver.xid(1, 79)
    dashboard.wait_for("Xid 79")
