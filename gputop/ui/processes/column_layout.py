"""Where the columns of the process table are on a line.

Widths do not depend on values, so that a tick redraws digits and not lines. What does not fit the screen's width is
left out by importance, and the table says which.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from gputop.model.columns import COLUMNS, ESSENTIAL, Column

_WIDE_CELLS: Final = 100  # from which on names get more room
_WIDE_USER_CELLS: Final = 12


class PlacedColumn(NamedTuple):
    """A column and the cells it takes: *width* from *x* on, and one of a gap after them, which the sort arrow uses."""

    column: Column
    x: int
    width: int


class TableLayout(NamedTuple):
    """Where the columns are, left to right, after one cell for the tag; and those there is no room for."""

    placed: tuple[PlacedColumn, ...]
    left_out: tuple[Column, ...]
    cells: int

    def at(self, x: int) -> Column | None:
        """The column drawn at cell *x*."""
        return next((column for column, at, width in reversed(self.placed) if x >= at), None)

    @property
    def command_cells(self) -> int:
        return next((width for column, _, width in self.placed if column.id == "command"), 0)


def lay_out(names: Iterable[str], cells: int, sort: str, pid_digits: int = 0, gpu_cells: int = 0) -> TableLayout:
    """Place the columns *names* in *cells* cells; the sorted one stays in sight, the command takes what the others
    leave. *pid_digits* and *gpu_cells*: the most seen so far."""
    columns = [COLUMNS[name] for name in names]
    widths = {column.id: column.width for column in columns}
    if "pid" in widths:
        widths["pid"] = max(widths["pid"], pid_digits)
    if "gpu" in widths:
        widths["gpu"] = max(widths["gpu"], gpu_cells)
    if "user" in widths and cells >= _WIDE_CELLS:
        widths["user"] = _WIDE_USER_CELLS
    left_out = []
    for column in sorted(columns, key=lambda column: column.importance):
        if column.importance == ESSENTIAL or sum(widths.values()) + len(widths) <= cells:
            break
        if column.id != sort and len(widths) > 1:
            del widths[column.id]
            left_out.append(column)
    columns = [column for column in columns if column.id in widths]
    if "command" in widths:
        widths["command"] = max(1, widths["command"] + cells - sum(widths.values()) - len(widths))
    placed = []
    x = 1
    for column in columns:
        placed.append(PlacedColumn(column, x, widths[column.id]))
        x += widths[column.id] + 1
    return TableLayout(tuple(placed), tuple(left_out), cells)
