"""GPM, PCIe and NVLink throughput, each by the way that tells the truth on that GPU."""

from __future__ import annotations

import itertools
import time

import pytest

from gputop.sources.nvml import NvmlSource
from gputop.sources.nvml.readings.pcie import PcieSampler, RateLimiter
from tests.driver import GIB, MIB, NO_PERMISSION, NOT_SUPPORTED, SimulatedDriver
from tests.unit.sources.nvml_source import TICK, calls, full, gpu, opened

NEAR = 0.25  # of a rate measured over a fraction of a second on a busy machine


def ticks(source: NvmlSource, count: int = 2, interval: float = TICK) -> tuple[float | None, float | None]:
    """PCIe RX and TX of GPU 0 after some ticks, with the background tiers that belong to them."""
    slot = 0
    for _ in range(count):
        source.read(slot)
        source.read_medium(slot)
        time.sleep(interval)
    read = source.read(slot).gpu
    return read.pcie_rx_bytes_per_second, read.pcie_tx_bytes_per_second


# ---------------------------------------------------------------------------------------------------- GPM


def test_gpm_tells_what_the_gpu_really_does(driver: SimulatedDriver) -> None:
    """GPU utilization 100 % with SM active 3 % is the most useful diagnosis there is."""
    driver.gpu(0).gpm({2: 3.25, 3: 1.5, 5: 0.0, 10: 32.0, 20: 16.0, 21: 76.0, 60: 5.0, 61: 7.0})
    driver.gpu(0).set(utilization_gpu=100)
    read = gpu(driver)
    assert (read.utilization_gpu_percent, read.sm_active_percent, read.sm_occupancy_percent) == (100, 3.25, 1.5)
    assert (read.tensor_active_percent, read.dram_bandwidth_percent) == (0.0, 32.0)
    assert (read.pcie_tx_bytes_per_second, read.pcie_rx_bytes_per_second) == (16.0 * MIB, 76.0 * MIB)
    assert (read.nvlink_rx_bytes_per_second, read.nvlink_tx_bytes_per_second) == (5.0 * MIB, 7.0 * MIB)
    assert read.facts.gpm


def test_gpm_s_first_tick_is_unknown(driver: SimulatedDriver) -> None:
    driver.gpu(0).gpm({2: 50.0})
    with opened(driver) as source:
        assert source.read(0).gpu.sm_active_percent is None
        time.sleep(TICK)
        assert source.read(0).gpu.sm_active_percent == 50.0


def test_gpm_between_samples_keeps_what_it_said(driver: SimulatedDriver) -> None:
    """Two samples less than 100 ms apart may be one and the same."""
    driver.gpu(0).gpm({2: 50.0})
    with opened(driver) as source:
        source.read(0)
        time.sleep(TICK)
        source.read(0)
        sampled = calls(driver, "nvmlGpmSampleGet")
        assert source.read(0).gpu.sm_active_percent == 50.0
        assert sampled() == 0


def test_a_metric_gpm_lacks_is_unknown_alone(driver: SimulatedDriver) -> None:
    driver.gpu(0).gpm({2: 50.0, 5: NOT_SUPPORTED, 60: NOT_SUPPORTED, 61: NOT_SUPPORTED})
    with opened(driver) as source:
        for _ in range(3):
            source.read(0)
            time.sleep(TICK)
        read = source.read(0).gpu
    assert (read.sm_active_percent, read.tensor_active_percent, read.nvlink_rx_bytes_per_second) == (50.0, None, None)


@pytest.mark.parametrize("value", [-1, 140737488355328, "1e300"])
def test_a_blank_of_gpm_is_unknown(driver: SimulatedDriver, value: float | str) -> None:
    """DCGM#199, dcgm-exporter#418: sentinels were shown."""
    driver.gpu(0).gpm({2: value, 3: 20.0})
    read = gpu(driver)
    assert (read.sm_active_percent, read.sm_occupancy_percent) == (None, 20.0)


@pytest.mark.parametrize("code", ["no_permission", "not_supported"])
def test_gpm_that_is_refused_is_unknown_and_pcie_comes_otherwise(driver: SimulatedDriver, code: str) -> None:
    driver.gpu(0).gpm(True).set(pcie_counter_bits=64, pcie_rx_rate=2 * GIB, pcie_tx_rate=GIB)
    driver.fault(f"call nvmlGpmSampleGet {code}")
    with opened(driver) as source:
        rx, tx = ticks(source, count=3)
        assert source.read(0).gpu.sm_active_percent is None
        assert rx == pytest.approx(2 * GIB, rel=NEAR) and tx == pytest.approx(GIB, rel=NEAR)


