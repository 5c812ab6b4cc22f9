"""Traces as torch wrote them in its versions, each of which once gave a wrong figure, or none without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gputop.torch_files.trace.callers import FUNCTION
from gputop.torch_files.trace.events import DEVICE
from gputop.torch_files.trace.op_table import OpRow
from gputop.torch_files.trace.profiler_trace import ProfilerTrace, open_trace

CASES = Path(__file__).parents[2] / "data" / "cases"


def op(name: str, ts: float, dur: Any, cat: str = "cpu_op", tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def memory(ts: float, bytes_: Any, address: int | None = None, device: int = 0, **args: Any) -> dict[str, Any]:
    args = {"Bytes": bytes_, "Device Type": 1, "Device Id": device} | args
    if address is not None:
        args["Addr"] = address
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args}


def trace_of(tmp_path: Path, *events: dict[str, Any], **head: Any) -> ProfilerTrace:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(head | {"traceEvents": list(events)}))
    return open_trace(path)


def by_name(trace: ProfilerTrace) -> dict[str, OpRow]:
    return {row.name: row for row in trace.rows()}


# ------------------------------------------------------------------------------- categories


def test_a_trace_of_torch_up_to_1_11_has_rows() -> None:
    """Operator, Kernel, Runtime: 79 711 events, no row and not a word."""
    trace = open_trace(CASES / "29_oldcats.json")
    rows = by_name(trace)
    assert (rows["aten::mm"].self_cpu_time, rows["cudaLaunchKernel"].cpu_time) == (48, 2)
    assert (rows["gemm"].kind, rows["gemm"].device_time) == (DEVICE, 30)
    assert trace.events.notes == []


@pytest.mark.parametrize(
    "category",
    "Operator Kernel Runtime Memcpy Memset cuda_runtime cuda_driver hip_runtime xpu_runtime xpu_driver mtia_runtime "
    "mtia_ccp_events privateuse1_runtime privateuse1_driver overhead kernel gpu_memcpy".split(),
)
def test_every_makers_category_is_a_row(category: str, tmp_path: Path) -> None:
    trace = trace_of(tmp_path, op("work", 1, 5, category))
    assert by_name(trace)["work"].calls == 1 and trace.events.notes == []


def test_what_is_not_understood_is_counted_and_said(tmp_path: Path) -> None:
    events = [op("x", n, 1, "made_up") for n in range(1500)] + [op("aten::a", 1, 1)]
    events += [{"ph": "b", "cat": "cpu_op", "name": "async", "pid": 1, "tid": 1, "ts": 1, "id": 1}]
    events += [{"ph": "X", "name": "no category", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]
    events += [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {}},
        op("Iteration", 1, 9, "Trace"),
    ]
    trace = trace_of(tmp_path, *events)
    assert [row.name for row in trace.rows()] == ["aten::a"]
    assert trace.events.notes == [
        "1,500 events of a category that is not known (made_up): left out",
        "1 event of a phase that is no op's (b): left out",
        "1 event without a name or a category: left out",
    ]


def test_kinetos_own_writing_is_counted_too(tmp_path: Path) -> None:
    line = '{"ph": "X", "cat": "made_up", "name": "x", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {}},\n'
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [' + line * 7 + "{}]}")
    assert "7 events of a category" in open_trace(path).events.notes[0]


@pytest.mark.parametrize("name", ["05_nan.json", "07_negdur.json"])
def test_times_that_cannot_be_are_said(name: str) -> None:
    assert "1 event whose times are negative, missing or no numbers: left out" in open_trace(CASES / name).events.notes


@pytest.mark.parametrize("dur", [-1, float("nan"), float("inf"), "5 ms", None, 1e300])
def test_a_duration_that_is_none_costs_its_own_row(dur: Any, tmp_path: Path) -> None:
    trace = trace_of(tmp_path, op("aten::a", 1, dur), op("aten::b", 1, 2))
    assert [row.name for row in trace.rows()] == ["aten::b"]
    assert len(trace.events.notes) == 1 and "times" in trace.events.notes[0]


def test_events_that_begin_and_end_are_ops(tmp_path: Path) -> None:
    def mark(phase: str, name: str, ts: float, tid: int = 1) -> dict[str, Any]:
        return {"ph": phase, "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": ts}

    events = [mark("B", "outer", 1), mark("B", "inner", 2), mark("B", "elsewhere", 2, tid=9), mark("E", "inner", 5)]
    trace = trace_of(tmp_path, *events, mark("E", "outer", 11), mark("E", "nothing", 12), mark("B", "endless", 13))
    rows = by_name(trace)
    assert set(rows) == {"outer", "inner"}
    assert (rows["outer"].cpu_time, rows["outer"].self_cpu_time, rows["inner"].cpu_time) == (10, 7, 3)
    assert trace.events.notes == ["3 events that begin and never end, or end and never began: left out"]


@pytest.mark.parametrize("bytes_", [1 << 70, float("nan"), "many", None])
def test_memory_that_cannot_be_is_said(bytes_: Any, tmp_path: Path) -> None:
    trace = trace_of(tmp_path, memory(1, bytes_, 5), memory(2, 512, 6))
    assert trace.curves[0].allocated_bytes == 512
    assert trace.events.notes == ["1 event of memory whose figures are missing or impossible: left out"]


# ------------------------------------------------------------------------------- memory without addresses


def test_memory_events_without_addresses_are_matched_by_size(tmp_path: Path) -> None:
    """kineto's own samples: never freed was 0, and one allocation held the peak, in no op."""
    events = [op("aten::conv", 0, 10), op("aten::relu", 20, 10)]
    events += [memory(1, 1000), memory(2, 1000), memory(3, -1000), memory(21, 500), memory(22, -7), memory(23, 64)]
    trace = trace_of(tmp_path, *events)
    (curve,) = trace.curves
    assert curve.never_freed == 1000 + 500 + 64
    held = {(one.op, one.bytes, one.blocks) for one in trace.held(curve, len(curve) - 1)}
    assert held == {("aten::conv", 1000, 1), ("aten::relu", 564, 2)}


