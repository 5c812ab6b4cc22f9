"""PyTorch Profiler traces: the table is torch's own, row for row; broken and hostile files get a sentence."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.torch_files.trace.callers import FUNCTION
from gputop.torch_files.trace.events import PYTHON
from gputop.torch_files.trace.op_table import OpRow
from gputop.torch_files.trace.profiler_file import UnreadableTrace
from gputop.torch_files.trace.profiler_trace import open_trace
from tests.torch_tables import compare

DATA = Path(__file__).resolve().parents[2] / "data"
ROOT = Path(__file__).resolve().parents[3]
FIGURES = "calls cpu_memory self_cpu_memory device_memory self_device_memory".split()
TIMES = "cpu_time self_cpu_time device_time self_device_time".split()


# -- the truth: torch's own table of the same run


@pytest.mark.parametrize("name", ["torch_trace", "torch_trace_stacks"])
def test_the_table_of_a_recorded_run_is_torchs_row_for_row(name: str) -> None:
    count, differences = compare(DATA, name)
    assert count > 20 and not differences


@pytest.mark.parametrize("name", ["torch_trace", "torch_trace_stacks"])
def test_the_table_of_a_run_on_an_h200_is_torchs_row_for_row(name: str) -> None:
    """torch 2.11: without Python's functions; what is torch's alone: tests/torch_tables.py."""
    count, differences = compare(DATA / "h200", name, python=False, on_gpu=True)
    assert count > 100 and not differences


def test_the_table_of_a_run_of_now_is_torchs_row_for_row(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    script = DATA / "make_torch_traces.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, timeout=50, capture_output=True)
    for name in ("torch_trace", "torch_trace_stacks"):
        assert compare(tmp_path, name)[1] == []


# -- traces made here, with answers that are known


def op(name: str, start: float, dur: float, tid: int = 1, cat: str = "cpu_op", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": tid, "ts": start, "dur": dur, "args": args}


def memory(at: float, bytes_: int, total: int = -1, tid: int = 1, device: int = 0, address: int = 1) -> dict[str, Any]:
    said = {"Total Reserved": 0 if total < 0 else 2 * total, "Total Allocated": total, "Bytes": bytes_}
    args = said | {"Device Id": device, "Device Type": 1 if device >= 0 else 0, "Addr": address, "Ev Idx": 3}
    head = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 9, "tid": tid, "ts": at}
    return head | {"args": args}


def compact(events: list[dict[str, Any]]) -> str:
    return json.dumps({"schemaVersion": 1, "profile_memory": 1, "baseTimeNanoseconds": 5, "traceEvents": events})


def as_kineto(events: list[dict[str, Any]]) -> str:
    """As libkineto writes it."""
    said = []
    for event in events:
        args = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in event["args"].items())
        heads = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in event.items() if k != "args"]
        said.append("  {\n    " + ",\n    ".join(heads) + '\n    ,\n    "args": {\n      ' + args + "\n    }\n  }")
    return '{\n  "schemaVersion": 1,\n  "traceEvents": [\n' + ",\n".join(said) + "\n  ]\n}\n"


def opened(tmp_path: Path, text: str | bytes) -> Any:
    path = tmp_path / "trace.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return open_trace(path)


def table(trace: Any) -> dict[str, OpRow]:
    return {row.name: row for row in trace.rows()}


STEP = [
    op("outer", 0, 100, **{"External id": 7}),
    op("inner", 10, 20),
    memory(12, 1000, 1000, address=1),
    memory(50, 500, 1500, address=2),
    memory(90, -1000, 500, address=1),
    op("kernel", 60, 30, tid=77, cat="kernel", **{"External id": 7}),
    memory(200, -100, 400, address=9),
]


@pytest.mark.parametrize("write", [compact, as_kineto])
def test_self_and_total_device_memory_and_kernel_times(tmp_path: Path, write: Any) -> None:
    rows = table(opened(tmp_path, write(STEP)))
    assert (rows["outer"].device_memory, rows["outer"].self_device_memory) == (500, -500)
    assert (rows["inner"].device_memory, rows["inner"].self_device_memory) == (1000, 1000)
    assert (rows["[memory]"].device_memory, rows["[memory]"].calls) == (-100, 1)
    assert (rows["outer"].cpu_time, rows["outer"].self_cpu_time, rows["outer"].device_time) == (100, 80, 30)
    assert rows["kernel"].device_time == 30


def test_the_peak_and_what_ran_then(tmp_path: Path) -> None:
    trace = opened(tmp_path, compact(STEP))
    (curve,) = trace.curves
    assert (curve.device, curve.peak.allocated, curve.peak.reserved) == ("CUDA 0", 1500, 3000)
    assert trace.running(curve, curve.peak.event) == ("outer",)
    assert (curve.allocations, curve.frees, curve.never_freed) == (2, 2, 500)


def test_two_gpus_have_a_curve_each_and_one_row(tmp_path: Path) -> None:
    trace = opened(tmp_path, compact([op("both", 0, 9), memory(1, 10, 10), memory(2, 30, 30, device=1, address=5)]))
    assert [(curve.device, curve.peak.allocated) for curve in trace.curves] == [("CUDA 0", 10), ("CUDA 1", 30)]
    assert table(trace)["both"].device_memory == 40


def test_memory_events_as_durations_are_no_ops(tmp_path: Path) -> None:
    """use_python_export=True of torch 2.13 writes them as phase X with a duration up to the trace's end."""
    event = memory(12, 1000, 1000) | {"ph": "X", "dur": 999.0}
    rows = table(opened(tmp_path, compact([op("outer", 0, 100), event])))
    assert set(rows) == {"outer"}
    assert rows["outer"].device_memory == 1000


