"""The axes of a history chart: where they end, where their ticks are and what these say. Pure arithmetic."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gputop import units
from gputop.model.chart_metrics import CHART_METRICS

_TOPS: Final = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_TIME_STEPS: Final = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)
#: Where the axis ends when nothing is known yet, in the unit of the metric.
_FIRST_TOP: Final = {"B": float(units.GIB), "B/s": 1e6, "MHz": 1000.0}


@dataclass(frozen=True, slots=True)
class Scale:
    """A value axis from 0 to *top* (in the metric's own unit). *ticks* are (value, label), lowest first; all labels
    take the same number of cells, and the unit stands at the topmost one at least."""

    top: float
    ticks: tuple[tuple[float, str], ...]

    @property
    def label_width(self) -> int:
        return len(self.ticks[0][1])

    def padded(self, cells: int) -> Scale:
        """The same axis with labels *cells* wide."""
        return Scale(self.top, tuple((value, label.rjust(cells)) for value, label in self.ticks))


@dataclass(frozen=True, slots=True)
class _Unit:
    """How values of a metric are shown on the axis: ``shown = value * factor + offset``."""

    suffix: str
    factor: float = 1.0
    offset: float = 0.0


def _unit(metric: str, top: float, memory_unit: str, temperature_unit: str) -> _Unit:
    kind = CHART_METRICS[metric].unit
    if kind == "B":
        if memory_unit == "MiB":
            return _Unit(" MiB", 1 / units.MIB)
        if top >= 1000 * units.GIB:
            return _Unit(" TiB", 1 / units.TIB)
        return _Unit(" GiB", 1 / units.GIB) if top >= units.GIB else _Unit(" MiB", 1 / units.MIB)
    if kind == "B/s":
        for suffix, scale in ((" GB/s", 1e9), (" MB/s", 1e6)):
            if top >= scale:
                return _Unit(suffix, 1 / scale)
        return _Unit(" kB/s", 1e-3)
    if kind == "°C":
        return _Unit("°F", 1.8, 32.0) if temperature_unit == "F" else _Unit("°C")
    return _Unit(kind if kind == "%" else f" {kind}")


def nice_top(peak: float) -> float:
    """The smallest round number not below *peak* (which is above 0)."""
    power = 10.0 ** math.floor(math.log10(peak))
    return next((top * power for top in _TOPS if top * power >= peak * (1 - 1e-9)), 10 * power)


def axis_top(
    metric: str, peak: float | None, full: float | None, before: float | None, temperature_unit: str = "C"
) -> float:
    """Where the axis of *metric* ends: 100 for percent, *full* (the largest GPU's total) for memory, else a round
    number above *peak*, which shrinks only when it is twice too large (*before* is where it ended), so that a curve
    does not jump about. In the metric's own unit."""
    fixed = CHART_METRICS[metric].top
    if fixed is not None:
        return float(fixed)
    kind = CHART_METRICS[metric].unit
    if kind == "B" and full:
        return max(full, peak or 0.0)
    if peak is None or not 0 < peak < math.inf:
        return before or _FIRST_TOP.get(kind, 100.0)
    if before is not None and before / 2 < peak <= before:
        return before
    unit = _unit(metric, peak, "GiB", temperature_unit)  # round as shown
    return max((nice_top(peak * unit.factor + unit.offset) - unit.offset) / unit.factor, peak)


def value_scale(
    metric: str, top: float, rows: int, memory_unit: str = "GiB", temperature_unit: str = "C", ascii_only: bool = False
) -> Scale:
    """The axis from 0 to *top*, which is drawn over *rows* lines: a tick every three lines at most."""
    unit = _unit(metric, top, memory_unit, temperature_unit)
    shown = top * unit.factor + unit.offset
    low = unit.offset
    wanted = max(1, min(5, (rows - 1) // 3))
    step = _step((shown - low) / wanted)
    values = [low]
    n = math.floor(low / step) + 1
    while n * step < shown - 0.6 * step:
        if n * step - low >= 0.6 * step:
            values.append(n * step)
        n += 1
    values.append(shown)
    suffix = unit.suffix.replace("°", "") if ascii_only else unit.suffix
    spaced = suffix.startswith(" ")
    numbers = [_number(value) for value in values]
    cells = max(map(len, numbers))
    labels = [
        number.rjust(cells) + (suffix if not spaced or position == len(values) - 1 else " " * len(suffix))
        for position, number in enumerate(numbers)
    ]
    in_metric = [(value - unit.offset) / unit.factor for value in values]
    return Scale(top, tuple(zip(in_metric, labels, strict=True)))


def _step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next((step * power for step in _STEPS if step * power >= least * (1 - 1e-9)), 10 * power)


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 or value >= 100 else f"{value:.1f}"


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Columns of equal time, numbered since the epoch, so that a column never changes once its time has passed.

    The picture stands still while the newest columns fill an empty margin at its end, and moves on by the width of the
    margin: over SSH a picture that moves by one column is a picture written anew.
    """

    columns: int  # cells across the plot
    label_cells: int  # kept free behind the newest column, for the curves' names
    margin: int  # columns that fill up before the picture moves
    seconds: float  # of one column
    first: int  # number of the oldest column shown
    newest_right: bool

    @classmethod
    def of(cls, columns: int, window: float, now: float, newest_right: bool) -> TimeAxis:
        label_cells = 4 if columns >= 40 else 0
        margin = max(1, (columns - label_cells) // 20)
        shown = max(1, columns - label_cells - margin)  # at least, also just before it moves on
        seconds = window / shown
        end = (math.floor(now / seconds) // margin + 1) * margin  # the first column not yet to be filled
        return cls(columns, label_cells, margin, seconds, end - (columns - label_cells), newest_right)

    @property
    def end(self) -> int:
        """Number after the last column that can be filled."""
        return self.first + self.columns - self.label_cells

    def cell(self, number: int) -> int:
        """The cell, from the left, of the column called *number*."""
        return number - self.first if self.newest_right else self.columns - 1 - (number - self.first)

    def ticks(self, zone: Callable[[float], float] | None = None) -> list[tuple[int, str]]:
        """(cell, label) of round local times whose labels are whole inside the plot and apart from each other.
        *zone* gives the seconds east of UTC at a time; the machine's own where it is left out."""
        east = zone or (lambda at: float(time.localtime(at).tm_gmtoff))
        start, end = self.first * self.seconds, self.end * self.seconds
        offset = east(end)
        for step in _TIME_STEPS:
            width = 8 if step < 60 else 5
            if step / self.seconds >= width + 6:
                break
        ticks = []
        at = (math.floor((start + offset) / step) + 1) * step - offset
        while at < end:
            cell = self.cell(math.floor(at / self.seconds))
            if cell - width // 2 >= 0 and cell + (width + 1) // 2 <= self.columns:
                clock = time.gmtime(at + offset)
                ticks.append((cell, time.strftime("%H:%M:%S" if step < 60 else "%H:%M", clock)))
            at += step
        return ticks
