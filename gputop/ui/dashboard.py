"""The main screen: header, GPUs, chart, processes, footer, by the plan of layout.py."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding

from gputop import units
from gputop.model import Snapshot
from gputop.model.chart_metrics import CHART_METRICS
from gputop.model.selection import only
from gputop.sampling.detail_history import DetailHistory
from gputop.text import fit
from gputop.ui.footer import Footer
from gputop.ui.gpus.area import GpuArea
from gputop.ui.header import Header, HostLine, problem_line
from gputop.ui.keys import KEYS, Key
from gputop.ui.layout import LEAST_HEIGHT, LEAST_WIDTH, ScreenLayout, plan
from gputop.ui.leaks.findings import FindingsScreen
from gputop.ui.processes.table import ProcessTable
from gputop.ui.replay.looking_back import HistoryUntil, LookingBack
from gputop.ui.toolkit import exact_output
from gputop.ui.toolkit.line_widget import LineWidget
from gputop.ui.toolkit.view import View

if TYPE_CHECKING:
    from gputop.ui.app import GputopApp
    from gputop.ui.chart.history_chart import HistoryChart
    from gputop.ui.processes.filter_prompt import FilterPrompt

FAR_SECONDS: Final = 10.0  # what Shift+Left looks back
FIRST_PAINT: Final = 0.01  # seconds: Textual paints the whole screen for each step of its start, three times in all
NO_ANSWER_YET: Final = (
    "the driver has not answered yet; without persistence mode it takes seconds for each GPU to start, "
    "and a hung one never answers: see `dmesg`"
)


class Dashboard(FindingsScreen):
    """Draws what :meth:`show_snapshot` is given and does what the keys ask for."""

    BINDINGS: ClassVar[list[Binding]] = [  # type: ignore[assignment]
        # `live` goes before the table's own End, while there is something to come back from: see check_action
        Binding(",".join(key.keys), key.action, key.words, show=False, priority=key.action == "live")
        for key in KEYS
    ]
    keys: ClassVar[tuple[Key, ...]] = KEYS

    def __init__(self) -> None:
        super().__init__()
        exact_output.install(self)
        self.snapshot: Snapshot | None = None  # as it is shown: the GPUs chosen, and frozen while paused
        self.past = DetailHistory()
        self.paused = False
        self.looking_back = LookingBack()
        self.chart: HistoryChart | None = None
        self.prompt: FilterPrompt | None = None
        self._plan: tuple[Any, ...] | None = None

    @property
    def gputop(self) -> GputopApp:
        from gputop.ui.app import GputopApp

        assert isinstance(self.app, GputopApp)
        return self.app

    def compose(self) -> ComposeResult:
        self.header = Header(id="header")
        self.host_line = HostLine(id="host")
        self.banner = LineWidget(id="banner")
        self.gpus = GpuArea(id="gpus")
        self.table = ProcessTable(id="processes")
        hidden = {key.action for key in KEYS} - {key.action for key in self.keys}
        if self.gputop.signals is None:
            hidden.add("kill")
        self.footer = Footer(hidden=frozenset(hidden), id="footer")
        self.notice = LineWidget(id="notice")
        yield from (self.header, self.host_line, self.banner, self.gpus, self.table, self.footer, self.notice)

    def on_mount(self) -> None:
        self.app.delay_update(FIRST_PAINT)
        self.table.focus()
        self.show_snapshot(self.gputop.poller.latest or self._no_answer_yet())

    def on_resize(self, event: events.Resize) -> None:
        if self._plan is None or self._plan[0][:2] != tuple(self.app.size):
            self.rearrange()
            self.call_after_refresh(self._draw)  # in the sizes its parts have only then: the next reading may be far

    def _no_answer_yet(self) -> Snapshot:
        return Snapshot(time.time(), problems=(NO_ANSWER_YET,), interval=self.gputop.settings.refresh)

    # -- drawing

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Draw *snapshot*, unless the screen is paused, or shows an earlier time."""
        self.past.add(snapshot)
        self.keep(snapshot)
        if self.looking_back.snapshot is not None:
            self._draw()  # how long ago that was
            return
        if self.paused and self.snapshot is not None:
            return
        self.snapshot = self._only_chosen(snapshot)
        self._draw()

    def keep(self, snapshot: Snapshot) -> None:
        """Keep *snapshot* for looking back, unless there was no answer to keep."""
        if snapshot.gpus:
            self.looking_back.add(snapshot)

    def _only_chosen(self, snapshot: Snapshot) -> Snapshot:
        chosen = only(snapshot, self.gputop.settings.gpus)[0]
        return chosen if chosen.gpus else snapshot  # none of those chosen is here

    def rearrange(self) -> None:
        """Size, theme or settings changed: draw all of it anew."""
        self._plan = None
        for board in self.query(LineWidget):
            board.redraw()
        if self.snapshot is not None and self.size.width:
            self.snapshot = self._chosen()
            self._draw()

    def _chosen(self) -> Snapshot:
        latest = self.gputop.poller.latest
        assert self.snapshot is not None
        if self.looking_back.snapshot is not None:
            return self._only_chosen(self.looking_back.snapshot)
        if self.paused or latest is None:
            return self.snapshot
        return self._only_chosen(latest)

    def _draw(self) -> None:
        snapshot, view = self.snapshot, self.gputop.view
        width, height = self.app.size
        if snapshot is None or not width:
            return
        small = width < LEAST_WIDTH or height < LEAST_HEIGHT
        arrangement = self._arrange(snapshot, view, width, height, small)
        if small:
            words = f"too small: {width}×{height}; gputop needs {LEAST_WIDTH}×{LEAST_HEIGHT}"
            self.notice.show([((fit(words, width), "warning+b"),)])
            return
        self.header.show_snapshot(snapshot, view, asked=self.gputop.poller.interval, paused=self.badge())
        if self.host_line.display:
            self.host_line.show_snapshot(snapshot, view)
        if self.banner.display:
            self.banner.show([problem_line(snapshot.problems, view, width)])
        history, latest = self.gputop.history, self.gputop.poller.latest
        past = self.looking_back.at
        until = history if past is None else HistoryUntil(history, past)
        self.gpus.show_snapshot(snapshot, snapshot.gpus, until, arrangement, view)
        if self.chart is not None and self.chart.display:
            now = None if past is None or latest is None else latest.taken_at
            self.chart.show_snapshot(snapshot, history, view, now, self.jumps())
        if self.table.display:
            self.show_exited(snapshot.taken_at)
            self.table.show_snapshot(snapshot, view)
        self._want()

    def badge(self) -> str:
        """What is out of the ordinary about what is shown, for the header."""
        latest, at = self.gputop.poller.latest, self.looking_back.at
        if at is None or latest is None:
            return "PAUSED" if self.paused else ""
        ago = units.duration(latest.taken_at - at)
        return f"{units.clock(at)} {self.gputop.view.glyphs.bullet} {ago} ago, End: live"

    def jumps(self) -> int:
        """Counts up where the history is of another time than before."""
        return 0

    def _want(self) -> None:
        pids = None if self.table.wants_all else self.table.visible_pids
        self.gputop.poller.want("table", pids if self.table.display else ())

    def _arrange(self, snapshot: Snapshot, view: View, width: int, height: int, small: bool) -> ScreenLayout:
        """Give every board its lines, where that has changed."""
        settings = view.settings
        mig = [len(gpu.mig) for gpu in snapshot.gpus]
        banner = bool(snapshot.problems)
        key = (width, height, len(mig), sum(mig), max(mig, default=0), banner, settings, small)
        if self._plan is not None and self._plan[0] == key:
            return self._plan[1]  # type: ignore[no-any-return]
        arrangement = plan(
            width,
            height,
            len(mig),
            mig=sum(mig),
            most_mig=max(mig, default=0),
            banner=banner,
            show_host=settings.show_host,
            show_gpus=settings.show_gpus,
            show_sparklines=settings.show_sparklines,
            show_chart=settings.show_chart,
            show_table=settings.show_processes,
        )
        self._plan = (key, arrangement)
        heights: list[tuple[LineWidget, int]] = [
            (self.header, 1),
            (self.host_line, arrangement.host),
            (self.banner, int(banner)),
            (self.gpus, arrangement.gpus),
            (self.table, arrangement.table),
            (self.footer, 1),
            (self.notice, 0),
        ]
        if self.chart is not None:
            heights.append((self.chart, arrangement.chart))
        elif arrangement.chart:
            self.call_after_refresh(self._bring_chart)
        for board, lines in heights:
            shown = (board is self.notice) if small else lines > 0
            board.display = shown
            if shown:
                board.styles.height = board.lines_given = max(1, lines)
        self.footer.update()
        return arrangement

    async def _bring_chart(self) -> None:
        """The chart comes after the first picture: what it is made of takes a while to import."""
        if self.chart is None:
            from gputop.ui.chart.history_chart import HistoryChart

            self.chart = HistoryChart(id="chart")
            await self.mount(self.chart, after=self.gpus)
            self.rearrange()

    # -- keys

    def action_help(self) -> None:
        from gputop.ui.help_screen import HelpScreen

        self.app.push_screen(HelpScreen(self.gputop.view, self.keys))

    def action_settings(self) -> None:
        from gputop.ui.settings.screen import SettingsScreen

        gputop = self.gputop
        latest = gputop.poller.latest
        self.app.push_screen(
            SettingsScreen(
                settings=gputop.settings,
                on_change=gputop.change_settings,
                path=gputop.settings_path,
                problems=gputop.settings_problems,
                themes=tuple(sorted(self.app.available_themes)),
                gpus=latest.gpus if latest is not None else (),
                glyphs=gputop.view.glyphs,
            )
        )

    async def action_filter(self) -> None:
        from gputop.ui.processes.filter_prompt import FilterPrompt

        if self.prompt is None:
            self.prompt = FilterPrompt(self._set_filter, self._filter_done)
            await self.mount(self.prompt)
        self.prompt.open(self.table.filter_text)
        self.set_focus(self.prompt.input)  # at once: the next key may be waiting

    def _set_filter(self, text: str) -> str | None:
        problem = self.table.set_filter(text)
        self._want()
        return problem

    def _filter_done(self) -> None:
        self.set_focus(self.table)

    def key_escape(self) -> None:
        """Clears the filter, and nothing else: a torn escape sequence begins with it."""
        if self.table.is_filtered:
            self.table.clear_filter()
            self._want()

    def action_tree(self) -> None:
        self._for_now(tree=not self.gputop.settings.tree)

    def action_invert(self) -> None:
        self._for_now(sort_reverse=not self.gputop.settings.sort_reverse)

    def action_sort(self) -> None:
        from gputop.ui.processes.sort_screen import SortScreen

        settings = self.gputop.settings

        def picked(choice: tuple[str, bool] | None) -> None:
            if choice is not None:
                self._for_now(sort=choice[0], sort_reverse=choice[1])

        self.app.push_screen(
            SortScreen(settings.columns, settings.sort, settings.sort_reverse, self.gputop.view), picked
        )

    @on(ProcessTable.SortChanged)
    def _sort_changed(self, event: ProcessTable.SortChanged) -> None:
        self._for_now(sort=event.column, sort_reverse=event.reverse)

    def action_chart(self) -> None:
        """Off, or the next metric that some GPU tells."""
        settings, metrics = self.gputop.settings, tuple(CHART_METRICS)
        if not settings.show_chart:
            self._for_now(show_chart=True, chart_metrics=metrics[:1])
        else:
            at = metrics.index(settings.chart_metrics[0]) + 1
            if at < len(metrics):
                self._for_now(chart_metrics=(metrics[at],))
            else:
                self._for_now(show_chart=False)
        if self.gputop.settings.show_chart and self._plan is not None and not self._plan[1].chart:
            self.notify("No room for the chart: it needs a taller window.", markup=False)

    def _for_now(self, **changes: Any) -> None:
        """Change settings until the end of the program; F2 keeps them."""
        self.gputop.use_settings(self.gputop.settings.changed(**changes))

    def action_kill(self) -> None:
        gputop = self.gputop
        if self.looking_back.snapshot is not None:
            self.notify("This is the past: End shows the processes of now.", severity="warning", markup=False)
            return
        if gputop.signals is None:
            self.notify("gputop runs with --read-only: it sends no signals.", severity="warning", markup=False)
            return
        found = self.table.targets()
        if not found.chosen and not found.refused:
            words = "The tagged processes are hidden by the filter." if found.hidden else "No process is at the cursor."
            self.notify(words, markup=False)
            return
        self.kill(*found)

    def action_details(self) -> None:
        if self.gpus.has_focus and self.gpus.selected is not None:
            self._gpu_details(self.gpus.selected)
        elif (row := self.table.cursor_row) is not None:
            from gputop.ui.processes.details_screen import ProcessScreen

            gputop = self.gputop
            process = row.parts[0] if row.parts else row.process
            then = self.looking_back.snapshot
            if then is not None:  # the host tells of now only, and signals are for what is there now
                self.app.push_screen(
                    ProcessScreen(process, lambda: then, None, gputop.view, insight=gputop.insight, then=True)
                )
                return
            self.app.push_screen(
                ProcessScreen(
                    process,
                    lambda: gputop.poller.latest,
                    gputop.poller.details,
                    gputop.view,
                    gputop.signals,
                    self.past,
                    gputop.insight,
                )
            )

    def action_why(self) -> None:
        """Of the GPU at the cursor, else of the process's, else of the fullest."""
        gputop = self.gputop
        row = self.table.cursor_row
        uuid = self.gpus.selected if self.gpus.has_focus else row.process.gpu_uuid if row is not None else None
        if uuid is None and self.snapshot is not None and self.snapshot.gpus:
            uuid = max(self.snapshot.gpus, key=lambda gpu: gpu.memory_used_bytes or 0).uuid
        if uuid is not None:
            from gputop.ui.gpus.why_screen import WhyScreen

            insight = gputop.insight
            self.app.push_screen(
                WhyScreen(uuid, lambda: self.snapshot, lambda: insight.report, gputop.history, gputop.view)
            )

    def action_torch(self) -> None:
        gputop = self.gputop
        row = self.table.cursor_row
        process = None if row is None else row.parts[0] if row.parts else row.process
        if self.looking_back.snapshot is not None:
            self.notify("This is the past: End shows the processes of now.", severity="warning", markup=False)
        elif gputop.signals is None:
            self.notify("gputop runs with --read-only: it asks nothing of processes.", severity="warning", markup=False)
        elif process is None or process.torch is None:
            words = "This process does not use gputop.torch_monitor (two lines in its script: w tells them)."
            self.notify(words if process is not None else "No process is at the cursor.", markup=False)
        else:
            from gputop.ui.torch_live.asking import ask_process

            ask_process(self.app, process, lambda: gputop.poller.latest, gputop.view)

    @on(GpuArea.GpuActivated)
    def _gpu_activated(self, event: GpuArea.GpuActivated) -> None:
        self._gpu_details(event.uuid)

    @on(ProcessTable.RowActivated)
    def _process_activated(self) -> None:
        self.action_details()

    def _gpu_details(self, uuid: str) -> None:
        from gputop.ui.gpus.details_screen import GpuScreen

        gputop, then = self.gputop, self.looking_back.snapshot
        if then is not None:
            until = HistoryUntil(gputop.history, then.taken_at)
            screen = GpuScreen(uuid, lambda: then, until, gputop.view, None, gputop.insight, then=True)
        else:
            screen = GpuScreen(
                uuid,
                lambda: gputop.poller.latest,
                gputop.history,
                gputop.view,
                self.past,
                gputop.insight,
            )
        self.app.push_screen(screen)

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

    def action_pause(self) -> None:
        self.paused = not self.paused
        if not self.paused and self.gputop.poller.latest is not None:
            self.show_snapshot(self.gputop.poller.latest)
            self.show_report(self.gputop.insight.report)
        self._draw()
        if self.paused and self.chart is not None:
            self.chart.hold()

    def action_back(self) -> None:
        self._look(self.looking_back.step(-1))

    def action_forward(self) -> None:
        self._look(self.looking_back.step(1))

    def action_far_back(self) -> None:
        self._look(self.looking_back.skip(-FAR_SECONDS))

    def action_far_forward(self) -> None:
        self._look(self.looking_back.skip(FAR_SECONDS))

    def action_live(self) -> None:
        self.looking_back.end()
        self._look(True)

    def _look(self, moved: bool) -> None:
        """Draw the time that is looked at now."""
        if not moved:
            self.notify("Nothing older is kept.", timeout=2, markup=False)
        elif self.snapshot is not None:
            self.paused = self.paused and self.looking_back.snapshot is not None
            self.snapshot = self._chosen()
            self._draw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "live":
            return self.looking_back.snapshot is not None and self.focused in (self.table, self.gpus, self.chart, None)
        return True

    def action_refresh(self) -> None:
        self.gputop.poller.refresh()

    def action_release(self) -> None:
        poller = self.gputop.poller
        poller.released = not poller.released
        words = (
            "All GPU handles are let go of; g takes them again." if poller.released else "Taking the GPU handles again."
        )
        self.notify(words, markup=False)

    def action_next_pane(self) -> None:
        self.focus_next()

    def action_previous_pane(self) -> None:
        self.focus_previous()

    def action_repaint(self) -> None:
        self.gputop.action_repaint()

    def action_suspend(self) -> None:
        self.app.action_suspend_process()

    async def action_quit(self) -> None:
        await self.app.action_quit()
