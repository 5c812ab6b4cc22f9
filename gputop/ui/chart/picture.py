"""One history chart as lines of spans: plotext draws the axes, the curves are laid over them.

plotext 5 keeps its figure in module globals and asks for the size of the terminal: it is used under a lock and with
its size limits off. To join 8 curves with lines and to find their braille characters takes it 0.1 s (measured at
200x14), so it draws frame, ticks and labels only, and these are kept until they change. What is inside is made here of
:class:`~gputop.ui.chart.curves.Raster`: one GPU is an area whose colour is its height, several are lines in their own
colours; where lines lie on each other the cells take turns in their colours.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final

from gputop import units
from gputop.history.gpu_history import GpuHistory, History
from gputop.model.chart_metrics import CHART_METRICS
from gputop.ui.chart.curves import MIRRORED, Decimated, Raster
from gputop.ui.chart.scale import Scale, TimeAxis, near_full, value_scale
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.glyphs import ASCII, UNICODE
from gputop.ui.toolkit.palette import GRADIENT_STEPS

_ROLES: Final = 8
_ASCII_BOXES: Final = str.maketrans("│┤├┼─┬┴└┘┌┐╌", "|+++-++++++-")
_FIGURE: Final = threading.Lock()  # plotext has one figure for everybody
_DASH: Final = 3  # cells that one of several curves in the same cells has before it is another one's turn
_STILL_SECONDS: Final = 0.8  # a picture stands still for so long for each curve: a move writes all of them anew
_FILLED: Final = 8  # dots of a cell of a filled area: eighths
_FAMILIES: Final = {"%": "u", "B": "m"}  # colours of an area by unit, see palette.py
LEAST_COLUMNS: Final = 4
LEAST_ROWS: Final = 1

Row = list[Span]
"""The cells of a plot's row: a character and a style each."""


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


@dataclass(frozen=True, slots=True)
class PanePicture:
    """*lines* of a pane, the last one the time axis; *left* cells of each are value labels and axis. *axis* is None
    where there was no room for a plot."""

    lines: tuple[Line, ...]
    left: int = 0
    axis: TimeAxis | None = None


def blank(pane: ChartPane) -> PanePicture:
    return PanePicture((((" " * pane.width, "faint"),),) * pane.height)


def empty_axes(pane: ChartPane, look: ChartStyle) -> PanePicture:
    """What is shown until the first picture is there."""
    rows = pane.height - 1
    scale = _scale(pane, None, None, look)
    columns = pane.width - scale.label_width - 1
    if columns < LEAST_COLUMNS or rows < LEAST_ROWS:
        return blank(pane)
    labels = _tick_rows(scale, rows)
    gap = " " * scale.label_width
    frame = [labels.get(row, gap) + ("┤" if row in labels else "│") for row in range(rows - 1, -1, -1)]
    lines = [_row(edge, [(" ", "faint")] * columns) for edge in frame]
    lines.append((("─" * scale.label_width + "┴" + "─" * columns, "faint"),))
    return PanePicture(tuple(map(_ascii, lines)) if look.ascii_only else tuple(lines))