def test_an_only_child_of_the_same_name_is_the_same_op(tmp_path: Path) -> None:
    rows = table(
        opened(tmp_path, compact([op("a", 0, 100), op("a", 1, 90), op("a", 2, 80), op("b", 3, 10), memory(4, 8)]))
    )
    assert (rows["a"].calls, rows["a"].self_cpu_time, rows["a"].self_device_memory) == (1, 90, 0)
    assert rows["b"].self_thread_memory == 8


def test_what_another_thread_allocated_is_given_to_its_own_op_and_the_difference_is_said(tmp_path: Path) -> None:
    events = [op("waits", 0, 100, tid=1), op("aten::zeros", 10, 20, tid=2), memory(15, 4000, tid=2), memory(150, -4000)]
    trace = opened(tmp_path, compact(events))
    rows = table(trace)
    assert rows["waits"].self_device_memory == 4000  # torch's way: by time
    assert (rows["waits"].self_thread_memory, rows["aten::zeros"].self_thread_memory) == (0, 4000)
    told = trace.reconciliation()
    assert (told.net, told.torch_sum, told.thread_sum, told.outside) == (0, 4000, 4000, -4000)
    assert "other threads" in told.sentence()


def test_steps_are_one_row(tmp_path: Path) -> None:
    steps = [op(f"ProfilerStep#{n}", n * 10, 9, cat="user_annotation") for n in range(3)]
    assert table(opened(tmp_path, compact(steps)))["ProfilerStep*"].calls == 3


events_of_any_kind = st.lists(
    st.builds(
        op,
        st.sampled_from(["aten::a", "b", 'quo"te', "br{ace}", "back\\slash", "ünïcode", "ProfilerStep#4"]),
        st.integers(0, 500).map(lambda n: n / 8),
        st.integers(0, 200).map(lambda n: n / 8),
        st.integers(1, 2),
        st.sampled_from(["cpu_op", "kernel", "cuda_runtime", "python_function", "unheard_of"]),
    )
    | st.builds(memory, st.integers(0, 500).map(lambda n: n / 8), st.integers(-99, 99), st.integers(-1, 99)),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(events=events_of_any_kind, dims=st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=3))
def test_kinetos_writing_and_any_other_give_the_same(
    tmp_path_factory: Any, events: list[dict[str, Any]], dims: Any
) -> None:
    for event in events:
        if event["ph"] == "X":
            event["args"] |= {"External id": 3, "Input Dims": dims, "Ev Idx": 1}
    directory = tmp_path_factory.mktemp("t")
    first, second = opened(directory, compact(events)), opened(directory, as_kineto(events))
    assert first.rows(True) == second.rows(True)
    assert [vars(curve) for curve in first.curves] == [vars(curve) for curve in second.curves]


@settings(max_examples=60, deadline=None)
@given(events=events_of_any_kind)
def test_by_thread_every_byte_is_in_one_op_or_outside(tmp_path_factory: Any, events: list[dict[str, Any]]) -> None:
    told = opened(tmp_path_factory.mktemp("t"), compact([*events, memory(1, 5)])).reconciliation()
    assert told.thread_sum + told.outside == told.net


