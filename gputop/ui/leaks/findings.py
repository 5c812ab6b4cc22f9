"""What the dashboard's keys do with what was found out: leaks, events, marks, groups, and F9 on all of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from textual.screen import Screen

from gputop import units
from gputop.leaks.report import DeadPid, LeakReport
from gputop.model import Snapshot, Verdict
from gputop.sampling.journal import EventKind, ExitedProcess
from gputop.settings import GROUPS
from gputop.signals.scope import SignalScope
from gputop.ui.footer import Footer
from gputop.ui.gpus.area import GpuArea
from gputop.ui.kill.targets import HoldersAsTargets, holders_as_targets
from gputop.ui.processes.annotations import ProcessAnnotation
from gputop.ui.processes.listing.row import ProcessRow
from gputop.ui.processes.mark import Mark
from gputop.ui.processes.table import ProcessTable

if TYPE_CHECKING:
    from gputop.signals.protocol import Target
    from gputop.ui.app import GputopApp
    from gputop.ui.chart.history_chart import HistoryChart


MOST_EXITED: Final = 64  # grey lines


class FindingsScreen(Screen[None]):
    """The part of the dashboard that is about findings; the widgets are the dashboard's."""

    table: ProcessTable
    gpus: GpuArea
    footer: Footer
    chart: HistoryChart | None
    snapshot: Snapshot | None = None
    paused = False
    _exited: tuple[list[ExitedProcess], str] = [], ""  # the grey lines, and the unit their sizes are in

    @property
    def gputop(self) -> GputopApp:
        raise NotImplementedError

    def show_report(self, report: LeakReport) -> None:
        """Something new was found out. A paused screen is told when it goes on."""
        if self.paused:
            return
        insight = self.gputop.insight
        self.table.know(insight.annotations)
        self.gpus.show_report(report)
        leaks = report.those(Verdict.LEAK)
        note = ""
        if leaks:
            held = sum(verdict.memory_bytes or 0 for verdict in leaks)
            note = f"▲ {len(leaks)} LEAK {held / units.GIB:.0f}G"  # 80 columns leave 13 cells
        if note != self.footer.note:
            self.footer.note = note
            self.footer.update()

    def show_exited(self, now: float) -> None:
        """Keep the processes that exited lately in the table, as grey lines."""
        journal = self.gputop.insight.journal
        if self.chart is not None:
            self.chart.journal = journal
        minutes = self.gputop.settings.exited_minutes
        found = journal.exited_since(now - 60 * minutes) if minutes else []
        if found:
            # The journal may have read a later snapshot than the screen shows: until that is shown too, one that
            # exited is still listed there, as one that is on a GPU again is.
            snapshot = self.snapshot or Snapshot(now)
            gpus = {gpu.uuid for gpu in snapshot.gpus}
            listed = {process.key for process in snapshot.processes}
            found = [
                one
                for one in found
                if one.process.gpu_uuid in gpus and (one.facts is None or one.facts.key not in listed)
            ][:MOST_EXITED]
        unit = self.gputop.settings.memory_unit
        if self._exited != (found, unit):
            self._exited = found, unit
            self.table.keep_exited(tuple(exited_row(one, unit) for one in found))

    # -- keys

    def action_leaks(self) -> None:
        from gputop.ui.leaks.screen import LeaksScreen

        gputop = self.gputop
        self.app.push_screen(
            LeaksScreen(
                gputop.insight,
                lambda: gputop.poller.latest,
                gputop.view,
                gputop.signals,
                gputop.poller.details,
            )
        )

    def action_events(self) -> None:
        from gputop.ui.events_screen import EventsScreen

        self.app.push_screen(EventsScreen(self.gputop.insight.journal, self.gputop.view))

    def action_group(self) -> None:
        """The next kind of group, or none."""
        gputop = self.gputop
        at = GROUPS.index(gputop.settings.group)
        gputop.use_settings(gputop.settings.changed(group=GROUPS[(at + 1) % len(GROUPS)]))

    def action_mark(self) -> None:
        if self.table.mark is not None:
            self.table.set_mark(None)
            return
        if self.snapshot is None:
            return
        mark = Mark(self.snapshot)
        self.table.set_mark(mark)
        at = units.clock(mark.at)
        self.gputop.insight.journal.note(mark.at, EventKind.MARK, f"marked at {at}")

    def kill(
        self, chosen: tuple[Target, ...], hidden: tuple[Target, ...], refused: tuple[tuple[Target, str], ...]
    ) -> None:
        """Ask about signals to *chosen*, and to the holders of those of *refused* that are dead pids."""
        gputop = self.gputop
        dead_pids = [
            dead_pid
            for target, _ in refused
            if (dead_pid := gputop.insight.report.dead_pid(target.key.pid)) is not None
        ]
        held = [dead_pid for dead_pid in dead_pids if dead_pid.targets]
        dead = {dead_pid.pid for dead_pid in dead_pids}
        for target, words in refused:
            if target.key.pid not in dead:
                self.notify(f"{target.key.pid}: {words}", severity="warning", markup=False)
        for dead_pid in dead_pids:
            if dead_pid not in held:
                self._say_why_not(dead_pid)
        if chosen or held:
            self.push_kill(chosen, hidden, holders_as_targets(held))

    def _say_why_not(self, dead_pid: DeadPid) -> None:
        self.gputop.insight.scan_now()
        scan = self.gputop.insight.report.scan
        if not dead_pid.scanned or scan is None:
            words = f"{dead_pid.pid} has exited; looking for the processes that hold its memory: press F9 again"
        else:
            words = f"{dead_pid.pid} has exited, and no process was found to hold its memory: {scan.summary()}"
        self.notify(words, severity="warning", timeout=8, markup=False)

    def push_kill(self, chosen: tuple[Target, ...], hidden: tuple[Target, ...], holders: HoldersAsTargets) -> None:
        from gputop.ui.kill.screen import KillScreen

        gputop = self.gputop
        if gputop.signals is None:
            return
        targets, held, facts = holders
        known = {target.key for target in chosen}
        every = (*chosen, *(target for target in targets if target.key not in known))
        scope = SignalScope.HOLDERS if not chosen else SignalScope.TAGGED if len(every) > 1 else SignalScope.PROCESS
        options: dict[str, Any] = {"scope": scope, "held": held, "facts": facts}
        self.app.push_screen(
            KillScreen(
                every,
                hidden,
                gputop.signals,
                lambda: gputop.poller.latest,
                gputop.view,
                report_of=lambda: gputop.insight.report,
                scan_now=gputop.insight.scan_now,
                log=gputop.insight.log,
                note=gputop.insight.note_signal,
                **options,
            )
        )


def exited_row(one: ExitedProcess, unit: str) -> ProcessRow:
    """The line of a process that exited: ``exited 14:02:31 after 3h12``, with its peak as its memory."""
    at = units.clock(one.exited_at)
    lived = "" if one.lived is None else f" after {units.duration(one.lived)}"
    peak = f", peak {units.size(one.process.memory_bytes, unit)}" if one.process.memory_bytes is not None else ""
    return ProcessRow(one.process, one.facts, annotation=ProcessAnnotation(exited=f"{at}{lived}{peak}"))
