"""What the views of a profiler trace share: which device, moment and rows are looked at, and what was computed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from gputop.torch_files.trace.callers import FUNCTION
from gputop.torch_files.trace.memory_curve import MemoryCurve
from gputop.torch_files.trace.op_columns import OpTotals
from gputop.torch_files.trace.op_table import OpRow
from gputop.torch_files.trace.profiler_trace import Held, ProfilerTrace
from gputop.ui.toolkit.view import View

Background = Callable[[Callable[[], Any], Callable[[Any], None]], None]
"""Runs its first argument in a thread, then the second with the result on the event loop, and draws."""

STACKS: Final = (0, FUNCTION, 5)  # frames by which rows are told apart
_KEPT: Final = 32  # results, the newest


class Peaks:
    """What the overview tells, computed while the file is read: of each device what ran and who held memory at its
    peak, and how the table adds up. With them, what the table's and the curve's first picture need.

    Raises UnreadableTrace where the figures do not add up."""

    def __init__(self, trace: ProfilerTrace) -> None:
        self.trace = trace
        self.rows = trace.rows(python=False)
        self.of = [(trace.running(c, c.peak.event), trace.held(c, c.peak.event)) for c in trace.curves]
        self.adds_up = trace.reconciliation(python=False).sentence() if trace.curves else ""


class TraceState:
    """Sums over millions of events take seconds: they are computed in the background, and kept."""

    def __init__(self, peaks: Peaks, view: View, background: Background) -> None:
        trace = peaks.trace
        self.peaks, self.trace, self.view = peaks, trace, view
        self.filter = ""
        self.by_shape = False
        self.python = False  # Python's functions are rows, and parents, too
        self.stack_depth = 0
        self.column = "self_device_memory" if trace.has_device_memory else "self_cpu_memory"
        if not trace.curves:
            self.column = "self_cpu_time"
        self._background = background
        self._curve = max(range(len(trace.curves)), key=lambda n: trace.curves[n].peak.allocated, default=0)
        self._cursors: dict[int, int] = {}
        self._kept: dict[Hashable, Any] = {}
        self._computed: set[Hashable] = set()  # what a thread is at
        self._keep(self.table_key, peaks.rows)
        for n, (_, held) in enumerate(peaks.of):
            self._keep(("held", n, trace.curves[n].peak.event), held)

    # -- over time

    @property
    def curve(self) -> MemoryCurve | None:
        """The device looked at, at first the one that held most; None: no memory was recorded."""
        return self.trace.curves[self._curve] if self.trace.curves else None

    def next_device(self) -> None:
        self._curve = (self._curve + 1) % max(1, len(self.trace.curves))

    @property
    def cursor(self) -> int:
        """The memory event looked at: that of the peak at first; -1: before the first."""
        curve = self.curve
        return -1 if curve is None else self._cursors.get(self._curve, curve.peak.event)

    @cursor.setter
    def cursor(self, event: int) -> None:
        if self.curve is not None:
            self._cursors[self._curve] = max(-1, min(len(self.curve) - 1, event))

    @property
    def held_key(self) -> Hashable:
        return "held", self._curve, self.cursor

    def held(self) -> list[Held] | None:
        """What is held at the cursor; None: see :meth:`compute_held`."""
        return self._kept.get(self.held_key)

    def compute_held(self) -> None:
        curve, event = self.curve, self.cursor
        if curve is not None:
            self._compute(self.held_key, lambda: self.trace.held(curve, event))

    # -- the table

    @property
    def table_key(self) -> Hashable:
        return "table", self.by_shape, self.stack_depth, self.python

    def rows(self) -> list[OpRow] | None:
        """The rows that the filter lets through, sorted; None: see :meth:`compute_rows`."""
        rows: list[OpRow] | None = self._kept.get(self.table_key)
        if rows is None:
            return None
        key = (self.table_key, self.column, self.filter)
        found: list[OpRow] | None = self._kept.get(key)
        if found is None:
            words = self.filter.casefold().split()
            found = [row for row in rows if all(word in _text(row) for word in words)]
            found.sort(key=lambda row: row.name if self.column == "name" else -getattr(row, self.column))
            self._keep(key, found)
        return found

    def totals(self) -> OpTotals:
        """What shares are of: all rows, let through by the filter or not."""
        key = ("totals", self.table_key)
        if key not in self._kept:
            self._keep(key, OpTotals.of(self._kept.get(self.table_key, ())))
        found: OpTotals = self._kept[key]
        return found

    def compute_rows(self) -> None:
        by_shape, depth, python = self.by_shape, self.stack_depth, self.python
        self._compute(self.table_key, lambda: self.trace.rows(by_shape, depth, python))

    # -- what is computed

    def _keep(self, key: Hashable, value: Any) -> None:
        while len(self._kept) >= _KEPT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[key] = value
        self._computed.discard(key)

    def _compute(self, key: Hashable, work: Callable[[], Any]) -> None:
        if key not in self._kept and key not in self._computed:
            self._computed.add(key)
            self._background(work, lambda value: self._keep(key, value))


def _text(row: OpRow) -> str:
    return " ".join((row.name, row.shape, *row.stack)).casefold()
