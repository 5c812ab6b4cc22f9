"""What an alarm's condition can ask for: quantities of a GPU and of a process, their units, how they are read.

A value that is not known is None. The values of a GPU that is lost, late or asleep are not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gputop import units
from gputop.model import Gpu, GpuProcess

OfGpu = Callable[[Gpu], float | None]
OfProcess = Callable[[GpuProcess, Gpu], float | None]


@dataclass(frozen=True, slots=True)
class MetricUnit:
    """*key* is what events carry; *parse* raises ValueError in words."""

    key: str
    parse: Callable[[str], float]
    show: Callable[[float], str]


def _numbers(pattern: str, example: str) -> Callable[[str], float]:
    compiled = re.compile(rf"\s*(\d+(?:\.\d+)?)\s*{pattern}\s*", re.IGNORECASE)

    def parse(text: str) -> float:
        match = compiled.fullmatch(text)
        if match is None:
            raise ValueError(f"{text.strip()!r} is not of the form {example}")
        return float(match[1])

    return parse


def _size(text: str) -> float:
    if re.fullmatch(r"\s*[\d.]+\s*", text):
        raise ValueError(f"{text.strip()} of what? Say it with its unit: {text.strip()}% or {text.strip()}GiB")
    return units.parse_size(text)


def _celsius(text: str) -> float:
    number = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*°?\s*([CF]?)\s*", text, re.IGNORECASE)
    if number is None:
        raise ValueError(f"{text.strip()!r} is not a temperature such as 80C or 176F")
    return (float(number[1]) - 32) * 5 / 9 if number[2].upper() == "F" else float(number[1])


def shown_number(value: float) -> str:
    """At most one digit after the point, none where it is 0."""
    return f"{value:.1f}".removesuffix(".0")


def shown_size(bytes_: float) -> str:
    """``88.1 GiB``, ``612 MiB``."""
    if abs(bytes_) < units.GIB:
        return f"{bytes_ / units.MIB:.0f} MiB"
    return f"{shown_number(bytes_ / units.GIB)} GiB"


def shown_time(seconds: float) -> str:
    """``200 ms``, ``10 s``, ``30 min``, ``2 h``."""
    if seconds < 1:
        return units.interval(seconds)
    for scale, suffix in ((3600, "h"), (60, "min")):
        if seconds >= 2 * scale or seconds == scale:
            return f"{shown_number(seconds / scale)} {suffix}"
    return f"{shown_number(seconds)} s"


PERCENT: Final = MetricUnit("percent", _numbers("%?", "90%"), lambda value: f"{shown_number(value)}%")
BYTES: Final = MetricUnit("bytes", _size, shown_size)
CELSIUS: Final = MetricUnit("celsius", _celsius, lambda value: f"{shown_number(value)}°C")
WATTS: Final = MetricUnit("watts", _numbers("(?:W|watts?)?", "600W"), lambda value: f"{shown_number(value)} W")
SECONDS: Final = MetricUnit("seconds", units.parse_interval, shown_time)


@dataclass(frozen=True, slots=True)
class AlarmMetric:
    """*gpu* and *process* say how it is read, in each unit it is known in; empty: it is no property of those."""

    words: str
    gpu: Mapping[str, OfGpu]
    process: Mapping[str, OfProcess]
    needs_host: bool = False  # fresh facts of /proc, which cost
    timed: bool = False  # how long something has been so: kept by the watch, not in a snapshot


_UNITS: Final = {unit.key: unit for unit in (PERCENT, BYTES, CELSIUS, WATTS, SECONDS)}


def unit_of(quantity: AlarmMetric, text: str, of_process: bool) -> MetricUnit:
    """The unit *text* (a value as people write it) is in. Raises ValueError in words."""
    known = quantity.process if of_process else quantity.gpu
    key = "percent" if text.strip().endswith("%") else next((key for key in known if key != "percent"), "percent")
    if key not in known:
        raise ValueError(f"{quantity.words} is not told in percent")
    return _UNITS[key]


# -------------------------------------------------------------------------- readings


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else 100 * part / whole


def is_idle(process: GpuProcess, gpu: Gpu) -> bool | None:
    """Whether the process does no work on the GPU now: by its own utilization, else by the GPU's where that is 0."""
    if process.sm_percent is not None:
        return not (process.sm_percent or process.encoder_percent or process.decoder_percent)
    return True if gpu.utilization_gpu_percent == 0 else None


_NO_GPU: Final[Mapping[str, OfGpu]] = {}
_NO_PROCESS: Final[Mapping[str, OfProcess]] = {}

_MEMORY: Final = AlarmMetric(
    "memory",
    {
        "bytes": lambda gpu: gpu.memory_used_bytes,
        "percent": lambda gpu: _share(gpu.memory_used_bytes, gpu.memory_total_bytes),
    },
    {
        "bytes": lambda process, _: process.memory_bytes,
        "percent": lambda process, gpu: _share(process.memory_bytes, gpu.memory_total_bytes),
    },
)
_UTILIZATION: Final = AlarmMetric(
    "utilization",
    {"percent": lambda gpu: gpu.utilization_gpu_percent},
    {"percent": lambda process, _: process.sm_percent},
)
_UNATTRIBUTED: Final = AlarmMetric(
    "unattributed memory",
    {
        "bytes": lambda gpu: gpu.memory_unattributed_bytes,
        "percent": lambda gpu: _share(gpu.memory_unattributed_bytes, gpu.memory_total_bytes),
    },
    _NO_PROCESS,
)
_FREE: Final = AlarmMetric(
    "free memory",
    {
        "bytes": lambda gpu: gpu.memory_free_bytes,
        "percent": lambda gpu: _share(gpu.memory_free_bytes, gpu.memory_total_bytes),
    },
    _NO_PROCESS,
)
IDLE: Final = AlarmMetric("idle", _NO_GPU, {"seconds": lambda process, gpu: None}, timed=True)

#: By the name used in a condition.
QUANTITIES: Final[dict[str, AlarmMetric]] = {
    "memory": _MEMORY,
    "mem": _MEMORY,
    "memory used": _MEMORY,
    "free memory": _FREE,
    "memory free": _FREE,
    "unattributed": _UNATTRIBUTED,
    "unattributed memory": _UNATTRIBUTED,
    "utilization": _UTILIZATION,
    "util": _UTILIZATION,
    "gpu utilization": _UTILIZATION,
    "sm": AlarmMetric("sm", _NO_GPU, {"percent": lambda process, _: process.sm_percent}),
    "sm active": AlarmMetric("sm active", {"percent": lambda gpu: gpu.sm_active_percent}, _NO_PROCESS),
    "temperature": AlarmMetric("temperature", {"celsius": lambda gpu: gpu.temperature_celsius}, _NO_PROCESS),
    "memory temperature": AlarmMetric(
        "memory temperature", {"celsius": lambda gpu: gpu.temperature_memory_celsius}, _NO_PROCESS
    ),
    "power": AlarmMetric(
        "power",
        {
            "watts": lambda gpu: gpu.power_watts,
            "percent": lambda gpu: _share(gpu.power_watts, gpu.power_limit_watts),
        },
        _NO_PROCESS,
    ),
    "cpu": AlarmMetric(
        "cpu", _NO_GPU, {"percent": lambda process, _: process.host.cpu_percent if process.host else None}, True
    ),
    "host memory": AlarmMetric(
        "host memory",
        _NO_GPU,
        {"bytes": lambda process, _: process.host.host_memory_bytes if process.host else None},
        True,
    ),
    "idle": IDLE,
}
