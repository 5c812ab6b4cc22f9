"""The process table on a screen: what a user sees and does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.events import MouseScrollDown
from textual.geometry import Region
from textual.pilot import Pilot

from gputop.model import GpuProcess, ProcessKey, Snapshot, clean_text, replace
from gputop.settings import DEFAULTS
from gputop.ui.processes.table import ProcessTable
from gputop.ui.toolkit.glyphs import UNICODE
from gputop.ui.toolkit.palette import DARK
from gputop.ui.toolkit.view import View
from tests.unit.ui.process_data import GIB, process, snapshot

VIEW = View(DEFAULTS, UNICODE)


class Bench(App[None]):
    """A table that keeps what it asked to have redrawn, and what it posted."""

    CSS = "Screen { layout: vertical; }"

    def __init__(self) -> None:
        super().__init__()
        self.table = WatchedTable()
        self.posted: list[Any] = []

    def compose(self) -> ComposeResult:
        yield self.table

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.theme = DARK.name
        self.table.focus()

    def on_process_table_sort_changed(self, message: ProcessTable.SortChanged) -> None:
        self.posted.append(message)

    def on_process_table_cursor_moved(self, message: ProcessTable.CursorMoved) -> None:
        self.posted.append(message)

    def on_process_table_row_activated(self, message: ProcessTable.RowActivated) -> None:
        self.posted.append(message)


class WatchedTable(ProcessTable):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Region] = []

    def refresh(self, *regions: Region, **how: Any) -> Any:
        self.asked += regions
        return super().refresh(*regions, **how)


class Bed:
    def __init__(self, app: Bench, pilot: Pilot[None]) -> None:
        self.app, self.pilot, self.table = app, pilot, app.table

    async def show(self, *processes: GpuProcess, at: float = 0.0, view: View = VIEW, **values: Any) -> None:
        self.table.show_snapshot(snapshot(*processes, at=at, **values), view)
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    @property
    def screen(self) -> list[str]:
        """What the terminal would show."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in strips]

    @property
    def at(self) -> int | None:
        """The pid at the cursor, as the program knows it; the screen must highlight just that row."""
        row = self.table.cursor_row
        strips = self.app.screen._compositor.render_strips()
        surface = self.table.palette.style("text@cursor").bgcolor
        lit = [
            "".join(s.text for s in strip)
            for strip in strips
            if all(s.style and s.style.bgcolor == surface for s in strip)
        ]
        assert len(lit) == (row is not None)
        if row is None:
            return None
        assert str(row.process.pid) in lit[0]
        return row.process.pid

    @property
    def pids(self) -> list[int]:
        """Pids of the rows on the screen, top to bottom."""
        body = self.screen[1:-1]
        return [int(next(word for word in line[4:14].split() if word.isdecimal())) for line in body if line.strip()]

    def last(self, kind: type) -> Any:
        return next((message for message in reversed(self.app.posted) if isinstance(message, kind)), None)


@asynccontextmanager
async def bed(width: int = 80, height: int = 12) -> AsyncIterator[Bed]:
    app = Bench()
    async with app.run_test(size=(width, height)) as pilot:
        await pilot.pause()
        yield Bed(app, pilot)


def many(count: int, **values: Any) -> list[GpuProcess]:
    """The first one holds most memory."""
    return [process(1000 + n, n % 2, 1 + (count - n) / 16, **values) for n in range(count)]


# --------------------------------------------------------------- the cursor sticks


async def test_selection_sticks_when_a_row_above_vanishes_or_appears() -> None:
    async with bed() as b:
        rows = many(5)
        await b.show(*rows)
        await b.press("down", "down")
        assert b.at == 1002
        await b.show(*rows[1:], at=1)
        assert b.at == 1002
        await b.show(process(7, 0, 99), *rows, at=2)
        assert b.at == 1002


