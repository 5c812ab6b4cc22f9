"""The history charts: a framed pane for each metric, its picture built elsewhere (builder.py).

A tick only renews the values in the title lines and hands on a request; the picture is shown when it arrives, and of it
the cells that changed. Where the panes are and what stands above them is in panes.py.
"""

from __future__ import annotations

import math
from typing import ClassVar, Final

from textual.binding import Binding
from textual.events import Blur, Click, Focus, Hide, Resize
from textual.message import Message

from gputop import units
from gputop.history.gpu_history import History
from gputop.history.journal import Journal
from gputop.model import Gpu, Snapshot
from gputop.model.chart_metrics import CHART_METRICS
from gputop.ui.chart.builder import ChartBuilder, ChartRequest, Picture
from gputop.ui.chart.events import with_events
from gputop.ui.chart.panes import PanePosition, arrange, side_by_side, top_line
from gputop.ui.chart.picture import ChartPane, ChartStyle, Curve, PanePicture, empty_axes
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.line_widget import LineWidget
from gputop.ui.toolkit.view import View

_ALWAYS_TOLD: Final = ("utilization", "memory")


class HistoryChart(LineWidget, can_focus=True):
    """Charts of ``Settings.chart_metrics`` over ``chart_window`` seconds, a curve a GPU. Focused, the arrows move a
    cursor in time: the title lines have the values of then."""

    DEFAULT_CSS: ClassVar[str] = "HistoryChart { width: 100%; height: 1fr; }"
    BINDINGS: ClassVar[list[Binding]] = [  # type: ignore[assignment]
        Binding("left", "cursor(-1)", "earlier", show=False),
        Binding("right", "cursor(1)", "later", show=False),
        Binding("up,pageup", "cursor(-10)", "much earlier", show=False),
        Binding("down,pagedown", "cursor(10)", "much later", show=False),
        Binding("home", "cursor(-9999)", "the oldest", show=False),
        Binding("end", "cursor(9999)", "the newest", show=False),
    ]

    class Built(Message, bubble=False):
        """A picture is ready; posted by the builder's thread."""

        def __init__(self, picture: Picture) -> None:
            super().__init__()
            self.picture = picture

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.builder = ChartBuilder(lambda picture: self.post_message(self.Built(picture)))
        self.picture: Picture | None = None  # the newest
        self.cursor: float | None = None  # the time at the cursor (epoch seconds), while focused
        self._shown: tuple[Snapshot, History, View] | None = None
        self._now: float | None = None
        self._jump = 0
        self._told: set[str] = set(_ALWAYS_TOLD)  # metrics of which some GPU has had a value that is not 0
        self.journal: Journal | None = None  # what happened is told by letters on the axis
        self._bodies: tuple[tuple[object, ...], list[tuple[Line, ...]]] | None = None

    def show_snapshot(
        self, snapshot: Snapshot, history: History, view: View, now: float | None = None, jump: int = 0
    ) -> None:
        """Every tick: the values in the titles now, the curves when they are due. Hidden, nothing is built.

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
        self.cursor = None
        self._update()

    def on_history_chart_built(self, message: Built) -> None:
        self.picture = message.picture
        self._update(request=False)

    # -- the cursor in time

    def _first_pane(self) -> PanePicture | None:
        panes = () if self.picture is None else self.picture.panes
        return panes[0] if panes and panes[0].axis is not None else None

    def action_cursor(self, cells: int) -> None:
        """Move the cursor by *cells* of time; the first time it appears at the newest reading."""
        pane = self._first_pane()
        if pane is None or pane.axis is None or self._shown is None:
            return
        axis = pane.axis
        newest = math.floor(self._newest(self._shown[0]) / axis.seconds)
        at = newest if self.cursor is None else math.floor(self.cursor / axis.seconds)
        step = cells * axis.across * (1 if axis.newest_right or abs(cells) > 1 else -1)
        self.cursor = (max(axis.first, min(newest, at + step)) + 0.5) * axis.seconds
        self._update(request=False)

    def on_click(self, event: Click) -> None:
        """The cursor goes where one clicks."""
        if self.picture is None or self._shown is None:
            return
        for place, pane in zip(self._places(self._shown[2], self._shown[0]), self.picture.panes, strict=False):
            cell = event.x - place.x - 1 - pane.left
            if pane.axis is not None and place.y <= event.y < place.y + place.height and 0 <= cell < pane.axis.columns:
                begin, end = pane.axis.times(cell)
                self.cursor = min((begin + end) / 2, self._newest(self._shown[0]))
                self._update(request=False)

    def _newest(self, snapshot: Snapshot) -> float:
        return snapshot.taken_at if self._now is None else self._now

    # -- drawing

    def _places(self, view: View, snapshot: Snapshot) -> tuple[PanePosition, ...]:
        return arrange(self._metrics(view, snapshot), self.size.width, self.size.height)

    def _metrics(self, view: View, snapshot: Snapshot) -> list[str]:
        """Those of the settings of which there is something to see, or all where there is nothing of any."""
        chosen = view.settings.chart_metrics
        for metric in chosen:
            if metric not in self._told and any(map(CHART_METRICS[metric].of, snapshot.gpus)):
                self._told.add(metric)
        return [metric for metric in chosen if metric in self._told] or list(chosen)

    def _update(self, request: bool = True) -> None:
        if self._shown is None or not self.is_shown:
            self.builder.cancel()
            return
        snapshot, history, view = self._shown
        settings = view.settings
        places = self._places(view, snapshot)
        totals = {gpu.memory_total_bytes for gpu in snapshot.gpus if gpu.memory_total_bytes}
        full = max(totals) if len(totals) == 1 else None  # of several kinds, none is the total
        panes = tuple(ChartPane(place.metric, place.width - 2, place.height - 1, full) for place in places)
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
        self._show_panes(places, panes, look, snapshot, history, view)

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
        history: History,
        view: View,
    ) -> None:
        border = "accent" if self.has_focus else "faint"
        picture = self.picture
        if picture is not None and picture.request.panes != panes:
            picture = None  # of another size or metric: the right one is on its way
        mark = self.cursor
        if mark is None and self._now is not None:
            mark = snapshot.taken_at
        key = (picture, panes, look, border, mark, self.journal.version if self.journal is not None else 0)
        if self._bodies is None or self._bodies[0] != key:
            self._bodies = key, [self._body(n, pane, picture, look, view, border, mark) for n, pane in enumerate(panes)]
        blocks: list[tuple[Line, ...]] = []
        axes = [] if picture is None else [pane.axis for pane in picture.panes if pane.axis is not None]
        span = min([look.window, *(axis.span for axis in axes)])
        for place, body in zip(places, self._bodies[1], strict=True):
            remark: Span = (units.short_duration(span), "dim")
            if self.cursor is not None:
                remark = (f"at {units.clock(self.cursor)}", "accent")
            values = [self._value(place.metric, gpu, history) for gpu in snapshot.gpus]
            line = top_line(place, snapshot.gpus, values, view, border, remark, self.cursor is not None)
            blocks.append((line, *body))
        self.show(side_by_side(places, blocks))

    def _value(self, metric: str, gpu: Gpu, history: History) -> float | None:
        """The GPU's value now, or at the cursor."""
        if self.cursor is not None:
            track = history.track(gpu.uuid)
            return None if track is None else track.value_at(metric, self.cursor)
        known = not (gpu.late or gpu.asleep or gpu.error is not None)
        return CHART_METRICS[metric].of(gpu) if known else None

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
        """The lines below the title line: the plot between its borders, the time axis as the lower border."""
        drawn = empty_axes(pane, look) if picture is None or picture.error is not None else picture.panes[n]
        lines = drawn.lines
        if self.journal is not None and self.journal.events:
            lines = with_events(drawn, self.journal.events)
        cell = None if mark is None or drawn.axis is None else drawn.axis.cell_at(mark)
        if cell is not None:
            lines = (*(_struck(line, drawn.left + cell, view.glyphs.side) for line in lines[:-1]), *lines[-1:])
        if picture is not None and picture.error is not None and lines:
            message = picture.error.encode("ascii", "replace").decode()[: pane.width]
            lines = (((message.ljust(pane.width), "warning"),), *lines[1:])
        glyphs = view.glyphs
        side: Span = (glyphs.side, border)
        bottom = ((glyphs.corners[2], border), *lines[-1], (glyphs.corners[3], border))
        return (*((side, *line, side) for line in lines[:-1]), bottom)


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
