"""What the dashboard does with what was found out: groups, marks, what exited, and F9 on a dead pid."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.geometry import Region
from textual.pilot import Pilot

from gputop.history.gpu_history import History
from gputop.history.journal import EventKind, ExitedProcess, Journal, JournalEvent
from gputop.leaks.report import LeakReport, Straggler
from gputop.model import GpuProcess, LeakVerdict, ProcessKey, Severity, Verdict, replace
from gputop.model.owner import Container, Owner
from gputop.monitor import Monitor
from gputop.sampling.bus import Bus
from gputop.sampling.poller import Poller
from gputop.settings import DEFAULTS, Settings
from gputop.signals.scope import SignalScope
from gputop.sources.simulated import simulated_machine
from gputop.ui.app import GputopApp
from gputop.ui.chart.events import with_events
from gputop.ui.chart.picture import PanePicture
from gputop.ui.chart.scale import TimeAxis
from gputop.ui.events_screen import EventsScreen
from gputop.ui.kill.screen import KillScreen
from gputop.ui.processes.annotations import ProcessAnnotations, verdict_label
from gputop.ui.processes.exited import ExitedLines, exited_row
from gputop.ui.processes.listing.filter import ProcessFilter
from gputop.ui.processes.listing.order import Order
from gputop.ui.processes.listing.row import ProcessRow
from gputop.ui.processes.listing.rows import ProcessRows
from gputop.ui.processes.mark import Mark
from gputop.ui.toolkit.line_widget import LineWidget
from tests.ui.screens import flat, monitor_of, showing, until
from tests.unit.ui.process_data import GIB, TAKEN_AT, facts, gpu, process, snapshot

# --------------------------------------------------------------------- groups

RANKS = [process(10 + n, n % 2, 20 + n, user="ml") for n in range(3)]
OTHER = process(50, 0, 40, user="cv")
OWNERS = {one.key: Owner(where="slurm 88123", slurm_job="88123", rank=n) for n, one in enumerate(RANKS)}
OWNERS |= {OTHER.key: Owner(where="docker 3fa9c81d02ab", container=Container("docker", "3fa9c81d02ab" + "0" * 52))}
REPORT = LeakReport(
    TAKEN_AT,
    owners=OWNERS,
    stragglers=(Straggler("slurm 88123", RANKS[2].key, gpu(0).uuid, "rank 2 holds 2.1 GiB more than its peers"),),
)


def rows_of(order: Order, *processes: GpuProcess, rows: ProcessRows | None = None) -> list[ProcessRow]:
    rows = rows or ProcessRows()
    rows.annotations = ProcessAnnotations(REPORT)
    return list(rows.arrange(snapshot(*processes), ProcessFilter(), order).rows)


def said(rows: list[ProcessRow]) -> list[tuple[str, float]]:
    """Name of a group or pid, and GiB."""
    return [(row.annotation.group or str(row.process.pid), (row.process.memory_bytes or 0) / GIB) for row in rows]


def test_groups_have_subtotals_the_largest_first() -> None:
    found = said(rows_of(Order(group="user"), *RANKS, OTHER))
    assert found == [("ml", 63), ("12", 22), ("11", 21), ("10", 20), ("cv", 40), ("50", 40)]


def test_job_group_says_who_stands_out() -> None:
    rows = rows_of(Order(group="job"), *RANKS, OTHER)
    head = next(row for row in rows if row.annotation.group == "slurm 88123")
    assert head.annotation.remark == "12: rank 2 holds 2.1 GiB more than its peers"
    assert any(row.annotation.group == "no job" for row in rows)


def test_container_and_gpu_groups() -> None:
    assert ("docker 3fa9c81d02ab", 40) in said(rows_of(Order(group="container"), *RANKS, OTHER))
    found = said(rows_of(Order(group="gpu"), *RANKS, OTHER, replace(OTHER, gpu_uuid=gpu(1).uuid, gpu_index=1)))
    assert ("GPU 0", 82) in found and ("GPU 1", 61) in found and found.count(("50", 40)) == 2


def test_folded_group_is_one_line_with_its_subtotal() -> None:
    rows = ProcessRows()
    head = rows_of(Order(group="user"), *RANKS, OTHER, rows=rows)[0]
    assert head.process.pid < 0, "no pid is ever folded by it"
    rows.folded.add(head.process.pid)
    folded = rows_of(Order(group="user"), *RANKS, OTHER, rows=rows)
    assert said(folded) == [("ml", 63), ("cv", 40), ("50", 40)] and folded[0].hidden == 3


def test_group_line_is_the_same_object_while_nothing_in_it_changes() -> None:
    rows = ProcessRows()
    first = rows_of(Order(group="user"), *RANKS, rows=rows)
    rows.annotations = ProcessAnnotations(REPORT)
    again = rows.arrange(snapshot(*RANKS, at=5), ProcessFilter(), Order(group="user")).rows
    assert first[0] is again[0] and first[1] is again[1]


def test_verdict_is_a_word_with_the_time_it_is_so() -> None:
    idle = LeakVerdict(Verdict.IDLE, ProcessKey(1, 1), (), (), (), (), since=TAKEN_AT - 7980)
    assert verdict_label(idle, TAKEN_AT) == "IDLE 2h13m"
    assert verdict_label(replace(idle, verdict=Verdict.LEAK), TAKEN_AT) == "LEAK"
    assert verdict_label(replace(idle, since=TAKEN_AT - 200), TAKEN_AT) == "IDLE 3m"


# ------------------------------------------------------------- marks and the past


def test_change_since_a_mark_by_process_and_by_gpu() -> None:
    before = snapshot(process(1, gib=5), process(2, gib=None))
    mark = Mark(before)

    def change(row: GpuProcess) -> str | None:
        found = mark.change(ProcessRow(row))
        return None if found is None else found.text("GiB")

    assert change(process(1, gib=6.5)) == "+1.5G"
    assert change(process(1, gib=5)) == "0"
    assert change(process(1, gib=4)) == "-1.0G"
    assert change(process(3, gib=4)) == "new 4.0G"
    assert change(process(2, gib=4)) is None, "unknown then"
    assert change(process(1, gib=5, start_ticks=77)) == "new 5.0G", "another bearer of the pid"


def test_exited_process_is_a_line_with_time_of_death_life_span_and_peak() -> None:
    gone = replace(process(7, gib=81.2), host=None, exists=False)
    row = exited_row(ExitedProcess(gone, facts(7, start_time=TAKEN_AT), TAKEN_AT + 11520, TAKEN_AT), "GiB")
    at = time.strftime("%H:%M:%S", time.localtime(TAKEN_AT + 11520))
    assert row.annotation.exited == f"{at} after 3h12, peak 81.2G"
    assert row.gone and not row.dead


async def test_events_newest_first_with_times_and_kinds() -> None:
    monitor = monitor_of()
    monitor.note(EventKind.MARK, "marked at 1", TAKEN_AT)
    monitor.journal.note(TAKEN_AT + 60, EventKind.LOST, "GPU 0: fell off the bus", Severity.CRITICAL)
    async with showing(lambda: EventsScreen(monitor), (100, 24)) as (app, pilot):
        text = app.text()
        assert text.index("fell off the bus") < text.index("marked at 1")
        monitor.note(EventKind.BACK, "GPU 0: is back", TAKEN_AT + 61)
        await until(lambda: "is back" in app.text(), "the new event")
        await pilot.press("y")
        assert "processes, newest first" in app.text() and "fell off" not in app.text()
        await pilot.press("e")
        await pilot.pause()
        assert app.over is None


# ----------------------------------------------------------- the whole dashboard


@asynccontextmanager
async def dashboard(
    tmp_path: Path, name: str, settings: Settings = DEFAULTS, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[GputopApp, Pilot[None]]]:
    machine = simulated_machine(name)
    bus, history = Bus(), History()
    settings = settings.changed(refresh=0.25, show_chart=False)
    poller = Poller(machine.source, machine.host, bus, settings.refresh, history)
    poller.start()
    assert poller.wait_for_first(10) is not None
    monitor = Monitor(
        poller, bus, settings, tmp_path / "config.toml", signals=machine.signals,
        investigator=lambda: machine.investigator,
    )  # fmt: skip
    app = GputopApp(monitor)
    async with app.run_test(size=size) as pilot:
        yield app, pilot
    monitor.stop()
    poller.stop()


def text_of(app: GputopApp) -> str:
    found = []
    for board in app.screen.query(LineWidget):
        strips = board.render_lines(Region(0, 0, board.size.width, board.size.height))
        found += [strip.text.rstrip() for strip in strips]
    return "\n".join(found)


async def test_dead_pid_is_named_with_its_holders_and_f9_ends_them(tmp_path: Path) -> None:
    async with dashboard(tmp_path, "leak") as (app, pilot):
        await until(lambda: "← 61186 +3" in text_of(app), "the holders")
        await until(lambda: "LEAK" in text_of(app), "the verdict")
        assert "70.0G held by dead 61020" in text_of(app) or "70.0G dead" in text_of(app)
        await pilot.press("home", "f9")
        await until(lambda: isinstance(app.screen, KillScreen), "the dialog")
        kill: Any = app.screen
        assert kill.scope is SignalScope.HOLDERS
        assert [termination.target.key.pid for termination in kill.terminations.all] == [61186, 61187, 61188, 61189]
        await until(lambda: not kill._busy, "the holds")
        await pilot.press("e", "enter")
        await until(lambda: "70.0G of dead pid 61020 on GPU 0: released in" in flat(text_of(app)), "the memory", 40)
        assert "GPU 0: used memory down by 70.0G in" in flat(text_of(app))
        assert {termination.number for termination in kill.terminations.all} == {signal.SIGTERM}
        await pilot.press("enter")
        await until(lambda: "61020" not in text_of(app).split("61020 on GPU")[0], "the row to go")


def test_what_exited_before_the_screen_showed_it_gone_is_a_grey_line_as_soon_as_it_does() -> None:
    """The journal reads every snapshot, the screen shows some: it may be a snapshot behind."""
    gone, other = process(7), process(8)
    journal, lines = Journal(), ExitedLines()
    journal.exited.append(ExitedProcess(gone, gone.host, TAKEN_AT, TAKEN_AT - 60))
    assert not lines.of(journal, snapshot(gone, other), DEFAULTS), "it is still listed"
    assert [row.process.pid for row in lines.of(journal, snapshot(other), DEFAULTS)] == [7]


async def test_keys_group_mark_and_the_leaks_view(tmp_path: Path) -> None:
    async with dashboard(tmp_path, "leak") as (app, pilot):
        await until(lambda: app.monitor.report.those(Verdict.LEAK), "a report")
        await pilot.press("b")
        assert app.monitor.settings.group == "user" and "▾ alice" in text_of(app)
        await pilot.press("home", "minus")
        assert "▸" in text_of(app)
        await pilot.press("b", "b", "b", "b")
        assert app.monitor.settings.group == "none"
        await pilot.press("m")
        assert "ΔMEM" in text_of(app) and "Δ since" in text_of(app)
        await pilot.press("m")
        assert "ΔMEM" not in text_of(app)
        await pilot.press("L")
        await until(lambda: "VERDICT" in text_of(app), "the leaks view")
        await pilot.press("enter")
        await until(lambda: "Process 61020" in text_of(app), "details of the dead pid")
        assert "LEAK: why, and what would rule it out" in text_of(app)
        await pilot.press("escape", "escape")


async def test_who_is_it_and_scopes_from_the_details(tmp_path: Path) -> None:
    async with dashboard(tmp_path, "8xh200", size=(140, 60)) as (app, pilot):
        await until(lambda: app.monitor.report.owners, "owners")
        await pilot.press("home", "enter")
        await until(lambda: "Owner" in text_of(app), "whose it is")
        await pilot.press("escape")
        await pilot.press("f9")
        await until(lambda: isinstance(app.screen, KillScreen) and not app.screen._busy, "the dialog")
        kill: Any = app.screen
        scopes = kill.scopes()
        assert scopes[0] is SignalScope.PROCESS and len(scopes) > 1, "a rank has workers, a group, a session"
        alone = len(kill.terminations.all)
        await pilot.press("right")
        await until(lambda: len(kill.terminations.all) > alone and not kill._busy, "more targets")
        assert kill.scope is scopes[1] and f"({len(kill.terminations.all)})" in text_of(app)
        await pilot.press("escape")


def test_events_are_letters_on_the_charts_axis_the_worst_where_several_are() -> None:
    axis = TimeAxis.of(60, 600.0, TAKEN_AT)
    plot = ((("100%", "dim"), ("┤", "faint"), (" " * 60, "text")),)
    picture = PanePicture((*plot, (("────┴" + "─" * 60, "faint"),)), 5, axis)
    events = [
        JournalEvent(TAKEN_AT - 300, EventKind.START, "", Severity.NORMAL),
        JournalEvent(TAKEN_AT - 300, EventKind.XID, "", Severity.CRITICAL),
        JournalEvent(TAKEN_AT - 299.9, EventKind.EXIT, "", Severity.NORMAL),
        JournalEvent(TAKEN_AT - 9000, EventKind.LOST, "", Severity.CRITICAL),
    ]
    drawn = with_events(picture, events)
    line = "".join(text for text, _ in drawn[1])
    assert line.count("X") == 1 and "!" not in line and "s" not in line
    assert len(line) == 65 and abs(line.index("X") - (5 + 28)) <= 3
    assert ("X", "critical+b") in drawn[1]
    assert drawn[0] == plot[0]


def test_a_letter_stands_beside_a_label_of_time_not_in_it() -> None:
    """The axis said 22:j6."""
    axis = TimeAxis.of(60, 600.0, TAKEN_AT)
    at = TAKEN_AT - 300
    cell = axis.cell_at(at)
    assert cell is not None
    line = (("─" * (cell + 3), "faint"), ("22:36", "dim"), ("─" * (57 - cell), "faint"))
    drawn = with_events(PanePicture((((" ", "text"),), line), 5, axis), [JournalEvent(at, EventKind.JUMP, "")])
    text = "".join(part for part, _ in drawn[1])
    assert "22:36" in text and text.count("j") == 1 and len(text) == 65
    assert abs(text.index("j") - cell - 5) <= 3
