"""The viewer of memory snapshots, as a user sees it: every view in every size, keys, filters, files that cannot be
read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gputop.settings import DEFAULTS
from gputop.ui.toolkit.glyphs import ASCII, UNICODE
from gputop.ui.toolkit.view import View
from gputop.ui.torch_viewers.app import ViewerApp
from gputop.ui.torch_viewers.snapshot.screen import TorchSnapshotScreen
from tests.ui.screens import TORN_KEYS, VIEW, Stage, showing, until
from tests.unit.torch_files import allocator_simulator as sim
from tests.unit.torch_files.allocator_simulator import MIB, Allocator

VIEWS = "o t a l s m d".split()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A run that leaked until it was out of memory, with a second device; and an earlier one of its first device."""
    first, second, before = Allocator(0, capacity=700 * MIB), Allocator(1, ring=300), Allocator(0)
    sim.training(before, steps=5)
    sim.training(first, steps=20)
    sim.until_out_of_memory(first, 90 * MIB)
    sim.chaos(second, 400)
    folder = tmp_path_factory.mktemp("snapshots")
    paths = [folder / "before.pickle", folder / "after.pickle"]
    paths[0].write_bytes(sim.dumps(sim.snapshot(before)))
    paths[1].write_bytes(sim.dumps(sim.snapshot(first, second)))
    return paths


@asynccontextmanager
async def viewing(
    paths: list[Path], size: tuple[int, int] = (120, 40), view: View = VIEW, **more: Any
) -> AsyncIterator[tuple[Stage, Pilot[None]]]:
    async with showing(lambda: TorchSnapshotScreen(paths, view, **more), size) as (app, pilot):
        await until(lambda: app.over.state is not None or app.over.problems, "the files to be read")
        await pilot.pause()
        yield app, pilot


@pytest.mark.parametrize("size", [(80, 24), (40, 8), (200, 60)])
async def test_every_view_fits_every_size(files: list[Path], size: tuple[int, int]) -> None:
    async with viewing(files, size) as (app, pilot):
        for key in VIEWS:
            for more in ([], ["w"], ["v"], ["v"], ["v"], ["f"], ["g"], ["end"], ["home"], ["plus"], ["g"]):
                await pilot.press(key, *more)
                lines = app.text().split("\n")  # asserts that every line takes the width
                assert len(lines) == size[1] and "after.pickle" in lines[0]


async def test_ascii_is_ascii(files: list[Path]) -> None:
    async with viewing(files, view=View(DEFAULTS, ASCII, has_track=False)) as (app, pilot):
        for key in [*VIEWS, "a", "v", "v", "question_mark"]:
            await pilot.press(key)
            assert app.text().isascii()


async def test_the_overview_shows_the_figures_of_the_device(files: list[Path]) -> None:
    async with viewing(files[:1]) as (app, _):
        text = app.text()
    for words in ("reserved", "rounding loss", "releasable", "stuck", "largest free", "100.0 % of the bytes"):
        assert words in text


async def test_the_leaking_line_is_the_first_row(files: list[Path]) -> None:
    async with viewing(files) as (app, pilot):
        await pilot.press("l")
        rows = app.text().split("\n")
        assert "metrics.py:7 log_loss" in rows[4] and "▲" in rows[4] and "1 growing, 60.0M" in rows[2]


async def test_the_timeline_marks_the_peak_and_follows_the_cursor(files: list[Path]) -> None:
    async with viewing(files[:1]) as (app, pilot):
        device = app.over.state.device
        await pilot.press("t")
        assert f"entry {device.peak[0]:,} alloc" in app.text() and "↓ peak" in app.text()
        await pilot.press("full_stop")
        assert app.over.state.cursor == device.peak[0] + 1
        await pilot.press("home")
        assert "before the first entry" in app.text()
        await pilot.press("p", *["plus"] * 4)
        start, end = app.over.pane.window
        assert start <= device.peak[0] < end and end - start < device.entries // 8
        await pilot.press("z")
        assert app.over.pane.window == (0, device.entries)
        await until(lambda: "Held at the cursor" in app.text(), "what was held at the cursor")


