"""The axes of a history chart: where they end, where their ticks are and what these say. Pure arithmetic."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gputop import units
from gputop.model.chart_metrics import CHART_METRICS

_STEPS: Final = (1.0, 2.0, 2.5, 5.0)
_TIME_STEPS: Final = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)
#: What an axis spans before enough is known for the window of the settings.
_GROWING_SPANS: Final = (15, 30, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1200, 1800, 2700)
#: Where the axis ends when nothing is known yet, in the unit of the metric.
_FIRST_TOP: Final = {"B": float(units.GIB), "B/s": 1e6, "MHz": 1000.0}
_LEAST_SHARE: Final = {"B": 0.02, "W": 0.1, "°C": 0.1, "MHz": 0.1}  # of the highest value (of the total, for memory)
_LEAST_SPAN: Final = {"B": float(units.MIB), "B/s": 1e3}  # in the unit of the metric; else 1
_NEAR_SHARE: Final = 0.1  # of the total: memory that comes so near has the total on its axis
_FROM_ZERO_SHARE: Final = 0.35  # of the highest value: an axis that would begin below it begins at 0
_SHRINK: Final = 2.5  # an axis so many times too long is made anew


@dataclass(frozen=True, slots=True)
class Scale:
    """A value axis from *low* to *top* (in the metric's own unit). *ticks* are (value, label), lowest first; all labels
    take the same number of cells, and the unit stands at the topmost one at least."""

    low: float
    top: float
    ticks: tuple[tuple[float, str], ...]

    @property
    def label_width(self) -> int:
        return len(self.ticks[0][1])

    def dot(self, value: float, dots: int) -> int:
        """Which of *dots*, from 0 at the bottom, *value* lies in; the nearest one for what is beyond the axis."""
        at = int((value - self.low) * (dots - 1) / (self.top - self.low) + 0.5) if value > self.low else 0
        return min(dots - 1, at)


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


def value_scale(
    metric: str,
    known: tuple[float, float] | None,
    rows: int,
    *,
    full: float | None = None,
    before: Scale | None = None,
    memory_unit: str = "GiB",
    temperature_unit: str = "C",
    ascii_only: bool = False,
) -> Scale:
    """The axis for values from the lowest to the highest *known*, drawn over *rows* lines: at least four labels where
    there are lines for them.

    Percent is 0 to 100, a rate begins at 0; any other quantity has an axis from a round number below the lowest to one
    above the highest value, and memory that comes near to *full* (the GPU's total) has that on it too. *before* is the
    axis so far: it stays as long as it is good enough, so that a curve does not jump about.
    """
    kind = CHART_METRICS[metric].unit
    low, high = _range(metric, known, full)
    unit = _unit(metric, high, memory_unit, temperature_unit)
    least, most = low * unit.factor + unit.offset, high * unit.factor + unit.offset
    if kind == "°C" and low <= 0:
        least = unit.offset
    step = _step(least, most, max(1, rows - 1))
    first = math.floor(least / step + 1e-9)
    last = max(first + 1, math.ceil(most / step - 1e-9))
    scale = _labelled([n * step for n in range(first, last + 1)], step, unit, ascii_only)
    if (
        before is not None
        and before.low <= low
        and high <= before.top
        and before.top - before.low < _SHRINK * (scale.top - scale.low)
        and len(before.ticks) <= rows
        and before.ticks[-1][1].lstrip("-0123456789. ") == scale.ticks[-1][1].lstrip("-0123456789. ")
    ):
        return before
    return scale


def _range(metric: str, known: tuple[float, float] | None, full: float | None) -> tuple[float, float]:
    """What the axis must hold, in the metric's own unit."""
    fixed, kind = CHART_METRICS[metric].top, CHART_METRICS[metric].unit
    if fixed is not None:
        return 0.0, float(fixed)
    if known is None or not -math.inf < known[0] <= known[1] < math.inf or known[1] <= 0:
        return 0.0, (full if kind == "B" and full else _FIRST_TOP.get(kind, 100.0))
    low, high = known
    if kind == "B/s":
        return 0.0, max(high, _LEAST_SPAN[kind])
    least = max(_LEAST_SHARE[kind] * (full if kind == "B" and full else high), _LEAST_SPAN.get(kind, 1.0))
    if kind == "B" and full and high <= full <= high + max(high - low, _NEAR_SHARE * full):
        high = full
    if high - low < least:
        middle = (low + high) / 2
        low, high = max(0.0, middle - least / 2), max(high, middle + least / 2)
    return (0.0 if low < _FROM_ZERO_SHARE * high else low), high


def near_full(scale: Scale, full: float | None) -> bool:
    """Whether the total is on the axis of memory, and so is to be marked."""
    return full is not None and scale.low < full <= scale.top


def _step(low: float, high: float, intervals: int) -> float:
    """The largest round distance of ticks that makes three intervals or more, but not more than *intervals*."""
    exponent = math.floor(math.log10(high - low)) + 1
    best = 10.0 ** (exponent + 1)
    for power in range(exponent, exponent - 3, -1):
        for mantissa in reversed(_STEPS):
            step = mantissa * 10.0**power
            if mantissa == 2.5 and power < 1:
                continue  # 57.5 is no round number
            count = math.ceil(high / step - 1e-9) - math.floor(low / step + 1e-9)
            if count > intervals:
                return best
            best = step
            if count >= 3:
                return best
    return best


def _labelled(values: list[float], step: float, unit: _Unit, ascii_only: bool) -> Scale:
    """The axis over *values*, which are as shown."""
    suffix = unit.suffix.replace("°", "") if ascii_only else unit.suffix
    spaced = suffix.startswith(" ")
    digits = 0
    while digits < 3 and abs(step * 10**digits - round(step * 10**digits)) > 1e-6:
        digits += 1
    numbers = [f"{value:.{digits}f}" for value in values]
    cells = max(map(len, numbers))
    labels = [
        number.rjust(cells) + (suffix if not spaced or position == len(values) - 1 else " " * len(suffix))
        for position, number in enumerate(numbers)
    ]
    in_metric = [(value - unit.offset) / unit.factor for value in values]
    return Scale(in_metric[0], in_metric[-1], tuple(zip(in_metric, labels, strict=True)))


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Dots of equal time, numbered since the epoch, so that a dot never changes once its time has passed.

    As long as less is known than the window holds, the axis begins where that begins, and grows; then it moves on by
    *step* dots: over SSH a picture that moves is a picture written anew.
    """

    columns: int  # cells across the plot
    across: int  # dots of a cell
    label_cells: int  # kept free behind the newest dot, for the curves' names
    seconds: float  # of one dot
    first: int  # number of the oldest dot shown
    newest_right: bool

    @classmethod
    def of(
        cls,
        columns: int,
        window: float,
        now: float,
        newest_right: bool = True,
        *,
        across: int = 2,
        names: bool = True,
        since: float | None = None,
        step: int = 1,
    ) -> TimeAxis:
        """*since* is where what is known begins (epoch seconds), None where it fills the window; *names* stand behind
        the curves."""
        label_cells = 4 if names and columns >= 40 else 0
        dots = (columns - label_cells) * across
        known = window if since is None else max(0.0, now - since)
        if since is not None and known < window:
            span = min(window, next((span for span in _GROWING_SPANS if span >= known), window))
            seconds = span / max(1, dots - 1)
            return cls(columns, across, label_cells, seconds, math.floor(since / seconds), newest_right)
        step = min(step, max(1, dots // 4))
        seconds = window / max(1, dots - step)  # all of it is shown also just before it moves on
        end = (math.floor(now / seconds) // step + 1) * step  # the first dot not yet to be filled
        return cls(columns, across, label_cells, seconds, end - dots, newest_right)

    @property
    def dots(self) -> int:
        """How many can be filled."""
        return (self.columns - self.label_cells) * self.across

    @property
    def span(self) -> int:
        """Seconds from end to end, but for those that come with the next move."""
        return round((self.dots - 1) * self.seconds)

    @property
    def end(self) -> int:
        """Number after the last dot that can be filled."""
        return self.first + self.dots

    def cell(self, dot: int) -> int:
        """The cell, from the left, in which the dot called *dot* lies."""
        at = (dot - self.first) // self.across
        return at if self.newest_right else self.columns - 1 - at

    def cell_at(self, at: float) -> int | None:
        """The cell of a time (epoch seconds); None outside the plot."""
        cell = self.cell(math.floor(at / self.seconds))
        return cell if 0 <= cell < self.columns else None

    def times(self, cell: int) -> tuple[float, float]:
        """From when, and until when without, a cell shows."""
        at = cell if self.newest_right else self.columns - 1 - cell
        dot = self.first + at * self.across
        return dot * self.seconds, (dot + self.across) * self.seconds

    def ticks(self, zone: Callable[[float], float] | None = None) -> list[tuple[int, str]]:
        """(cell, label) of round local times whose labels are whole inside the plot and apart from each other.
        *zone* gives the seconds east of UTC at a time; the machine's own where it is left out."""
        east = zone or (lambda at: float(time.localtime(at).tm_gmtoff))
        start, end = self.first * self.seconds, self.end * self.seconds
        offset = east(end)
        for step in _TIME_STEPS:
            width = 8 if step < 60 else 5
            if step / (self.seconds * self.across) >= width + 6:
                break
        ticks = []
        at = (math.floor((start + offset) / step) + 1) * step - offset
        while at < end:
            cell = self.cell(math.floor(at / self.seconds))
            if cell - width // 2 >= 1 and cell + (width + 1) // 2 < self.columns:
                clock = time.gmtime(at + offset)
                ticks.append((cell, time.strftime("%H:%M:%S" if step < 60 else "%H:%M", clock)))
            at += step
        return ticks
