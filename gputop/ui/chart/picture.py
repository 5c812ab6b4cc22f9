"""One history chart drawn by plotext and taken apart into spans.

plotext 5 keeps its figure in module globals and asks for the size of the terminal: it is used under a lock and with
its size limits off. To join 8 curves with lines and to find their braille characters takes it 0.1 s (measured at
200x14), so it is given one point a cell, the character already chosen; it draws the axes, the ticks and the points.
Its output is read by the few escape sequences it writes: Rich's ``Text.from_ansi`` takes ten times as long (8 ms).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final

from gputop.sampling.history import GpuHistory, History
from gputop.ui.chart.curves import MIRRORED, Decimated, Raster
from gputop.ui.chart.scale import Scale, TimeAxis, axis_top, value_scale
from gputop.ui.toolkit.cells import Line, Span

_RESET: Final = "\x1b[0m"
_COLOUR: Final = "\x1b[38;5;"
_FIRST_CODE: Final = 16  # plotext's colour number of role g0, and so on
_ROLES: Final = 8
_ASCII_BOXES: Final = str.maketrans("│┤├┼─┬┴└┘┌┐", "|+++-++++++")
_FIGURE: Final = threading.Lock()  # plotext has one figure for everybody
LEAST_COLUMNS: Final = 4
LEAST_ROWS: Final = 2


@dataclass(frozen=True, slots=True)
class Curve:
    """A GPU's curve: whose history it is, what it is called at its end, which hue it has (n of role ``g<n>``)."""

    uuid: str
    index: int

    @property
    def hue(self) -> int:
        return self.index % _ROLES


@dataclass(frozen=True, slots=True)
class ChartPane:
    """One metric in a picture of *width* by *height* cells, axes included. *full*: the largest GPU's memory, bytes."""

    metric: str
    width: int
    height: int
    full: float | None = None


@dataclass(frozen=True, slots=True)
class ChartStyle:
    """What all panes share. *window* in seconds."""

    window: float
    newest_right: bool = True
    memory_unit: str = "GiB"
    temperature_unit: str = "C"
    ascii_only: bool = False


def blank(pane: ChartPane) -> tuple[Line, ...]:
    return (((" " * pane.width, "faint"),),) * pane.height


def empty_axes(pane: ChartPane, look: ChartStyle) -> tuple[Line, ...]:
    """What is shown until the first picture is there: its axes."""
    top = axis_top(pane.metric, None, pane.full, None, look.temperature_unit)
    scale = _scale(pane, top, look)
    columns, rows = pane.width - scale.label_width - 1, pane.height - 2  # the axis, and below the curves its labels
    if columns < LEAST_COLUMNS or rows < LEAST_ROWS:
        return blank(pane)
    labels = _tick_rows(scale, rows)
    gap = " " * scale.label_width
    lines: list[Line] = [
        ((labels.get(row, gap), "dim"), (("┤" if row in labels else "│") + " " * columns, "faint"))
        for row in range(rows - 1, -1, -1)
    ]
    lines.append(((gap + "└" + "─" * columns, "faint"),))
    lines.append(((" " * pane.width, "dim"),))
    return tuple(_ascii(line) for line in lines) if look.ascii_only else tuple(lines)


