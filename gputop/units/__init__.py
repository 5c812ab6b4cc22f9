"""How quantities are written for people, and read from what people write. Unknown (None) is the dash.

A quantity has up to three forms: in a column of few cells (``81.2G``, ``3h12``), in a sentence (``81.2 GiB``,
``3 h 12 min``) and, for what somebody has set or asked for, without digits that say nothing (``80 GiB``, ``3 h``).
Bytes and times inside a process, which may be small, are written by :mod:`gputop.units.fine`. Formats that other
programs read (JSON, CSV as nvidia-smi has it, names of files) are written where they are made.
"""

from __future__ import annotations

import re
import time
from typing import Final

UNKNOWN: Final = "—"
KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3
TIB: Final = 1024**4


def size(bytes_: float | None, unit: str = "GiB") -> str:
    """Memory in at most 6 cells: ``81.2G``, ``612M``; with *unit* ``MiB`` always ``83149M``."""
    if bytes_ is None:
        return UNKNOWN
    if unit == "MiB":
        return f"{bytes_ / MIB:.0f}M"
    if bytes_ < 999.5 * MIB:
        return f"{bytes_ / MIB:.0f}M"
    if bytes_ < 999.95 * GIB:
        return f"{bytes_ / GIB:.1f}G"
    return f"{bytes_ / TIB:.1f}T"


def size_in_words(bytes_: float | None) -> str:
    """Memory in a sentence: ``38.0 GiB``, ``612 MiB``, ``an unknown amount``."""
    if bytes_ is None:
        return "an unknown amount"
    return f"{bytes_ / GIB:.1f} GiB" if bytes_ >= GIB else f"{bytes_ / MIB:.0f} MiB"


def short_size(bytes_: float) -> str:
    """Memory that somebody set as a limit, or next to one: ``80 GiB``, ``88.1 GiB``, ``612 MiB``."""
    return f"{bytes_ / MIB:.0f} MiB" if abs(bytes_) < GIB else f"{short_number(bytes_ / GIB)} GiB"


def used_of_total(used: float | None, total: float | None, unit: str = "GiB") -> str:
    """Two sizes of a GPU in one unit, in a column: ``88.1/140.4G``; with *unit* ``MiB`` ``90214/143770M``."""
    left, right = _in_unit(used, unit), _in_unit(total or None, unit)
    return f"{left}/{right}{unit[0]}"


def used_of_total_in_words(used: float | None, total: float | None, unit: str = "GiB") -> str:
    """The same where there is room: ``88.1 / 140.4 GiB``."""
    return f"{_in_unit(used, unit)} / {_in_unit(total or None, unit)} {unit}"


def _in_unit(bytes_: float | None, unit: str) -> str:
    if bytes_ is None:
        return UNKNOWN
    return f"{bytes_ / MIB:.0f}" if unit == "MiB" else f"{bytes_ / GIB:.1f}"


