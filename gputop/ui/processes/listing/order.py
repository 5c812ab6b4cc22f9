"""The order of the process table, kept steady: rows never swap without cause."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from gputop.model.columns import COLUMNS
from gputop.settings import Settings
from gputop.ui.processes.cells import SORT_KEYS
from gputop.ui.processes.listing.entry import ProcessEntry
from gputop.ui.processes.listing.row import ProcessRow, device_order
from gputop.ui.processes.mark import Mark

#: Values change at every tick; rows that swap as often cannot be read, or hit.
SORT_INTERVAL_SECONDS: Final = 2.0

_Pair = tuple[ProcessEntry, ProcessRow]  # a row, and the entry it is of
_SortValue = tuple[Any, tuple[Any, ...]]  # the value it is sorted by (None: unknown), and what breaks ties
_NO_VALUE: Final[_SortValue] = (None, ())
_value_of = operator.itemgetter(0)
_tie_of = operator.itemgetter(1)


class Order(NamedTuple):
    """How rows are ordered: the settings sort, sort_reverse, tree and group."""

    column: str = "gpu_mem"
    reverse: bool = False
    tree: bool = False
    group: str = ""  # "user", "job", "container" or "gpu"
    mark: Mark | None = None  # memory is told, and sorted by, as the change since then

    @classmethod
    def of(cls, settings: Settings) -> Order:
        group = "" if settings.group == "none" else settings.group
        return cls(settings.sort, settings.sort_reverse, settings.tree and not group, group)

    @property
    def descending(self) -> bool:
        return COLUMNS[self.column].descending is not self.reverse

    @property
    def by_gpu(self) -> bool:
        """Whether a process on several GPUs is several rows, each among those of its GPU."""
        return self.column == "gpu" and not self.tree and not self.group


class ThrottledSort:
    """Sorts rows by their values of every :data:`SORT_INTERVAL_SECONDS`. New rows, and those whose value was unknown,
    find their place at once."""

    def __init__(self) -> None:
        self._values: dict[Any, _SortValue] = {}
        self._sorted_by: tuple[str, Mark | None] = "", None
        self._at = 0.0

    def begin(self, order: Order, now: float) -> None:
        """Forget the values of the last sorting where it is time for another, or for another column. *now* in s."""
        if (order.column, order.mark) != self._sorted_by or not 0 <= now - self._at < SORT_INTERVAL_SECONDS:
            self._values.clear()
            self._sorted_by = order.column, order.mark
            self._at = now

    def sort(self, pairs: Iterable[_Pair], order: Order) -> list[_Pair]:
        """By the column, ties by memory (largest first), GPU and pid; rows of which the value is unknown are last."""
        key = _change_since(order.mark) if order.mark and order.column == "gpu_mem" else SORT_KEYS[order.column]
        values = self._values
        known: list[tuple[Any, tuple[Any, ...], _Pair]] = []
        unknown: list[tuple[Any, tuple[Any, ...], _Pair]] = []
        for pair in pairs:
            row = pair[1]
            process = row.process
            name = (process.pid, process.gpu_uuid, process.gpu_instance_id, process.compute_instance_id)
            value, tie = values.get(name, _NO_VALUE)
            if value is None:
                value = key(row)
                tie = (-(process.memory_bytes or 0), device_order(process), process.pid)
                values[name] = value, tie
            (unknown if value is None else known).append((value, tie, pair))
        unknown.sort(key=_tie_of)
        known.sort(key=_tie_of)
        known.sort(key=_value_of, reverse=order.descending)
        return [pair for _, _, pair in known] + [pair for _, _, pair in unknown]


def _change_since(mark: Mark) -> Callable[[ProcessRow], int | None]:
    def key(row: ProcessRow) -> int | None:
        change = mark.change(row)
        return None if change is None else change.bytes

    return key
