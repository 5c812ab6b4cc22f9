"""gputop torch-trace without its viewer: the page, two traces compared, the curve and single allocations as CSV."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gputop import cli
from tests.unit.torch_files.test_trace_cases import memory, op

DATA = Path(__file__).parents[2] / "data"
H200 = DATA / "h200" / "torch_trace_stacks.json.gz"


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def written(*events: dict[str, Any], name: str = "trace.json", **head: Any) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps(head | {"traceEvents": list(events)}))
        return path

    return written


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: Any) -> str:
        assert cli.run(["torch-trace", *map(str, arguments)]) == 0
        return capsys.readouterr().out

    return run


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


SMALL = [
    op("aten::mm", 0, 100),
    op("aten::add", 10, 25),
    op("aten::add", 50, 15),
    memory(12, 4096, 7),
    memory(55, 512, 8),
]
SMALL += [memory(200, -4096, 7)]


def test_the_table_has_shares_and_time_per_call(write: Any, printed: Any) -> None:
    page = printed("--summary", write(*SMALL)).splitlines()
    line = next(line for line in page if line.startswith("aten::add"))
    for words in ("40.0µs", "40.0%", "20.0µs"):  # of 100 µs, two calls
        assert words in line


def test_rank_and_world_size_are_told(write: Any, printed: Any) -> None:
    group = {"backend": "nccl", "rank": 3, "world_size": 8, "pg_count": 1}
    path = write(*SMALL, distributedInfo=group)
    assert "rank 3 of 8" in printed("--summary", path)
    told = json.loads(printed("--json", path))
    assert (told["rank"], told["world_size"]) == (3, 8)
    alone = json.loads(printed("--json", write(*SMALL)))
    assert (alone["rank"], alone["world_size"]) == (None, None)


def test_the_memory_curve_is_a_csv(write: Any, printed: Any) -> None:
    rows = rows_of(printed("--curve", write(*SMALL)))
    assert [(row["device"], row["time_ns"], row["bytes"], row["allocated_bytes"]) for row in rows] == [
        ("CUDA 0", "12000", "4096", "4096"), ("CUDA 0", "55000", "512", "4608"), ("CUDA 0", "200000", "-4096", "512")
    ]  # fmt: skip
    assert [row["op"] for row in rows] == ["aten::add", "aten::add", ""]
    assert len(rows_of(printed("--curve", "--top", 2, H200))) == 2


def test_single_allocations_have_address_and_lifetime(write: Any, printed: Any) -> None:
    rows = rows_of(printed("--allocations", write(*SMALL)))
    assert [(row["address"], row["bytes"], row["lifetime_ns"], row["op"]) for row in rows] == [
        ("0x7", "4096", "188000", "aten::mm"), ("0x8", "512", "", "aten::mm")
    ]  # fmt: skip


def test_a_timelines_curve_is_a_csv_and_has_no_single_allocations(printed: Any) -> None:
    path = DATA / "h200" / "torch_trace_stacks.timeline.raw.json.gz"
    rows = rows_of(printed("--curve", path))
    assert len(rows) > 10 and set(rows[0]) >= {"time_ns", "activations", "parameters"}
    assert cli.run(["torch-trace", "--allocations", str(path)]) == 2


def test_two_traces_are_compared_in_every_form(write: Any, printed: Any) -> None:
    before = write(*SMALL, name="a.json")
    after = write(*SMALL, op("aten::cat", 300, 7), memory(301, 9000, 9), name="b.json")
    page = printed("--summary", before, after)
    assert page.startswith("b.json compared with a.json") and "CUDA 0: peak 4.5K, then 9.3K (+4.8K)" in page
    line = next(line for line in page.splitlines() if line.startswith("aten::cat"))
    assert "—" in line and "+8.8K" in line
    told = json.loads(printed("--json", before, after))
    assert told["files"] == ["a.json", "b.json"]
    assert told["rows"][0]["name"] == "aten::cat" and told["rows"][0]["before"] is None
    assert told["rows"][0]["after"]["self_device_memory"] == 9000
    rows = rows_of(printed("--csv", before, after))
    assert rows[0]["self_device_memory_before"] == "" and rows[0]["self_device_memory_after"] == "9000"
    same = {row["name"]: row for row in rows}["aten::mm"]
    assert same["cpu_time_before"] == same["cpu_time_after"] == "100.0"
    assert cli.run(["torch-trace", str(before), str(after), str(after)]) == 2


def test_memory_that_was_not_recorded_is_unknown_not_0(write: Any, printed: Any) -> None:
    path = write(op("aten::mm", 0, 100), profile_memory=0)
    page = printed("--summary", path)
    assert "record with profile(profile_memory=True" in page and "0B" not in page
    (row,) = json.loads(printed("--json", path))["rows"]
    assert row["self_cpu_memory"] is None and row["self_cpu_time"] == 100
    assert rows_of(printed("--csv", path))[0]["device_memory"] == ""
    assert "nothing was allocated" in printed("--summary", write(op("aten::mm", 0, 100), profile_memory=1))


@pytest.mark.parametrize(
    ("command", "words"), [("torch-trace", "name the .json"), ("torch-snapshot", "name the snapshot that is in it")]
)
def test_an_archive_is_to_be_unpacked(
    command: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "it.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("trace.json", "{}")
    assert cli.run([command, "--summary", str(path)]) == 1
    told = capsys.readouterr().err
    assert "zip archive: unpack it" in told and words in told
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(40))
    assert cli.run([command, "--summary", str(path)]) == 1
    assert "compressed with zstd" in capsys.readouterr().err