async def test_selection_sticks_when_the_sort_flips_and_when_values_re_sort_the_rows() -> None:
    async with bed() as b:
        await b.show(*many(5))
        await b.press("down")
        b.table.action_invert()
        await b.pilot.pause()
        assert b.pids == [1004, 1003, 1002, 1001, 1000]
        assert b.at == 1001
        b.table.set_sort("pid")
        await b.pilot.pause()
        assert b.at == 1001
        b.table.set_sort("gpu_mem")
        await b.show(*many(4), process(1001, 1, 90), at=5)
        assert b.at == 1001


async def test_selection_sticks_when_host_facts_arrive_later() -> None:
    async with bed() as b:
        unread = [process(pid, gib=pid, host=None) for pid in (3, 2, 1)]
        await b.show(*unread)
        await b.press("down")
        await b.show(*(process(pid, gib=pid) for pid in (3, 2, 1)), at=0.5)
        assert b.at == 2
        assert b.table.targets().chosen[0].key == ProcessKey(2, 20)


async def test_selection_sticks_and_stays_in_sight_through_resizes() -> None:
    async with bed(height=40) as b:
        await b.show(*many(30))
        await b.press(*["down"] * 25)
        for size in ((80, 12), (60, 6), (200, 60), (80, 3), (100, 24)):
            await b.pilot.resize_terminal(*size)
            await b.pilot.pause()
            assert b.at == 1025


async def test_when_the_selected_row_vanishes_the_next_one_is_selected_and_frozen_targets_stay() -> None:
    async with bed() as b:
        rows = many(5)
        await b.show(*rows)
        await b.press("down", "down")
        frozen = b.table.targets()
        await b.show(*(row for row in rows if row.pid != 1002), at=1)
        assert b.at == 1003
        assert [target.key.pid for target in frozen.chosen] == [1002]
        assert b.last(ProcessTable.CursorMoved).row.process.pid == 1003


async def test_selection_comes_back_with_a_gpu_that_was_lost_and_with_a_filter_cleared() -> None:
    async with bed() as b:
        await b.show(*many(5))
        await b.press("down", "down")
        await b.show(at=1)
        assert b.at is None and b.table.targets().chosen == ()
        await b.show(*many(5), at=2)
        assert b.at == 1002
        b.table.set_filter("!1002")
        await b.pilot.pause()
        assert b.at == 1003
        b.table.clear_filter()
        await b.pilot.pause()
        assert b.at == 1002


async def test_a_page_nobody_scrolled_stays_at_the_top() -> None:
    async with bed() as b:
        rows = many(40)
        await b.show(*rows)
        await b.show(*[replace(rows[0], memory_bytes=0), *rows[1:]], at=5)
        assert b.pids[0] == 1001
        assert b.at == 1001


async def test_a_reused_pid_is_not_the_selected_process() -> None:
    async with bed() as b:
        await b.show(process(1, gib=3), process(2, gib=2), process(3, gib=1))
        await b.press("down")
        await b.show(process(1, gib=3), process(2, gib=9, start_ticks=77), process(3, gib=1), at=5)
        assert b.at == 3


async def test_a_moved_cursor_redraws_two_rows_at_once() -> None:
    async with bed() as b:
        await b.show(*many(8, sm_percent=1))
        b.table.asked.clear()
        b.table.action_cursor_down()
        redrawn = {region.y for region in b.table.asked if region.y < b.table.size.height - 1}
        assert redrawn == {1, 2}


# ------------------------------------------------------------------------ moving


async def test_a_thousand_rows_page_by_page() -> None:
    async with bed(height=24) as b:
        await b.show(*many(1000))
        assert "↓ 978 more" in b.screen[-1]
        await b.press("end")
        assert b.at == 1999
        assert "↑ 978 more" in b.screen[-1]
        await b.press("pageup")
        assert b.at == 1999 - 21
        await b.press("home", "pagedown", "up")
        assert b.at == 1020
        assert len(b.table.visible_pids) == 22


