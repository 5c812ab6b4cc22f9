"""The history chart: a bordered pane for each metric, its picture built elsewhere (chart_builder.py).

A tick only renews the values in the title line and hands on a request; the picture is shown when it arrives, and of it
the cells that changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from textual.events import Blur, Focus, Hide, Resize
from textual.message import Message

from gputop import units
from gputop.model import Gpu, Snapshot
from gputop.model.chart_metrics import CHART_METRICS
from gputop.sampling.history import History
from gputop.sampling.journal import Journal
from gputop.text import width
from gputop.ui.chart.builder import ChartBuilder, ChartRequest, Picture
from gputop.ui.chart.events import with_events
from gputop.ui.chart.picture import ChartPane, ChartStyle, Curve, empty_axes
from gputop.ui.chart.scale import TimeAxis
from gputop.ui.toolkit.cells import Line, Span, line_width
from gputop.ui.toolkit.line_widget import LineWidget
from gputop.ui.toolkit.palette import gpu_role
from gputop.ui.toolkit.view import View

LEAST_PANE_WIDTH: Final = 50
LEAST_PANE_HEIGHT: Final = 7
_GAP: Final = 2  # cells between two panes
_VALUE_CELLS: Final = {"B": 6, "%": 4, "W": 5, "°C": 5, "B/s": 5, "MHz": 7}


@dataclass(frozen=True, slots=True)
class PanePosition:
    """Where the bordered pane of a metric is, in cells of the widget."""

    metric: str
    x: int
    y: int
    width: int
    height: int


def arrange(metrics: Sequence[str], width: int, height: int) -> tuple[PanePosition, ...]:
    """Panes side by side as far as they are wide enough, then below each other; what does not fit is left out, but
    never the first."""
    if width < 8 or height < 4 or not metrics:
        return ()
    abreast = max(1, min(len(metrics), (width + _GAP) // (LEAST_PANE_WIDTH + _GAP)))
    rows = max(1, min(-(-len(metrics) // abreast), height // LEAST_PANE_HEIGHT))
    places: list[PanePosition] = []
    for row in range(rows):
        line = metrics[row * abreast : (row + 1) * abreast]
        y, bottom = row * height // rows, (row + 1) * height // rows
        free = width - _GAP * (len(line) - 1)
        for n, metric in enumerate(line):
            x, right = n * free // len(line), (n + 1) * free // len(line)
            places.append(PanePosition(metric, x + n * _GAP, y, right - x, bottom - y))
    return tuple(places)


def _cells(line: Line) -> Iterator[Span]:
    for text, style in line:
        for character in text:
            yield character, style


class HistoryChart(LineWidget, can_focus=True):
    """Charts of ``Settings.chart_metrics`` over ``chart_window`` seconds, a curve a GPU."""

    DEFAULT_CSS: ClassVar[str] = "HistoryChart { width: 100%; height: 1fr; }"

    class Built(Message, bubble=False):
        """A picture is ready; posted by the builder's thread."""

        def __init__(self, picture: Picture) -> None:
            super().__init__()
            self.picture = picture

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.builder = ChartBuilder(lambda picture: self.post_message(self.Built(picture)))
        self.picture: Picture | None = None  # the newest
        self._shown: tuple[Snapshot, History, View] | None = None
        self._now: float | None = None
        self._jump = 0
        self.journal: Journal | None = None  # what happened is told by letters on the axis
        self._bodies: tuple[tuple[object, ...], list[tuple[Line, ...]]] | None = None

    def show_snapshot(
        self, snapshot: Snapshot, history: History, view: View, now: float | None = None, jump: int = 0
    ) -> None:
        """Every tick: the values in the title now, the curves when they are due. Hidden, nothing is built.

        *now*: where the curves end, while *snapshot* is of an earlier time, which gets a mark; *jump* counts up where
        *history* is another one than before.
        """
        self._shown, self._now, self._jump = (snapshot, history, view), now, jump
        self._update()

    @property
    def is_shown(self) -> bool:
        """Whether anybody can see it: on the screen in front, or behind a dialog."""
        return bool(self.is_attached and self.display and self.size and self.screen.is_current and self.is_on_screen)

    def hold(self) -> None:
        """Stay as it is; only a picture of another size or metric, which is on its way, still comes."""
        if self._bodies is not None and self._bodies[0][0] is not None:
            self.builder.cancel()

    def on_unmount(self) -> None:
        self.builder.stop()

    def on_hide(self, _: Hide) -> None:
        self.builder.cancel()

    def on_resize(self, _: Resize) -> None:
        self._update()

    def on_focus(self, _: Focus) -> None:
        self._update()

    def on_blur(self, _: Blur) -> None:
        self._update()

    def on_history_chart_built(self, message: Built) -> None:
        self.picture = message.picture
        self._update(request=False)

    def _update(self, request: bool = True) -> None:
        if self._shown is None or not self.is_shown:
            self.builder.cancel()
            return
        snapshot, history, view = self._shown
        settings = view.settings
        places = arrange(settings.chart_metrics, self.size.width, self.size.height)
        full = max((gpu.memory_total_bytes for gpu in snapshot.gpus if gpu.memory_total_bytes), default=None)
        panes = tuple(ChartPane(place.metric, place.width - 4, place.height - 2, full) for place in places)
        look = ChartStyle(
            float(settings.chart_window),
            settings.chart_newest_right,
            settings.memory_unit,
            settings.temperature_unit,
            view.glyphs.full.isascii(),
        )
        if request:
            curves = tuple(Curve(gpu.uuid, gpu.index) for gpu in snapshot.gpus)
            end = self._end(snapshot, look)
            self.builder.request(ChartRequest(panes, look, curves, history, end, self._jump))
        self._show_panes(places, panes, look, snapshot, view)

    def _end(self, snapshot: Snapshot, look: ChartStyle) -> float:
        """Where the time axis ends: now, or such that a moment before its begin is in it."""
        if self._now is None:
            return snapshot.taken_at
        if self._now - snapshot.taken_at < look.window * 0.9:
            return self._now
        return snapshot.taken_at + look.window / 2

    def _show_panes(
        self,
        places: tuple[PanePosition, ...],
        panes: tuple[ChartPane, ...],
        look: ChartStyle,
        snapshot: Snapshot,
        view: View,
    ) -> None:
        border = "accent" if self.has_focus else "faint"
        picture = self.picture
        if picture is not None and picture.request.panes != panes:
            picture = None  # of another size or metric: the right one is on its way
        mark = None if self._now is None else snapshot.taken_at
        key = (picture, panes, look, border, mark, self.journal.version if self.journal is not None else 0)
        if self._bodies is None or self._bodies[0] != key:
            self._bodies = key, [self._body(n, pane, picture, look, view, border, mark) for n, pane in enumerate(panes)]
        blocks: list[tuple[Line, ...]] = []
        dropped = len(view.settings.chart_metrics) - len(places)
        for n, (place, body) in enumerate(zip(places, self._bodies[1], strict=True)):
            title = _title(place.metric, snapshot, view, dropped if n == 0 else 0)
            blocks.append((_top(title, place, snapshot.gpus, view, border), *body))
        self.show(_side_by_side(places, blocks))

    def _body(
        self,
        n: int,
        pane: ChartPane,
        picture: Picture | None,
        look: ChartStyle,
        view: View,
        border: str,
        mark: float | None,
    ) -> tuple[Line, ...]:
        """The lines below the title line: the picture between its borders."""
        if picture is None or picture.error is not None:
            lines = empty_axes(pane, look)
        else:
            lines = picture.panes[n]
            if self.journal is not None and self.journal.events:
                lines = with_events(lines, look, picture.request.now, self.journal.events)
            if mark is not None:
                lines = with_mark(lines, look, picture.request.now, mark, view.glyphs.side)
        if picture is not None and picture.error is not None and lines:
            words = picture.error.encode("ascii", "replace").decode()[: pane.width]
            lines = (((words.ljust(pane.width), "warning"),), *lines[1:])
        glyphs = view.glyphs
        left, right = (glyphs.side + " ", border), (" " + glyphs.side, border)
        bottom = glyphs.corners[2] + glyphs.rule * (pane.width + 2) + glyphs.corners[3]
        return (*((left, *line, right) for line in lines), ((bottom, border),))


