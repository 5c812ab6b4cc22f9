"""What scripts ask for by name: the fields of ``nvidia-smi --query-gpu``, their units, and answers that are not there.

Values are typed (bytes, watts, degrees Celsius, truth values); how they are written is the business of the outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Unit:
    """How the values of a field are told: in CSV *sign* stands behind the value and, in brackets, behind the heading;
    *suffix* ends the key in JSON; *words* are no and yes, where that is what the values are."""

    sign: str = ""
    suffix: str = ""
    words: tuple[str, str] | None = None


PLAIN: Final = Unit()
MIB: Final = Unit("MiB", "bytes")  # values are bytes
PERCENT: Final = Unit("%", "percent")
WATTS: Final = Unit("W", "watts")
MHZ: Final = Unit("MHz", "mhz")
MICROSECONDS: Final = Unit("us", "microseconds")
CELSIUS: Final = Unit("", "celsius")
ENABLED: Final = Unit(words=("Disabled", "Enabled"))
ACTIVE: Final = Unit(words=("Not Active", "Active"))
YES: Final = Unit(words=("No", "Yes"))


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
    unit: Unit
    read: Callable[[Any], Answer]
    aliases: tuple[str, ...] = ()
    note: str = ""  # where the name does not say it all
    bare: bool = False  # nvidia-smi writes N/A without brackets
