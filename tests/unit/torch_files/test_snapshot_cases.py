"""Snapshots as users' programs wrote them, each of which once gave a wrong figure: one case of a kind, and its kin."""

from __future__ import annotations

import pickle
import random
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from gputop.torch_files.snapshot import groups
from gputop.torch_files.snapshot.json_report import facts
from gputop.torch_files.snapshot.leaks import leaks, steps
from gputop.torch_files.snapshot.memory_snapshot import DeviceSnapshot, open_snapshot
from gputop.torch_files.snapshot.overview import coverage_sentences, overview
from gputop.torch_files.snapshot.summary import summary
from tests.unit.torch_files import allocator_simulator as sim
from tests.unit.torch_files.allocator_simulator import MIB, Allocator

CASES = Path(__file__).parents[2] / "data" / "cases"


def case(name: str) -> DeviceSnapshot:
    return open_snapshot(CASES / name).devices[0]


def opened(data: Any, tmp_path: Path) -> DeviceSnapshot:
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.pickle"
    path.write_bytes(pickle.dumps(data))
    return open_snapshot(path).devices[0]


def growing(device: DeviceSnapshot) -> list[str]:
    return [groups.stack_title(device, leak.stack) for leak in leaks(device) if leak.growing]


def run_of(left_in: list[int], count: int, tmp_path: Path, annotated: bool = True) -> DeviceSnapshot:
    """*count* steps, in some of which a line keeps what it allocates."""
    allocator = Allocator()
    annotations = []
    for n in range(count):
        begins = allocator.time + 1
        alive = [allocator.malloc(8 * MIB, sim.ACTIVATION) for _ in range(3)]
        if n in left_in:
            allocator.malloc(2 * MIB, sim.LEAKING)
        for address in alive:
            allocator.free(address, sim.GRADIENT)
        if annotated:
            for stage, at in (("START", begins), ("END", allocator.time)):
                annotations.append({"name": f"ProfilerStep#{n}", "stage": stage, "device": 0, "time_us": at})
    data = sim.snapshot(allocator)
    data["external_annotations"] = annotations
    return opened(data, tmp_path)


# ------------------------------------------------------------------------------- leaks


def test_a_leak_every_4th_step_is_found_in_the_programs_own_steps() -> None:
    device = case("30_leak_every4.pickle")
    assert len(steps(device).starts) == 24
    assert growing(device) == ["train.py:77 evaluate"]


