"""The viewer of profiler traces, as a user sees it: every view in every size, keys, filters, files that cannot be
read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gputop.settings import DEFAULTS
from gputop.ui.toolkit.glyphs import ASCII
from gputop.ui.toolkit.view import View
from gputop.ui.torch_viewers.app import ViewerApp
from gputop.ui.torch_viewers.trace.screen import TorchTraceScreen
from tests.ui.screens import TORN_KEYS, VIEW, Stage, flat, showing, until

H200 = Path(__file__).resolve().parents[1] / "data" / "h200"
PLAIN, STACKS = H200 / "torch_trace.json.gz", H200 / "torch_trace_stacks.json.gz"
TIMELINE = H200 / "torch_trace_stacks.timeline.raw.json.gz"


@asynccontextmanager
async def viewing(
    path: Path, size: tuple[int, int] = (120, 40), view: View = VIEW
) -> AsyncIterator[tuple[Stage, Pilot[None]]]:
    async with showing(lambda: TorchTraceScreen(path, view), size) as (app, pilot):
        await until(lambda: app.over.panes or app.over.problems, "the file to be read")
        await pilot.pause()
        yield app, pilot


async def rows(app: Stage) -> list[str]:
    """The lines of the table, once it is there."""
    await until(lambda: "summing" not in app.text(), "the table")
    lines = app.text().split("\n")
    begin = next(n for n, line in enumerate(lines) if line.startswith(" OP")) + 1
    return [line for line in lines[begin : lines.index(next(x for x in lines[begin:] if x.startswith(" ──")))] if line]


@pytest.mark.parametrize("size", [(80, 24), (40, 8), (200, 60)])
@pytest.mark.parametrize("path", [PLAIN, STACKS, TIMELINE], ids=["plain", "stacks", "timeline"])
async def test_every_view_fits_every_size(path: Path, size: tuple[int, int]) -> None:
    async with viewing(path, size) as (app, pilot):
        for key in "omt":
            for more in (
                [],
                ["s"],
                ["h"],
                ["k"],
                ["y"],
                ["g"],
                ["end"],
                ["home"],
                ["plus"],
                ["right"],
                ["question_mark"],
            ):
                await pilot.press(key, *more)
                lines = app.text().split("\n")  # asserts that every line takes the width
                assert len(lines) == size[1] and "torch_trace" in lines[0]


@pytest.mark.parametrize("path", [PLAIN, STACKS, TIMELINE], ids=["plain", "stacks", "timeline"])
async def test_ascii_is_ascii(path: Path) -> None:
    async with viewing(path, view=View(DEFAULTS, ASCII, has_track=False)) as (app, pilot):
        for key in ("o", "m", "t", "question_mark"):
            await pilot.press(key)
            assert app.text().isascii()


async def test_the_overview_tells_the_peak_who_held_it_and_how_it_adds_up() -> None:
    async with viewing(PLAIN) as (app, _):
        text = flat(app.text())
    assert "peak 66.0M, reserved 68.0M" in text and "aten::_foreach_sqrt › aten::empty_strided" in text
    assert "33.0M 2× aten::linear forward" in text and "32.2M 3× AddmmBackward0" in text
    assert "torch's Self column sums to 65.0M" in text


async def test_the_curve_begins_at_the_peak_and_tells_what_ran_and_held_at_the_cursor() -> None:
    async with viewing(STACKS) as (app, pilot):
        await pilot.press("m")
        assert "↓ peak 66.0M" in app.text() and "aten::_foreach_sqrt" in app.text()
        await until(lambda: "Held by 9 origins" in app.text(), "what was held")
        text = flat(app.text())
        assert "387.0K 8× aten::zeros_like make_torch_traces.py(19): train in Optimizer.step#AdamW.step" in text
        assert "+65.0M from before the trace" in text
        await pilot.press("home")
        assert "before the first event" in app.text()
        await pilot.press("full_stop")
        assert "event 0 allocated" in app.text()
        await pilot.press(*["right"] * 300)
        assert f"event {len(app.over.state.curve) - 1} " in app.text()
        await pilot.press("p", *["plus"] * 4)
        start, end = app.over.pane.window
        assert start <= app.over.state.curve.peak.event < end and end - start < 30
        await pilot.press("g")
        assert "CPU of 2" in app.text() and "peak 4B" in app.text()


async def test_ops_are_sorted_by_any_column_and_grouped() -> None:
    async with viewing(PLAIN) as (app, pilot):
        await pilot.press("t")
        assert "SELF MEM▾" in app.text() and (await rows(app))[0].startswith(" aten::addmm")
        await pilot.press("s", "s", "s")
        assert "THREAD▾" in app.text()
        for _ in range(20):
            await pilot.press("S")
            if " OP▾" in app.text():
                break
        names = [line.split()[0] for line in await rows(app)]
        assert names == sorted(names)
        await pilot.press("h", "slash", *"addmm", "enter")
        assert "op and input shape" in app.text()
        assert any("aten::addmm [[256], " in line for line in await rows(app))


async def test_python_frames_are_a_way_to_group_and_rows_on_demand() -> None:
    async with viewing(STACKS) as (app, pilot):
        await pilot.press("t", "k")
        await until(lambda: "function of yours" in app.text(), "the heading")
        assert any("from make_torch_traces.py(19): train" in line for line in await rows(app))
        await pilot.press("k")
        await rows(app)
        assert "5 frames" in app.text() and "torch/nn/modules/linear.py(130): forward" in app.text()  # in the details
        await pilot.press("k", "y", "slash", *"train", "enter")
        assert [line.split()[0] for line in await rows(app)][:1] == ["make_torch_traces.py(19):"]
        await pilot.press("y")
        assert "filter matches no" in app.text()
        await pilot.press("escape")
        rows_without = len(app.over.state.trace.rows(python=False))
        assert app.over is not None and f"{rows_without} rows" in app.text()


async def test_the_table_without_pythons_functions_is_torchs_without_them() -> None:
    """Hiding rows is not leaving them out: what they had is then their parents'."""
    async with viewing(STACKS) as (app, pilot):
        await pilot.press("t")
        await rows(app)
        state = app.over.state
        assert state.rows() == sorted(state.trace.rows(python=False), key=lambda row: -row.self_device_memory)
        net = state.trace.reconciliation(python=False)
        assert sum(row.self_device_memory for row in state.rows()) == net.torch_sum
        await pilot.press("y")
        await until(lambda: state.rows() is not None, "the table with them")
        assert len(state.rows()) == len(state.trace.rows())