# --------------------------------------------------------------------------------------------------- PCIe


def test_pcie_by_64_bit_counters(driver: SimulatedDriver) -> None:
    """nvitop#176: TX was shown as RX."""
    driver.gpu(0).set(pcie_counter_bits=64, pcie_rx_rate=40 * GIB, pcie_tx_rate=10 * GIB)
    with opened(driver) as source:
        blocked = calls(driver, "nvmlDeviceGetPcieThroughput")
        rx, tx = ticks(source)
        assert rx == pytest.approx(40 * GIB, rel=NEAR)
        assert tx == pytest.approx(10 * GIB, rel=NEAR)
        assert blocked() == 0


def test_pcie_by_32_bit_counters_where_the_link_cannot_wrap_them_in_a_tick(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(pcie_link_gen_max=1, pcie_link_width_max=16, pcie_rx_rate=3 * GIB, pcie_tx_rate=GIB)
    with opened(driver) as source:
        rx, tx = ticks(source)
        assert rx == pytest.approx(3 * GIB, rel=NEAR) and tx == pytest.approx(GIB, rel=NEAR)


def test_a_32_bit_counter_that_wraps_within_a_safe_tick_is_no_jump(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(pcie_link_gen_max=1, pcie_link_width_max=16)
    driver.gpu(0).field(197, 0xFFFF0000, kind=1).field(198, 0xFFFFFF00, kind=1)
    with opened(driver) as source:
        source.read(0)
        time.sleep(TICK)
        source.read(0)
        started = time.monotonic()
        driver.gpu(0).field(197, 0x00010000, kind=1).field(198, 0x00000100, kind=1)
        time.sleep(TICK)
        read = source.read(0).gpu
        at_most = 1 / (time.monotonic() - started - 0.02)
    assert read.pcie_tx_bytes_per_second is not None and read.pcie_rx_bytes_per_second is not None
    assert 0 < read.pcie_tx_bytes_per_second <= 0x20000 * at_most
    assert 0 < read.pcie_rx_bytes_per_second <= 0x200 * at_most


def test_pcie_by_the_blocking_call_where_32_bits_could_wrap_unseen(driver: SimulatedDriver) -> None:
    """A Gen5 x16 link moves 4 GiB in 70 ms."""
    driver.gpu(0).set(pcie_link_gen_max=5, pcie_link_width_max=16, pcie_rx_rate=20 * GIB, pcie_tx_rate=10 * GIB)
    with opened(driver) as source:
        rx, tx = ticks(source, count=3)
        assert (rx, tx) == (20 * GIB, 10 * GIB)


@pytest.mark.parametrize("bits", [0, NOT_SUPPORTED, NO_PERMISSION])
def test_pcie_by_the_blocking_call_where_there_are_no_counters(driver: SimulatedDriver, bits: int | str) -> None:
    driver.gpu(0).set(pcie_counter_bits=bits, pcie_rx_rate=20 * MIB, pcie_tx_rate=10 * MIB)
    with opened(driver) as source:
        assert ticks(source) == (20 * MIB, 10 * MIB)


def test_pcie_that_nothing_tells_is_unknown(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(pcie_counter_bits=0, pcie_rx_rate=NOT_SUPPORTED, pcie_tx_rate=NOT_SUPPORTED)
    with opened(driver) as source:
        assert ticks(source) == (None, None)
        asked = calls(driver, "nvmlDeviceGetPcieThroughput")
        ticks(source)
        assert asked() == 0


def test_a_shorter_tick_goes_back_to_the_counters(driver: SimulatedDriver) -> None:
    """Gen4 x16 wraps 4 GiB in 136 ms: unsafe at 200 ms, safe at 60 ms."""
    driver.gpu(0).set(pcie_link_gen_max=4, pcie_link_width_max=16, pcie_rx_rate=20 * GIB, pcie_tx_rate=10 * GIB)
    with opened(driver) as source:
        ticks(source, count=3, interval=0.2)
        blocked = calls(driver, "nvmlDeviceGetPcieThroughput")
        for _ in range(4):
            read = source.read(0).gpu
            time.sleep(0.04)
        assert read.pcie_rx_bytes_per_second == pytest.approx(20 * GIB, rel=NEAR)
        source.read_medium(0)
        assert blocked() == 0


def test_the_first_tick_does_not_block_a_gpu_whose_counters_will_do(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(pcie_counter_bits=64)
    with opened(driver) as source:
        blocked = calls(driver, "nvmlDeviceGetPcieThroughput")
        source.read(0)
        source.read_medium(0)
        assert blocked() == 0


def test_blocking_calls_take_turns() -> None:
    """Two GPUs a second, the longest unsampled first."""
    samplers = [PcieSampler.__new__(PcieSampler) for _ in range(8)]
    for sampler in samplers:
        sampler.sampled_at = 0.0
    turns, sampled = RateLimiter(), []
    for second in range(1, 9):
        for number, sampler in enumerate(samplers):
            if turns.acquire(second + number / 100, sampler, samplers):
                sampler.sampled_at = second + number / 100
                sampled.append(number)
    assert sampled == list(range(8)) * 2
    assert all(sampled[:8].count(number) == 1 for number in range(8))


# ------------------------------------------------------------------------------------------------- NVLink


def test_nvlink_by_counters_per_link_and_together(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(nvlink_links=4, nvlink_active=0b0111, nvlink_rx_rate=3 * GIB, nvlink_tx_rate=6 * GIB)
    driver.gpu(1).set(nvlink_links=4, nvlink_active=0b1111)
    with opened(driver) as source:
        full(source, 0)
        full(source, 1)
        started = time.monotonic()
        while time.monotonic() - started < 0.3:
            time.sleep(0.05)
        source.read_medium(0)
        source.read_slow(0)
        read = source.read(0).gpu
        links = read.facts.nvlinks
        assert read.nvlink_rx_bytes_per_second == pytest.approx(3 * GIB, rel=NEAR)
        assert read.nvlink_tx_bytes_per_second == pytest.approx(6 * GIB, rel=NEAR)
        assert [link.active for link in links] == [True, True, True, False]
        assert [link.peer for link in links] == ["NVSwitch"] * 3 + [None]
        assert links[0].rx_bytes_per_second == pytest.approx(GIB, rel=NEAR)
        assert links[3].rx_bytes_per_second is None
        assert read.facts.topology == ((source.read(1).gpu.uuid, "NV3"),)


def test_nvlink_5_counts_elsewhere(driver: SimulatedDriver) -> None:
    """Blackwell: fields 202 and 204, in bytes."""
    driver.gpu(0).set(nvlink_links=1).field(138, NOT_SUPPORTED).field(139, NOT_SUPPORTED)
    driver.gpu(0).field(202, 10 * GIB, scope=0).field(204, GIB, scope=0)
    with opened(driver) as source:
        source.read(0)
        source.read_medium(0)
        source.read_slow(0)
        started = time.monotonic()
        driver.gpu(0).field(202, 11 * GIB, scope=0).field(204, GIB + MIB, scope=0)
        time.sleep(TICK)
        source.read_slow(0)
        elapsed = time.monotonic() - started
        (link,) = source.read(0).gpu.facts.nvlinks
    assert link.tx_bytes_per_second is not None and link.rx_bytes_per_second is not None
    assert GIB / elapsed * 0.5 < link.tx_bytes_per_second <= GIB / TICK
    assert link.rx_bytes_per_second == pytest.approx(link.tx_bytes_per_second / 1024)


def test_many_nvlinks_take_turns(driver: SimulatedDriver) -> None:
    """36 counters of an H200 cost 12 ms."""
    driver.gpu(0).set(nvlink_links=18, nvlink_rx_rate=18 * GIB, nvlink_tx_rate=0)
    with opened(driver) as source:
        source.read(0)
        for _ in range(6):
            source.read_slow(0)
            time.sleep(TICK)
        links = source.read(0).gpu.facts.nvlinks
    assert len(links) == 18
    assert all(link.rx_bytes_per_second == pytest.approx(GIB, rel=NEAR) for link in links)
    assert all(link.tx_bytes_per_second == 0 for link in links)


def test_no_nvlink_is_none_and_topology_is_by_pcie(driver: SimulatedDriver) -> None:
    with opened(driver) as source:
        first, second = full(source, 0).gpu, full(source, 1).gpu
        first = source.read(0).gpu
    assert (first.facts.nvlinks, first.nvlink_rx_bytes_per_second) == ((), None)
    assert first.facts.topology == ((second.uuid, "NODE"),)
    assert second.facts.topology == ((first.uuid, "NODE"),)


def test_nvlink_counters_are_not_read_where_gpm_tells(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(nvlink_links=2).gpm({60: 5.0, 61: 7.0})
    with opened(driver) as source:
        for _, slow in itertools.product(range(2), (True, False)):
            source.read(0)
            if slow:
                source.read_slow(0)
            time.sleep(TICK)
        fields = calls(driver, "nvmlDeviceGetFieldValues")
        source.read_medium(0)
        assert fields() == 0
        assert source.read(0).gpu.nvlink_rx_bytes_per_second == 5.0 * MIB
