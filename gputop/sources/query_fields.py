"""What a field of `gputop query` is: its name, unit, answer, and what stands for an answer that is not there.

Values are typed (bytes, watts, degrees Celsius, booleans). The fields themselves are those of the source
(``nvml.query.fields``), how their values are written is the business of ``gputop.outputs``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class FieldUnit:
    """How a field's values are written: in CSV *sign* stands behind the value and, in brackets, behind the heading;
    *suffix* ends the key in JSON; *labels* are those of False and True, where the values are booleans."""

    sign: str = ""
    suffix: str = ""
    labels: tuple[str, str] | None = None


PLAIN: Final = FieldUnit()
MIB: Final = FieldUnit("MiB", "bytes")  # values are bytes
PERCENT: Final = FieldUnit("%", "percent")
WATTS: Final = FieldUnit("W", "watts")
MHZ: Final = FieldUnit("MHz", "mhz")
MICROSECONDS: Final = FieldUnit("us", "microseconds")
CELSIUS: Final = FieldUnit("", "celsius")
ENABLED: Final = FieldUnit(labels=("Disabled", "Enabled"))
ACTIVE: Final = FieldUnit(labels=("Not Active", "Active"))
YES: Final = FieldUnit(labels=("No", "Yes"))


NOT_APPLICABLE: Final = "N/A"  # nvidia-smi's message for what a GPU does not support


@dataclass(frozen=True, slots=True)
class Unanswered:
    """In the place of a value: the driver's return code and its message ("Insufficient Permissions")."""

    code: int
    message: str


Answer = int | float | str | bool | Unanswered


@dataclass(frozen=True, slots=True)
class Field:
    """Something that can be asked for. ``read`` takes the GPU or process it is asked of; it raises where there is no
    answer."""

    name: str
    unit: FieldUnit
    read: Callable[[Any], Answer]
    aliases: tuple[str, ...] = ()
    note: str = ""  # where the name does not say it all
    bare: bool = False  # nvidia-smi writes N/A without brackets
