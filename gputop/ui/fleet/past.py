"""The past of a fleet or a host: one small chart for each quantity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from gputop import units
from gputop.fleet.model import History, HistoryRequest, Quantity
from gputop.fleet.source import FleetSource
from gputop.text import fit, width
from gputop.ui.fleet.head import kilowatts
from gputop.ui.gpus.parts import tall_sparkline
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.frame import beside
from gputop.ui.toolkit.view import View

SPAN_SECONDS: Final = 3600.0
POINTS: Final = 120
QUANTITIES: Final = (Quantity.UTILIZATION, Quantity.MEMORY, Quantity.POWER, Quantity.FREE)
_FAMILIES: Final = {Quantity.UTILIZATION: "u", Quantity.MEMORY: "m", Quantity.POWER: "p", Quantity.FREE: "u"}
_NAMES: Final = {
    Quantity.UTILIZATION: "utilization", Quantity.MEMORY: "memory", Quantity.POWER: "power",
    Quantity.FREE: "free GPUs", Quantity.TEMPERATURE: "hottest",
}  # fmt: skip
_GAP: Final = 2
_LEAST_CELLS: Final = 26  # of a chart

Past = Mapping[Quantity, History]


def ask_past(source: FleetSource, host: str | None, now: float) -> Past:
    """In a thread: the last hour of everything."""
    return {
        quantity: source.history(HistoryRequest(quantity, now - SPAN_SECONDS, now, POINTS, host))
        for quantity in QUANTITIES
    }


def past_lines(past: Past, of: str, memory_total: float | None, cells: int, rows: int, view: View) -> list[Line]:
    """As many charts side by side as there is room for, *rows* lines high with their titles."""
    count = max(1, min(len(QUANTITIES), (cells + _GAP) // (_LEAST_CELLS + _GAP)))
    each = (cells - 1 - _GAP * (count - 1)) // count
    lines: list[Line] = []
    for quantity in reversed(QUANTITIES[:count]):
        top = 100.0 if quantity is Quantity.UTILIZATION else memory_total if quantity is Quantity.MEMORY else None
        block = _chart(past.get(quantity), quantity, of, top, each, rows, view)
        lines = beside(block, lines, each, _GAP) if lines else block
    return [((" ", "text"), *line) for line in lines]


def _chart(
    history: History | None, quantity: Quantity, of: str, full: float | None, cells: int, rows: int, view: View
) -> list[Line]:
    values = _values(history)
    known = [value for value in values if value is not None]
    top = full or _round_up(max(known, default=0.0))
    name = f"{_NAMES[quantity]}, 1 h"
    name = f"{of} {name}" if of else name
    last = _text(quantity, known[-1], view) if known else units.UNKNOWN
    title: Line = (
        (fit(name, cells - width(last) - 1), "dim"),
        (f" {last}", "text+b"),
    )
    if not known:
        why = history.problem if history is not None and history.problem else "asking…" if history is None else "none"
        empty: list[Line] = [((fit(why or "", cells), "dim"),)]
        return [title, *empty, *[()] * (rows - 2)][:rows]
    label = _text(quantity, top, view)
    edge = width(label) + 1
    columns = tuple(_column(values, n, cells - edge, 100.0 / top) for n in range(cells - edge))
    drawn = tall_sparkline(columns, cells - edge, rows - 1, _FAMILIES[quantity], view.glyphs)
    return [title, *(((fit(label if not n else "", edge), "dim"), row) for n, row in enumerate(drawn))]


def _values(history: History | None) -> Sequence[float | None]:
    return () if history is None else history.series.get("", ())


def _column(values: Sequence[float | None], n: int, columns: int, scale: float) -> float:
    """The most there was in the time of a column; NaN where nothing is known."""
    start = n * len(values) // columns
    end = max(start + 1, (n + 1) * len(values) // columns)
    return max((value * scale for value in values[start:end] if value is not None), default=math.nan)


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20…"""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0) if step * power >= value), 10.0 * power)


def _text(quantity: Quantity, value: float, view: View) -> str:
    match quantity:
        case Quantity.UTILIZATION:
            return units.percent(value)
        case Quantity.MEMORY:
            return view.memory(value)
        case Quantity.POWER:
            return kilowatts(value)
        case Quantity.TEMPERATURE:
            return view.temperature(value)
    return f"{value:,.0f}"