def with_mark(lines: tuple[Line, ...], look: ChartStyle, now: float, at: float, stroke: str) -> tuple[Line, ...]:
    """*lines* of a picture whose axis ends at *now*, with a stroke at the time *at*."""
    if len(lines) < 3 or len(lines[0]) < 2:
        return lines
    left = width(lines[0][0][0]) + 1  # the labels and the axis
    columns = line_width(lines[0]) - left
    if columns < 1:
        return lines
    axis = TimeAxis.of(columns, look.window, now, look.newest_right)
    cell = axis.cell(int(at / axis.seconds))
    if not 0 <= cell < columns:
        return lines
    return (*(_struck(line, left + cell, stroke) for line in lines[:-2]), *lines[-2:])


def _struck(line: Line, at: int, stroke: str) -> Line:
    """*line* with the cell *at* marked: a stroke where it is blank, else what is there, reversed."""
    spans: list[Span] = []
    x = 0
    for text, style in line:
        if x <= at < x + len(text):  # a picture has characters of one cell only
            n = at - x
            here = (stroke, "accent") if text[n] in " \u2800" else (text[n], "accent+r")
            spans += [(text[:n], style), here, (text[n + 1 :], style)]
        else:
            spans.append((text, style))
        x += len(text)
    return tuple(span for span in spans if span[0])