class Painter:
    """Draws pictures of histories. It keeps the decimated curves and the axes from one picture to the next."""

    def __init__(self) -> None:
        self._curves: dict[tuple[str, str], Raster] = {}  # by GPU and metric
        self._tracks: dict[tuple[str, str], GpuHistory] = {}  # whose samples those are
        self._scales: dict[tuple[object, ...], Scale] = {}  # by metric and how it is written
        self._frames: dict[str, tuple[tuple[object, ...], list[str]]] = {}  # by metric: for what, plotext's lines
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
    ) -> PanePicture:
        """``pane.height`` lines of exactly ``pane.width`` cells. Raises ImportError where plotext is not there."""
        if now < self._now:  # the clock was set back
            self._curves.clear()
        self._now = now
        subject = (pane.metric, look.memory_unit, look.temperature_unit, look.ascii_only)
        scale = _scale(pane, None, self._scales.get(subject), look)
        rows = pane.height - 1
        filled = len(curves) == 1
        across, up = (1, _FILLED) if filled else (1, 1) if look.ascii_only else (2, 4)
        label_cells = scale.label_width
        since = _known_since(history, curves)
        while True:  # how wide the labels are depends on the curves, and how many columns there are on the labels
            columns = pane.width - label_cells - 1
            if columns < LEAST_COLUMNS or rows < LEAST_ROWS:
                return blank(pane)
            axis = _time_axis(columns, look, now, across, len(curves), since)
            rasters = [self._raster(curve, pane.metric, axis, up, history) for curve in curves]
            ranges = [known for raster in rasters if (known := raster.curve.range(filled))]
            known = (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None
            scale = _scale(pane, known, self._scales.get(subject), look)
            if scale.label_width <= label_cells:
                break
            label_cells = scale.label_width
        self._scales[subject] = scale
        frame = self._frame(pane, scale, label_cells, axis, look)
        grid: list[Row] = [[(" ", "faint")] * columns for _ in range(rows)]  # from the bottom
        if pane.full and near_full(scale, pane.full) and CHART_METRICS[pane.metric].unit == "B":
            _mark_full(grid, scale, pane.full, look)
        if filled:
            _fill(grid, rasters[0], axis, scale, _FAMILIES.get(CHART_METRICS[pane.metric].unit, "p"), look)
        else:
            _draw_lines(grid, rasters, curves, axis, scale, look)
        lines = [_row(edge, cells) for edge, cells in zip(frame, reversed(grid), strict=False)]
        lines.append(_axis_line(frame[-1]))
        done = tuple(map(_ascii, lines)) if look.ascii_only else tuple(lines)
        return PanePicture(done, label_cells + 1, axis)

    def keep_only(self, curves: tuple[Curve, ...], metrics: tuple[str, ...]) -> None:
        """Forget the curves of GPUs and metrics no longer drawn."""
        wanted = {(curve.uuid, metric) for curve in curves for metric in metrics}
        self._curves = {key: kept for key, kept in self._curves.items() if key in wanted}
        self._tracks = {key: kept for key, kept in self._tracks.items() if key in wanted}

    def _raster(self, curve: Curve, metric: str, axis: TimeAxis, up: int, history: History) -> Raster:
        key = (curve.uuid, metric)
        kept, track = self._curves.get(key), history.track(curve.uuid)
        if track is not None and self._tracks.get(key) is not track:  # a recording was moved to another time
            self._tracks[key], kept = track, None
        if (
            kept is None
            or (kept.across, kept.up) != (axis.across, up)
            or kept.curve.bucket_seconds != axis.seconds
            or kept.curve.oldest > axis.first
        ):
            kept = self._curves[key] = Raster(Decimated(axis.seconds), axis.across, up)
        if track is not None:
            kept.curve.take(track.since(metric, max(kept.curve.newest, axis.first * axis.seconds)))
        kept.curve.forget(axis.first)
        return kept

    def _frame(self, pane: ChartPane, scale: Scale, label_cells: int, axis: TimeAxis, look: ChartStyle) -> list[str]:
        """A line for each row from the top, up to and with the value axis; then the time axis."""
        rows = pane.height - 1
        labels = {row: label.rjust(label_cells) for row, label in _tick_rows(scale, rows).items()}
        ticks = axis.ticks()
        key = (pane.width, pane.height, tuple(labels.items()), tuple(ticks))
        kept = self._frames.get(pane.metric)
        if kept is not None and kept[0] == key:
            return kept[1]
        drawn = self._draw_axes(pane.width, rows, labels, [cell for cell, _ in ticks], axis.columns)
        left = label_cells + 1
        frame = [line[:left] for line in drawn[:rows]]
        bottom = list("─" * label_cells + "┴" + drawn[rows][left:])
        for cell, label in ticks:
            start = left + cell - len(label) // 2
            bottom[start : start + len(label)] = label
        frame.append("".join(bottom))
        self._frames[pane.metric] = key, frame
        return frame

    def _draw_axes(self, width: int, rows: int, labels: dict[int, str], ticks: list[int], columns: int) -> list[str]:
        """plotext's axes with *labels* by row from the bottom and *ticks* by column: *rows* lines and two more."""
        plt = self.prepare()
        with _FIGURE:
            plt.clear_data()
            plt.plotsize(width, rows + 2)
            plt.xlim(0, columns - 1)
            plt.ylim(0, rows - 1 if rows > 1 else 1)
            plt.yticks(list(labels), list(labels.values()))
            plt.xticks(ticks or [columns], [" "] * max(1, len(ticks)))  # it leaves out an axis without ticks
            plt.scatter([0], [0], marker=" ")  # nor does it draw axes without a point
            text: str = plt.uncolorize(plt.build())
        return text.split("\n")


def _known_since(history: History, curves: tuple[Curve, ...]) -> float | None:
    """When the first reading of any of the GPUs was, as far as it is kept; None where there is none."""
    tracks = [track for curve in curves if (track := history.track(curve.uuid)) is not None]
    return min((min(track.fine.oldest, track.coarse.oldest) for track in tracks), default=None)


def _time_axis(columns: int, look: ChartStyle, now: float, across: int, curves: int, since: float | None) -> TimeAxis:
    seconds = look.window / max(1, columns * across)
    step = max(1, round(_STILL_SECONDS * curves / seconds))
    if curves > 2:
        step += step % across  # by whole cells: what lies level in a curve is not written anew
    return TimeAxis.of(
        columns,
        look.window,
        now,
        look.newest_right,
        across=across,
        names=curves > 1,
        since=now if since is None else since,
        step=step,
    )


def _scale(pane: ChartPane, known: tuple[float, float] | None, before: Scale | None, look: ChartStyle) -> Scale:
    """The axis for what is *known*; without that the one *before*, where there was one."""
    rows = max(1, pane.height - 1)
    if known is None and before is not None and len(before.ticks) <= rows:
        return before
    return value_scale(
        pane.metric,
        known,
        rows,
        full=pane.full,
        before=before,
        memory_unit=look.memory_unit,
        temperature_unit=look.temperature_unit,
        ascii_only=look.ascii_only,
    )


def _tick_rows(scale: Scale, rows: int) -> dict[int, str]:
    """Labels by row from the bottom: the row in which a curve of that value is drawn."""
    return {scale.dot(value, 4 * rows) >> 2: label for value, label in scale.ticks}


def _row(edge: str, cells: Row) -> Line:
    """A line of a plot: labels and axis, then *cells* with those of one style together."""
    spans: Row = [(edge[:-1], "dim"), (edge[-1:], "faint")]
    text, style = "", ""
    for character, its_style in cells:
        if its_style == style:
            text += character
        else:
            if text:
                spans.append((text, style))
            text, style = character, its_style
    if text:
        spans.append((text, style))
    return tuple(spans)


def _axis_line(text: str) -> Line:
    """The time axis: the line faint, its labels not."""
    spans: Row = []
    part, style = "", "faint"
    for character in text:
        its_style = "dim" if character.isdigit() or character == ":" else "faint"
        if its_style != style and part:
            spans.append((part, style))
            part = ""
        part, style = part + character, its_style
    return (*spans, (part, style))


def _mark_full(grid: list[Row], scale: Scale, full: float, look: ChartStyle) -> None:
    """The total as a dashed line with its size."""
    row = grid[scale.dot(full, 4 * len(grid)) >> 2]
    label = f" total {units.size(full, look.memory_unit)} "
    for n in range(len(row)):
        row[n] = ("╌", "faint")
    if len(row) >= len(label) + 6:
        start = 2 if look.newest_right else len(row) - 2 - len(label)
        for n, character in enumerate(label, start):
            row[n] = (character, "dim")


def _fill(grid: list[Row], raster: Raster, axis: TimeAxis, scale: Scale, family: str, look: ChartStyle) -> None:
    """The area under the only curve, each row in the colour of its height: full up to the mean of a cell's time, light
    from there to its maximum."""
    rows = len(grid)
    raster.update(rows, scale)
    glyphs = ASCII if look.ascii_only else UNICODE
    levels = [(axis.cell(column), *levels) for column, levels in raster.levels.items() if column >= axis.first]
    for y, row in enumerate(grid):
        style = f"{family}{round(y * (GRADIENT_STEPS - 1) / max(1, rows - 1))}"
        base = y * _FILLED
        for cell, mean, highest in levels:
            if highest > base and 0 <= cell < len(row):
                if mean > base:
                    row[cell] = (glyphs.levels[min(_FILLED, mean - base)], style)
                else:
                    row[cell] = (glyphs.reserved if highest - base >= _FILLED // 2 else " ", style)


def _draw_lines(
    grid: list[Row], rasters: list[Raster], curves: tuple[Curve, ...], axis: TimeAxis, scale: Scale, look: ChartStyle
) -> None:
    """The curves of several GPUs. A cell that some of them share has the dots of all; its colour is theirs by turns, so
    that equal curves look like a string of all their colours."""
    offset = axis.first % axis.across
    for raster in rasters:
        raster.update(len(grid), scale, offset)
    begin = axis.first // axis.across
    for number in range(begin, begin + axis.columns - axis.label_cells):
        shared: dict[int, tuple[int, list[int]]] = {}
        for n, raster in enumerate(rasters):
            cells = raster.columns.get(number)
            if cells:
                for y, bits in cells.items():
                    old = shared.get(y)
                    shared[y] = (bits, [n]) if old is None else (old[0] | bits, [*old[1], n])
        x = number - begin if look.newest_right else axis.columns - 1 - number + begin
        for y, (bits, owners) in shared.items():
            curve = curves[owners[number // _DASH % len(owners)]]
            if look.ascii_only:
                character = str(curve.index % 10)
            else:
                character = chr(0x2800 + (bits if look.newest_right else MIRRORED[bits]))
            grid[y][x] = character, f"g{curve.hue}"
    if axis.label_cells:
        _name_ends(grid, rasters, curves, axis, scale, look)


def _name_ends(
    grid: list[Row], rasters: list[Raster], curves: tuple[Curve, ...], axis: TimeAxis, scale: Scale, look: ChartStyle
) -> None:
    """The GPUs' indices behind the newest ends of their curves: who is who without colours."""
    newest = max(raster.curve.last for raster in rasters)
    if newest < axis.first:
        return
    ends: dict[int, list[Curve]] = {}
    for raster, curve in zip(rasters, curves, strict=True):
        last = raster.curve.last
        if last >= newest - 2 * raster.across and last in raster.curve.highest:
            row = scale.dot(raster.curve.highest[last], len(grid) * raster.up) // raster.up
            ends.setdefault(row, []).append(curve)
    for y, together in ends.items():
        name = _names([curve.index for curve in together], axis.label_cells - 1)
        cell = axis.cell(newest) + 1 if look.newest_right else axis.cell(newest) - len(name)
        for n, character in enumerate(name, cell):
            if 0 <= n < len(grid[y]):
                grid[y][n] = (character, f"g{together[0].hue}")


def _names(indices: list[int], cells: int) -> str:
    """``0-3``, ``2,5`` or, where that takes too many cells, the first one and a plus."""
    indices = sorted(indices)
    if len(indices) > 1 and indices[-1] - indices[0] == len(indices) - 1:
        text = f"{indices[0]}-{indices[-1]}"
    else:
        text = ",".join(map(str, indices))
    return text if len(text) <= cells else f"{indices[0]}+"[:cells]


def _ascii(line: Line) -> Line:
    return tuple((text.translate(_ASCII_BOXES), style) for text, style in line)