def test_what_ran_when_memory_changed_is_told_by_thread(tmp_path: Path) -> None:
    events = [*STEP, op("elsewhere", 0, 300, tid=2), op("deep", 11, 2), memory(250, 7, tid=2), memory(300.5, 7, tid=2)]
    trace = opened(tmp_path, compact(events))
    (curve,) = trace.curves
    said = [trace.running(curve, n) for n in range(len(curve))]
    assert said == [("outer", "inner", "deep"), ("outer",), ("outer",), (), ("elsewhere",), ()]


def test_ops_are_grouped_by_the_python_frames_they_were_called_from(tmp_path: Path) -> None:
    def frame(name: str, start: float, dur: float) -> dict[str, Any]:
        return op(name, start, dur, cat="python_function")

    def arrow(phase: str, at: float, tid: int) -> dict[str, Any]:
        place = {"pid": 9, "tid": tid, "ts": at, "args": {}}
        return {"ph": phase, "cat": "fwdbwd", "name": "fwdbwd", "id": 1} | place

    events = [
        frame("train.py(3): main", 0, 100),
        frame("net.py(7): forward", 10, 20),
        op("aten::mm", 12, 5, **{"External id": 4}),
        arrow("s", 12, 1),
        op("aten::mm", 40, 5),
        op("MmBackward0", 60, 10, tid=2),
        arrow("f", 60, 2),
        op("aten::mm", 61, 5, tid=2),
        op("gemm", 70, 9, tid=77, cat="kernel", **{"External id": 4}),
    ]
    for text in (compact(events), as_kineto(events)):
        rows = opened(tmp_path, text).rows(stack_depth=9)
        main, forward = "train.py(3): main", "net.py(7): forward"
        assert {(row.name, row.stack): row.calls for row in rows if row.kind != PYTHON} == {
            ("aten::mm", (forward, main)): 2,  # the op of backward too
            ("aten::mm", (main,)): 1,
            ("MmBackward0", (forward, main)): 1,
            ("gemm", (forward, main)): 1,
        }
        (row,) = [row for row in opened(tmp_path, text).rows(stack_depth=1) if row.name == "MmBackward0"]
        assert row.stack == (forward,)
    events += [
        frame("torch/nn/linear.py(3): forward", 80, 9),
        frame("<built-in function linear>", 81, 7),
        op("x", 82, 2),
    ]
    (row,) = [row for row in opened(tmp_path, compact(events)).rows(stack_depth=FUNCTION) if row.name == "x"]
    assert row.stack == (main,)


def test_a_number_that_all_ops_and_kernels_share_takes_no_longer(tmp_path: Path) -> None:
    count = 30_000
    events = [op("a", n * 10, 5, **{"External id": 7}) for n in range(count)]
    events += [op("k", n * 10, 5, tid=7, cat="kernel", **{"External id": 7}) for n in range(count)]
    began = time.process_time()
    rows = table(opened(tmp_path, compact(events)))
    assert time.process_time() - began < 20
    assert rows["a"].device_time == count * count * 5  # as torch has it: each op has all of them


# -- files that are otherwise


def test_gzip_and_the_list_of_the_old_profiler(tmp_path: Path) -> None:
    assert table(opened(tmp_path, gzip.compress(compact(STEP).encode())))["inner"].device_memory == 1000
    old = opened(tmp_path, json.dumps([op("a", 0, 5)])[:-1] + ", ]")
    assert table(old)["a"].calls == 1
    assert "old profiler" in old.events.notes[0]