def _side_by_side(places: tuple[PanePosition, ...], blocks: list[tuple[Line, ...]]) -> tuple[Line, ...]:
    lines: list[Line] = []
    for place, block in zip(places, blocks, strict=True):
        if place.x == 0:
            lines += block
        else:
            for n, line in enumerate(block):
                lines[place.y + n] = (*lines[place.y + n], (" " * _GAP, "faint"), *line)
    return tuple(lines)


def _title(metric: str, snapshot: Snapshot, view: View, dropped: int) -> str:
    span = units.short_duration(view.settings.chart_window)
    parts = [CHART_METRICS[metric].label, *(["all GPUs"] if len(snapshot.gpus) > 1 else []), f"last {span}"]
    if dropped:
        parts.append(f"{dropped} more {'metric needs' if dropped == 1 else 'metrics need'} more room")
    return f" {view.glyphs.bullet} ".join(parts)


def _top(title: str, place: PanePosition, gpus: tuple[Gpu, ...], view: View, border: str) -> Line:
    """``╭ title ─────── ■ 0 88.1G  ■ 1 118.3G ─╮``, exactly as wide as its pane."""
    glyphs = view.glyphs
    room = place.width - 4  # the corners, and a rule before the right one and after the left one
    title = title[: max(0, room - 1)]
    legend: tuple[Span, ...] = ()
    for candidate in _legends(place.metric, gpus, view):
        if line_width(candidate) + len(title) + 6 <= room:
            legend = candidate
            break
    if legend:
        legend = ((" ", border), *legend, (" ", border))
    left = f"{glyphs.corners[0]} "
    rules = place.width - len(left) - len(title) - 1 - line_width(legend) - 2
    return (
        (left, border),
        (title, "title"),
        (" " + glyphs.rule * rules, border),
        *legend,
        (glyphs.rule + glyphs.corners[1], border),
    )


def _legends(metric: str, gpus: tuple[Gpu, ...], view: View) -> Iterator[tuple[Span, ...]]:
    """From the fullest to the shortest: marks with values, marks alone."""
    mark = "#" if view.glyphs.full.isascii() else "■"
    for with_values in (True, False):
        spans: list[Span] = []
        for gpu in gpus:
            if spans:
                spans.append(("  " if with_values else " ", "faint"))
            spans.append((f"{mark}{' ' if with_values else ''}{gpu.index}", gpu_role(gpu.index)))
            if with_values:
                spans.append((" " + _value(metric, gpu, view), "text"))
        yield tuple(spans)


def _value(metric: str, gpu: Gpu, view: View) -> str:
    """What the GPU's value is now, in a fixed number of cells."""
    kind = CHART_METRICS[metric].unit
    known = not (gpu.late or gpu.asleep or gpu.error is not None)
    value = CHART_METRICS[metric].of(gpu) if known else None
    if value is None:
        text = view.glyphs.unknown
    elif kind == "B":
        text = view.memory(value)
    elif kind == "°C":
        text = view.temperature(value).replace("°", view.glyphs.degree)
    elif kind == "B/s":
        text = units.rate(value)
    else:
        text = f"{value:.0f}{kind}"
    return text.rjust(_VALUE_CELLS[kind] + (kind == "B" and view.settings.memory_unit == "MiB"))
