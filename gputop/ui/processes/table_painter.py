"""Draws the process table: its layout, and the row painter for it, kept from tick to tick."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gputop.ui.processes.cells import gpu_label
from gputop.ui.processes.column_layout import TableLayout, lay_out
from gputop.ui.processes.lines import RowPainter
from gputop.ui.processes.listing.order import Order
from gputop.ui.processes.listing.row import ProcessRow
from gputop.ui.processes.listing.rows import TableRows
from gputop.ui.toolkit.view import View

_SCROLL_CELLS: Final = 8


class TablePainter:
    """Columns grow with what is in them and never shrink: a table that moves sideways cannot be read."""

    def __init__(self, uid: int) -> None:
        self._uid = uid
        self._offset = 0  # cells the commands are scrolled
        self._pid_digits = 0
        self._gpu_cells = 0
        self._rows: RowPainter | None = None

    @property
    def layout(self) -> TableLayout | None:
        """The one drawn last."""
        return None if self._rows is None else self._rows.layout

    def forget(self) -> None:
        """Draw everything anew the next time."""
        self._rows = None

    def make_room(self, listing: TableRows) -> None:
        """Widen the columns for what *listing* has."""
        self._pid_digits = max(self._pid_digits, len(str(max(listing.known, default=0))))
        instances = (row for row in listing.rows if row.process.gpu_instance_id is not None)
        self._gpu_cells = max(self._gpu_cells, *(len(gpu_label(row)) + row.dead for row in instances), 0)

    def scroll(self, direction: int, rows: Iterable[ProcessRow]) -> bool:
        """Scroll the commands sideways, as far as the longest one of *rows* goes. False where nothing moved."""
        if self._rows is None:
            return False
        longest = max((self._rows.command_width(row) for row in rows), default=0)
        furthest = max(self._offset, -(-longest // _SCROLL_CELLS) * _SCROLL_CELLS)
        before, self._offset = self._offset, max(0, min(self._offset + direction * _SCROLL_CELLS, furthest))
        return self._offset != before

    def rows(self, view: View, cells: int, order: Order) -> RowPainter:
        """What draws rows of *cells* cells; the same as the last time where nothing changed."""
        layout = lay_out(view.settings.columns, cells, order.column, self._pid_digits, self._gpu_cells)
        if self._rows is None or not self._rows.fits(layout, view, self._offset, order.mark):
            self._rows = RowPainter(layout, view, self._offset, self._uid, order.mark)
        return self._rows
