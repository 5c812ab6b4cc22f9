"""A text read into terms: ``memory > 40 GiB``, ``user:ml,cv``, ``!serve`` and words.

Spaces about an operator and before a unit are free. A name may have several words (``host memory``): the longest one
that is followed by an operator counts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gputop.filters.errors import FilterError
from gputop.filters.field import FieldRegistry, suggestion
from gputop.filters.quantities import NUMBER

_BEGIN: Final = re.compile(r"\s*(?=\S)(?P<not>!?)")
_WORD: Final = re.compile(r"\S*")
_OPERATOR: Final = "(?P<operator>>=|<=|>|<)"
_NUMERIC: Final = re.compile(r"[-+.]?\d")
_NEGATED: Final = re.compile("!")
_STRANGE: Final = re.compile(rf"(?P<name>[^\s<>=:]+)(?P<space>\s*){_OPERATOR}\s*(?P<value>[\d.]\S*)")


@dataclass(frozen=True, slots=True)
class Term:
    """*name* and *operator* are empty for a word, which is its *value*."""

    text: str  # as it was written, with its "!"
    position: int  # of its first character in the whole text
    value: str
    name: str = ""  # in lower case
    operator: str = ""  # ":" before values of a text field
    negated: bool = False

    @property
    def is_comparison(self) -> bool:
        return self.operator not in ("", ":")

    @property
    def values(self) -> tuple[str, ...]:
        """``ml,cv`` apart, as they were written. Raises FilterError where there is none."""
        values = tuple(value for value in self.value.split(",") if value)
        if not values:
            raise FilterError("a value is missing", self.position)
        return values


class Grammar:
    """The terms of texts that may name *texts* (before a colon) and the fields of *registries* (before an operator)."""

    def __init__(self, texts: Iterable[str], *registries: FieldRegistry[...]) -> None:
        self._texts = tuple(texts)
        self._registries = registries

    def terms(self, text: str) -> Iterator[Term]:
        """Any text is some terms. A comparison of a name no field has is one where a field is likely to be meant."""
        position = 0
        while match := _BEGIN.match(text, position):
            term = self._term(text, match.start("not"), match.end(), bool(match["not"]))
            yield term
            position = term.position + len(term.text)

    def _term(self, text: str, start: int, body: int, negated: bool) -> Term:
        name = operator = value = ""
        if match := self._named.match(text, body):
            name, operator, value = match["name"].lower(), ":", match["value"].strip('"')
            end = match.end()
        elif match := self._compared.match(text, body):
            name, operator = " ".join(match["name"].lower().split()), match["operator"]
            value_match = self._value_pattern(name).match(text, match.end())
            assert value_match is not None  # it matches nothing at all, too
            value, end = value_match[0], value_match.end()
            if not value or (match["gap"] and self._is_next_term(text, match.end(), spaced=bool(match["space"]))):
                value, end = "", match.end("operator")
        elif (match := _STRANGE.match(text, body)) and (
            match["space"] or suggestion(match["name"].lower(), self._names)
        ):
            name, operator, value, end = match["name"].lower(), match["operator"], match["value"], match.end()
        else:
            word = _WORD.match(text, body)
            assert word is not None
            value, end = word[0], word.end()
        return Term(text[start:end], start, value, name, operator, negated)

    def _is_next_term(self, text: str, start: int, spaced: bool) -> bool:
        """Whether what comes after an operator and a gap is not its value, which is still to be typed: ``mem> python``
        (``mem > python`` is wrong)."""
        if _NUMERIC.match(text, start):
            return False
        return not spaced or any(term.match(text, start) for term in (_NEGATED, self._named, self._compared))

    @property
    def _names(self) -> list[str]:
        return [name for registry in self._registries for name in registry.names]

    @functools.cached_property
    def _named(self) -> re.Pattern[str]:
        return re.compile(rf"(?P<name>(?ai:{'|'.join(self._texts)})):(?P<value>\"[^\"]*\"|\S*)")

    @functools.cached_property
    def _compared(self) -> re.Pattern[str]:
        names = sorted(map(re.escape, self._names), key=len, reverse=True)
        joined = "|".join(names).replace(r"\ ", r"\s+")
        return re.compile(rf"(?P<name>(?ai:{joined}))(?P<space>\s*){_OPERATOR}(?P<gap>\s*)")

    def _value_pattern(self, name: str) -> re.Pattern[str]:
        fields = [field for registry in self._registries if (field := registry.get(name)) is not None]
        suffixes = dict.fromkeys(unit.suffix for field in fields for unit in field.readings)
        return re.compile(rf"{NUMBER}\s*(?:{'|'.join(suffixes)})(?=\s|$)|\S*", re.IGNORECASE)