@pytest.mark.parametrize("annotated", [True, False])
@pytest.mark.parametrize("period", [1, 2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("phase", [0, 1, 2])
def test_a_leak_of_any_period_is_found(period: int, phase: int, annotated: bool, tmp_path: Path) -> None:
    device = run_of([*range(phase % period, 32, period)], 32, tmp_path, annotated)
    assert growing(device) == ["metrics.py:7 log_loss"]


@pytest.mark.parametrize("seed", range(8))
def test_a_leak_in_any_share_of_the_steps_is_found(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    left_in = [n for n in range(60) if chosen.random() < 0.3]
    assert growing(run_of(left_in, 60, tmp_path)) == ["metrics.py:7 log_loss"]


@pytest.mark.parametrize("annotated", [True, False])
@pytest.mark.parametrize(
    "filled_in", [[0], [0, 1], [0, 1, 2, 3, 4], [*range(12)], [0, 4, 8], [0, 1, 2, 4, 8, 16], [2, 3, 5, 9]]
)
def test_a_cache_that_fills_and_stays_is_no_leak(filled_in: list[int], annotated: bool, tmp_path: Path) -> None:
    assert growing(run_of(filled_in, 32, tmp_path, annotated)) == []


@pytest.mark.parametrize("annotated", [True, False])
@pytest.mark.parametrize("kept", [4, 8, 12])
def test_a_window_of_the_newest_is_no_leak(kept: int, annotated: bool, tmp_path: Path) -> None:
    """deque(maxlen=8): what is held is of the last steps, and as much as ever."""
    allocator, window, annotations = Allocator(), deque[int](), []
    for n in range(36):
        annotations.append({"name": f"step {n}", "stage": "START", "device": 0, "time_us": allocator.time + 1})
        allocator.free(allocator.malloc(8 * MIB, sim.ACTIVATION), sim.GRADIENT)
        window.append(allocator.malloc(2 * MIB, sim.LEAKING))
        if len(window) > kept:
            allocator.free(window.popleft())
    data = sim.snapshot(allocator)
    data["external_annotations"] = annotations if annotated else []
    assert growing(opened(data, tmp_path)) == []


def test_a_leak_that_begins_late_is_one_though_earlier_ones_were_freed(tmp_path: Path) -> None:
    allocator, annotations = Allocator(), []
    for n in range(36):
        annotations.append({"name": f"step {n}", "stage": "START", "device": 0, "time_us": allocator.time + 1})
        address = allocator.malloc(2 * MIB, sim.LEAKING)
        if n < 18:
            allocator.free(address)
    data = sim.snapshot(allocator)
    data["external_annotations"] = annotations
    assert growing(opened(data, tmp_path)) == ["metrics.py:7 log_loss"]


# ------------------------------------------------------------------------------- steps by metadata


def test_metadata_of_steps_and_phases_numbers_the_steps() -> None:
    """step=N phase=fwd|bwd: six steps were twelve, and the leak half of what it is."""
    device = case("04_meta_phase.pickle")
    cut = steps(device)
    assert (len(cut.starts), cut.origin) == (6, "its 6 “step”")
    (leak,) = [leak for leak in leaks(device) if leak.growing]
    assert leak.per_step == 4 * MIB


@pytest.mark.parametrize(
    "note",
    ["step {n} fwd", "fwd step={n}", "epoch=1 step={n} batch=7 phase={p}", '{{"phase": "{p}", "step": {n}}}',
     "train_step/{n}/{p}", "global_step:{n} micro_batch:{p}", "iteration-{n} {p}", "Step #{n}: {p}"],
)  # fmt: skip
def test_however_metadata_writes_its_steps(note: str, tmp_path: Path) -> None:
    allocator = Allocator()
    for n in range(8):
        for p in (0, 1):
            allocator.note = note.format(n=n, p=p)
            allocator.free(allocator.malloc(MIB, sim.ACTIVATION))
    assert len(steps(opened(sim.snapshot(allocator), tmp_path)).starts) == 8


def test_metadata_that_is_a_dict_is_read_as_torchs_viewer_does(tmp_path: Path) -> None:
    device = case("31_um_dict.pickle")
    assert {"plain", "key=value step=1", "key=value step=3"} <= set(device.snapshot.notes)
    assert len(steps(device).starts) == 3
    nested: dict[str, Any] = {"step": 1}
    nested["itself"] = nested
    entries = [
        {"action": "alloc", "addr": n, "size": 512, "stream": 0, "user_metadata": note}
        for n, note in enumerate([["a", 1], ("b",), {"n": {"deep": 1}}, nested, 7, None, {}, "text", float("nan")])
    ]
    device = opened({"segments": [], "device_traces": [entries]}, tmp_path)
    assert device.entries == 9 and {"a 1", "step=1", "text"} <= set(device.snapshot.notes)


# ------------------------------------------------------------------------------- odd values


@pytest.mark.parametrize(
    "odd", [{"size": "512"}, {"size": None}, {"addr": None}, {"addr": -5}, {"addr": 1 << 70}, {"time_us": 1.5},
            {"size": 1 << 80}, {"stream": "main"}, {"stream": None}],
)  # fmt: skip
def test_one_odd_value_costs_its_own_row(odd: dict[str, Any], tmp_path: Path) -> None:
    entries = [{"action": "alloc", "addr": 512 * n, "size": 512, "stream": 0, "time_us": n} for n in range(2000)]
    entries[777] |= odd
    device = opened({"segments": [], "device_traces": [entries]}, tmp_path)
    assert (device.entries, device.odd_entries) == (2000, 1)
    assert "1 trace entries hold values that are not numbers" in " ".join(coverage_sentences(device))


# ------------------------------------------------------------------------------- figures that cannot be


def test_blocks_that_overlap_are_cut_and_said() -> None:
    """One block of 800 MiB in a segment of 8: cached was -684 MiB, fragmentation 101 %."""
    device = case("18_overlap.pickle")
    totals = overview(device).totals
    assert device.blocks_cut == 1
    assert (totals.allocated, totals.inactive, totals.stuck) == (32 * MIB, 108 * MIB, 0)
    assert totals.fragmentation is not None and 0 <= totals.fragmentation <= 1
    assert "1 block does not fit" in " ".join(coverage_sentences(device))


@pytest.mark.parametrize("seed", range(6))
def test_whatever_overlaps_no_figure_is_negative_or_beyond_the_whole(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    allocator = Allocator()
    sim.chaos(allocator, 300, seed=seed)
    data = sim.snapshot(allocator)
    for segment in data["segments"]:
        for block in segment["blocks"]:
            if chosen.random() < 0.2:
                block["size"] = chosen.randrange(0, 1 << 30)
    totals = overview(opened(data, tmp_path)).totals
    assert 0 <= totals.allocated <= totals.active <= totals.reserved
    assert min(totals.inactive, totals.stuck, totals.releasable, totals.rounding_loss) >= 0
    assert totals.fragmentation is None or 0 <= totals.fragmentation <= 1


def test_times_that_go_back_give_no_durations() -> None:
    device = case("14_times_back.pickle")
    assert device.times_go_back and device.seconds_between(0, device.last) is None
    page = summary(device.snapshot, [device])
    assert "over -" not in page and "Its times go back" in page


@pytest.mark.parametrize(
    ("change", "go_back"),
    [(lambda n: 0, False), (lambda n: -3 * (n % 2), False), (lambda n: -3_600_000_000 * (n > 150), True),
     (lambda n: -20 * n, True)],
)  # fmt: skip
def test_a_clock_set_back_is_no_jitter_between_threads(change: Any, go_back: bool, tmp_path: Path) -> None:
    allocator = Allocator()
    sim.chaos(allocator, 300)
    data = sim.snapshot(allocator)
    for n, entry in enumerate(data["device_traces"][0]):
        entry["time_us"] += change(n)
    device = opened(data, tmp_path)
    assert device.times_go_back == go_back
    seconds = device.seconds_between(0, device.last)
    assert seconds is None if go_back else seconds is not None and seconds >= 0


def test_allocations_left_out_of_the_recording_make_no_peak_before_it() -> None:
    """skip_actions=["alloc"]: all that was ever freed seemed to be held at once, "because recording began later"."""
    device = case("06_skip_alloc.pickle")
    assert device.peak[1] == 49_943_041 and device.held_at_start == 0
    page = summary(device.snapshot, [device])
    assert "recording began later" not in page and "25 allocations were left out of the recording" in page
    assert "at most, after entry" in page


@pytest.mark.parametrize("expandable", [False, True])
def test_what_is_held_without_alloc_entries_is_an_upper_bound(expandable: bool, tmp_path: Path) -> None:
    allocator = Allocator(expandable=expandable)
    sim.training(allocator, steps=12)
    data = sim.snapshot(allocator)
    kept = [n for n, entry in enumerate(data["device_traces"][0]) if entry["action"] != "alloc"]
    whole = sum(e["size"] for e in data["device_traces"][0] if e["action"] == "alloc")
    data["device_traces"][0] = [data["device_traces"][0][n] for n in kept]
    device = opened(data, tmp_path)
    assert device.unseen and device.live(device.last) == allocator.live
    for moment, n in enumerate(kept):
        assert (
            sum(device.row_size[row] for row in device.rows_at(moment))
            == device.live(moment)
            >= allocator.truth.live[n]
        )
    assert max(allocator.truth.live) <= device.peak[1] < whole


# ------------------------------------------------------------------------------- the old form


def test_an_old_form_without_real_size_of_inactive_blocks_tells_requested(tmp_path: Path) -> None:
    """torch 1.13 writes no history for what is free: nothing is asked for of it."""
    allocator = Allocator()
    sim.chaos(allocator, 700, seed=9)
    data = sim.as_form(sim.snapshot(allocator), "1.13")
    assert any("history" not in block for segment in data for block in segment["blocks"])
    device = opened(data, tmp_path)
    assert device.has_requested
    (told,) = facts(device.snapshot, [device])["devices"]
    assert told["requested_bytes"] == allocator.stats()["requested_bytes"]
    active = next(block for segment in data for block in segment["blocks"] if block["state"] != "inactive")
    del active["history"]  # of one in use it is not known
    assert facts(opened(data, tmp_path).snapshot, opened(data, tmp_path).snapshot.devices)["devices"][0][
        "requested_bytes"
    ] is None  # fmt: skip


# ------------------------------------------------------------------------------- compiled code


def test_a_generated_line_is_taken_back_to_the_models_own(tmp_path: Path) -> None:
    """torch.compile: every line was of fx_generated_….py."""
    generated = sim.frame("forward", "/tmp/fx_generated_c0ffee.py", 12) | {
        "fx_node_op": "call_function",
        "fx_node_name": "linear",
        "fx_node_info": {"shape": [1, 2]},
        "fx_original_trace": 'File "/home/ml/train.py", line 80, in main\n  out = model(x)\n'
        'File "/home/ml/model.py", line 44, in forward\n  return F.linear(x, self.w)\n',
    }
    untold = sim.frame("forward", "/tmp/fx_generated_c0ffee.py", 13) | {"fx_original_trace": "no frames in it"}
    entries = [
        {"action": "alloc", "addr": 512 * n, "size": 512, "stream": 0, "frames": [frame]}
        for n, frame in enumerate((generated, untold))
    ]
    device = opened({"segments": [], "device_traces": [entries]}, tmp_path)
    found = [groups.stack_title(device, device.stack[n]) for n in range(2)]
    assert found == ["model.py:44 forward", "fx_generated_c0ffee.py:13 forward"]


def test_paths_of_windows_fold_and_are_short(tmp_path: Path) -> None:
    stack = [
        sim.frame("__torch_function__", r"C:\Users\ml\venv\Lib\site-packages\torch\utils\_device.py", 112),
        sim.frame("step", r"C:\Users\ml\train.py", 19),
    ]
    entry = {"action": "alloc", "addr": 512, "size": 512, "stream": 0, "frames": stack}
    device = opened({"segments": [], "device_traces": [[entry]]}, tmp_path)
    folded = device.snapshot.frames.folded(device.stack[0])
    assert groups.stack_title(device, folded) == "train.py:19 step"