class Painter:
    """Draws pictures of histories. It keeps the decimated curves and the axes' ends from one picture to the next."""

    def __init__(self) -> None:
        self._curves: dict[tuple[str, str], Raster] = {}  # by GPU and metric
        self._tracks: dict[tuple[str, str], GpuHistory] = {}  # whose samples those are
        self._tops: dict[tuple[str, str], float] = {}  # by metric and unit of temperature
        self._plotext: Any = None
        self._now = 0.0

    def prepare(self) -> Any:
        """Load plotext and set what stays the same. Raises ImportError where it is not there."""
        if self._plotext is None:
            import plotext as plt  # 54 ms, so not before a chart is wanted

            with _FIGURE:
                plt.clear_figure()
                plt.limit_size(False, False)  # whatever the terminal's size
                plt.theme("clear")
                plt.xaxes(True, False)
                plt.yaxes(True, False)
            self._plotext = plt
        return self._plotext

    def paint(
        self, pane: ChartPane, look: ChartStyle, curves: tuple[Curve, ...], history: History, now: float
    ) -> tuple[Line, ...]:
        """``pane.height`` lines of exactly ``pane.width`` cells. Raises ImportError where plotext is not there."""
        if now < self._now:  # the clock was set back
            self._curves.clear()
        self._now = now
        subject = (pane.metric, look.temperature_unit)
        before = self._tops.get(subject)
        rows = pane.height - 2
        guess = before or axis_top(pane.metric, None, pane.full, None, look.temperature_unit)
        label_cells = _scale(pane, guess, look).label_width
        may_narrow = True
        while True:  # how wide the labels are depends on the curves, and how many columns there are on the labels
            columns = pane.width - label_cells - 1
            if columns < LEAST_COLUMNS or rows < LEAST_ROWS:
                return blank(pane)
            axis = TimeAxis.of(columns, look.window, now, look.newest_right)
            rasters = [self._raster(curve, pane.metric, axis, 1 if look.ascii_only else 2, history) for curve in curves]
            peak = max((p for raster in rasters if (p := raster.curve.peak()) is not None), default=None)
            top = axis_top(pane.metric, peak, pane.full, before, look.temperature_unit)
            scale = _scale(pane, top, look)
            if scale.label_width == label_cells:
                break
            if scale.label_width < label_cells and not may_narrow:
                scale = scale.padded(label_cells)
                break
            label_cells, may_narrow = scale.label_width, False
        self._tops[subject] = top
        points = _points(rasters, curves, axis, rows, top, look)
        return self._draw(pane, look, scale, axis, rows, points)

    def keep_only(self, curves: tuple[Curve, ...], metrics: tuple[str, ...]) -> None:
        """Forget the curves of GPUs and metrics no longer drawn."""
        wanted = {(curve.uuid, metric) for curve in curves for metric in metrics}
        self._curves = {key: kept for key, kept in self._curves.items() if key in wanted}
        self._tracks = {key: kept for key, kept in self._tracks.items() if key in wanted}

    def _raster(self, curve: Curve, metric: str, axis: TimeAxis, across: int, history: History) -> Raster:
        key, seconds = (curve.uuid, metric), axis.seconds / across
        kept, track = self._curves.get(key), history.track(curve.uuid)
        if track is not None and self._tracks.get(key) is not track:  # a recording was moved to another time
            self._tracks[key], kept = track, None
        if kept is None or kept.across != across or kept.curve.bucket_seconds != seconds:
            kept = self._curves[key] = Raster(Decimated(seconds), across, 1 if across == 1 else 4)
        if track is not None:
            kept.curve.take(track.since(metric, max(kept.curve.newest, axis.first * axis.seconds)))
        kept.curve.forget(axis.first * across)
        return kept

    def _draw(
        self,
        pane: ChartPane,
        look: ChartStyle,
        scale: Scale,
        axis: TimeAxis,
        rows: int,
        points: dict[tuple[int, int], tuple[str, int]],
    ) -> tuple[Line, ...]:
        plt = self.prepare()
        labels = _tick_rows(scale, rows)
        ticks = axis.ticks() or [(axis.columns, " ")]  # without a tick plotext leaves out the line of labels
        if not points:
            points = {(0, 0): (" ", 0)}  # nor does it draw axes without a point
        with _FIGURE:
            plt.clear_data()
            plt.plotsize(pane.width, pane.height)
            plt.xlim(0, axis.columns - 1)
            plt.ylim(0, rows - 1)
            plt.yticks(list(labels), list(labels.values()))
            plt.xticks([cell for cell, _ in ticks], [label for _, label in ticks])
            plt.scatter(
                [x for x, _ in points],
                [y for _, y in points],
                marker=[character for character, _ in points.values()],
                color=[_FIRST_CODE + hue for _, hue in points.values()],
            )
            text = plt.build()
        lines = [_spans(row, n, scale.label_width, rows) for n, row in enumerate(text.split("\n")[: pane.height])]
        return tuple(_ascii(line) for line in lines) if look.ascii_only else tuple(lines)


