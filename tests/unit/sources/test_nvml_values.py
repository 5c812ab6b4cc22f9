"""What one healthy GPU tells comes out exactly; what it does not tell is None, never 0."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

import pytest

from gputop.model import Gpu, GpuFacts
from gputop.sources.nvml import NvmlSource
from tests.driver import GIB, MIB, NO_PERMISSION, NOT_SUPPORTED, SimulatedDriver
from tests.unit.sources.nvml_source import calls, full, gpu, opened


def test_the_driver_s_versions(driver: SimulatedDriver) -> None:
    driver.set(driver="580.159.04", nvml="13.580.159.04", cuda=12040)
    driver.load()
    source = NvmlSource()
    versions = source.open()
    source.close()
    assert (versions.version, versions.nvml_version, versions.cuda_version) == ("580.159.04", "13.580.159.04", "12.4")


def test_scripted_values_come_out_exactly(driver: SimulatedDriver) -> None:
    driver.gpu(1).set(
        name="NVIDIA H200", uuid="GPU-11111111-2222-3333-4444-555555555555", memory_total=141 * GIB,
        memory_used=12 * GIB, memory_reserved=615 * MIB, utilization_gpu=97, utilization_memory=33,
        utilization_encoder=4, utilization_decoder=5, utilization_jpeg=6, utilization_ofa=7,
        temperature=61, temperature_memory=53, temperature_margin=26, power_watts=694.25, power_instant_watts=727.5,
        power_limit_watts=700, clock_sm=1665, clock_memory=3201, clock_video=1500, performance_state=2,
        event_reasons=0x44, fan_percent=[41, 55, 0],
    ).process(4711, memory=5 * GIB)  # fmt: skip
    read = gpu(driver, 1)
    assert (read.index, read.uuid, read.name) == (1, "GPU-11111111-2222-3333-4444-555555555555", "NVIDIA H200")
    assert (read.error, read.asleep, read.late, read.notes) == (None, False, False, ())
    assert (read.memory_total_bytes, read.memory_used_bytes) == (141 * GIB, 12 * GIB)
    assert (read.memory_reserved_bytes, read.memory_free_bytes) == (615 * MIB, 129 * GIB - 615 * MIB)
    assert read.memory_unattributed_bytes == 7 * GIB
    assert (read.utilization_gpu_percent, read.utilization_memory_percent) == (97, 33)
    assert (read.utilization_encoder_percent, read.utilization_decoder_percent) == (4, 5)
    assert (read.utilization_jpeg_percent, read.utilization_ofa_percent) == (6, 7)
    assert (read.temperature_celsius, read.temperature_memory_celsius) == (61, 53)
    assert read.temperature_margin_celsius == 26
    assert (read.power_watts, read.power_instant_watts, read.power_limit_watts) == (694.25, 727.5, 700.0)
    assert (read.clock_sm_mhz, read.clock_memory_mhz, read.clock_video_mhz) == (1665, 3201, 1500)
    assert read.performance_state == 2
    assert [reason.label for reason in read.event_reasons or ()] == ["HW thermal", "power cap"]
    assert read.fans_percent == (41, 55, 0)
    assert read.fan_percent == 55


def test_facts_come_out_exactly(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(
        serial="1654", vbios="96.00", minor_number=3, compute_major=9, compute_minor=0, architecture=9,
        compute_mode=3, persistence_mode=1, display_active=0, clock_max_sm=1980, clock_max_memory=3201,
        clock_max_video=1755, temperature_shutdown=95, temperature_slowdown=89, temperature_gpu_max=87,
        temperature_memory_max=96, power_limit_default_watts=700, power_limit_min_watts=200,
        power_limit_max_watts=750, pcie_link_gen=4, pcie_link_gen_max=5, pcie_link_width=8, pcie_link_width_max=16,
        pcie_replays=2, bar1_total=256 * GIB, bar1_used=3 * MIB, fans=1, fan_rpm=1234, ecc_mode=1,
        ecc_corrected_volatile=1, ecc_uncorrected_volatile=2, ecc_corrected_aggregate=30,
        ecc_uncorrected_aggregate=4, remapped_corrected=5, remapped_uncorrected=6, remapped_pending=0,
        remapped_failure=0, recovery_action=0,
    )  # fmt: skip
    facts = gpu(driver).facts
    expected = GpuFacts(
        minor_number=3, architecture="Hopper", compute_capability="9.0", serial="1654", vbios="96.00",
        compute_mode="exclusive process", persistence_mode=True, display_active=False, mig_mode=False, gpm=False,
        clock_sm_max_mhz=1980, clock_memory_max_mhz=3201, clock_video_max_mhz=1755,
        temperature_shutdown_celsius=95, temperature_slowdown_celsius=89, temperature_max_celsius=87,
        temperature_memory_max_celsius=96, power_limit_default_watts=700.0, power_limit_min_watts=200.0,
        power_limit_max_watts=750.0, pcie_generation=4, pcie_generation_max=5, pcie_width=8, pcie_width_max=16,
        pcie_replays=2, bar1_total_bytes=256 * GIB, bar1_used_bytes=3 * MIB, fan_rpm=(1234,), ecc_enabled=True,
        ecc_corrected=1, ecc_uncorrected=2, ecc_corrected_total=30, ecc_uncorrected_total=4,
        rows_remapped_corrected=5, rows_remapped_uncorrected=6, rows_remap_pending=False, rows_remap_failed=False,
            nvlinks=(),
        recovery_action=None, cpu_affinity=facts.cpu_affinity, topology=facts.topology, numa_node=facts.numa_node,
    )  # fmt: skip
    assert facts == expected


def test_what_asks_for_action_is_a_note(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(persistence_mode=0, remapped_pending=1, remapped_failure=1, recovery_action=1)
    notes = gpu(driver).notes
    assert "persistence off" in notes
    assert "the driver asks to reset the GPU" in notes
    assert any("remapped" in note and "reset" in note for note in notes)
    assert any("remapping" in note and "serviced" in note for note in notes)


QUANTITIES = [
    "utilization_gpu", "utilization_memory", "utilization_encoder", "utilization_decoder", "utilization_jpeg",
    "utilization_ofa", "temperature", "temperature_memory", "temperature_margin", "temperature_shutdown",
    "temperature_slowdown", "temperature_gpu_max", "temperature_memory_max", "fans", "power_watts",
    "power_average_watts", "power_instant_watts", "power_limit_watts", "power_limit_default_watts",
    "power_limit_min_watts", "power_limit_max_watts", "clock_sm", "clock_memory", "clock_video", "clock_max_sm",
    "clock_max_memory", "clock_max_video", "performance_state", "event_reasons", "pcie_link_gen", "pcie_link_width",
    "pcie_link_gen_max", "pcie_link_width_max", "pcie_replays", "pcie_tx_rate", "pcie_rx_rate", "pcie_counter_bits",
    "ecc_mode", "ecc_corrected_volatile", "ecc_uncorrected_volatile", "ecc_corrected_aggregate",
    "ecc_uncorrected_aggregate", "remapped_corrected", "remapped_uncorrected", "remapped_pending", "remapped_failure",
    "recovery_action", "mig_mode", "bar1_total", "compute_mode", "persistence_mode", "display_active", "minor_number",
    "serial", "vbios", "architecture", "compute_major", "compute_minor",
]  # fmt: skip

IDENTITY = {"index", "uuid", "name", "read_at", "steady", "pci_bus_id"}


@pytest.mark.parametrize("error", [NOT_SUPPORTED, NO_PERMISSION, "!unknown"])
def test_what_the_driver_does_not_say_is_none_and_not_0(driver: SimulatedDriver, error: str) -> None:
    driver.gpu(0).set(memory_total=8 * GIB, memory_used=GIB, **dict.fromkeys(QUANTITIES, error))
    driver.fault("gpu 0 call nvmlDeviceGetFieldValues not_supported")
    driver.fault("gpu 0 call nvmlDeviceGetBAR1MemoryInfo not_supported")
    driver.fault("gpu 0 call nvmlDeviceGetNumFans not_supported")
    driver.fault("gpu 0 call nvmlDeviceGetFan* not_supported")
    driver.fault("call nvmlDeviceGetTopologyCommonAncestor not_supported")
    driver.fault("gpu 0 call nvmlDeviceGetCudaComputeCapability not_supported")
    read = gpu(driver)
    said = {field.name: getattr(read, field.name) for field in dataclasses.fields(Gpu) if field.name not in IDENTITY}
    facts = said.pop("facts")
    assert {name: value for name, value in said.items() if value not in (None, (), False)} == {
        "memory_total_bytes": 8 * GIB,
        "memory_used_bytes": GIB,
        "memory_reserved_bytes": read.memory_reserved_bytes,
        "memory_free_bytes": read.memory_free_bytes,
        "memory_unattributed_bytes": GIB,
    }
    assert facts == GpuFacts(
        gpm=False, numa_node=facts.numa_node, cpu_affinity=facts.cpu_affinity, topology=(), fan_rpm=(), nvlinks=()
    )


def test_not_supported_is_asked_once(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(utilization_ofa=NOT_SUPPORTED, temperature_memory=NOT_SUPPORTED)
    with opened(driver) as source:
        asked, answered = calls(driver, "nvmlDeviceGetOfaUtilization"), calls(driver, "nvmlDeviceGetJpgUtilization")
        for _ in range(5):
            source.read(0)
        assert (asked(), answered()) == (1, 5)


def test_what_was_not_permitted_is_not_asked_every_tick(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(utilization_ofa=NO_PERMISSION)
    with opened(driver) as source:
        asked = calls(driver, "nvmlDeviceGetOfaUtilization")
        for _ in range(5):
            source.read(0)
        assert asked() == 1


def test_one_call_that_fails_for_a_moment_is_a_gap_and_comes_back(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(power_watts=300, temperature=50)
    with opened(driver) as source:
        with driver.faulty("gpu 0 call nvmlDeviceGetTemperature* unknown"):
            read = source.read(0).gpu
            assert (read.power_watts, read.temperature_celsius, read.error) == (300, None, None)
        assert source.read(0).gpu.temperature_celsius == 50


@pytest.mark.parametrize("value", [101, 37100])
def test_a_utilization_above_100_is_garbage(driver: SimulatedDriver, value: int) -> None:
    driver.gpu(0).set(utilization_gpu=value, utilization_encoder=value)
    read = gpu(driver)
    assert (read.utilization_gpu_percent, read.utilization_encoder_percent) == (None, None)


def test_a_blank_where_a_number_should_be_is_unknown(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(clock_sm=0xFFFFFFFF, performance_state=32, power_limit_watts=0xFFFFFFFF / 1000)
    read = gpu(driver)
    assert (read.clock_sm_mhz, read.performance_state, read.power_limit_watts) == (None, None, None)


@pytest.mark.parametrize("blank", [0, 9223372036854775794, 0xFFFFFFFF])
def test_a_blank_of_a_field_is_unknown(driver: SimulatedDriver, blank: int) -> None:
    driver.gpu(0).field(82, blank)
    assert gpu(driver).temperature_memory_celsius is None


def test_a_fan_that_stands_still_is_0_and_a_gpu_without_fans_has_none(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(fan_percent=[0, 120])
    driver.gpu(1).set(fans=0)
    with opened(driver) as source:
        assert full(source, 0).gpu.fans_percent == (0, 120)
        passive = full(source, 1).gpu
        assert (passive.fans_percent, passive.fan_percent, passive.facts.fan_rpm) == ((), None, ())


def test_memory_v1_only_has_reserved_inside_used(tmp_path: Path, driver: SimulatedDriver) -> None:
    old = SimulatedDriver(tmp_path / "old", missing_symbols=["nvmlDeviceGetMemoryInfo_v2"])
    with old:
        old.gpu(0).set(memory_total=24 * GIB, memory_used=GIB, memory_reserved=400 * MIB)
        read = gpu(old)
    assert (read.memory_total_bytes, read.memory_used_bytes) == (24 * GIB, GIB + 400 * MIB)
    assert (read.memory_reserved_bytes, read.memory_unattributed_bytes) == (None, None)
    assert not read.memory_is_shared


@pytest.mark.parametrize("code", ["function_not_found", "argument_version_mismatch", "not_supported"])
def test_memory_v2_that_is_refused_falls_back_to_v1(driver: SimulatedDriver, code: str) -> None:
    driver.gpu(0).set(memory_total=24 * GIB, memory_used=GIB, memory_reserved=400 * MIB)
    driver.fault(f"call nvmlDeviceGetMemoryInfo_v2 {code}")
    assert gpu(driver).memory_used_bytes == GIB + 400 * MIB


def test_550_lacks_temperature_v(tmp_path: Path, driver: SimulatedDriver) -> None:
    with SimulatedDriver(tmp_path / "550", missing_symbols=["nvmlDeviceGetTemperatureV"]) as old:
        old.gpu(0).set(temperature=44)
        assert gpu(old).temperature_celsius == 44


def test_a_driver_of_2016_still_shows_the_essentials(tmp_path: Path, driver: SimulatedDriver) -> None:
    """No initialization by flags, no field values, no versioned handles, no GPM, MIG, events of version 2."""
    missing = [
        "nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetCurrentClocksEventReasons", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetJpgUtilization",
        "nvmlDeviceGetOfaUtilization", "nvmlGpmQueryDeviceSupport", "nvmlGpmSampleGet", "nvmlGpmMetricsGet",
        "nvmlGpmSampleAlloc", "nvmlDeviceGetMigMode", "nvmlEventSetWait_v2", "nvmlDeviceGetNumFans",
        "nvmlDeviceGetFanSpeed_v2", "nvmlDeviceGetFanSpeedRPM", "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetNumaNodeId", "nvmlDeviceGetRemappedRows",
        *(f"nvmlDeviceGet{kind}RunningProcesses{version}"
          for kind in ("Compute", "Graphics", "MPSCompute") for version in ("_v2", "_v3")),
    ]  # fmt: skip
    with SimulatedDriver(tmp_path / "old", missing_symbols=missing) as old:
        old.gpu(0).set(memory_total=4 * GIB, memory_used=GIB, temperature=40, power_watts=50, fan_percent=[30])
        old.gpu(0).set(event_reasons=4).process(77, memory=100 * MIB, kind="G")
        with opened(old) as source:
            reading = full(source)
            source.wait_events(0.01)
    read = reading.gpu
    assert (read.memory_total_bytes, read.temperature_celsius, read.power_watts) == (4 * GIB, 40, 50.0)
    assert (read.event_reasons_mask, read.fans_percent, read.error) == (4, (30,), None)
    assert [(p.pid, p.kind, p.memory_bytes, p.sm_percent) for p in reading.processes] == [(77, "G", 100 * MIB, None)]


def test_turing_has_no_average_power_and_the_newest_boards_only_that(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(power_watts=250.5, power_average_watts=NOT_SUPPORTED, power_instant_watts=NOT_SUPPORTED)
    driver.gpu(1).set(power_watts=NOT_SUPPORTED, power_average_watts=111, power_instant_watts=120)
    with opened(driver) as source:
        turing, other = full(source, 0).gpu, full(source, 1).gpu
    assert (turing.power_watts, turing.power_instant_watts) == (250.5, None)
    assert (other.power_watts, other.power_instant_watts) == (111.0, 120.0)


@pytest.mark.parametrize("values", [{"memory_total": NOT_SUPPORTED}, {"memory_total": 0}])
def test_unified_memory_is_the_host_s_and_its_use_the_processes_sum(
    driver: SimulatedDriver, values: dict[str, int | str]
) -> None:
    """GB10, DGX Spark: nvtop#511, nvitop#208 showed the host's own use."""
    driver.gpu(0).set(name="NVIDIA GB10", **values)
    driver.gpu(0).process(4711, memory=5 * GIB, kind="C+G").process(4712, memory=GIB)
    read = gpu(driver)
    assert read.memory_is_shared
    assert read.memory_total_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert read.memory_used_bytes == 6 * GIB
    assert (read.memory_reserved_bytes, read.memory_unattributed_bytes) == (None, None)