async def test_the_wheel_scrolls_and_the_cursor_is_never_left_behind() -> None:
    async with bed() as b:
        await b.show(*many(40))
        await b.pilot._post_mouse_events([MouseScrollDown], b.table, offset=(5, 5), button=0)
        await b.pilot.pause()
        assert b.pids[0] == 1003
        assert b.at == 1003


async def test_a_click_selects_and_a_double_click_asks_for_details() -> None:
    async with bed() as b:
        await b.show(*many(5))
        await b.pilot.click(b.table, offset=(20, 3))
        assert b.at == 1002
        assert b.last(ProcessTable.RowActivated) is None
        await b.pilot.click(b.table, offset=(20, 4), times=2)
        assert b.at == 1003
        assert b.last(ProcessTable.RowActivated).row.process.pid == 1003


async def test_a_click_below_the_rows_does_nothing() -> None:
    async with bed() as b:
        await b.show(*many(2))
        await b.pilot.click(b.table, offset=(20, 8))
        assert b.at == 1000


# ----------------------------------------------------------------------- sorting


async def test_a_click_on_a_heading_sorts_and_a_second_one_inverts() -> None:
    async with bed() as b:
        await b.show(*many(4))
        x = b.screen[0].index("PID")
        await b.pilot.click(b.table, offset=(x, 0))
        await b.pilot.pause()
        assert b.pids == [1000, 1001, 1002, 1003]
        assert "PID▴" in b.screen[0]
        await b.pilot.click(b.table, offset=(x, 0))
        await b.pilot.pause()
        assert b.pids == [1003, 1002, 1001, 1000]
        assert "PID▾" in b.screen[0]
        message = b.last(ProcessTable.SortChanged)
        assert (message.column, message.reverse) == ("pid", True)


async def test_an_order_changed_in_the_settings_is_taken_over_and_an_unchanged_one_is_not() -> None:
    async with bed() as b:
        await b.show(*many(3))
        b.table.set_sort("pid")
        await b.show(*many(3), at=1)
        assert b.table.order.column == "pid"
        await b.show(*many(3), at=2, view=View(DEFAULTS.changed(sort="user"), UNICODE))
        assert b.table.order.column == "user"


async def test_host_facts_of_all_are_wanted_only_where_order_or_filter_need_them() -> None:
    async with bed() as b:
        await b.show(*many(3))
        assert not b.table.wants_all
        b.table.set_filter("mem>1G gpu:0")
        assert not b.table.wants_all
        b.table.set_filter("train")
        assert b.table.wants_all
        b.table.clear_filter()
        b.table.set_sort("cpu")
        assert b.table.wants_all
        b.table.set_sort("sm")
        b.table.action_tree()
        assert b.table.wants_all


# ---------------------------------------------------------------- filters and tags


async def test_a_filter_hides_rows_and_says_so() -> None:
    async with bed() as b:
        await b.show(process(1, user="ml"), process(2, user="bob"), process(3, user="ml"))
        assert b.table.set_filter("user:ml") is None
        await b.pilot.pause()
        assert b.pids == [1, 3]
        assert "2 of 3 processes · filter: user:ml" in b.screen[-1]
        b.table.set_filter("nobody-has-this")
        await b.pilot.pause()
        assert "no process matches the filter" in b.screen[1]
        assert b.at is None
        assert b.table.targets().chosen == ()


async def test_a_wrong_term_is_reported_and_hides_nothing() -> None:
    async with bed(width=120) as b:
        await b.show(*many(3))
        words = b.table.set_filter("mem>lots")
        await b.pilot.pause()
        assert words is not None and "not a size" in words
        assert "not a size" in b.screen[-1]
        assert len(b.pids) == 3


