"""Our numbers and layouts of NVML's interface are those of the installed pynvml."""

from __future__ import annotations

import ctypes

import pynvml
import pytest

from gputop.sources.nvml.driver import abi

CODES = [name for name in dir(pynvml) if name.startswith("NVML_ERROR_")]


@pytest.mark.parametrize("name", CODES)
def test_error_numbers(name: str) -> None:
    short = name.removeprefix("NVML_ERROR_")
    if hasattr(abi, short):
        assert getattr(abi, short) == getattr(pynvml, name)


def test_every_error_number_of_ours_exists() -> None:
    ours = [name for name in vars(abi) if name.isupper() and f"NVML_ERROR_{name}" in CODES]
    assert len(ours) > 20


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (abi.MemoryV1, "c_nvmlMemory_t"),
        (abi.MemoryV2, "c_nvmlMemory_v2_t"),
        (abi.Utilization, "c_nvmlUtilization_t"),
        (abi.Temperature, "c_nvmlTemperature_v1_t"),
        (abi.MarginTemperature, "c_nvmlMarginTemperature_v1_t"),
        (abi.FanSpeed, "c_nvmlFanSpeedInfo_t"),
        (abi.PciInfo, "nvmlPciInfo_t"),
        (abi.Bar1Memory, "c_nvmlBAR1Memory_t"),
        (abi.FieldValue, "c_nvmlFieldValue_t"),
        (abi.GpmSupport, "c_nvmlGpmSupport_t"),
        (abi.GpmMetric, "c_nvmlGpmMetric_t"),
        (abi.EventData, "c_nvmlEventData_t"),
    ],
)
def test_layouts(ours: type[ctypes.Structure], theirs: str) -> None:
    other = getattr(pynvml, theirs)
    assert ctypes.sizeof(ours) == ctypes.sizeof(other)
    offsets = [getattr(ours, field[0]).offset for field in ours._fields_]
    assert offsets == [getattr(other, field[0]).offset for field in other._fields_]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (abi.version(abi.MemoryV2, 2), "nvmlMemory_v2"),
        (abi.version(abi.Temperature, 1), "nvmlTemperature_v1"),
        (abi.version(abi.MarginTemperature, 1), "nvmlMarginTemperature_v1"),
        (abi.version(abi.FanSpeed, 1), "nvmlFanSpeedInfo_v1"),
        (abi.FIELD_RETIRED_PENDING, "NVML_FI_DEV_RETIRED_PENDING"),
        (abi.FIELD_MEMORY_TEMPERATURE, "NVML_FI_DEV_MEMORY_TEMP"),
        (abi.FIELD_NVLINK_TX, "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX"),
        (abi.FIELD_NVLINK_RX, "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX"),
        (abi.FIELD_NVLINK5_TX, "NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES"),
        (abi.FIELD_NVLINK5_RX, "NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES"),
        (abi.FIELD_POWER_AVERAGE, "NVML_FI_DEV_POWER_AVERAGE"),
        (abi.FIELD_POWER_INSTANT, "NVML_FI_DEV_POWER_INSTANT"),
        (abi.FIELD_PCIE_TX, "NVML_FI_DEV_PCIE_COUNT_TX_BYTES"),
        (abi.FIELD_PCIE_RX, "NVML_FI_DEV_PCIE_COUNT_RX_BYTES"),
        (abi.FIELD_RECOVERY_ACTION, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"),
        (abi.GPM_SM, "NVML_GPM_METRIC_SM_UTIL"),
        (abi.GPM_OCCUPANCY, "NVML_GPM_METRIC_SM_OCCUPANCY"),
        (abi.GPM_TENSOR, "NVML_GPM_METRIC_ANY_TENSOR_UTIL"),
        (abi.GPM_DRAM_BANDWIDTH, "NVML_GPM_METRIC_DRAM_BW_UTIL"),
        (abi.GPM_PCIE_TX, "NVML_GPM_METRIC_PCIE_TX_PER_SEC"),
        (abi.GPM_PCIE_RX, "NVML_GPM_METRIC_PCIE_RX_PER_SEC"),
        (abi.GPM_NVLINK_RX, "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC"),
        (abi.GPM_NVLINK_TX, "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC"),
        (abi.CLOCK_SM, "NVML_CLOCK_SM"),
        (abi.CLOCK_MEMORY, "NVML_CLOCK_MEM"),
        (abi.CLOCK_VIDEO, "NVML_CLOCK_VIDEO"),
        (abi.PCIE_TX, "NVML_PCIE_UTIL_TX_BYTES"),
        (abi.PCIE_RX, "NVML_PCIE_UTIL_RX_BYTES"),
        (abi.THRESHOLD_SHUTDOWN, "NVML_TEMPERATURE_THRESHOLD_SHUTDOWN"),
        (abi.THRESHOLD_SLOWDOWN, "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"),
        (abi.THRESHOLD_MEMORY_MAX, "NVML_TEMPERATURE_THRESHOLD_MEM_MAX"),
        (abi.THRESHOLD_GPU_MAX, "NVML_TEMPERATURE_THRESHOLD_GPU_MAX"),
        (abi.ERROR_UNCORRECTED, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED"),
        (abi.COUNTER_AGGREGATE, "NVML_AGGREGATE_ECC"),
        (abi.EVENT_XID, "nvmlEventTypeXidCriticalError"),
        (abi.NVLINK_MAX, "NVML_NVLINK_MAX_LINKS"),
        (abi.NVLINK_REMOTE_SWITCH, "NVML_NVLINK_DEVICE_TYPE_SWITCH"),
        (abi.VALUE_USHORT, "NVML_VALUE_TYPE_UNSIGNED_SHORT"),
        (abi.VALUE_ULONGLONG, "NVML_VALUE_TYPE_UNSIGNED_LONG_LONG"),
    ],
)
def test_numbers(ours: int, theirs: str) -> None:
    assert ours == getattr(pynvml, theirs)
