"""The main screen: header, GPUs, chart, processes, footer, by the plan of layout.py."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding

from gputop import units
from gputop.history.journal import EventKind
from gputop.leaks.report import LeakReport
from gputop.model import Snapshot
from gputop.model.chart_metrics import USUAL_METRICS, next_metrics
from gputop.monitor import Monitor
from gputop.sampling.messages import LeaksReported, SettingsChanged, SnapshotTaken
from gputop.settings import GROUPS, REFRESH_PRESETS
from gputop.text import fit
from gputop.ui.footer import Footer
from gputop.ui.gpus.area import GpuArea
from gputop.ui.header import Header, HostLine, problem_line
from gputop.ui.keys import KEYS, Key
from gputop.ui.kill.start import kill_chosen
from gputop.ui.layout import LEAST_HEIGHT, LEAST_WIDTH, ScreenLayout, TableRows, plan_for
from gputop.ui.leaks.text import leaked_label
from gputop.ui.monitor_screen import MonitorScreen
from gputop.ui.processes.annotations import ProcessAnnotations
from gputop.ui.processes.exited import ExitedLines
from gputop.ui.processes.mark import Mark
from gputop.ui.processes.table import ProcessTable
from gputop.ui.toolkit.kept_focus import KeptFocusScreen
from gputop.ui.toolkit.line_widget import LineWidget, redraw_all
from gputop.ui.toolkit.textual_seams import exact_output
from gputop.ui.upper_half import UpperHalf

if TYPE_CHECKING:
    from gputop.ui.chart.history_chart import HistoryChart
    from gputop.ui.processes.filter_prompt import FilterPrompt

FAR_SECONDS: Final = 10.0  # what Shift+Left looks back
FIRST_PAINT_SECONDS: Final = 0.01  # Textual paints the whole screen for each step of its start, three times in all
THE_PAST: Final = "You are looking back: press End for the current processes."


class Dashboard(MonitorScreen, KeptFocusScreen):
    """Draws the moment that ``monitor.shown_time`` is at, and does what the keys ask for."""

    BINDINGS: ClassVar[list[Binding]] = [  # type: ignore[assignment]
        # `live` goes before the table's own End, while there is something to come back from: see check_action
        Binding(",".join(key.keys), key.action, key.words, show=False, priority=key.action == "live")
        for key in KEYS
    ]
    keys: ClassVar[tuple[Key, ...]] = KEYS
    shows = (SnapshotTaken, LeaksReported, SettingsChanged)

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        exact_output.install(self)
        self.snapshot: Snapshot | None = None  # as it is shown: of the GPUs chosen
        self.time = monitor.shown_time
        self.prompt: FilterPrompt | None = None
        self._plan: tuple[int, int, bool, ScreenLayout] | None = None  # width, height, whether there is a banner
        self._exited = ExitedLines()
        self._rows = TableRows()
        self._report: LeakReport | None = None  # as it is shown
        self._settings = monitor.settings

    def compose(self) -> ComposeResult:
        self.header = Header(id="header")
        self.host_line = HostLine(id="host")
        self.banner = LineWidget(id="banner")
        self.upper = UpperHalf(id="upper")
        self.gpus = self.upper.gpus
        self.table = ProcessTable(id="processes")
        hidden = {key.action for key in KEYS} - {key.action for key in self.keys}
        if self.monitor.signals is None:
            hidden.add("kill")
        self.footer = Footer(hidden=frozenset(hidden), id="footer")
        self.notice = LineWidget(id="notice")
        yield from (self.header, self.host_line, self.banner, self.upper, self.table, self.footer, self.notice)

    def on_mount(self) -> None:
        self.app.delay_update(FIRST_PAINT_SECONDS)
        self.app.theme_changed_signal.subscribe(self, lambda _: self.rearrange())
        self.table.focus()
        self.look()

    def on_resize(self, event: events.Resize) -> None:
        if self._plan is None or self._plan[:2] != tuple(self.app.size):
            self.rearrange()
            self.call_after_refresh(self._draw)  # in the sizes its parts have only then: the next reading may be far

    @property
    def chart(self) -> HistoryChart | None:
        """The history charts, once they were wanted."""
        return self.upper.chart

    # -- drawing

    def look(self) -> None:
        """Draw what is new: nothing while the screen is paused, but for changed settings."""
        if self.monitor.settings is not self._settings:
            self._settings = self.monitor.settings
            self.rearrange()
        elif not self.time.is_frozen or self.time.past is not None or self.snapshot is None:
            self._draw()

    def rearrange(self) -> None:
        """Size, theme or settings changed: draw all of it anew."""
        self._plan = None
        for board in self.query(LineWidget):
            board.redraw()
        if self.snapshot is not None:
            self._draw()

    def _show_report(self, report: LeakReport) -> None:
        """Say what was found out."""
        self._report = report
        self.table.know(ProcessAnnotations(report))
        self.gpus.show_report(report)
        self.footer.leaked = leaked_label(report)
        self.footer.update()

    def _draw(self) -> None:
        """Draw the moment that is shown now."""
        view, monitor = self.view, self.monitor
        snapshot = self.snapshot = monitor.chosen(self.time.snapshot)
        if monitor.report is not self._report and not self.time.is_frozen:
            self._show_report(monitor.report)
        width, height = self.app.size
        if not width:
            return
        small = width < LEAST_WIDTH or height < LEAST_HEIGHT
        arrangement = self._arrange(snapshot, width, height, small)
        if small:
            words = f"too small: {width}×{height}; gputop needs {LEAST_WIDTH}×{LEAST_HEIGHT}"
            self.notice.show([((fit(words, width), "warning+b"),)])
            return
        badge = f" {view.glyphs.bullet} ".join(self.time.badge(with_day=width >= 100))
        self.header.show_snapshot(snapshot, view, asked=monitor.sampler.interval, badge=badge)
        if self.host_line.display:
            self.host_line.show_snapshot(snapshot, view)
        if self.banner.display:
            self.banner.show([problem_line(snapshot.problems, view, width)])
        self.gpus.show_snapshot(snapshot, snapshot.gpus, self.time.history, arrangement, view)
        if self.chart is not None and self.chart.display:
            self.chart.journal = monitor.journal
            now = None if self.time.past is None or monitor.latest is None else monitor.latest.taken_at
            self.chart.show_snapshot(snapshot, monitor.history, view, now, self.time.jumps)
        if self.table.display:
            self.table.keep_exited(self._exited.of(monitor.journal, snapshot, monitor.settings))
            self.table.show_snapshot(snapshot, view)
        self._want()

    def _want(self) -> None:
        pids = None if self.table.wants_all else self.table.visible_pids
        self.monitor.sampler.want("table", pids if self.table.display else ())

    def _arrange(self, snapshot: Snapshot, width: int, height: int, small: bool) -> ScreenLayout:
        """Give every board its lines, where that has changed."""
        rows = self._rows.take(max(len(snapshot.processes), self.table.rows_wanted), time.monotonic())
        arrangement, banner = plan_for(snapshot, self.monitor.settings, width, height, rows), bool(snapshot.problems)
        if self._plan == (width, height, banner, arrangement):
            return arrangement
        if self._plan is not None and self._plan[3].gpu_cells != arrangement.gpu_cells:
            self.call_after_refresh(self._draw)  # in the new widths, which its parts have only then
        self._plan = (width, height, banner, arrangement)
        heights: list[tuple[LineWidget, int]] = [
            (self.header, 1),
            (self.host_line, arrangement.host),
            (self.banner, int(banner)),
            (self.table, arrangement.table),
            *((self.footer, 1), (self.notice, 0)),
        ]
        if small:
            self.hold_focus()
        self.upper.place(arrangement, not small, self.rearrange)
        for board, lines in heights:
            shown = (board is self.notice) if small else lines > 0
            board.display = shown
            if shown:
                board.styles.height = board.lines_given = max(1, lines)
        self.footer.update()
        if not small:
            self.call_after_refresh(self.keep_focus, self.table, self.gpus)
        return arrangement

    # -- keys

    def action_help(self) -> None:
        from gputop.ui.help_screen import HelpScreen

        self.app.push_screen(HelpScreen(self.monitor, self.keys))

    def action_settings(self) -> None:
        from gputop.ui.settings.screen import SettingsScreen

        self.app.push_screen(SettingsScreen(self.monitor))

    def action_leaks(self) -> None:
        from gputop.ui.leaks.screen import LeaksScreen

        self.app.push_screen(LeaksScreen(self.monitor))

    def action_events(self) -> None:
        from gputop.ui.events_screen import EventsScreen

        self.app.push_screen(EventsScreen(self.monitor))

    async def action_filter(self) -> None:
        from gputop.ui.processes.filter_prompt import FilterPrompt

        if self.prompt is None:
            self.prompt = FilterPrompt(self._set_filter, lambda: self.set_focus(self.table))
            await self.mount(self.prompt)
        self.prompt.open(self.table.filter_text)
        self.set_focus(self.prompt.input)  # at once: the next key may be waiting

    def _set_filter(self, text: str) -> str | None:
        problem = self.table.set_filter(text)
        self._want()
        return problem

    def key_escape(self) -> None:
        """Clears the filter, and nothing else: a torn escape sequence begins with it."""
        if self.table.is_filtered:
            self.table.clear_filter()
            self._want()

    def action_tree(self) -> None:
        self.monitor.change_for_now(tree=not self.monitor.settings.tree)

    def action_invert(self) -> None:
        self.monitor.change_for_now(sort_reverse=not self.monitor.settings.sort_reverse)

    def action_group(self) -> None:
        """The next kind of group, or none."""
        at = GROUPS.index(self.monitor.settings.group)
        self.monitor.change_for_now(group=GROUPS[(at + 1) % len(GROUPS)])

    def action_sort(self) -> None:
        from gputop.ui.processes.sort_screen import SortScreen

        self.app.push_screen(SortScreen(self.monitor))

    @on(ProcessTable.SortChanged)
    def _sort_changed(self, event: ProcessTable.SortChanged) -> None:
        self.monitor.change_for_now(sort=event.column, sort_reverse=event.reverse)

    def action_chart(self) -> None:
        """The next set of charts, which is kept for the next time."""
        settings, gpus = self.monitor.settings, () if self.snapshot is None else self.snapshot.gpus
        metrics = next_metrics(settings.chart_metrics if settings.show_chart else (), gpus)
        self.keep(show_chart=bool(metrics), chart_metrics=metrics or USUAL_METRICS)
        self.look()
        if metrics and self._plan is not None and not self._plan[3].chart:
            self.notify("There is no room for charts: they need a taller window.", markup=False)

    def action_mark(self) -> None:
        if self.table.mark is not None or self.snapshot is None:
            self.table.set_mark(None)
            return
        mark = Mark(self.snapshot)
        self.table.set_mark(mark)
        self.monitor.note(EventKind.MARK, f"marked at {units.clock(mark.at)}", mark.at)

    def action_kill(self) -> None:
        if self.time.past is not None:
            self.notify(THE_PAST, severity="warning", markup=False)
        else:
            kill_chosen(self, self.monitor, self.table.targets())

    @on(ProcessTable.RowActivated)
    def action_details(self) -> None:
        if self.gpus.has_focus and self.gpus.selected is not None:
            self._gpu_details(self.gpus.selected)
        elif (row := self.table.cursor_row) is not None:
            from gputop.ui.processes.details_screen import ProcessScreen

            process = row.parts[0] if row.parts else row.process
            self.app.push_screen(ProcessScreen(self.monitor, process, self.time.past))

    def action_why(self) -> None:
        """Of the GPU at the cursor, else of the process's, else of the fullest."""
        row, snapshot = self.table.cursor_row, self.snapshot
        uuid = self.gpus.selected if self.gpus.has_focus else row.process.gpu_uuid if row is not None else None
        if uuid is None and snapshot is not None and snapshot.gpus:
            odd = {found.gpu_uuid for found in self.monitor.report.unattributed}  # a GPU that is busy with nobody
            uuid = max(snapshot.gpus, key=lambda gpu: (gpu.uuid in odd, gpu.memory_used_bytes or 0)).uuid
        if uuid is not None:
            from gputop.ui.gpus.why_screen import WhyScreen

            is_now = self.time.past is None and not self.time.is_frozen
            self.app.push_screen(WhyScreen(self.monitor, uuid, None if is_now else snapshot))

    def action_torch(self) -> None:
        row = self.table.cursor_row
        process = None if row is None else row.parts[0] if row.parts else row.process
        if self.time.past is not None:
            self.notify(THE_PAST, severity="warning", markup=False)
        else:
            from gputop.ui.torch_live.asking import ask_process

            ask_process(self, self.monitor, process)

    @on(GpuArea.GpuActivated)
    def _gpu_activated(self, event: GpuArea.GpuActivated) -> None:
        self._gpu_details(event.uuid)

    def _gpu_details(self, uuid: str) -> None:
        from gputop.ui.gpus.details_screen import GpuScreen

        self.app.push_screen(GpuScreen(self.monitor, uuid, self.time.past))

    def action_tag(self) -> None:
        self.table.action_tag()

    def action_untag_all(self) -> None:
        self.table.action_untag_all()

    def action_fold(self) -> None:
        self.table.action_fold()

    def action_unfold(self) -> None:
        self.table.action_unfold()

    def action_user(self) -> None:
        row = self.table.cursor_row
        user = None if row is None else (row.facts.user if row.facts is not None else row.annotation.user)
        self.table.set_user(None if self.table.user is not None else user)
        self._want()

    def action_kind(self) -> None:
        kinds = (None, "C", "G")
        self.table.set_kind(kinds[(kinds.index(self.table.kind) + 1) % 3])
        self._want()

    # -- time

    def action_pause(self) -> None:
        self.time.pause()
        self._draw()
        if self.time.is_frozen and self.chart is not None:
            self.chart.hold()

    def action_back(self) -> None:
        self._moved(self.time.step(-1))

    def action_forward(self) -> None:
        self._moved(self.time.step(1))

    def action_far_back(self) -> None:
        self._moved(self.time.skip(-FAR_SECONDS))

    def action_far_forward(self) -> None:
        self._moved(self.time.skip(FAR_SECONDS))

    def action_live(self) -> None:
        self.time.end()
        self._moved(True)

    def _moved(self, somewhere: bool) -> None:
        if somewhere:
            self._draw()
        else:
            self.notify("Nothing older is kept.", timeout=2, markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "live":
            return self.time.past is not None and self.focused in (self.table, self.gpus, self.chart, None)
        return True

    # -- the rest

    def action_refresh(self) -> None:
        self.monitor.sampler.refresh()

    def action_interval(self) -> None:
        """The next shorter preset; after the shortest one, the longest."""
        now = self.monitor.settings.refresh
        shorter = [seconds for seconds in REFRESH_PRESETS if seconds < now]
        self.monitor.change_for_now(refresh=max(shorter or REFRESH_PRESETS))

    def action_release(self) -> None:
        sampler = self.monitor.sampler
        sampler.released = not sampler.released
        taking, gone = "Opening the GPU handles again.", "All GPU handles released; press g to open them again."
        self.notify(gone if sampler.released else taking, markup=False)

    def action_next_pane(self) -> None:
        self.focus_next()

    def action_previous_pane(self) -> None:
        self.focus_previous()

    def action_repaint(self) -> None:
        redraw_all(self.app)

    def action_suspend(self) -> None:
        self.app.action_suspend_process()

    async def action_quit(self) -> None:
        await self.app.action_quit()