def test_addresses_are_still_what_matches_where_there_are_some(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, memory(1, 1000, 7), memory(2, 1000, 8), memory(3, -1000, 7), memory(4, -1000, 7))
    assert trace.curves[0].never_freed == 1000


# ------------------------------------------------------------------------------- Windows


def test_windows_paths_as_kineto_wrote_them_keep_their_python_frames(tmp_path: Path) -> None:
    r"""C:\Users: not JSON, so that the event was lost; C:\train: a tab."""

    def frame(name: str, ts: int, dur: int) -> str:
        return (
            f'{{"ph": "X", "cat": "python_function", "name": "{name}", "pid": 1, "tid": 1, "ts": {ts}, "dur": {dur}, '
            '"args": {"Python id": 1}}'
        )

    names = [r"C:\new\train.py(3): <module>", r"C:\Users\ml\train.py(19): step", r"torch\nn\modules\linear.py(130): f"]
    events = [frame(name, n, 100 - 2 * n) for n, name in enumerate(names)]
    events += ['{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 9, "dur": 5, "args": {}}']
    path = tmp_path / "trace.json"
    for count in (1, 60_000):  # also across the pieces that it is read in
        path.write_text('{"traceEvents": [' + ",\n".join(events * count) + "]}")
        trace = open_trace(path)
        assert {row.name for row in trace.rows()} == {*names, "aten::mm"}
        assert trace.events.notes == [] and len(trace.events.start) == 4 * count
    path.write_text('{"traceEvents": [' + ",\n".join(events) + "]}")
    (row,) = (row for row in open_trace(path).rows(stack_depth=FUNCTION) if row.name == "aten::mm")
    assert row.stack == (names[1],)


# ------------------------------------------------------------------------------- asynchronous work


def test_work_of_a_process_group_has_no_time_of_its_own(tmp_path: Path) -> None:
    """As torch 2.13's table has it: c10d's ranges end on other threads. It was 24 ms where torch has 0."""
    events = [
        op("train", 0, 100, "user_annotation"),
        op("gloo:all_reduce", 10, 50, "user_annotation"),
        op("aten::add", 20, 30),
        memory(25, 4096, 1),
    ]
    rows = by_name(trace_of(tmp_path, *events))
    work = rows["gloo:all_reduce"]
    assert (work.calls, work.self_cpu_time, work.cpu_time) == (1, 0, 50)
    assert (work.self_device_memory, work.device_memory) == (0, 4096)
    assert (rows["train"].self_cpu_time, rows["aten::add"].self_cpu_time) == (70, 30)
    trace = trace_of(tmp_path, *events)
    assert trace.running(trace.curves[0], 0) == ("train", "aten::add")


def test_a_step_of_torch_up_to_1_11_is_what_ops_ran_in_and_no_op(tmp_path: Path) -> None:
    events = [op("ProfilerStep#3", 0, 100, "Operator"), op("aten::mm", 10, 50, "Operator"), memory(20, 4096, 7)]
    trace = trace_of(tmp_path, *events)
    (held,) = trace.held(trace.curves[0], 0)
    assert (held.op, held.phase) == ("aten::mm", "ProfilerStep*")