async def test_space_tags_and_moves_down_and_the_tag_follows_its_process() -> None:
    async with bed() as b:
        rows = many(4)
        await b.show(*rows)
        await b.press("space", "space")
        assert b.at == 1002
        assert [line[0] for line in b.screen[1:5]] == ["*", "*", " ", " "]
        assert "2 tagged (2.4G)" in b.screen[-1]
        b.table.action_invert()
        await b.show(process(5, 0, 99), *rows, at=5)
        assert {line.split()[2] for line in b.screen[1:-1] if line.startswith("*")} == {"1000", "1001"}
        assert {target.key.pid for target in b.table.targets().chosen} == {1000, 1001}
        b.table.action_untag_all()
        await b.pilot.pause()
        assert not any(line.startswith("*") for line in b.screen)
        assert [target.key.pid for target in b.table.targets().chosen] == [1002]


async def test_space_on_a_launcher_tags_and_untags_all_under_it() -> None:
    async with bed() as b:
        await b.show(*(process(pid, parent_pid=777) for pid in (1, 2, 3)), process(9, gib=0.5))
        b.table.action_tree()
        await b.press("home")
        assert b.at == 777
        await b.press("space")
        assert {target.key.pid for target in b.table.targets().chosen} == {1, 2, 3}
        assert b.at == 9
        await b.press("home", "space")
        assert b.table.tagged == 0
        assert 777 not in b.table.visible_pids


async def test_tagged_processes_that_a_filter_hides_are_named_and_left_out() -> None:
    async with bed() as b:
        await b.show(process(1, gib=9, user="ml"), process(2, user="bob"))
        await b.press("space", "space")
        b.table.set_user("bob")
        await b.pilot.pause()
        assert "2 tagged (10.0G, 1 hidden)" in b.screen[-1]
        found = b.table.targets()
        assert [target.key.pid for target in found.chosen] == [2]
        assert [target.key.pid for target in found.hidden] == [1]


async def test_space_on_a_dead_row_tags_nothing_though_it_does_in_leaks() -> None:
    async with bed() as b:
        dead = process(50211, gib=38, host=None, exists=False)
        await b.show(dead, process(2, gib=1))
        await b.press("space")
        assert b.screen[1].startswith("*† 0 ") and b.table.tagged == 1
        assert [target.key.pid for target, _ in b.table.targets().refused] == [50211]  # F9: those who keep its memory
        await b.show(process(50211, gib=38), process(2, gib=1), at=1)  # the pid is somebody else's now
        assert b.table.tagged == 0 and not any(line.startswith("*") for line in b.screen)


async def test_a_reused_pid_is_not_tagged() -> None:
    async with bed() as b:
        await b.show(process(1), process(2))
        await b.press("space")
        await b.show(process(1, start_ticks=99), process(2), at=1)
        assert not any(line.startswith("*") for line in b.screen)
        assert 1 not in {target.key.pid for target in b.table.targets().chosen if target.key.start_ticks == 10}
        assert b.table.tagged == 0


async def test_folding_at_a_gpu_line_folds_its_sum_and_keeps_the_process_selected() -> None:
    async with bed() as b:
        await b.show(process(1, 0, 5), process(1, 1, 5), process(2, 0, 1))
        await b.press("down", "down")
        b.table.action_fold()
        await b.pilot.pause()
        assert b.pids == [1, 2]
        assert b.at == 1
        b.table.action_unfold()
        await b.pilot.pause()
        assert b.pids == [1, 1, 1, 2]


# --------------------------------------------------------------- what may be in it


@pytest.mark.parametrize(
    "command",
    [
        "torch[cu12] [/x] [bold red]y[/]",
        "[/usr/bin/python]",
        "\x1b]0;owned\x07\x1b[2J rm",
        "推理/评测.py --模型 qwen3-8b " * 4,
        "python \u202egnp.exe \ud800 x",
        "e\u0301👩‍🚀🇩🇪 ｆｕｌｌ",
        "",
        "a" * 4000,
    ],
)
async def test_hostile_and_wide_commands_stay_text_in_their_row(command: str) -> None:
    async with bed() as b:
        await b.show(process(1, gib=2, command=clean_text(command), name="x"), process(2, command="next"))
        await b.press("right", "right")
        assert not any("\x1b" in line or "\x07" in line for line in b.screen)
        strips = b.app.screen._compositor.render_strips()
        assert {strip.cell_length for strip in strips} == {80}
        assert "2" in b.screen[2].split()[:2]