async def test_help_scrolls_to_its_end_in_any_size() -> None:
    async with viewing(STACKS, (40, 8)) as (app, pilot):
        await pilot.press("question_mark")
        seen = app.text()
        for _ in range(99):
            await pilot.press("down")
            seen += app.text()
        assert "dashboard" in seen and "binary" in app.text()


async def test_a_timeline_shows_what_was_held_of_each_category() -> None:
    async with viewing(TIMELINE) as (app, pilot):
        assert "optimizer state 389.0K 38.7%" in flat(app.text())
        await pilot.press("slash")
        assert "Filter" not in app.text()
        await pilot.press("home")
        assert "moment 0" in app.text()


async def test_a_file_that_is_no_trace_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("hello")
    async with viewing(bad) as (app, pilot):
        assert "traceEvents" in flat(app.text()) and "bad.json" in app.text()
        await pilot.press("q")
        assert app.over is None


async def test_a_trace_without_memory_is_a_table(tmp_path: Path) -> None:
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": {}}
    path = tmp_path / "plain.json"
    path.write_text(json.dumps({"traceEvents": [op]}))
    async with viewing(path) as (app, pilot):
        assert "profile_memory=True" in flat(app.text())
        await pilot.press("m")
        assert "profile_memory=True" in flat(app.text())
        await pilot.press("t", "g")
        assert "aten::mm" in app.text() and "SELF CPU▾" in app.text()


async def test_hostile_names_are_drawn_as_text(tmp_path: Path) -> None:
    names = ("[bold]x[/]", "[/usr/bin/python]", "\x1b[31mred", "日本語の関数" * 20, "\u202egnirts", "")
    events: list[dict[str, Any]] = []
    for n, name in enumerate(names):
        place = {"pid": 1, "tid": 1, "ts": 10 * n}
        args = {"Input Dims": [["\x1b]0;x"]]}
        events.append({"ph": "X", "cat": "cpu_op", "name": name, "dur": 8, "args": args, **place})
        said = {"Bytes": 5, "Device Type": 1, "Device Id": 0, "Total Allocated": n, "Addr": n}
        events.append({"ph": "i", "cat": "x", "name": "[memory]", "args": said, **place | {"ts": 10 * n + 1}})
    path = tmp_path / "[x]\x1b.json"
    path.write_text(json.dumps({"traceEvents": events}))
    async with viewing(path, (100, 30)) as (app, pilot):
        for keys in (["o"], ["m"], ["m", "left"], ["t"], ["t", "h"], ["t", "end"]):
            await pilot.press(*keys)
            await pilot.pause()
            assert "\x1b" not in app.text() and "\u202e" not in app.text()
        await until(lambda: "[bold]x[/]" in app.text(), "the table by shape")


async def test_torn_keys_do_not_end_the_program() -> None:
    app = ViewerApp(lambda view: TorchTraceScreen(PLAIN, view), DEFAULTS)
    async with app.run_test(size=(80, 24)) as pilot:
        screen: Any = app.screen
        await until(lambda: screen.panes, "the file to be read")
        await pilot.press("t", *TORN_KEYS)
        assert app.is_running
        await pilot.press("q")
    assert app.return_code == 0


async def test_a_viewer_that_is_closed_while_it_reads_lets_go(tmp_path: Path) -> None:
    async with showing(lambda: TorchTraceScreen(PLAIN, VIEW)) as (app, pilot):
        await pilot.press("q")
        await asyncio.sleep(0.3)
        assert app.over is None


async def test_a_fault_while_it_ends_does_not_change_why_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A screen that is taken down while it opens: the status is still that of the signal; the traceback is kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    app = ViewerApp(lambda view: TorchTraceScreen(PLAIN, view), DEFAULTS)
    async with app.run_test(size=(80, 24)):
        app.exit(return_code=143)
        try:
            raise RuntimeError("too late")
        except RuntimeError as error:
            app._handle_exception(error)
    assert app.return_code == 143
    assert "too late" in (tmp_path / "gputop" / "crash.log").read_text()
