"""The fields of ``--query-gpu`` and ``--query-compute-apps``: names, aliases, units, and where the driver tells them.

Names, units and wording are those of nvidia-smi 580 on an H200. Left out are power_smoothing.* and vgpu_*: their
scale or wording was never seen by us.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from ctypes import byref, c_int
from typing import Final

from gputop.model import clean_text
from gputop.sources.nvml import sysfs
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.calls import Handle, Quantity
from gputop.sources.nvml.driver.errors import NvmlError
from gputop.sources.nvml.query.clocks import clock_fields, power_fields, state_fields
from gputop.sources.nvml.query.health import error_fields, fabric_fields, platform_fields
from gputop.sources.nvml.query.queried_gpu import QueriedGpu, QueriedProcess
from gputop.sources.nvml.query.readers import (
    Read,
    deprecated,
    field,
    field_number,
    flag,
    label,
    member,
    number,
    numbers,
    struct,
    text,
    unsupported,
)
from gputop.sources.nvml.readings.identity import bus_id, pci_info
from gputop.sources.nvml.readings.memory import memory_quantity
from gputop.sources.query_fields import CELSIUS, ENABLED, MIB, PERCENT, PLAIN, YES, Answer, Field

_COMPUTE_MODES: Final = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
_ADDRESSING: Final = ("None", "HMM", "ATS")
_OPERATION_MODES: Final = ("All On", "Compute", "Low Double Precision")
_RECOVERY: Final = ("None", "GPU Reset", "Node Reboot", "Drain P2P", "Drain and Reset")
_WHEN: Final = ("current", "pending")


def _gpu_fields() -> Iterator[Field]:
    yield Field("timestamp", PLAIN, lambda gpu: _timestamp(gpu.moment))
    yield Field("driver_version", PLAIN, lambda gpu: gpu.driver_version or unsupported())
    yield Field("count", PLAIN, lambda gpu: gpu.library.count(), note="GPUs in the machine")
    yield Field("name", PLAIN, text("nvmlDeviceGetName"), ("gpu_name",))
    yield Field("serial", PLAIN, text("nvmlDeviceGetSerial"), ("gpu_serial",))
    yield Field("uuid", PLAIN, text("nvmlDeviceGetUUID"), ("gpu_uuid",))
    yield from _pci_fields()
    yield Field("index", PLAIN, lambda gpu: gpu.index)
    yield Field("display_mode", ENABLED, deprecated(580, flag("nvmlDeviceGetDisplayMode")))
    yield Field("display_attached", YES, flag("nvmlDeviceGetDisplayMode"))
    yield Field("display_active", ENABLED, flag("nvmlDeviceGetDisplayActive"))
    yield Field("persistence_mode", ENABLED, flag("nvmlDeviceGetPersistenceMode"))
    addressing = member("nvmlDeviceGetAddressingMode", abi.AddressingMode, "value", 1)
    yield Field("addressing_mode", PLAIN, lambda gpu: label(_ADDRESSING, addressing(gpu)))
    yield Field("accounting.mode", ENABLED, flag("nvmlDeviceGetAccountingMode"))
    yield Field("accounting.buffer_size", PLAIN, number("nvmlDeviceGetAccountingBufferSize"))
    for when in _WHEN:
        yield Field(f"driver_model.{when}", PLAIN, lambda gpu: unsupported(), note="Windows only")
    yield Field("vbios_version", PLAIN, text("nvmlDeviceGetVbiosVersion"))
    yield Field("inforom.img", PLAIN, text("nvmlDeviceGetInforomImageVersion"), ("inforom.image",))
    for part, aliases in (("oem", ()), ("ecc", ()), ("pwr", ("inforom.power",))):
        kind = ("oem", "ecc", "pwr").index(part)
        yield Field(f"inforom.{part}", PLAIN, text("nvmlDeviceGetInforomVersion", kind), aliases)
    yield Field("inforom.checksum_validation", PLAIN, _inforom_valid)
    yield Field("gpu_recovery_action", PLAIN, lambda gpu: label(_RECOVERY, field(gpu, abi.FIELD_RECOVERY_ACTION)))
    for position, when in enumerate(_WHEN):
        yield Field(f"gom.{when}", PLAIN, _operation_mode(position), (f"gpu_operation_mode.{when}",))
    yield Field("fan.speed", PERCENT, number("nvmlDeviceGetFanSpeed"), note="intended speed of the first fan")
    yield from state_fields()
    for part, position in (("total", 0), ("reserved", 2), ("used", 1), ("free", 3)):
        yield Field(f"memory.{part}", MIB, _memory(position))
    compute_mode = number("nvmlDeviceGetComputeMode")
    yield Field("compute_mode", PLAIN, lambda gpu: label(_COMPUTE_MODES, compute_mode(gpu)))
    yield Field("compute_cap", PLAIN, _capability)
    utilization = "nvmlDeviceGetUtilizationRates"
    yield Field(
        "utilization.gpu",
        PERCENT,
        member(utilization, abi.Utilization, "gpu"),
        note="share of time in which any kernel ran",
    )
    busy = member(utilization, abi.Utilization, "memory")
    yield Field("utilization.memory", PERCENT, busy, note="share of time in which the memory controller was busy")
    for engine, call in (("encoder", "Encoder"), ("decoder", "Decoder"), ("jpeg", "Jpg"), ("ofa", "Ofa")):
        yield Field(f"utilization.{engine}", PERCENT, number(f"nvmlDeviceGet{call}Utilization", of=2))
    for position, part in enumerate(("sessionCount", "averageFps", "averageLatency")):
        yield Field(f"encoder.stats.{part}", PLAIN, number("nvmlDeviceGetEncoderStats", of=3, position=position))
    for position, when in enumerate(_WHEN):
        yield Field(f"dramEncryption.mode.{when}", ENABLED, _dram_encryption(position))
    yield from error_fields()
    yield Field("temperature.gpu", CELSIUS, number("nvmlDeviceGetTemperature", 0, kind=c_int))  # an outdoor box
    margin = member("nvmlDeviceGetMarginTemperature", abi.MarginTemperature, "margin", 1)
    yield Field("temperature.gpu.tlimit", CELSIUS, margin, note="degrees left until slowdown")
    yield Field("temperature.memory", CELSIUS, field_number(abi.FIELD_MEMORY_TEMPERATURE), bare=True)
    yield from power_fields()
    yield from clock_fields()
    for position, when in enumerate(_WHEN):
        yield Field(f"mig.mode.{when}", ENABLED, flag("nvmlDeviceGetMigMode", 2, position))
    for position, when in enumerate(("current", "default")):
        yield Field(f"gsp.mode.{when}", ENABLED, flag("nvmlDeviceGetGspFirmwareMode", 2, position))
    yield Field("c2c.mode", ENABLED, lambda gpu: bool(struct(gpu, "nvmlDeviceGetC2cModeInfoV", abi.C2cMode).enabled))
    for part in ("total", "used", "free"):
        read = member("nvmlDeviceGetConfComputeProtectedMemoryUsage", abi.MemoryV1, part)
        yield Field(f"protected_memory.{part}", MIB, read, note="confidential computing")
    yield from fabric_fields()
    yield from platform_fields()
    yield Field("hostname", PLAIN, _hostname, note="as set for the GPU")


def _timestamp(moment: float) -> str:
    return f"{time.strftime('%Y/%m/%d %H:%M:%S', time.localtime(moment))}.{int(moment % 1 * 1000):03d}"


# -- PCI


def _pci_fields() -> Iterator[Field]:
    yield Field("pci.bus_id", PLAIN, _bus_id, ("gpu_bus_id",))
    yield Field("pci.domain", PLAIN, lambda gpu: f"0x{_pci(gpu).domain:04X}")
    yield Field("pci.bus", PLAIN, lambda gpu: f"0x{_pci(gpu).bus:02X}")
    yield Field("pci.device", PLAIN, lambda gpu: f"0x{_pci(gpu).device:02X}")
    yield Field("pci.baseClass", PLAIN, _pci_class("base_class"))
    yield Field("pci.subClass", PLAIN, _pci_class("sub_class"))
    yield Field("pci.device_id", PLAIN, lambda gpu: f"0x{_pci(gpu).device_id:08X}")
    yield Field("pci.sub_device_id", PLAIN, lambda gpu: f"0x{_pci(gpu).subsystem_id:08X}")
    for name in ("current", "gpucurrent"):
        yield Field(f"pcie.link.gen.{name}", PLAIN, number("nvmlDeviceGetCurrPcieLinkGeneration"))
    yield Field(
        "pcie.link.gen.max", PLAIN, number("nvmlDeviceGetMaxPcieLinkGeneration"), note="supported by GPU and host"
    )
    yield Field("pcie.link.gen.gpumax", PLAIN, number("nvmlDeviceGetGpuMaxPcieLinkGeneration"))
    yield Field("pcie.link.gen.hostmax", PLAIN, _host_generation, note="of the root port")
    yield Field("pcie.link.width.current", PLAIN, number("nvmlDeviceGetCurrPcieLinkWidth"))
    yield Field("pcie.link.width.max", PLAIN, number("nvmlDeviceGetMaxPcieLinkWidth"))


def _pci(gpu: QueriedGpu) -> abi.PciInfo:
    return gpu.ask("pci", pci_info)


def _bus_id(gpu: QueriedGpu) -> str:
    return bus_id(_pci(gpu))


def _pci_class(part: str) -> Read:
    read = member("nvmlDeviceGetPciInfoExt", abi.PciInfoExt, part, 1)
    return lambda gpu: f"0x{read(gpu):X}"


def _host_generation(gpu: QueriedGpu) -> Answer:
    generation = sysfs.root_port_generation(sysfs.address_of(_bus_id(gpu)))
    return unsupported() if generation is None else generation


# -- the rest


def _memory(position: int) -> Read:
    def read(gpu: QueriedGpu) -> Answer:
        bytes_ = gpu.ask("memory", memory_quantity)[position]
        if bytes_ is None:
            raise NvmlError(abi.FUNCTION_NOT_FOUND)  # reserved, of drivers before R510
        return bytes_

    return read


def _capability(gpu: QueriedGpu) -> str:
    major, minor = numbers(gpu, "nvmlDeviceGetCudaComputeCapability", 2, kind=c_int)
    return f"{major}.{minor}"


def _operation_mode(position: int) -> Read:
    return lambda gpu: label(_OPERATION_MODES, numbers(gpu, "nvmlDeviceGetGpuOperationMode", 2)[position])


def _inforom_valid(gpu: QueriedGpu) -> str:
    def prepare(handle: Handle) -> Quantity[str]:
        return handle.quantity(handle.bind("nvmlDeviceValidateInforom"), None, lambda _: "valid")

    return gpu.ask("inforom", prepare)


def _dram_encryption(position: int) -> Read:
    def prepare(handle: Handle) -> Quantity[tuple[int, int]]:
        now, later = abi.DramEncryption(), abi.DramEncryption()
        now.version = later.version = abi.version(abi.DramEncryption, 1)
        function = handle.bind("nvmlDeviceGetDramEncryptionMode", byref(now), byref(later))
        return handle.quantity(function, None, lambda _: (now.state, later.state))

    return lambda gpu: bool(gpu.ask("dram encryption", prepare)[position])


def _hostname(gpu: QueriedGpu) -> str:
    name: bytes = struct(gpu, "nvmlDeviceGetHostname_v1", abi.Hostname).value
    return clean_text(name) or unsupported()


# -- compute apps


def _app_fields() -> Iterator[Field]:
    """Of an QueriedProcess."""

    def of_gpu(read: Read) -> Callable[[QueriedProcess], Answer]:
        return lambda app: read(app.gpu)

    yield Field("timestamp", PLAIN, of_gpu(lambda gpu: _timestamp(gpu.moment)))
    yield Field("gpu_name", PLAIN, of_gpu(text("nvmlDeviceGetName")))
    yield Field("gpu_bus_id", PLAIN, of_gpu(_bus_id))
    yield Field("gpu_serial", PLAIN, of_gpu(text("nvmlDeviceGetSerial")))
    yield Field("gpu_uuid", PLAIN, of_gpu(text("nvmlDeviceGetUUID")))
    yield Field("pid", PLAIN, lambda app: app.pid)
    yield Field("process_name", PLAIN, lambda app: app.name, ("name",), "its argv[0]")
    yield Field("used_gpu_memory", MIB, lambda app: app.memory, ("used_memory",))


GPU_FIELDS: Final = tuple(_gpu_fields())
APP_FIELDS: Final = tuple(_app_fields())