def _scale(pane: ChartPane, top: float, look: ChartStyle) -> Scale:
    rows = max(1, pane.height - 2)
    return value_scale(pane.metric, top, rows, look.memory_unit, look.temperature_unit, look.ascii_only)


def _tick_rows(scale: Scale, rows: int) -> dict[int, str]:
    """Labels by row from the bottom: the row in which a curve of that value is drawn."""
    return {int(value * (4 * rows - 1) / scale.top + 0.5) >> 2: label for value, label in scale.ticks}


def _points(
    rasters: list[Raster], curves: tuple[Curve, ...], axis: TimeAxis, rows: int, top: float, look: ChartStyle
) -> dict[tuple[int, int], tuple[str, int]]:
    """(character, hue) by (cell column, cell row from the bottom). A cell that curves share has the dots of all of them
    and the hue of the first."""
    points: dict[tuple[int, int], tuple[str, int]] = {}
    for raster in rasters:
        raster.update(rows, top)
    for number in range(axis.first, axis.end):
        x = axis.cell(number)
        shared: dict[int, tuple[int, int]] = {}
        for n, raster in enumerate(rasters):
            for y, bits in raster.columns.get(number, {}).items():
                old = shared.get(y)
                shared[y] = (bits, n) if old is None else (old[0] | bits, old[1])
        for y, (bits, n) in shared.items():
            if look.ascii_only:
                character = str(curves[n].index % 10) if len(curves) > 1 else "*"
            else:
                character = chr(0x2800 + (bits if look.newest_right else MIRRORED[bits]))
            points[x, y] = character, curves[n].hue
    if len(curves) > 1 and axis.label_cells:
        points |= _end_names(rasters, curves, axis, rows, top, look)
    return points


def _end_names(
    rasters: list[Raster], curves: tuple[Curve, ...], axis: TimeAxis, rows: int, top: float, look: ChartStyle
) -> dict[tuple[int, int], tuple[str, int]]:
    """The GPUs' indices behind the newest ends of their curves: who is who without colours."""
    newest = max(raster.curve.last // raster.across for raster in rasters)
    ends: dict[int, list[Curve]] = {}
    for raster, curve in zip(rasters, curves, strict=True):
        last = raster.curve.last
        if last // raster.across >= newest - 1 and last in raster.curve.highest:
            ends.setdefault(raster.curve.height(last, rows * raster.up, top) // raster.up, []).append(curve)
    points = {}
    for row, termination in ends.items():
        name = _names([curve.index for curve in termination], axis.label_cells - 1)
        cell = axis.cell(newest) + 1 if look.newest_right else axis.cell(newest) - len(name)
        points.update({(cell + n, row): (character, termination[0].hue) for n, character in enumerate(name)})
    return points


def _names(indices: list[int], cells: int) -> str:
    """``0-3``, ``2,5`` or, where that takes too many cells, the first one and a plus."""
    indices = sorted(indices)
    if len(indices) > 1 and indices[-1] - indices[0] == len(indices) - 1:
        text = f"{indices[0]}-{indices[-1]}"
    else:
        text = ",".join(map(str, indices))
    return text if len(text) <= cells else f"{indices[0]}+"[:cells]


def _spans(row: str, n: int, label_width: int, rows: int) -> Line:
    """The spans of line *n* of plotext's output, whose only escape sequences are those of colours and their end."""
    if n > rows:
        return ((row.replace(_RESET, ""), "dim"),)
    if n == rows:
        return ((row.replace(_RESET, ""), "faint"),)
    spans: list[Span] = []
    for chunk in row.split(_RESET):
        if chunk.startswith(_COLOUR):
            code, _, text = chunk[len(_COLOUR) :].partition("m")
            spans.append((text, f"g{int(code) - _FIRST_CODE}"))
        elif not spans:
            spans += [(chunk[:label_width], "dim"), (chunk[label_width:], "faint")]
        elif chunk:
            spans.append((chunk, "faint"))
    return tuple(spans)


def _ascii(line: Line) -> Line:
    return tuple((text.translate(_ASCII_BOXES), style) for text, style in line)
