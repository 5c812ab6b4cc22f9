"""Quantities with their units, as people write and read them: ``40 GiB``, ``90%``, ``85C``, ``600W``, ``30min``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gputop import units
from gputop.units import short_duration, short_number, short_size

NUMBER: Final = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?"


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """*key* names it in events; *suffix* is the pattern of what may stand after a number; *parse* raises ValueError
    in words."""

    key: str
    suffix: str
    example: str
    parse: Callable[[str], float]
    show: Callable[[float], str]


def number_parser(suffix: str, example: str) -> Callable[[str], float]:
    """What reads a number with an optional unit. It raises ValueError in words."""
    pattern = rf"\s*({NUMBER})\s*(?:{suffix})?\s*"

    def parse(text: str) -> float:
        match = re.fullmatch(pattern, text, re.IGNORECASE)
        if match is None:
            raise ValueError(f"{text.strip()!r} is not a value such as {example}")
        return float(match[1])

    return parse


def _size(text: str) -> float:
    if re.fullmatch(r"\s*[\d.]+\s*", text):
        raise ValueError(f"{text.strip()} needs a unit: {text.strip()}% or {text.strip()}GiB")
    return units.parse_size(text)


def _celsius(text: str) -> float:
    match = re.fullmatch(rf"\s*({NUMBER})\s*°?\s*([CF]?)\s*", text, re.IGNORECASE)
    if match is None:
        raise ValueError(f"{text.strip()!r} is not a temperature such as 80C or 176F")
    return (float(match[1]) - 32) * 5 / 9 if match[2].upper() == "F" else float(match[1])


SIZE_SUFFIX: Final = "[KMGT]?i?B?"
TIME_SUFFIX: Final = "ms|s|sec|m|min|h"
_WATTS: Final = "W|watts?"

PERCENT: Final = Unit("percent", "%", "90%", number_parser("%", "90%"), lambda value: f"{short_number(value)}%")
BYTES: Final = Unit("bytes", SIZE_SUFFIX, "10GiB", _size, short_size)
CELSIUS: Final = Unit("celsius", r"°?\s*[CF]?", "80C", _celsius, lambda value: f"{short_number(value)}°C")
WATTS: Final = Unit("watts", _WATTS, "600W", number_parser(_WATTS, "600W"), lambda value: f"{short_number(value)} W")
SECONDS: Final = Unit("seconds", TIME_SUFFIX, "30min", units.parse_interval, short_duration)
