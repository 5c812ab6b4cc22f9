"""A field, an operator, and a quantity with its unit: ``memory > 40GiB``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic

from gputop.filters.errors import FilterError
from gputop.filters.field import Asked, Field
from gputop.filters.quantities import BYTES, Unit
from gputop.filters.terms import Term

OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_OPPOSITE: Final = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class Comparison(Generic[Asked]):
    """*level* is in *unit*."""

    field: Field[Asked]
    unit: Unit
    operator: str
    level: float

    def holds(self, value: float) -> bool:
        return OPERATORS[self.operator](value, self.level)

    def test(self) -> Callable[Asked, bool]:
        """Whether it holds now; what is not known does not, nor does its opposite."""
        read, compare, level = self.field.readings[self.unit], OPERATORS[self.operator], self.level

        def test(*asked: Asked.args, **more: Asked.kwargs) -> bool:
            value = read(*asked, **more)
            return value is not None and compare(value, level)

        return test


def comparison_of(term: Term, field: Field[Asked], bare_size_unit: str = "") -> Comparison[Asked]:
    """*term* about *field*; negated, it is its opposite. *bare_size_unit*: that of sizes written without one, which
    are refused where it is empty. Raises FilterError."""
    if not term.value:
        space = " " if " " in term.text else ""
        raise FilterError(
            f"a value is missing, such as {term.name}{space}{term.operator}{space}{field.example}", term.position
        )
    try:
        unit = field.unit_of(term.value)
        bare = unit is BYTES and re.fullmatch(r"[\d.]+", term.value)
        level = unit.parse(term.value + (bare_size_unit if bare else ""))
    except ValueError as error:
        raise FilterError(str(error), term.position) from None
    return Comparison(field, unit, _OPPOSITE[term.operator] if term.negated else term.operator, level)
