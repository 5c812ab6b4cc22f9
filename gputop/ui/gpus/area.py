"""All GPUs: a line, two lines or a card each, as the plan of the screen says; scrolls when they do not fit."""

from __future__ import annotations

from collections import defaultdict

from textual import events
from textual.binding import Binding
from textual.message import Message

from gputop.history.gpu_history import History
from gputop.leaks.report import LeakReport
from gputop.model import Gpu, GpuProcess, Snapshot
from gputop.text import fit
from gputop.ui.gpus.badges import Badge
from gputop.ui.gpus.cards import card
from gputop.ui.gpus.lines import Shape, pair, single
from gputop.ui.gpus.parts import GpuDrawing
from gputop.ui.gpus.remarks import memory_parts
from gputop.ui.layout import ScreenLayout
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.line_widget import LineWidget
from gputop.ui.toolkit.view import View


def held_by(report: LeakReport, uuid: str) -> str:
    """Who keeps the memory of the largest dead pid on a GPU: ``50377 +3``; empty where that is not known."""
    for dead_pid in report.dead_pids:
        if dead_pid.targets and any(on == uuid for on, _ in dead_pid.memory):
            more = f" +{len(dead_pid.targets) - 1}" if len(dead_pid.targets) > 1 else ""
            return f"{dead_pid.targets[0].pid}{more}"
    return ""


class GpuArea(LineWidget):
    """Focusable: the arrows choose a GPU, Enter opens its details."""

    can_focus = True
    BINDINGS = [
        Binding("up,left", "move(-1)", "previous GPU", show=False),
        Binding("down,right", "move(1)", "next GPU", show=False),
        Binding("home", "move(-999)", "first GPU", show=False),
        Binding("end", "move(999)", "last GPU", show=False),
        Binding("pageup", "move(-4)", "GPUs before", show=False),
        Binding("pagedown", "move(4)", "GPUs after", show=False),
    ]

    class GpuActivated(Message):
        """Details of a GPU are wanted."""

        def __init__(self, uuid: str) -> None:
            super().__init__()
            self.uuid = uuid

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.selected: str | None = None  # the UUID; shown only while focused
        self._scene: tuple[Snapshot, History, ScreenLayout, View] | None = None
        self._gpus: tuple[Gpu, ...] = ()
        self._report = LeakReport(0.0)
        self._badges: dict[str, tuple[Badge, Badge]] = {}  # by UUID: of its state, and of its memory
        self._top = 0  # first line shown
        self._lines_of: list[tuple[int, int, int, int, str]] = []  # y, y after, x, x after, UUID; in lines of all GPUs

    def show_snapshot(
        self, snapshot: Snapshot, gpus: tuple[Gpu, ...], history: History, plan: ScreenLayout, view: View
    ) -> None:
        self._scene, self._gpus = (snapshot, history, plan, view), gpus
        self._draw_gpus()

    def show_report(self, report: LeakReport) -> None:
        """Say of the GPUs' memory what was found out."""
        if report.unattributed != self._report.unattributed or report.dead_pids != self._report.dead_pids:
            self._report = report
            self._draw_gpus()

    def _draw_gpus(self) -> None:
        if self._scene is None:
            return
        snapshot, history, plan, view = self._scene
        if plan.mode == "none" or not plan.gpus:
            self.show([])
            return
        by_gpu: dict[str, list[GpuProcess]] = defaultdict(list)
        for process in snapshot.processes:
            by_gpu[process.gpu_uuid].append(process)
        drawings = [
            GpuDrawing(
                gpu,
                memory_parts(gpu, by_gpu[gpu.uuid], snapshot.taken_at),
                history.track(gpu.uuid),
                snapshot.steady_at,
                selected=self.has_focus and gpu.uuid == self.selected,
                unattributed=self._report.unattributed_on(gpu.uuid),
                held_by=held_by(self._report, gpu.uuid),
                state_badge=badges[0],
                memory_badge=badges[1],
            )
            for gpu in self._gpus
            for badges in (self._badges.setdefault(gpu.uuid, (Badge(), Badge())),)
        ]
        cells = self.cells
        self._lines_of = []
        lines = (
            self._cards(drawings, plan, cells, view) if plan.mode == "card" else self._rows(drawings, plan, cells, view)
        )
        body = plan.gpus if len(lines) <= plan.gpus else plan.gpus - 1  # else the last line says what is beyond
        self._top = max(0, min(self._top, len(lines) - body))
        shown = lines[self._top : self._top + body]
        if body < len(lines):
            below = sum(1 for y, *_ in self._lines_of if y >= self._top + body)
            above = sum(1 for y, *_ in self._lines_of if y < self._top)
            counts = [(view.glyphs.down, below, "below"), (view.glyphs.up, above, "above")]
            words = " ".join(f"{sign} {n} more GPU{'s' * (n > 1)} {where}" for sign, n, where in counts if n)
            shown.append(((fit(f" {words}: Tab and the arrows scroll", cells), "warning@bar"),))
        self.show(shown)

    def _rows(self, drawings: list[GpuDrawing], plan: ScreenLayout, cells: int, view: View) -> list[Line]:
        shape = Shape.of(drawings, cells, view)
        lines: list[Line] = []
        for drawing in drawings:
            y = len(lines)
            lines += (pair if plan.mode == "pair" else single)(drawing, shape, view)
            self._lines_of.append((y, len(lines), 0, cells, drawing.gpu.uuid))
        return lines

    def _cards(self, drawings: list[GpuDrawing], plan: ScreenLayout, cells: int, view: View) -> list[Line]:
        lines: list[Line] = []
        abreast = plan.cards_abreast
        for first in range(0, len(drawings), abreast):
            row = drawings[first : first + abreast]
            y = len(lines)
            x = 0
            columns = []
            for n, drawing in enumerate(row):
                wide = (cells - x) // (abreast - n)
                columns.append(card(drawing, wide, plan.card_lines, view))
                self._lines_of.append((y, y + plan.card_lines, x, x + wide, drawing.gpu.uuid))
                x += wide
            rest: Line = ((" " * (cells - x), "text"),) if x < cells else ()
            lines += [tuple(span for column in columns for span in column[n]) + rest for n in range(plan.card_lines)]
        return lines

    # -- choosing a GPU

    def action_move(self, step: int) -> None:
        uuids = [gpu.uuid for gpu in self._gpus]
        if not uuids:
            return
        at = uuids.index(self.selected) + step if self.selected in uuids else 0
        self._select(uuids[max(0, min(len(uuids) - 1, at))])

    def _select(self, uuid: str) -> None:
        self.selected = uuid
        if self._scene is not None:
            plan = self._scene[2]
            for y, after, _, _, of in self._lines_of:
                if of == uuid:
                    if y < self._top:
                        self._top = y
                    elif after > self._top + plan.gpus - 1:
                        self._top = after - plan.gpus + 1
        self._draw_gpus()

    def on_focus(self) -> None:
        if self.selected is None and self._gpus:
            self.selected = self._gpus[0].uuid
        self._draw_gpus()

    def on_blur(self) -> None:
        self._draw_gpus()

    def on_click(self, event: events.Click) -> None:
        y = event.y + self._top
        for first, after, left, right, uuid in self._lines_of:
            if first <= y < after and left <= event.x < right:
                self._select(uuid)
                if event.chain == 2:
                    self.post_message(self.GpuActivated(uuid))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._top += 1
        self._draw_gpus()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._top = max(0, self._top - 1)
        self._draw_gpus()
