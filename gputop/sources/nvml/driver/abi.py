"""The part of NVML's binary interface that gputop uses: numbers and struct layouts, as nvml.h has them.

They are here and not taken from pynvml because what pynvml defines depends on its version, while these never change
for a given driver function; a test compares them with the installed pynvml.
"""

from __future__ import annotations

from ctypes import (
    Structure,
    Union,
    c_char,
    c_double,
    c_int,
    c_longlong,
    c_ubyte,
    c_uint,
    c_ulonglong,
    c_void_p,
    sizeof,
)
from typing import Final

# ------------------------------------------------------------------------------------- nvmlReturn_t

UNINITIALIZED: Final = 1
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
ALREADY_INITIALIZED: Final = 5
NOT_FOUND: Final = 6
INSUFFICIENT_SIZE: Final = 7
INSUFFICIENT_POWER: Final = 8
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
IRQ_ISSUE: Final = 11
LIBRARY_NOT_FOUND: Final = 12
FUNCTION_NOT_FOUND: Final = 13
CORRUPTED_INFOROM: Final = 14
GPU_IS_LOST: Final = 15
RESET_REQUIRED: Final = 16
OPERATING_SYSTEM: Final = 17
LIB_RM_VERSION_MISMATCH: Final = 18
IN_USE: Final = 19
MEMORY: Final = 20
NO_DATA: Final = 21
VGPU_ECC_NOT_SUPPORTED: Final = 22
INSUFFICIENT_RESOURCES: Final = 23
FREQ_NOT_SUPPORTED: Final = 24
ARGUMENT_VERSION_MISMATCH: Final = 25
DEPRECATED: Final = 26
NOT_READY: Final = 27
GPU_NOT_FOUND: Final = 28
INVALID_STATE: Final = 29
RESET_TYPE_NOT_SUPPORTED: Final = 30
UNKNOWN: Final = 999

#: NVML_VALUE_NOT_AVAILABLE (-1) as the unsigned types hold it.
NOT_AVAILABLE_32: Final = 0xFFFFFFFF
NOT_AVAILABLE_64: Final = 0xFFFFFFFFFFFFFFFF

# --------------------------------------------------------------------------------------- arguments

CLOCK_SM: Final = 1
CLOCK_MEMORY: Final = 2
CLOCK_VIDEO: Final = 3

THRESHOLD_SHUTDOWN: Final = 0
THRESHOLD_SLOWDOWN: Final = 1
THRESHOLD_MEMORY_MAX: Final = 2
THRESHOLD_GPU_MAX: Final = 3

PCIE_TX: Final = 0
PCIE_RX: Final = 1

ERROR_CORRECTED: Final = 0
ERROR_UNCORRECTED: Final = 1
COUNTER_VOLATILE: Final = 0
COUNTER_AGGREGATE: Final = 1

EVENT_XID: Final = 0x8

NVLINK_MAX: Final = 36  # NVML_NVLINK_MAX_LINKS
NVLINK_REMOTE_SWITCH: Final = 2

# ------------------------------------------------------------------------------------- field values

FIELD_RETIRED_PENDING: Final = 31
FIELD_MEMORY_TEMPERATURE: Final = 82
FIELD_NVLINK_TX: Final = 138  # KiB of data
FIELD_NVLINK_RX: Final = 139
FIELD_POWER_AVERAGE: Final = 185  # mW over 1 s
FIELD_POWER_INSTANT: Final = 186
FIELD_PCIE_TX: Final = 197  # bytes, may wrap
FIELD_PCIE_RX: Final = 198
FIELD_NVLINK5_TX: Final = 202  # bytes
FIELD_NVLINK5_RX: Final = 204
FIELD_RECOVERY_ACTION: Final = 230
ALL_LINKS: Final = 0xFFFFFFFF  # scope of the NVLink fields

VALUE_DOUBLE: Final = 0
VALUE_UINT: Final = 1
VALUE_ULONG: Final = 2
VALUE_ULONGLONG: Final = 3
VALUE_LONGLONG: Final = 4
VALUE_INT: Final = 5
VALUE_USHORT: Final = 6

# ---------------------------------------------------------------------------------------------- GPM

GPM_SM: Final = 2
GPM_OCCUPANCY: Final = 3
GPM_TENSOR: Final = 5
GPM_DRAM_BANDWIDTH: Final = 10
GPM_PCIE_TX: Final = 20  # MiB/s
GPM_PCIE_RX: Final = 21
GPM_NVLINK_RX: Final = 60
GPM_NVLINK_TX: Final = 61
GPM_METRIC_MAX: Final = 512  # 477 in nvml.h 13.5