def rate(bytes_per_second: float | None) -> str:
    """Throughput in at most 5 cells with decimal prefixes, as links are sold: ``76M``, ``12.3G``, ``940K``."""
    if bytes_per_second is None:
        return UNKNOWN
    value = float(bytes_per_second)
    if value < 500:
        return "0"
    for suffix, scale in (("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)):
        if value < 999.5 * scale:
            scaled = value / scale
            return f"{scaled:.1f}{suffix}" if scaled < 9.95 and suffix not in "KM" else f"{scaled:.0f}{suffix}"
    return f"{value / 1e12:.0f}T"


def plural(count: int, one: str) -> str:
    """``1 process``, ``3 processes``, ``2 GPUs``."""
    return f"{count} {one}" if count == 1 else f"{count} {one}es" if one.endswith("ss") else f"{count} {one}s"


def number(value: float | None) -> str:
    """A whole number in a column whose heading has the unit: ``97``."""
    return UNKNOWN if value is None else f"{value:.0f}"


def short_number(value: float) -> str:
    """At most one digit after the point, none where it is 0: ``90``, ``0.5``."""
    return f"{value:.1f}".removesuffix(".0")


def percent(value: float | None) -> str:
    """``97%``."""
    return UNKNOWN if value is None else f"{value:.0f}%"


def percent_of(part: float | None, whole: float | None) -> float | None:
    """What *part* is of *whole*, in percent; None where either is not known."""
    return None if part is None or not whole else 100 * part / whole


def watts(value: float | None) -> str:
    """``694 W``."""
    return UNKNOWN if value is None else f"{value:.0f} W"


def power(value: float | None, limit: float | None) -> str:
    """Watts drawn of those allowed, in a column: ``694/700W``, ``694W`` without a limit."""
    if limit is None:
        return UNKNOWN if value is None else f"{value:.0f}W"
    return f"{number(value)}/{limit:.0f}W"


def temperature(celsius: float | None, unit: str = "C") -> str:
    """``61°C`` or ``142°F``."""
    if celsius is None:
        return UNKNOWN
    return f"{celsius * 9 / 5 + 32:.0f}°F" if unit == "F" else f"{celsius:.0f}°C"


def temperature_difference(celsius: float | None, unit: str = "C") -> str:
    """A distance between two temperatures: ``28°``."""
    if celsius is None:
        return UNKNOWN
    return f"{celsius * 9 / 5:.0f}°" if unit == "F" else f"{celsius:.0f}°"


def duration(seconds: float | None) -> str:
    """A span of time in at most 5 cells: ``42s``, ``7m05``, ``3h12``, ``2d04``, ``412d``, ``27y``."""
    if seconds is None:
        return UNKNOWN
    s = max(0, int(seconds))
    if s < 60:
        return f"{s}s"
    if s < 3600:
        return f"{s // 60}m{s % 60:02d}"
    if s < 86400:
        return f"{s // 3600}h{s % 3600 // 60:02d}"
    if s < 100 * 86400:
        return f"{s // 86400}d{s % 86400 // 3600:02d}"
    return f"{s // 86400}d" if s < 10_000 * 86400 else f"{s // 31_557_600}y"


def coarse_duration(seconds: float) -> str:
    """A span of time to the minute, so that a label seldom changes: ``3m``, ``2h13m``, ``4d``."""
    minutes = max(0, int(seconds)) // 60
    if minutes < 60:
        return f"{minutes}m"
    return f"{minutes // 60}h{minutes % 60:02d}m" if minutes < 1440 else f"{minutes // 1440}d"


def duration_in_words(seconds: float) -> str:
    """A span of time in a sentence: ``42 s``, ``13 min``, ``2 h 13 min``, ``3 d 4 h``."""
    s = max(0, int(seconds))
    if s < 60:
        return f"{s} s"
    if s < 3600:
        return f"{s // 60} min"
    if s < 86400:
        return f"{s // 3600} h {s % 3600 // 60} min"
    return f"{s // 86400} d {s % 86400 // 3600} h"


def short_duration(seconds: float) -> str:
    """A time that somebody set, as they may have written it: ``200 ms``, ``10 s``, ``90 s``, ``30 min``, ``2 h``."""
    if seconds < 1:
        return interval(seconds)
    for scale, suffix in ((3600, "h"), (60, "min")):
        if seconds >= 2 * scale or seconds == scale:
            return f"{short_number(seconds / scale)} {suffix}"
    return f"{short_number(seconds)} s"


def rough_duration(seconds: float) -> str:
    """What is only an estimate, rounded to one unit: ``85 s``, ``13 min``, ``2 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"


def elapsed(seconds: float) -> str:
    """How long something took that mostly takes a moment: ``0.4 s``, ``12 s``."""
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def interval(seconds: float) -> str:
    """A refresh interval: ``500 ms``, ``2 s``, ``1.5 s``."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:g} s"


def clock(at: float, seconds: bool = True) -> str:
    """The local time of day of epoch seconds: ``02:58:10``; ``02:58`` without *seconds*."""
    return time.strftime("%H:%M:%S" if seconds else "%H:%M", time.localtime(at))


def clock_or_day(at: float) -> str:
    """What may be long ago, in at most 12 cells: ``02:58:10`` of today, ``Nov 30 02:58`` of another day."""
    local, today = time.localtime(at), time.localtime()
    same_day = (local.tm_year, local.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M:%S" if same_day else "%b %d %H:%M", local)


def timestamp(at: float) -> str:
    """Local date and time of epoch seconds: ``2026-11-30 02:58:10``."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


_DURATION: Final = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|sec|m|min|h)\s*", re.IGNORECASE | re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_interval(text: str) -> float:
    """Seconds of ``500ms``, ``0.5 s``, ``2m``. The unit is required: nvtop's -d counts tenths of a second,
    nvidia-smi's -l seconds, so a bare number would be misread by somebody. Raises ValueError in words."""
    match = _DURATION.fullmatch(text)
    if match is None:
        hint = " (the unit is required)" if re.fullmatch(r"\s*[\d.]+\s*", text, re.ASCII) else ""
        raise ValueError(f"{text.strip()!r} is not a time such as 500ms, 2s or 1m{hint}")
    return float(match[1]) * _SECONDS[match[2].lower()]


def parse_duration(text: str) -> float:
    """Seconds of ``90s``, ``30m``, ``1.5h``, ``2d``. Raises ValueError in words."""
    days = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*d\s*", text, re.ASCII)
    try:
        seconds = float(days[1]) * 86400 if days else parse_interval(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time such as 90s, 30m, 8h or 2d") from None
    if not seconds:
        raise ValueError(f"{text!r} is no time at all")
    return seconds


_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([KMGT]?)(i?B?)\s*", re.IGNORECASE | re.ASCII)


def parse_size(text: str) -> int:
    """Bytes of ``10G``, ``512MiB``, ``1.5 GB``; prefixes are binary, as in every GPU tool; a bare number is MiB.
    Raises ValueError in words."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text.strip()!r} is not a size such as 512M or 10GiB")
    if not match[2]:
        return int(float(match[1]) * (1 if match[3] else MIB))
    return int(float(match[1]) * {"K": KIB, "M": MIB, "G": GIB, "T": TIB}[match[2].upper()])
