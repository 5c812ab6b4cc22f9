"""Memory timelines of torch: what is read is what torch exported; both forms agree; damaged ones get a sentence."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.torch_files.trace.memory_timeline import CATEGORIES, MemoryTimeline, is_timeline
from gputop.torch_files.trace.profiler_file import UnreadableTrace
from gputop.torch_files.trace.profiler_trace import open_profile

DATA = Path(__file__).resolve().parents[2] / "data"
ROOT = Path(__file__).resolve().parents[3]


def open_timeline(path: Path) -> MemoryTimeline:
    timeline = open_profile(path)
    assert isinstance(timeline, MemoryTimeline)
    return timeline


def moments(timeline: MemoryTimeline) -> list[tuple[int, ...]]:
    return list(zip(*timeline.by_category, strict=True))


def written(folder: Path, data: Any) -> Path:
    path = folder / "timeline.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


@pytest.mark.parametrize("folder", [DATA, DATA / "h200"])
def test_both_forms_of_a_recorded_run_agree_with_torchs_numbers(folder: Path) -> None:
    plain = folder / "torch_trace_stacks.timeline.json"
    times, sizes = json.loads(plain.read_text())
    read = open_timeline(plain)
    assert [at // 1000 for at in read.at_ns] == times
    assert moments(read) == [tuple(row[1:]) for row in sizes]
    assert list(read.total) == [sum(row) for row in sizes]
    raw = open_timeline(folder / "torch_trace_stacks.timeline.raw.json.gz")
    changes = json.loads(gzip.decompress((folder / "torch_trace_stacks.timeline.raw.json.gz").read_bytes()))
    before = int(changes[0][0] == -1)
    told = list(zip([int(at / 1000) for at in raw.at_ns], moments(raw), strict=True))  # torch's way to µs
    merged = [list(same)[-1][1] for _, same in groupby(told[before:], key=lambda moment: moment[0])]
    assert [moment for _, moment in told[:before]] + merged == moments(read)
    assert raw.total[raw.peak] == read.total[read.peak] == max(read.total)


def test_what_was_there_before_is_held_at_the_first_moment_and_a_new_version_moves(tmp_path: Path) -> None:
    changes = [[-1, 1, 100, 0], [-1, 1, 50, 2], [10, 2, 7, 3], [20, 3, -50, 2], [20, 3, 50, 5], [30, 4, -7, 3]]
    timeline = open_timeline(written(tmp_path, changes))
    assert list(timeline.at_ns) == [10, 10, 20, 30]
    assert list(timeline.total) == [150, 157, 157, 150]
    assert [timeline.by_category[n][2] for n in (0, 2, 3, 5)] == [100, 0, 7, 50]
    assert list(open_timeline(written(tmp_path, changes[:2])).total) == [150]


def test_what_a_file_is_is_told_by_its_beginning() -> None:
    for text, is_one in (("[[1, 2]", True), (" [ [1", True), ('[{"ph": 1}]', False), ("{", False), ("", False)):
        assert is_timeline(text.encode()) is is_one


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[], []]", "without a moment"),
        ("[[1, 2], [[0,1,2,3,4,5,6,7,8]]]", "2 moments, and sizes of 1"),
        ("[[1], [[0, 1]]]", "2 columns"),
        ('[["a", 2]]', "no number"),
        ("[[1, 2, 3, 77]]", "category 77"),
        ("[[1, 2, 3, 4], [1, 2", "too early"),
        ("[[1, 2, 3, 4], [1, 2]]", "a change of 2"),
        ("[[1, 2, 9999999999999999999999, 4]]", "62 bits"),
        ("[[1, 2, x", "too early"),
        ("[[1],[[0,0,0,0,0,0,0,0,1e999]]]", "infinity"),
    ],
)
def test_a_damaged_one_gets_a_sentence(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableTrace, match=words):
        open_timeline(written(tmp_path, text))


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet='[]{},.- 0123456789eE"NaInfity', max_size=200))
def test_nothing_but_a_sentence_comes_of_any_text(tmp_path_factory: Any, text: str) -> None:
    path = written(tmp_path_factory.mktemp("t"), "[[" + text)
    with suppress(UnreadableTrace):
        assert len(open_timeline(path)) > 0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gputop", "torch-trace", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=50)


def test_the_command_tells_what_was_held_by_category() -> None:
    path = str(DATA / "h200" / "torch_trace_stacks.timeline.raw.json.gz")
    page = run(path)
    assert page.returncode == 0, page.stderr
    assert "peak 1.0M" in page.stdout
    assert [line.split()[0] for line in page.stdout.splitlines() if line.startswith("optimizer")] == ["optimizer"]
    plain = json.loads(run(path, "--json").stdout)
    assert plain["peak_bytes"] == 1030144
    assert {row["category"]: row["at_peak_bytes"] for row in plain["categories"]}["gradients"] == 198144
    lines = run(path, "--csv").stdout.splitlines()
    assert lines[0] == "category,at_peak_bytes,most_bytes,at_end_bytes" and len(lines) == 1 + len(CATEGORIES)
    assert run(path, "--sort", "calls").returncode == 2


def test_a_pipe_is_read_too() -> None:
    path = DATA / "h200" / "torch_trace_stacks.timeline.raw.json.gz"
    for command in ("cat", "zcat"):
        code = f"'{sys.executable}' -m gputop torch-trace <({command} '{path}')"
        done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=50)
        assert done.returncode == 0 and "optimizer state" in done.stdout, done.stderr


def test_a_picture_of_a_timeline_is_said_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "timeline.html"
    path.write_text("<html><head><title>GPU Memory Timeline</title></head><body><img src='data:image/png;base64,'>")
    done = run(str(path))
    assert done.returncode == 1 and ".raw.json.gz" in done.stderr