def version(struct: type[Structure], number: int) -> int:
    """A versioned struct's ``version``: its size and its number (NVML_STRUCT_VERSION)."""
    return sizeof(struct) | number << 24


class MemoryV1(Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class MemoryV2(Structure):
    _fields_ = (
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    )


class Utilization(Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class Temperature(Structure):
    _fields_ = (("version", c_uint), ("sensor", c_uint), ("temperature", c_int))


class MarginTemperature(Structure):
    _fields_ = (("version", c_uint), ("margin", c_int))


class FanSpeed(Structure):
    _fields_ = (("version", c_uint), ("fan", c_uint), ("speed", c_uint))


class PciInfo(Structure):
    _fields_ = (
        ("bus_id_legacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("device_id", c_uint),
        ("subsystem_id", c_uint),
        ("bus_id", c_char * 32),
    )


class Bar1Memory(Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class _Value(Union):
    _fields_ = (
        ("double", c_double),
        ("int", c_int),
        ("uint", c_uint),
        ("ulonglong", c_ulonglong),
        ("longlong", c_longlong),
    )


class FieldValue(Structure):
    _fields_ = (
        ("id", c_uint),
        ("scope", c_uint),
        ("timestamp", c_longlong),
        ("latency", c_longlong),
        ("value_type", c_uint),
        ("code", c_uint),
        ("value", _Value),
    )


class GpmSupport(Structure):
    _fields_ = (("version", c_uint), ("supported", c_uint))


class GpmMetric(Structure):
    _fields_ = (
        ("id", c_uint),
        ("code", c_uint),
        ("value", c_double),
        ("info", c_void_p * 3),  # short name, long name, unit
    )


class EventData(Structure):
    _fields_ = (
        ("device", c_void_p),
        ("type", c_ulonglong),
        ("data", c_ulonglong),
        ("gpu_instance_id", c_uint),
        ("compute_instance_id", c_uint),
    )


# ------------------------------------------------------------------------------- only queries ask


class PciInfoExt(Structure):
    _fields_ = (
        ("version", c_uint),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("device_id", c_uint),
        ("subsystem_id", c_uint),
        ("base_class", c_uint),
        ("sub_class", c_uint),
        ("bus_id", c_char * 32),
    )


class AddressingMode(Structure):
    _fields_ = (("version", c_uint), ("value", c_uint))


class DramEncryption(Structure):
    _fields_ = (("version", c_uint), ("state", c_uint))


class C2cMode(Structure):
    _fields_ = (("enabled", c_uint),)


class RowRemapperHistogram(Structure):
    _fields_ = (("max", c_uint), ("high", c_uint), ("partial", c_uint), ("low", c_uint), ("none", c_uint))


class RemappedRowsV2(Structure):
    _fields_ = (
        ("correctable", c_uint),
        ("correctable_inactive", c_uint),
        ("uncorrectable", c_uint),
        ("uncorrectable_inactive", c_uint),
        ("pending", c_uint),
        ("failure", c_uint),
    )


class SramErrors(Structure):
    _fields_ = (
        ("version", c_uint),
        ("aggregate_parity", c_ulonglong),
        ("aggregate_secded", c_ulonglong),
        ("aggregate_corrected", c_ulonglong),
        ("volatile_parity", c_ulonglong),
        ("volatile_secded", c_ulonglong),
        ("volatile_corrected", c_ulonglong),
        ("l2", c_ulonglong),
        ("sm", c_ulonglong),
        ("pcie", c_ulonglong),
        ("mcu", c_ulonglong),
        ("other", c_ulonglong),
        ("threshold_exceeded", c_uint),
    )


class FabricInfoV2(Structure):
    _fields_ = (
        ("version", c_uint),
        ("cluster", c_ubyte * 16),
        ("status", c_uint),
        ("clique", c_uint),
        ("state", c_ubyte),
        ("health", c_uint),
    )


class FabricInfoV3(Structure):
    _fields_ = (*FabricInfoV2._fields_, ("summary", c_ubyte))


class PlatformInfoV2(Structure):
    _fields_ = (
        ("version", c_uint),
        ("guid", c_ubyte * 16),
        ("chassis", c_char * 16),
        ("slot", c_ubyte),
        ("tray", c_ubyte),
        ("host", c_ubyte),
        ("peer", c_ubyte),
        ("module", c_ubyte),
    )


class Hostname(Structure):
    _fields_ = (("value", c_char * 64),)