async def test_the_cursor_never_leaves_the_trace(files: list[Path]) -> None:
    async with viewing(files[:1]) as (app, pilot):
        await pilot.press("t", "end", *["right"] * 3, *["plus"] * 12, *["right"] * 3, "pagedown", "minus", "pagedown")
        assert app.over.state.cursor == app.over.state.device.last
        await pilot.press("home", "left", "pageup", "comma", *["minus"] * 12)
        assert app.over.state.cursor == -1
        assert app.over.pane.window == (0, app.over.state.device.entries)


async def test_allocations_as_table_tree_and_flame_graph(files: list[Path]) -> None:
    async with viewing(files[:1]) as (app, pilot):
        await pilot.press("a")
        table = app.text()
        assert "train.py:12 build" in table and "/home/ml/train.py:80" in table  # the row, and its stack below
        await pilot.press("v")
        assert "▾ main" in app.text()
        lines = len([line for line in app.text().split("\n") if "train.py" in line or "model.py" in line])
        await pilot.press("left")
        assert "▸ main" in app.text()
        await pilot.press("right")
        again = len([line for line in app.text().split("\n") if "train.py" in line or "model.py" in line])
        assert again == lines
        await pilot.press("v")
        assert "100.0% of all" in app.text()
        await pilot.press("down", "down")
        assert "100.0% of all" not in app.text()
        await pilot.press("enter")
        assert app.over.pane._flame._zoom
        await pilot.press("z")
        assert not app.over.pane._flame._zoom


async def test_single_allocations_have_address_and_lifetime(files: list[Path]) -> None:
    async with viewing(files[:1]) as (app, pilot):
        await pilot.press("a", "v", "v", "v")
        device, pane = app.over.state.device, app.over.pane
        largest = max(device.rows_at(device.last), key=device.row_size.__getitem__)
        text = app.text()
        assert "ADDRESS" in text and f"{device.row_address[largest]:#x}" in text
        assert "held for" in text and "allocated at entry" in text and "held at the dump" in text
        await pilot.press("w")  # at the peak
        assert pane.count() == len(device.rows_at(device.peak[0]))
        await pilot.press("v")
        assert "SHARE" in app.text()


async def test_torchs_own_frames_are_shown_on_demand(files: list[Path]) -> None:
    async with viewing(files[:1]) as (app, pilot):
        await pilot.press("a")
        assert "unwind" not in app.text()
        await pilot.press("f")
        assert "torch::unwind::unwind()" in app.text()


async def test_the_oom_card_says_why_and_leads_to_its_moment(files: list[Path]) -> None:
    async with viewing(files[1:]) as (app, pilot):
        await pilot.press("m")
        assert "90.0M could not be allocated" in app.text() and "requested by" in app.text()
        await pilot.press("enter")
        assert "oom  90.0M" in app.text()


async def test_segments_name_what_pins_them(files: list[Path]) -> None:
    async with viewing(files[1:]) as (app, pilot):
        await pilot.press("s")
        assert "kept by" in app.text() and "free next to live blocks" in app.text()
        await pilot.press("i", "down")
        assert app.over.pane.by_address


async def test_two_files_are_compared(files: list[Path]) -> None:
    async with viewing(files) as (app, pilot):
        await pilot.press("d")
        text = app.text()
        assert "after.pickle device 0 compared with before.pickle device 0" in text and "+45.0M" in text
        await pilot.press("r")
        assert "before.pickle device 0 compared with after.pickle" in app.text() and "-45.0M" in app.text()


async def test_one_file_of_one_device_has_nothing_to_compare_with(files: list[Path]) -> None:
    async with viewing(files[:1]) as (app, pilot):
        await pilot.press("d")
        assert "name two files" in app.text()


