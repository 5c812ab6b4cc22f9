"""Fields: the quantities a filter or a condition may compare, by the names people give them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, ParamSpec

from gputop.filters.errors import FilterError
from gputop.filters.quantities import PERCENT, Unit

Asked = ParamSpec("Asked")  # what a field is read from: a GPU; a process, what the host says of it and its capacity


@dataclass(frozen=True, slots=True, eq=False)
class Field(Generic[Asked]):
    """*readings* say how it is read, in each unit it is known in; a value that is not known is None."""

    label: str
    names: tuple[str, ...]  # in lower case; the first is the one that is suggested
    readings: Mapping[Unit, Callable[Asked, float | None]]
    whole: str = ""  # what a percentage is a share of, where it is read in another unit, too
    from_host: bool = False  # needs fresh facts of /proc, which cost

    def unit_of(self, value: str) -> Unit:
        """The unit *value*, as people write it, is in. Raises ValueError in words."""
        if value.strip().endswith("%"):
            if PERCENT not in self.readings:
                raise ValueError(f"{self.label} has no percentage")
            return PERCENT
        return next((unit for unit in self.readings if unit is not PERCENT), PERCENT)

    @property
    def example(self) -> str:
        return next(iter(self.readings)).example


class FieldRegistry(Generic[Asked]):
    """The fields of one kind of thing."""

    def __init__(self, fields: Iterable[Field[Asked]]) -> None:
        self._fields = tuple(fields)
        self._by_name = {name: field for field in self._fields for name in field.names}

    def __iter__(self) -> Iterator[Field[Asked]]:
        return iter(self._fields)

    def get(self, name: str) -> Field[Asked] | None:
        return self._by_name.get(name)

    @property
    def names(self) -> Iterable[str]:
        return self._by_name


def unknown_field(name: str, registries: Iterable[FieldRegistry[...]], position: int) -> FilterError:
    """No field is called *name*: says which may be meant, or which there are."""
    close = suggestion(name, (known for registry in registries for known in registry.names))
    names = dict.fromkeys(field.names[0] for registry in registries for field in registry)
    hint = f" (did you mean {close}?)" if close else f"; there are {', '.join(names)}"
    return FilterError(f"{name or 'nothing'}: no such quantity{hint}", position)


def suggestion(name: str, names: Iterable[str]) -> str | None:
    """The one of *names* that *name* is likely to be a slip of."""
    return next(iter(difflib.get_close_matches(name, dict.fromkeys(names), 1)), None)
