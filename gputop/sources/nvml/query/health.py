"""Fields about errors of the memory, and about the fabric and the chassis a GPU is in."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import byref, c_int, c_ulonglong
from typing import Final

from gputop.model import clean_text
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.calls import Handle, Quantity
from gputop.sources.nvml.query.queried_gpu import QueriedGpu, message
from gputop.sources.nvml.query.readers import Read, flag, label, member, number, struct, truth, unsupported
from gputop.sources.query_fields import ENABLED, PLAIN, YES, Field

#: nvmlMemoryLocation_t
_LOCATIONS: Final = {
    "device_memory": 2,
    "dram": 2,
    "register_file": 3,
    "l1_cache": 0,
    "l2_cache": 1,
    "texture_memory": 4,
    "cbu": 6,
    "sram": 7,
}
_KINDS: Final = {"corrected": abi.ERROR_CORRECTED, "uncorrected": abi.ERROR_UNCORRECTED}
_SPANS: Final = {"volatile": abi.COUNTER_VOLATILE, "aggregate": abi.COUNTER_AGGREGATE}
_FABRIC_STATES: Final = ("", "Not Started", "In Progress", "Completed")
_FABRIC_COMPLETED: Final = 3
_HEALTH: Final = ("", "Healthy", "Unhealthy", "Limited Capacity")
_TRUE_FALSE: Final = ("", "True", "False")
_CONFIGURATIONS: Final = (
    "",
    "None",
    "Incorrect SysGUID",
    "Incorrect Chassis SN",
    "No Partition",
    "Insufficient Nvlinks",
    "Incompatible GPU FW",
    "Invalid Location",
    "GPU State Invalid",
)
_PEERS: Final = ("Direct Connected", "Switch Connected")


def error_fields() -> Iterator[Field]:
    for position, when in enumerate(("current", "pending")):
        yield Field(f"ecc.mode.{when}", ENABLED, flag("nvmlDeviceGetEccMode", 2, position))
    for kind, type_ in _KINDS.items():
        for span, counter in _SPANS.items():
            for where, location in _LOCATIONS.items():
                read = number("nvmlDeviceGetMemoryErrorCounter", type_, counter, location, kind=c_ulonglong)
                yield Field(f"ecc.errors.{kind}.{span}.{where}", PLAIN, read)
            read = number("nvmlDeviceGetTotalEccErrors", type_, counter, kind=c_ulonglong)
            yield Field(f"ecc.errors.{kind}.{span}.total", PLAIN, read)
    for span in _SPANS:
        for part in ("parity", "secded"):
            yield Field(f"ecc.errors.uncorrected.{span}.sram.{part}", PLAIN, _sram(f"{span}_{part}"))
    exceeded = truth(_sram("threshold_exceeded"))
    yield Field("ecc.errors.uncorrected.aggregate.sram.thresholdExceeded", YES, exceeded)
    for part in ("l2", "sm", "mcu", "pcie", "other"):
        yield Field(f"ecc.errors.uncorrected.aggregate.sram.{part}", PLAIN, _sram(part))
    yield Field("retired_pages.single_bit_ecc.count", PLAIN, _retired(0), ("retired_pages.sbe",))
    yield Field("retired_pages.double_bit.count", PLAIN, _retired(1), ("retired_pages.dbe",))
    yield Field("retired_pages.pending", YES, flag("nvmlDeviceGetRetiredPagesPendingStatus"))
    rows, v2 = "nvmlDeviceGetRemappedRows", "nvmlDeviceGetRemappedRows_v2"
    for position, (part, short) in enumerate((("correctable", "sbe"), ("uncorrectable", "dbe"))):
        read = number(rows, of=4, position=position)
        yield Field(f"remapped_rows.{part}", PLAIN, read, (f"remapped_rows.{short}",))
        inactive = f"{part}_inactive"
        yield Field(f"remapped_rows.{inactive}", PLAIN, member(v2, abi.RemappedRowsV2, inactive))
    yield Field("remapped_rows.pending", YES, flag(rows, 4, 2))
    yield Field("remapped_rows.failure", YES, flag(rows, 4, 3))
    for part in ("max", "high", "partial", "low", "none"):
        read = member("nvmlDeviceGetRowRemapperHistogram", abi.RowRemapperHistogram, part)
        yield Field(f"remapped_rows.histogram.{part}", PLAIN, read, note="banks")


def _sram(part: str) -> Read:
    return member("nvmlDeviceGetSramEccErrorStatus", abi.SramErrors, part, 1)


def _retired(cause: int) -> Read:
    """Asked without room for the addresses: INSUFFICIENT_SIZE comes with their number."""

    def prepare(handle: Handle) -> Quantity[int]:
        count = c_int()
        function = handle.bind("nvmlDeviceGetRetiredPages", c_int(cause), byref(count), None)

        def get() -> int:
            assert function is not None
            count.value = 0
            code = function()
            return 0 if code == abi.INSUFFICIENT_SIZE else code

        return handle.quantity(get if function is not None else None, count, lambda count: int(count.value))

    return lambda gpu: gpu.ask(("retired", cause), prepare)


def fabric_fields() -> Iterator[Field]:
    def named(name: str, read: Read) -> Field:
        return Field(f"fabric.{name}", PLAIN, read, bare=True)

    yield named("state", lambda gpu: label(_FABRIC_STATES, _fabric(gpu).state))
    yield named("status", _fabric_status)
    yield named("cliqueId", lambda gpu: int(_fabric(gpu).clique))
    yield named("clusterUuid", _cluster)
    yield named("health.summary", _health_summary)
    yield named("health.bandwidth", _health(0, ("", "Degraded", "Full")))
    yield named("health.route_recovery_in_progress", _health(2, _TRUE_FALSE))
    yield named("health.route_unhealthy", _health(4, _TRUE_FALSE))
    yield named("health.access_timeout_recovery", _health(6, _TRUE_FALSE))
    yield named("health.incorrect_configuration", _health(8, _CONFIGURATIONS, 0xF))
    yield named("health.partition_assigned", _health(12, _TRUE_FALSE))


def _fabric(gpu: QueriedGpu) -> abi.FabricInfoV2:
    info = struct(gpu, "nvmlDeviceGetGpuFabricInfoV", abi.FabricInfoV2, 2)
    return info if info.state else unsupported()


def _fabric_status(gpu: QueriedGpu) -> str:
    info = _fabric(gpu)
    return message(gpu.library, info.status) if info.state == _FABRIC_COMPLETED else unsupported()


def _cluster(gpu: QueriedGpu) -> str:
    digits = bytes(_fabric(gpu).cluster).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _health(shift: int, labels: tuple[str, ...], width: int = 0x3) -> Read:
    return lambda gpu: label(labels, _fabric(gpu).health >> shift & width)


def _health_summary(gpu: QueriedGpu) -> str:
    return label(_HEALTH, struct(gpu, "nvmlDeviceGetGpuFabricInfoV", abi.FabricInfoV3, 3).summary)


def platform_fields() -> Iterator[Field]:
    def named(name: str, read: Read) -> Field:
        return Field(f"platform.{name}", PLAIN, read)

    yield named("chassis_serial_number", lambda gpu: clean_text(_platform(gpu).chassis))
    yield named("slot_number", lambda gpu: int(_platform(gpu).slot))
    yield named("tray_index", lambda gpu: int(_platform(gpu).tray))
    yield named("host_id", lambda gpu: int(_platform(gpu).host))
    yield named("peer_type", lambda gpu: label(_PEERS, _platform(gpu).peer))
    yield named("module_id", lambda gpu: int(_platform(gpu).module))
    yield named("gpu_fabric_guid", lambda gpu: f"0x{bytes(_platform(gpu).guid)[:8].hex().upper()}")


def _platform(gpu: QueriedGpu) -> abi.PlatformInfoV2:
    return struct(gpu, "nvmlDeviceGetPlatformInfo", abi.PlatformInfoV2, 2)
