"""Fields about clocks, what holds them back, and power."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.query.queried_gpu import QueriedGpu
from gputop.sources.nvml.query.readers import (
    Read,
    deprecated,
    field,
    field_watts,
    flag,
    mask,
    number,
    numbers,
    unsupported,
    watts,
)
from gputop.sources.query_fields import ACTIVE, ENABLED, MHZ, MICROSECONDS, PLAIN, WATTS, Field, FieldUnit

_REASONS: Final = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "sw_thermal_slowdown": 0x20,
    "sync_boost": 0x10,
}
#: Field values that count nanoseconds.
_REASON_COUNTERS: Final = {
    "sw_power_cap": 74,
    "sync_boost": 76,
    "sw_thermal_slowdown": 269,
    "hw_thermal_slowdown": 270,
    "hw_power_brake_slowdown": 271,
}
_POWER_AVERAGE, _POWER_INSTANT = abi.FIELD_POWER_AVERAGE, abi.FIELD_POWER_INSTANT
_MODULE: Final = 1  # NVML_POWER_SCOPE_MODULE, the scope of these field values
_MODULE_POWER: Final = (
    ("module.power.draw.average", _POWER_AVERAGE, ()),
    ("module.power.draw.instant", _POWER_INSTANT, ()),
    ("module.power.limit", 192, ("module.power.requested_limit",)),
    ("module.enforced.power.limit", 190, ("module.power.current_limit",)),
    ("module.power.default_limit", 189, ()),
    ("module.power.min_limit", 187, ()),
    ("module.power.max_limit", 188, ()),
)
_CLOCKS: Final = {
    ("graphics", "gr"): 0,
    ("sm", "sm"): abi.CLOCK_SM,
    ("memory", "mem"): abi.CLOCK_MEMORY,
    ("video", "video"): abi.CLOCK_VIDEO,
}
_PSTATE_UNKNOWN: Final = 32


def _pstate(gpu: QueriedGpu) -> str:
    (state,) = numbers(gpu, "nvmlDeviceGetPerformanceState", 1)
    return unsupported() if state == _PSTATE_UNKNOWN else f"P{state}"


def state_fields() -> Iterator[Field]:
    """The performance state, and why the clocks are what they are."""

    def named(name: str, unit: FieldUnit, read: Read, note: str = "") -> Field:
        return Field(f"clocks_event_reasons.{name}", unit, read, (f"clocks_throttle_reasons.{name}",), note)

    def has(bit: int) -> Read:
        return lambda gpu: bool(active(gpu) & bit)

    yield Field("pstate", PLAIN, _pstate)
    names = "EventReasons", "ThrottleReasons"
    supported = mask(*(f"nvmlDeviceGetSupportedClocks{name}" for name in names))
    active = mask(*(f"nvmlDeviceGetCurrentClocks{name}" for name in names))
    yield named("supported", PLAIN, lambda gpu: f"0x{supported(gpu):016X}", "bitmask")
    yield named("active", PLAIN, lambda gpu: f"0x{active(gpu):016X}", "bitmask")
    for name, bit in _REASONS.items():
        yield named(name, ACTIVE, has(bit))
    for name, id_ in _REASON_COUNTERS.items():
        yield Field(f"clocks_event_reasons_counters.{name}", MICROSECONDS, _microseconds(id_))


def _microseconds(id_: int) -> Read:
    return lambda gpu: int(field(gpu, id_)) // 1000


def power_fields() -> Iterator[Field]:
    def named(name: str, read: Read, alias: str, note: str = "") -> Field:
        return Field(name, WATTS, read, (f"gpu.power.{alias}",), note)

    yield Field("power.management", ENABLED, deprecated(590, flag("nvmlDeviceGetPowerManagementMode")))
    yield Field("power.draw", WATTS, watts("nvmlDeviceGetPowerUsage"), note="1 s average on most GPUs")
    yield named("power.draw.average", field_watts(_POWER_AVERAGE), "draw.average")
    yield named("power.draw.instant", field_watts(_POWER_INSTANT), "draw.instant")
    yield named("power.limit", watts("nvmlDeviceGetPowerManagementLimit"), "requested_limit", "as requested")
    enforced = watts("nvmlDeviceGetEnforcedPowerLimit")
    yield named("enforced.power.limit", enforced, "current_limit", "the lowest of all limits")
    yield named("power.default_limit", watts("nvmlDeviceGetPowerManagementDefaultLimit"), "default_limit")
    for position, part in enumerate(("min_limit", "max_limit")):
        yield named(f"power.{part}", watts("nvmlDeviceGetPowerManagementLimitConstraints", 2, position), part)
    for name, id_, aliases in _MODULE_POWER:
        yield Field(name, WATTS, field_watts(id_, _MODULE), aliases)


def clock_fields() -> Iterator[Field]:
    for (name, short), kind in _CLOCKS.items():
        yield Field(f"clocks.current.{name}", MHZ, number("nvmlDeviceGetClockInfo", kind), (f"clocks.{short}",))
    for group, call in (("applications", "Applications"), ("default_applications", "DefaultApplications")):
        for (name, short), kind in _CLOCKS.items():
            if short in ("gr", "mem"):
                read = deprecated(590, number(f"nvmlDeviceGet{call}Clock", kind))
                yield Field(f"clocks.{group}.{name}", MHZ, read, (f"clocks.{group}.{short}",))
    for (name, short), kind in _CLOCKS.items():
        if name != "video":
            aliases = (f"clocks.max.{short}",) if short != name else ()
            yield Field(f"clocks.max.{name}", MHZ, number("nvmlDeviceGetMaxClockInfo", kind), aliases)
