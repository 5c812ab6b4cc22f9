"""The table of a trace: a row for every op, sorted by any column, by shape and by stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gputop.model import clean_text
from gputop.text import fit, wrap
from gputop.torch_files.trace.callers import FUNCTION
from gputop.torch_files.trace.events import PYTHON
from gputop.torch_files.trace.op_columns import OpColumn, columns_of, figure, shown_columns
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.frame import Hint
from gputop.ui.torch_viewers.pane import ListPane
from gputop.ui.torch_viewers.trace.state import STACKS, TraceState
from gputop.units.fine import duration, size

_NAME: Final = OpColumn("name", "OP", 0)


class OpsPane(ListPane):
    name = "Ops"
    key = "t"

    def __init__(self, state: TraceState) -> None:
        super().__init__(state.view)
        self.state = state
        self.columns = columns_of(state.trace)

    # -- keys

    def pressed(self, key: str, page: int) -> bool:
        state = self.state
        fields = ["name", *(column.field for column in self.columns if column.sortable)]
        match key:
            case "s" | "f6" | "greater_than_sign":
                state.column = fields[(fields.index(state.column) + 1) % len(fields)]
            case "S" | "upper_s" | "less_than_sign":
                state.column = fields[(fields.index(state.column) - 1) % len(fields)]
            case "h":
                state.by_shape = not state.by_shape
            case "k" if state.trace.has_python:
                state.stack_depth = STACKS[(STACKS.index(state.stack_depth) + 1) % len(STACKS)]
            case "y" if state.trace.has_python:
                state.python = not state.python
            case _:
                return super().pressed(key, page)
        if key not in ("h", "k", "y"):
            self.at = self.first = 0
        return True

    def hints(self) -> Sequence[Hint]:
        python = "without Python" if self.state.python else "with Python"
        more: tuple[Hint, ...] = (("k", "by function, stack"), ("y", python)) if self.state.trace.has_python else ()
        return (("s S", "sort"), ("h", "by shape"), *more)

    # -- drawing

    def count(self) -> int:
        return len(self.state.rows() or ())

    def nothing(self) -> str:
        if self.state.rows() is None:
            return "summing…"
        return "The filter matches no op." if self.state.filter else "The trace has no ops."

    def heading(self, cells: int) -> Sequence[Line]:
        state, rows = self.state, self.state.rows()
        by = ["input shape"] if state.by_shape else []
        if state.stack_depth:
            by.append(
                "function of yours" if state.stack_depth == FUNCTION else f"{state.stack_depth} frames of its stack"
            )
        told = "…" if rows is None else f"{len(rows):,} rows"
        words = f", a row for each op{' and ' if by else ''}{' and '.join(by)}"
        if state.trace.has_python and not state.python:
            words += "; Python functions left out"
        return [((told, "title+b"), (words, "dim")), self._titles(cells)]

    def _titles(self, cells: int) -> Line:
        shown = self._shown_columns(cells)
        arrow = self.view.glyphs.arrow_down
        spans: list[Span] = []
        for column in (_NAME, *shown):
            chosen = column.field == self.state.column
            title = f"{column.title}{arrow if chosen else ''}"
            if column is _NAME:
                title = fit(title, self._name_cells(cells, shown))
            else:
                title = fit(title, column.width, right=True) + " "
            spans.append((title, "title+b" if chosen else "accent+b"))
        return tuple(spans)

    def _shown_columns(self, cells: int) -> list[OpColumn]:
        return shown_columns(self.columns, self.state.column, cells - 2)

    def _name_cells(self, cells: int, shown: Sequence[OpColumn]) -> int:
        return cells - 2 - sum(column.width + 1 for column in shown)

    def row(self, n: int, cells: int) -> Line:
        rows = self.state.rows()
        assert rows is not None
        row = rows[n]
        shown = self._shown_columns(cells + 2)
        style = "accent" if row.kind == PYTHON else "text"
        name = clean_text(row.name, 300)
        if row.shape not in ("", "[]"):
            name += f" {clean_text(row.shape, 300)}"
        elif row.stack:
            name += f"  from {clean_text(row.stack[0], 300)}"
        totals = self.state.totals()
        spans: list[Span] = [(fit(name, self._name_cells(cells + 2, shown)), style)]
        for column in shown:
            shown_figure = fit(figure(row, column.field, totals), column.width, right=True) + " "
            style = "title+b" if column.field == self.state.column else "text"
            spans.append((shown_figure, style if getattr(row, column.field, True) else "dim"))
        return tuple(spans)

    def details(self, n: int, cells: int, rows: int) -> Sequence[Line]:
        found = self.state.rows()
        assert found is not None
        row = found[n]
        lines: list[Line] = [((part, "title+b"),) for part in wrap(clean_text(row.name, 1000), cells - 2)[:2]]
        if row.shape:
            lines.append(((fit(f"inputs {clean_text(row.shape, 1000)}", cells - 2), "text"),))
        trace, calls = self.state.trace, max(1, row.calls)
        own = f"by thread {size(row.self_thread_memory)} self, {size(row.thread_memory)} total"
        host = f"host {size(row.self_cpu_memory)} self, {size(row.cpu_memory)} total"
        memory = f"{host}; {own}"
        if trace.has_device_memory:
            device = f"device {size(row.self_device_memory)} self, {size(row.device_memory)} total; {own}"
            memory = f"{device}; {host}"
        times = (
            f"{row.calls:,} calls; CPU {duration(row.self_cpu_time)} self, {duration(row.cpu_time)} total, "
            f"{duration(row.cpu_time / calls)} per call"
        )
        if trace.has_kernels:
            times += f"; device {duration(row.self_device_time)} self, {duration(row.device_time)} total"
        lines += [((part, "text"),) for words in (memory, times) for part in wrap(words, cells - 2)]
        return [*lines, *(((fit(f"  {clean_text(frame, 500)}", cells - 2), "accent"),) for frame in row.stack)]

    def pending(self) -> bool:
        return self.state.rows() is None

    def settle(self) -> None:
        self.state.compute_rows()