def test_a_file_cut_off_anywhere_gives_what_is_before_or_a_sentence(tmp_path: Path) -> None:
    for text in (compact(STEP).encode(), as_kineto(STEP).encode(), gzip.compress(compact(STEP).encode())):
        for end in range(0, len(text), 7):
            try:
                trace = opened(tmp_path, text[:end])
                trace.rows()
            except UnreadableTrace as error:
                assert 5 < len(str(error)) < 200  # noqa: PT017
            else:
                assert trace.events.notes or trace.events.seen == len(STEP)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{}", b"\x80\x04\x95", b"hello", b"[1, 2]", b'{"traceEvents": [3]}', b'{"traceEvents": ' + b"[" * 100_000,
        b'{"traceEvents": [' + b'{"a":' * 100_000, b"\x1f\x8b\x08nonsense", b'{"traceEvents": 5}',
    ],
)  # fmt: skip
def test_what_is_no_trace_gets_one_sentence(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(UnreadableTrace) as error:
        opened(tmp_path, text)
    assert "\n" not in str(error.value)


wild = (
    st.none() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
)


@settings(max_examples=150, deadline=None)
@given(
    base=st.sampled_from([STEP[0], STEP[2]]),
    name=st.sampled_from("ph cat name pid tid ts dur args".split()),
    inner=st.sampled_from(
        ["External id", "Bytes", "Device Id", "Device Type", "Addr", "Total Allocated", "Input Dims"]
    ),
    value=wild,
    deep=st.booleans(),
)
def test_an_event_with_any_value_anywhere_is_read_or_left_out(
    tmp_path_factory: Any, base: dict[str, Any], name: str, inner: str, value: Any, deep: bool
) -> None:
    event = base | {name: value} if not deep else base | {"args": base["args"] | {inner: value}}
    trace = opened(tmp_path_factory.mktemp("t"), compact([op("fine", 0, 5), event]))
    assert "fine" in table(trace)
    assert trace.reconciliation is not None


# -- the command


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gputop", "torch-trace", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)


def test_the_page_names_the_peak_and_sorts_by_what_is_asked() -> None:
    done = run(str(DATA / "torch_trace.json.gz"), "--top", "3")
    assert done.returncode == 0, done.stderr
    assert "CPU: peak" in done.stdout
    assert "net of all host memory events" in done.stdout
    lines = done.stdout.split("\n")
    assert lines[lines.index(next(line for line in lines if line.startswith("op "))) + 1].startswith("aten::mm")
    done = run(
        str(DATA / "torch_trace.json.gz"), "--sort", "cpu_time_total", "--csv", "--group-by-input-shape", "--top", "0"
    )
    assert done.stdout.startswith("name,kind,shape,calls,")
    assert "[[256], [32, 128], [128, 256], [], []]" in done.stdout


def test_json_has_all_figures() -> None:
    plain = json.loads(run(str(DATA / "torch_trace_stacks.json.gz"), "--json", "--top", "0", "--no-python").stdout)
    assert plain["devices"][0]["peak_allocated_bytes"] > 100_000
    assert "python" not in {row["kind"] for row in plain["rows"]}
    assert plain["reconciliation"]["net"] == plain["reconciliation"]["torch_sum"]


def test_a_file_that_is_not_there_or_no_trace_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text("hello")
    for path, words in ((tmp_path / "none.json", "No such file"), (tmp_path / "no.json", "traceEvents")):
        done = run(str(path))
        assert done.returncode == 1
        assert done.stdout == ""
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
    assert run(str(path), "--sort", "nonsense").returncode == 2


def test_python_frames_are_rows_of_their_own() -> None:
    kinds = {row.kind for row in open_trace(DATA / "torch_trace_stacks.json.gz").rows()}
    assert PYTHON in kinds


def test_progress_rises_to_the_end() -> None:
    shares: list[float] = []
    open_trace(DATA / "torch_trace.json.gz", shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_pipes_are_read_and_what_has_no_end_is_refused(tmp_path: Path) -> None:
    """A shell's <(zcat …) is one; a pipe that nobody writes to must not hang."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    done = run(str(fifo))
    assert done.returncode == 1 and "it is empty" in done.stderr
    for special in ("/dev/zero", "/dev/null"):
        done = run(special)
        assert done.returncode == 1 and "not an ordinary file" in done.stderr
    code = f"'{sys.executable}' -m gputop torch-trace <(cat '{DATA / 'torch_trace.json.gz'}') --top 1"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=50)
    assert done.returncode == 0 and "aten::mm" in done.stdout, done.stderr


def test_a_memory_snapshot_is_not_taken_for_a_trace_nor_a_trace_for_a_snapshot() -> None:
    done = run(str(DATA / "h200" / "leak.pickle.gz"))
    assert done.returncode == 1 and "gputop torch-snapshot" in done.stderr
    command = [sys.executable, "-m", "gputop", "torch-snapshot", "--summary", str(DATA / "torch_trace.json.gz")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=50)
    assert done.returncode == 1 and "gputop torch-trace" in done.stderr


def test_times_written_as_text_count(tmp_path: Path) -> None:
    told = opened(tmp_path, compact([{**op("a", 0, 0), "ts": "1.5", "dur": "2"}]))
    assert table(told)["a"].cpu_time == 2


def test_a_damaged_gzip_is_said_and_a_short_one_shows_what_is_before(tmp_path: Path) -> None:
    """Whatever the size: what could be unpacked is shown, with a note."""
    whole = (DATA / "torch_trace.json.gz").read_bytes()
    path = tmp_path / "trace.json.gz"
    path.write_bytes(whole[: len(whole) // 2])
    trace = open_trace(path)
    assert len(trace.events.start) > 100 and "ends too early" in " ".join(trace.events.notes)
    path.write_bytes(whole + b"junk")
    assert open_trace(path).events.seen == open_trace(DATA / "torch_trace.json.gz").events.seen
    path.write_bytes(whole[:-6] + b"\0\0\0\0\0\0")
    assert "damaged" in " ".join(open_trace(path).events.notes)
    path.write_bytes(gzip.compress(b'{"traceEvents": [') + gzip.compress(b'{"ph": "X"}]}'))
    assert open_trace(path).events.seen == 1
    path.write_bytes(whole[:12] + bytes([whole[12] ^ 255, whole[13] ^ 255]) + whole[14:])
    with pytest.raises(UnreadableTrace, match="gzip data is damaged"):
        open_trace(path)


def test_an_event_that_is_no_json_is_left_out_and_the_others_are_read(tmp_path: Path) -> None:
    """kineto writes a quote in a name as it is."""
    text = as_kineto([*STEP[:2], op("QUOTE", 40, 1), *STEP[2:]]).replace("QUOTE", 'quo"te')
    trace = opened(tmp_path, text)
    assert len(trace.curves[0]) == 4 and trace.events.seen == len(STEP)
    assert trace.events.notes == ["an event could not be read, the first is event 3: left out"]
    trace = opened(tmp_path, compact(STEP).replace("[{", "[null, 7, {", 1))
    assert trace.events.seen == len(STEP) and "2 events could not be read" in trace.events.notes[0]
    many = as_kineto(STEP * 3000).replace('"inner"', 'in"ner"', 7)
    assert "7 events could not be read" in opened(tmp_path, many).events.notes[0]


@pytest.mark.parametrize(
    "events",
    [
        [memory(n, 2**61, address=n) for n in range(40)],
        [memory(n, 2**61, 2**60, device=-1, address=n) for n in range(40)] + [op("a", 0, 100)] * 9,
        [op("p", 0, 4.5e15), op("a", 1, 4.4e15, **{"External id": 1})]
        + [op("k", n, 4e15, tid=9, cat="kernel", **{"External id": 1}) for n in range(9000)],
    ],
)
def test_figures_that_sum_up_beyond_all_bounds_get_a_sentence(events: list[dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(UnreadableTrace, match="sum up"):
        opened(tmp_path, compact(events)).rows()


def test_a_table_for_a_spreadsheet_has_no_control_characters_and_damage_is_said(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(compact([op("\x1b[31mred\x1b]0;pwn\x07", 0, 1), op("=cmd()", 2, 1)])[:-2])
    done = run(str(path), "--csv")
    assert done.returncode == 0 and "\x1b" not in done.stdout and "\x07" not in done.stdout
    assert "'=cmd()" in done.stdout
    assert "gputop: it ends" in done.stderr


def test_forward_ops_that_are_not_in_the_trace_leave_backward_to_its_caller(tmp_path: Path) -> None:
    """A gradient's gradient, a copy into a slice: torch then finds what runs the node."""
    events = [
        op("train.py(3): main", 0, 100, cat="python_function"),
        op("MulBackward0", 60, 10),
        op("aten::mul", 61, 5),
        op("torch::autograd::AccumulateGrad", 80, 9),
        op("MulBackward0", 60, 10, tid=2),
    ]
    rows = opened(tmp_path, compact(events)).rows(stack_depth=5)
    stacks = {(row.name, row.calls): row.stack for row in rows if row.kind != PYTHON}
    assert stacks["aten::mul", 1] == ("train.py(3): main",)
    assert stacks["torch::autograd::AccumulateGrad", 1] == ()
    assert {row.stack for row in rows if row.name == "MulBackward0"} == {("train.py(3): main",), ()}