def test_a_gpu_that_is_a_numa_node_says_so(driver: SimulatedDriver) -> None:
    """GH200: the kernel keeps files in its memory, which is not a leak."""
    driver.gpu(0).set(numa_node=1)
    assert any("NUMA" in note for note in gpu(driver).notes)
    assert not any("NUMA" in note for note in gpu(driver, 1).notes)


def test_hostile_names_are_cleaned(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(name="evil\x1b[2J\nGPU")
    name = gpu(driver).name
    assert "\x1b" not in name and "\n" not in name


def test_broken_utf8_in_a_name_is_no_crash(driver: SimulatedDriver) -> None:
    """WSL's driver 555.85 gives garbage: pynvml raises UnicodeDecodeError."""
    driver.gpu(0).set(name=b"\xff\xfeGPU".decode(errors="surrogateescape"))
    assert gpu(driver).name.endswith("GPU")


def test_the_mps_view_is_switched_off_for_us(driver: SimulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVML_MPS_DEVICE_ENUMERATION", "1")
    with opened(driver):
        assert "NVML_MPS_DEVICE_ENUMERATION" not in os.environ


def test_the_fast_tier_never_calls_what_blocks_or_burns(driver: SimulatedDriver) -> None:
    with opened(driver) as source:
        expensive = {
            name: calls(driver, name)
            for name in (
                "nvmlDeviceGetPcieThroughput", "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetMaxClockInfo",
                "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetMarginTemperature",
                "nvmlDeviceGetTemperatureThreshold", "nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetNumFans",
            )
        }  # fmt: skip
        for _ in range(3):
            source.read(0)
            time.sleep(0.01)
        assert {name: count() for name, count in expensive.items()} == dict.fromkeys(expensive, 0)
        full(source)
        assert expensive["nvmlDeviceGetTotalEnergyConsumption"]() == 0
