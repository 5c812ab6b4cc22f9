"""What scripts ask for by name: the fields of ``nvidia-smi --query-gpu``, their units, and answers that are not there.

Values are typed (bytes, watts, degrees Celsius, truth values); how they are written is the business of the outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class FieldUnit:
    """How the values of a field are told: in CSV *sign* stands behind the value and, in brackets, behind the heading;
    *suffix* ends the key in JSON; *words* are no and yes, where that is what the values are."""

    sign: str = ""
    suffix: str = ""
    words: tuple[str, str] | None = None


PLAIN: Final = FieldUnit()
MIB: Final = FieldUnit("MiB", "bytes")  # values are bytes
PERCENT: Final = FieldUnit("%", "percent")
WATTS: Final = FieldUnit("W", "watts")
MHZ: Final = FieldUnit("MHz", "mhz")
MICROSECONDS: Final = FieldUnit("us", "microseconds")
CELSIUS: Final = FieldUnit("", "celsius")
ENABLED: Final = FieldUnit(words=("Disabled", "Enabled"))
ACTIVE: Final = FieldUnit(words=("Not Active", "Active"))
YES: Final = FieldUnit(words=("No", "Yes"))


@dataclass(frozen=True, slots=True)
class Unanswered:
    """In the place of a value: the driver's return code, and its words for it ("Insufficient Permissions")."""

    code: int
    words: str


Answer = int | float | str | bool | Unanswered


@dataclass(frozen=True, slots=True)
class Field:
    """Something that can be asked for. ``read`` takes what it is asked of and raises where there is no answer."""

    name: str
    unit: FieldUnit
    read: Callable[[Any], Answer]
    aliases: tuple[str, ...] = ()
    note: str = ""  # where the name does not say it all
    bare: bool = False  # nvidia-smi writes N/A without brackets
