"""The process table: the part of the screen people look at and act on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar, Final

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from gputop.model import GpuProcess, Snapshot
from gputop.model.columns import COLUMNS, Column
from gputop.ui.kill.targets import ChosenTargets
from gputop.ui.processes.annotations import ProcessAnnotations
from gputop.ui.processes.cursor import Cursor
from gputop.ui.processes.lines import heading, message, status
from gputop.ui.processes.listing.filter import ProcessFilter
from gputop.ui.processes.listing.order import Order
from gputop.ui.processes.listing.row import ProcessRow
from gputop.ui.processes.listing.rows import ProcessRows, TableRows
from gputop.ui.processes.mark import Mark
from gputop.ui.processes.status import changes_since_mark, empty_reason, rows_out_of_view, summary
from gputop.ui.processes.table_painter import TablePainter
from gputop.ui.processes.tags import Tags, targets
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.line_widget import LineWidget
from gputop.ui.toolkit.view import View

_WHEEL_ROWS: Final = 3
_STATUS_MIN_LINES: Final = 5  # lines of the widget from which on one is given to the status


class ProcessTable(LineWidget):
    """Heading, rows, and a line on what is not seen. The cursor sticks to its row, whatever happens around it."""

    DEFAULT_CSS: ClassVar[str] = "ProcessTable { height: 1fr; }"
    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "cursor_up", "Up", show=False),
        Binding("down", "cursor_down", "Down", show=False),
        Binding("pageup", "page_up", "Page up", show=False),
        Binding("pagedown", "page_down", "Page down", show=False),
        Binding("home", "first", "First", show=False),
        Binding("end", "last", "Last", show=False),
        Binding("left", "scroll_text(-1)", "Scroll commands left", show=False),
        Binding("right", "scroll_text(1)", "Scroll commands right", show=False),
        Binding("space", "tag", "Tag", show=False),
    ]

    class SortChanged(Message):
        """The order was changed here; settings do not know yet."""

        def __init__(self, column: str, reverse: bool, tree: bool) -> None:
            super().__init__()
            self.column, self.reverse, self.tree = column, reverse, tree

    class CursorMoved(Message):
        """The cursor is on another row (None: there are none)."""

        def __init__(self, row: ProcessRow | None) -> None:
            super().__init__()
            self.row = row

    class RowActivated(Message):
        """Details of this row are wanted."""

        def __init__(self, row: ProcessRow) -> None:
            super().__init__()
            self.row = row

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._snapshot: Snapshot | None = None
        self._view: View | None = None
        self._order = Order()
        self._filter = ProcessFilter()
        self._rows = ProcessRows()
        self._listing = TableRows()
        self._tags = Tags()
        self._cursor = Cursor()
        self._painter = TablePainter(os.getuid())

    # -- what others ask for

    def show_snapshot(self, snapshot: Snapshot, view: View) -> None:
        """Show *snapshot* from now on; an order that was changed in the settings is taken over."""
        before, self._view = self._view, view
        order = Order.of(view.settings)
        if before is None or order != Order.of(before.settings):
            self._order = order._replace(mark=self.mark)
        self._snapshot = snapshot
        self._arrange()

    def know(self, annotations: ProcessAnnotations) -> None:
        """Say of the processes what is known of them now."""
        if annotations != self._rows.annotations:
            self._rows.annotations = annotations
            self._arrange()

    def keep_exited(self, exited: tuple[ProcessRow, ...]) -> None:
        """Show these after all others: processes that exited lately."""
        if exited != self._rows.exited:
            self._rows.exited = exited
            self._arrange()

    def set_mark(self, mark: Mark | None) -> None:
        """Tell memory as the change since *mark*; None: as it is."""
        self._order = self._order._replace(mark=mark)
        self._arrange()
        self._draw_all()

    @property
    def visible_pids(self) -> frozenset[int]:
        """Pids of the rows in sight, and of the tagged ones: host facts of these are wanted fresh."""
        pids = {row.process.pid for row in self._in_sight() if not row.is_launcher and not row.gone}
        return frozenset(pids | {key.pid for key in self._tags})

    @property
    def rows_wanted(self) -> int:
        """How many rows there are to be seen."""
        return len(self._listing.rows)

    @property
    def wants_all(self) -> bool:
        """Whether the order or the filter depends on what the host says about processes out of sight."""
        order = self._order
        return order.tree or bool(order.group) or COLUMNS[order.column].of_host is not None or self._filter.reads_host

    @property
    def cursor_row(self) -> ProcessRow | None:
        """The row at the cursor; a sum line's ``process`` is made of its ``parts``."""
        rows = self._listing.rows
        return rows[self._cursor.at] if self._cursor.at < len(rows) else None

    @property
    def cursor_process(self) -> GpuProcess | None:
        """The process at the cursor; on a sum line the sum, with an empty ``gpu_uuid``."""
        row = self.cursor_row
        return row.process if row is not None else None

    def targets(self) -> ChosenTargets:
        """What a signal would be sent to, frozen now: the tagged processes, else the one at the cursor."""
        return targets(self._listing, self._tags, self.cursor_row)

    @property
    def tagged(self) -> int:
        """How many listed processes are tagged."""
        return len(self._tags.listed(self._listing))

    @property
    def order(self) -> Order:
        return self._order

    @property
    def mark(self) -> Mark | None:
        """Memory is shown as the change since then."""
        return self._order.mark

    @property
    def filter_text(self) -> str:
        return self._filter.text

    @property
    def user(self) -> str | None:
        return self._filter.user

    @property
    def kind(self) -> str | None:
        return self._filter.kind

    @property
    def is_filtered(self) -> bool:
        return bool(self._filter)

    def set_filter(self, text: str) -> str | None:
        """Show what *text* asks for (see listing/filter.py). Returns what is wrong with it in words, or None."""
        self._use_filter(ProcessFilter.parse(text, self._filter.user, self._filter.kind))
        return "; ".join(self._filter.problems) or None

    def set_user(self, user: str | None) -> None:
        """Show only the processes of *user*; None: of all."""
        self._use_filter(ProcessFilter.parse(self._filter.text, user, self._filter.kind))

    def set_kind(self, kind: str | None) -> None:
        """Show only compute ("C") or graphics ("G") processes; None: all."""
        self._use_filter(ProcessFilter.parse(self._filter.text, self._filter.user, kind))

    def clear_filter(self) -> None:
        """Show all processes: text, user and kind."""
        self._use_filter(ProcessFilter())

    def set_sort(self, column: str) -> None:
        """Sort by *column*; by the one it is sorted by already: the other way round."""
        reverse = not self._order.reverse if column == self._order.column else False
        self._reorder(self._order._replace(column=column, reverse=reverse))

    def redraw(self) -> None:
        self._painter.forget()
        self._draw_all()
        super().redraw()

    # -- actions

    def action_cursor_up(self) -> None:
        self._move(self._cursor.at - 1)

    def action_cursor_down(self) -> None:
        self._move(self._cursor.at + 1)

    def action_page_up(self) -> None:
        self._move(self._cursor.at - max(1, self._body - 1))

    def action_page_down(self) -> None:
        self._move(self._cursor.at + max(1, self._body - 1))

    def action_first(self) -> None:
        self._move(0)

    def action_last(self) -> None:
        self._move(len(self._listing.rows) - 1)

    def action_scroll_text(self, direction: int) -> None:
        if self._painter.scroll(direction, self._in_sight()):
            self._draw_all()

    def action_tag(self) -> None:
        """Tag the process at the cursor, or untag it, and go on to the next one."""
        row = self.cursor_row
        if row is None:
            return
        if row.is_launcher:
            self._tags.toggle_all(self._listing.shown[pid] for pid in row.pids)
        elif row.gone:
            text = f"{row.process.pid} has exited: it cannot be tagged"
            self.notify(text, severity="warning", timeout=3, markup=False)
        else:
            self._tags.toggle(row)
        rows = self._listing.rows
        others = (n for n in range(self._cursor.at + 1, len(rows)) if rows[n].process.pid not in row.pids)
        self._move(next(others, self._cursor.at), redraw=True)

    def action_untag_all(self) -> None:
        self._tags.clear()
        self._draw_all()

    def action_fold(self) -> None:
        self._fold(True)

    def action_unfold(self) -> None:
        self._fold(False)

    def action_tree(self) -> None:
        self._reorder(self._order._replace(tree=not self._order.tree))

    def action_invert(self) -> None:
        self.set_sort(self._order.column)

    def action_activate(self) -> None:
        row = self.cursor_row
        if row is not None:
            self.post_message(self.RowActivated(row))

    # -- events

    def on_resize(self) -> None:
        self._draw_all()

    def on_focus(self) -> None:
        self._draw_all()

    def on_blur(self) -> None:
        self._draw_all()

    def on_click(self, event: events.Click) -> None:
        event.stop()
        if event.y == 0:
            layout = self._painter.layout
            if layout is not None and (column := layout.at(event.x)) is not None:
                self.set_sort(column.id)
            return
        at = self._cursor.top + event.y - 1
        if 0 < event.y <= self._body and at < len(self._listing.rows):
            self._move(at)
            if event.chain == 2:
                self.action_activate()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._wheel(_WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._wheel(-_WHEEL_ROWS)

    # -- rows

    def _use_filter(self, filter_: ProcessFilter) -> None:
        self._filter = filter_
        self._arrange()

    def _reorder(self, order: Order) -> None:
        self._order = order
        self._arrange()
        self.post_message(self.SortChanged(order.column, order.reverse, order.tree))

    def _fold(self, folded: bool) -> None:
        """Fold or unfold at the cursor; folding a GPU's line folds the sum it belongs to."""
        row = self.cursor_row
        if row is None:
            return
        pid = row.process.pid
        if self._order.group and not row.is_group:
            above = self._listing.rows[self._cursor.at :: -1]
            pid = next((line.process.pid for line in above if line.is_group), pid)
        elif row.folded is None and not row.is_part:
            return
        (self._rows.folded.add if folded else self._rows.folded.discard)(pid)
        self._arrange()

    def _arrange(self) -> None:
        """Order the rows and keep the cursor on its one."""
        if self._snapshot is None:
            return
        before = self._listing
        listing = self._rows.arrange(self._snapshot, self._filter, self._order)
        if listing is not before:
            self._listing = listing
            self._tags.update(listing)
            self._painter.make_room(listing)
            if self._cursor.follow(before.rows, listing.rows, self._body):
                self.post_message(self.CursorMoved(self.cursor_row))
        self._draw_all()

    def _move(self, to: int, redraw: bool = False) -> None:
        moved = self._cursor.move(to, self._listing.rows)
        if moved:
            self.post_message(self.CursorMoved(self.cursor_row))
        if moved or redraw:
            self._draw_all()

    def _wheel(self, by: int) -> None:
        """Scroll the page; the cursor only goes along where it would be left behind."""
        to = self._cursor.scroll(by, len(self._listing.rows), self._body)
        if to is not None:
            self._move(to, redraw=True)

    # -- drawing

    @property
    def _body(self) -> int:
        """Lines for rows."""
        height = self.height
        return max(0, height - (2 if height >= _STATUS_MIN_LINES else 1))

    def _in_sight(self) -> tuple[ProcessRow, ...]:
        top = self._cursor.top
        return self._listing.rows[top : top + self._body]

    def _status(self, snapshot: Snapshot, left_out: Sequence[Column], view: View) -> Line:
        unlisted = [gpu.index for gpu in snapshot.gpus if gpu.processes_error is not None]
        spans = summary(self._listing, self._filter, self._tags, self.cursor_row, left_out, view, unlisted)
        if self.mark is not None:
            spans = [*changes_since_mark(self.mark, snapshot, view), *spans]
        below = max(0, len(self._listing.rows) - self._cursor.top - self._body)
        return status(self.cells, spans, rows_out_of_view(self._cursor.top, below, view))

    def _draw_all(self) -> None:
        snapshot, view, cells, height = self._snapshot, self._view, self.cells, self.height
        if snapshot is None or view is None or not cells or not height:
            return
        body = self._body
        cursor = self._cursor
        cursor.keep_in_sight(len(self._listing.rows), body)
        order = self._order
        painter = self._painter.rows(view, cells, order)
        layout, marked = painter.layout, order.mark is not None
        lines: list[Line] = [heading(layout, view, order.column, order.descending, self.has_focus, marked)]
        tags, at = self._tags, snapshot.taken_at
        tagged = bool(tags)
        for n, row in enumerate(self._in_sight(), cursor.top):
            lines.append(painter.line(row, at, n == cursor.at, tagged and tags.holds(row)))
        if not self._listing.rows and body:
            lines.append(message(*empty_reason(self._listing, snapshot), cells))
        if height >= _STATUS_MIN_LINES:
            lines += [()] * (height - 1 - len(lines))
            lines.append(self._status(snapshot, layout.left_out, view))
        self.show(lines)