async def test_right_scrolls_long_commands_as_far_as_they_go_and_left_scrolls_back() -> None:
    async with bed() as b:
        await b.show(process(1, command="python " + "".join(f"--option-{n} " for n in range(9)) + "END"))
        assert "END" not in b.screen[1] and "›" in b.screen[1]
        await b.press(*["right"] * 30)
        assert "END" in b.screen[1] and "‹" in b.screen[1]
        await b.press(*["left"] * 30)
        assert "python --opt" in b.screen[1] and "‹" not in b.screen[1]


async def test_an_empty_table_says_why() -> None:
    async with bed() as b:
        await b.show()
        assert "no process uses a GPU" in b.screen[1]
        await b.show(problems=("driver/library mismatch: reboot",))
        assert "processes unknown: driver/library mismatch" in b.screen[1]
        shot = snapshot()
        lost: Snapshot = replace(shot, gpus=(replace(shot.gpus[0], error="fell off the bus"), shot.gpus[1]))
        b.table.show_snapshot(lost, VIEW)
        await b.pilot.pause()
        assert "unknown for GPU 0" in b.screen[1]


async def test_keys_on_an_empty_table_do_no_harm() -> None:
    async with bed() as b:
        await b.press("down", "space", "end")
        await b.show()
        await b.press("down", "up", "pagedown", "pageup", "home", "end", "left", "right", "space")
        for action in ("fold", "unfold", "tree", "invert", "untag_all", "activate"):
            getattr(b.table, f"action_{action}")()
        assert b.table.targets().chosen == ()
        assert b.table.visible_pids == frozenset()


@pytest.mark.parametrize("size", [(1, 1), (10, 2), (60, 3), (80, 5), (300, 80)])
async def test_any_size_draws(size: tuple[int, int]) -> None:
    async with bed(*size) as b:
        await b.show(*many(50))
        await b.press("end", "up", "space")
        assert {strip.cell_length for strip in b.app.screen._compositor.render_strips()} == {size[0]}


# --------------------------------------------------------------------------- cost


async def test_a_tick_redraws_changed_spans_only() -> None:
    async with bed(height=24) as b:
        rows = many(20, start_time=0.0)
        await b.show(*rows)
        b.table.asked.clear()
        changed = [replace(row, sm_percent=77) if row.pid == 1004 else row for row in rows]
        b.table.show_snapshot(snapshot(*changed, at=0.5), VIEW)
        assert [(region.y, region.height) for region in b.table.asked] == [(5, 1)]
        assert b.table.asked[0].width <= 2
        b.table.asked.clear()
        b.table.show_snapshot(snapshot(*changed, at=1.0), VIEW)
        assert b.table.asked == []


async def test_columns_do_not_move_when_a_process_dies_or_a_longer_pid_goes() -> None:
    async with bed() as b:
        await b.show(process(1), process(4_000_000_000))
        before = b.screen[0]
        await b.show(process(1, host=None, exists=False), at=1)
        assert b.screen[0] == before
        assert b.screen[1].startswith(" † 0 ")


async def test_places_of_mig_instances_are_shown_whole() -> None:
    async with bed() as b:
        await b.show(process(1, 11, gpu_instance_id=13, compute_instance_id=6), process(2, 3), gpus=12)
        assert b.screen[2].startswith(" 11:13:6 ")


async def test_totals_of_the_gpu_at_the_cursor_are_shown() -> None:
    async with bed() as b:
        await b.show(process(1, 0, 3), process(2, 0, 4), process(3, 1, 1))
        assert "GPU 0: 2 processes, 7.0G" in b.screen[-1]
        await b.press("end")
        assert "GPU 1: 1 process, 1.0G" in b.screen[-1]
        assert b.table.cursor_process is not None and b.table.cursor_process.memory_bytes == GIB
