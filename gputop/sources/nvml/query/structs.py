"""Struct layouts that only queries need, as nvml.h has them."""

from __future__ import annotations

from ctypes import Structure, c_char, c_ubyte, c_uint, c_ulonglong


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