async def test_a_filter_is_followed_while_it_is_typed(files: list[Path]) -> None:
    async with viewing(files[:1]) as (app, pilot):
        await pilot.press("a", "slash", *"build")
        assert "filter: build" in app.text() and "log_loss" not in app.text()
        await pilot.press("enter", "slash", *[" ", "s", "i", "z", "e", "greater_than_sign"], *"x")
        assert "not a size" in app.text()
        await pilot.press("escape")
        assert "log_loss" in app.text() and app.over is not None
        await pilot.press("slash", *"nowhere", "enter")
        assert "filter matches no" in app.text()
        await pilot.press("escape")
        assert "log_loss" in app.text() and app.over is not None
        await pilot.press("escape")
        assert app.over is None


async def test_letters_typed_into_the_filter_are_not_keys(files: list[Path]) -> None:
    async with viewing(files[:1]) as (app, pilot):
        await pilot.press("a", "slash", *"qqdost")
        assert app.over is not None and "Filter: qqdost" in app.text()


async def test_enter_does_not_take_a_filter_that_is_wrong(files: list[Path]) -> None:
    async with viewing(files[:1]) as (app, pilot):
        await pilot.press("slash", *"size>10Q", "enter")
        assert "10Q" in app.text().split("\n")[-1]
        await pilot.press("backspace", "M", "enter")
        assert "filter: size>10M" in app.text()


async def test_torn_keys_do_not_end_the_program_nor_change_the_view(files: list[Path]) -> None:
    app = ViewerApp(lambda view: TorchSnapshotScreen(files[:1], view), DEFAULTS)
    async with app.run_test(size=(80, 24)) as pilot:
        screen: Any = app.screen
        await until(lambda: screen.state is not None, "the file to be read")
        await pilot.press("a", *TORN_KEYS)
        assert app.is_running and screen.pane.name == "Allocations"
        await pilot.press("q")
    assert app.return_code == 0


async def test_a_file_that_cannot_be_read_is_named_and_the_other_is_shown(files: list[Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.pickle"
    bad.write_bytes(files[0].read_bytes()[:5000])
    async with viewing([bad, files[0]]) as (app, _):
        assert "ends too early" in app.text() and "reserved" in app.text()
    async with viewing([bad]) as (app, pilot):
        assert "ends too early" in app.text()
        await pilot.press("q")
        assert app.over is None


async def test_the_first_picture_is_there_before_the_file_is_read(files: list[Path]) -> None:
    async with showing(lambda: TorchSnapshotScreen(files, VIEW)) as (app, _):
        if app.over.state is None:
            assert "%" in app.text()


async def test_hostile_names_are_drawn_as_text(tmp_path: Path) -> None:
    allocator = Allocator()
    for name in ("[bold]x[/]", "[/usr/bin/python]", "\x1b[31mred", "日本語の関数" * 20, "\u202egnirts"):
        allocator.malloc(MIB, [sim.frame(name, f"/home/{name}/a.py", 3), sim.frame("main", "m.py", 1)])
    path = tmp_path / "[x]\x1b.pickle"
    path.write_bytes(sim.dumps(sim.snapshot(allocator)))
    async with viewing([path], (80, 24)) as (app, pilot):
        for key in [*VIEWS, "a", "v", "v"]:
            await pilot.press(key)
            assert "\x1b" not in app.text() and "\u202e" not in app.text()


async def test_a_snapshot_without_trace_or_segments_is_shown(tmp_path: Path) -> None:
    allocator = Allocator()
    allocator.recording = False
    sim.training(allocator, steps=2)
    path, empty = tmp_path / "state.pickle", tmp_path / "empty.pickle"
    path.write_bytes(sim.dumps(sim.as_form(sim.snapshot(allocator), "1.8")))
    empty.write_bytes(sim.dumps({"segments": [], "device_traces": [[]]}))
    async with viewing([path], view=View(DEFAULTS, UNICODE)) as (app, pilot):
        for key in VIEWS:
            await pilot.press(key, "down", "enter", "left", "plus", "end")
        await pilot.press("t")
        assert "has no trace" in app.text()
        await pilot.press("a")
        assert "(no frames)" in app.text()
    async with viewing([empty]) as (app, pilot):
        await pilot.press(*VIEWS, "down")
        assert "no segments and no trace" in app.text()
