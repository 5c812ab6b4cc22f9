"""gputop torch-snapshot without its viewer: summary, JSON, CSV, flame graph, and what it says of unreadable files."""

from __future__ import annotations

import csv
import io
import json
import pickle
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gputop import cli
from tests.unit.torch_files import allocator_simulator as sim
from tests.unit.torch_files.allocator_simulator import MIB, Allocator

KEYS = """device reserved_bytes allocated_bytes active_bytes requested_bytes inactive_bytes releasable_bytes
inactive_split_bytes largest_free_block_bytes rounding_loss_bytes peak_requested_bytes peak_event_index oom_events
top""".split()


@pytest.fixture(scope="module")
def allocators() -> tuple[Allocator, Allocator]:
    first, second = Allocator(0, capacity=700 * MIB), Allocator(1)
    sim.training(first, steps=20)
    sim.until_out_of_memory(first, 90 * MIB)
    sim.chaos(second, 300)
    return first, second


@pytest.fixture(scope="module")
def path(allocators: tuple[Allocator, Allocator], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("snapshots") / "run.pickle"
    path.write_bytes(sim.dumps(sim.snapshot(*allocators)))
    return path


def run(*arguments: str | Path) -> int:
    return cli.run(["torch-snapshot", *map(str, arguments)])


def test_json_has_the_figures_of_each_device_to_the_byte(
    path: Path, allocators: tuple[Allocator, Allocator], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--json", path) == 0
    data = json.loads(capsys.readouterr().out)
    assert [device["device"] for device in data["devices"]] == [0, 1]
    for device, allocator in zip(data["devices"], allocators, strict=True):
        assert not set(KEYS) - set(device)
        for name, value in allocator.stats().items():
            assert device[name] == value
        most = max(allocator.truth.live)
        assert device["peak_requested_bytes"] == most
        assert device["peak_event_index"] == allocator.truth.live.index(most)
        assert len(device["oom_events"]) == allocator.ooms
        assert device["rounding_loss_bytes"] == device["active_bytes"] - device["requested_bytes"]
        for row in device["top"]:
            assert set(row) == {"bytes", "count", "frames"}
            assert all(set(frame) == {"name", "filename", "line"} for frame in row["frames"])
    assert data["devices"][0]["leaks"][0]["frames"][0]["name"] == "log_loss"
    assert data["devices"][0]["oom_events"][0]["asked_bytes"] == 90 * MIB


def test_json_of_one_device_all_of_its_stacks(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--device", "1", "--top", "1000", path) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert sum(row["bytes"] for row in device["top"]) == device["requested_bytes"]


def test_unknown_is_null_and_never_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    allocator = Allocator()
    sim.training(allocator, steps=2)
    path = tmp_path / "old.pickle"
    path.write_bytes(sim.dumps(sim.as_form(sim.snapshot(allocator), "1.8")))
    assert run("--json", path) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    for key in ("requested_bytes", "rounding_loss_bytes", "peak_requested_bytes", "peak_event_index", "leaks"):
        assert device[key] is None


def test_summary_is_a_page_of_plain_text(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--summary", path) == 0
    page = capsys.readouterr().out
    assert "\x1b" not in page
    for words in ("device 1", "OUT OF MEMORY", "90.0M requested", "metrics.py:7 log_loss", "a part", "fragmentation"):
        assert words in page


def test_without_a_terminal_the_summary_is_printed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(path) == 0
    assert "reserved" in capsys.readouterr().out


def test_csv_has_a_row_for_each_stack(
    path: Path, allocators: tuple[Allocator, Allocator], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--csv", path) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    for device, allocator in enumerate(allocators):
        assert sum(int(row["bytes"]) for row in rows if row["device"] == str(device)) == allocator.live
    assert run("--csv", "--at", "peak", "--filter", "log_loss", path) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["frame"] for row in rows] == ["/home/ml/metrics.py:7 log_loss"]


def test_names_cannot_be_formulas_in_a_spreadsheet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    allocator = Allocator()
    allocator.malloc(5, [sim.frame("x", "=HYPERLINK(1)", 1)])
    path = tmp_path / "=x.pickle"
    path.write_bytes(sim.dumps(sim.snapshot(allocator)))
    assert run("--csv", path) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["frame"].startswith("'=") and row["file"] == "'=x.pickle"


def test_the_flame_graph_is_one_svg_without_scripts(path: Path, tmp_path: Path) -> None:
    svg = tmp_path / "flames.svg"
    assert run("--flamegraph", svg, "--device", "0", path) == 0
    text = svg.read_text()
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg") and "log_loss" in text
    assert "<script" not in text and "href" not in text


def test_a_flame_graph_survives_hostile_names(tmp_path: Path) -> None:
    allocator = Allocator()
    allocator.malloc(MIB, [sim.frame("<script>alert(1)</script>", '"&\x00\x1b<b>', 1)])
    path, svg = tmp_path / "evil.pickle", tmp_path / "out.svg"
    path.write_bytes(sim.dumps(sim.snapshot(allocator)))
    assert run("--flamegraph", svg, path) == 0
    ElementTree.fromstring(svg.read_text())
    assert "<script" not in svg.read_text()


def test_an_unreadable_file_is_one_sentence_and_status_1(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut.pickle"
    cut.write_bytes(path.read_bytes()[:9999])
    assert run("--json", cut, path) == 1
    out, err = capsys.readouterr()
    assert "ends too early" in err and "Traceback" not in err and err.count("\n") == 1
    assert json.loads(out)["file"] == str(path)
    assert run("--json", tmp_path / "missing.pickle") == 1
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"), [(("--device", "7"), "which has 0, 1"), (("--filter", "size>x"), "not a size")]
)
def test_what_cannot_be_done_is_said(
    path: Path, arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--json", *arguments, path) == 2
    assert words in capsys.readouterr().err


def test_a_leak_is_not_denied_because_no_stack_is_to_be_listed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--top 0 lists all, as in torch-trace; a filter is said."""
    for top in ("0", "1", "99"):
        assert run("--summary", "--top", top, path) == 0
        assert "log_loss" in capsys.readouterr().out.partition("Leaks: left behind")[2]
    assert run("--summary", "--filter", "nosuch", path) == 0
    assert "no line that matches the filter leaves" in capsys.readouterr().out
    assert run("--flamegraph", "x.svg", path, path) == 2
    with pytest.raises(SystemExit):
        run("--summary", "--top", "-5", path)


def test_sizes_below_zero_are_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for block, entry in ((-1, 5), (5, -1)):
        data = {
            "segments": [
                {"device": 0, "address": 0, "total_size": 512, "blocks": [
                    {"size": 512, "requested_size": block, "state": "active_allocated"}]}
            ],
            "device_traces": [[{"action": "oom", "size": entry, "device_free": 1}]],
        }  # fmt: skip
        bad = tmp_path / "bad.pickle"
        bad.write_bytes(pickle.dumps(data, 4))
        assert run("--summary", bad) == 1
        assert "not of a memory snapshot" in capsys.readouterr().err


def test_a_spreadsheet_gets_a_deep_stack_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    allocator = Allocator()
    deep = [sim.frame(f"function_{n}", "/home/ml/" + "x" * 60 + f"/{n}.py", n) for n in range(260)]
    allocator.malloc(MIB, deep)
    path = tmp_path / "deep.pickle"
    path.write_bytes(sim.dumps(sim.snapshot(allocator)))
    assert run("--csv", path) == 0
    (row,) = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert "function_259" in row["stack"]


def test_a_flame_graph_never_replaces_what_is_not_one(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--flamegraph a.pickle b.pickle`: the name of the graph was forgotten, and a.pickle was lost."""
    victim = tmp_path / "a.pickle"
    victim.write_bytes(path.read_bytes())
    assert run("--flamegraph", victim, path) == 2
    assert victim.read_bytes() == path.read_bytes()
    assert "exists and is not a flame graph" in capsys.readouterr().err
    (tmp_path / "link.svg").symlink_to(victim)
    (tmp_path / "drawing.svg").write_text("<svg>a drawing of the user's</svg>")
    for other in ("link.svg", "drawing.svg"):
        before = (tmp_path / other).read_bytes()
        assert run("--flamegraph", tmp_path / other, path) == 2
        assert (tmp_path / other).read_bytes() == before
    for _ in range(2):  # a new one, and one of ours again
        assert run("--flamegraph", tmp_path / "held.svg", path) == 0
    ElementTree.parse(tmp_path / "held.svg")


def test_a_file_name_in_an_error_prints_no_control_characters(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = tmp_path / "x\x1b[31m\x07.svg"
    name.write_text("not ours")
    assert run("--flamegraph", name, path) == 2
    assert run("--flamegraph", tmp_path / "no\x1b[1m" / "x.svg", path) == 1
    assert run("--summary", tmp_path / "no\x1b[2J.pickle") == 1
    assert run("--flamegraph", tmp_path / "new\x1b[1m.svg", path) == 0
    with pytest.raises(SystemExit):
        run("--\x1b[31mred", path)
    written = capsys.readouterr()
    assert "\x1b" not in written.err + written.out and "\x07" not in written.err


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_heeds_top(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = []
    for arguments in ((), ("--top", "0"), ("--top", "2")):
        assert run("--csv", "--device", "0", *arguments, path) == 0
        counts.append(len(rows_of(capsys.readouterr().out)))
    assert counts[0] == counts[1] > counts[2] == 2


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """The run of *path*, ten steps on."""
    first, second = Allocator(0, capacity=700 * MIB), Allocator(1)
    sim.training(first, steps=30)
    sim.chaos(second, 300)
    path = tmp_path / "grown.pickle"
    path.write_bytes(sim.dumps(sim.snapshot(first, second)))
    return path


def test_two_files_are_compared_as_json_and_csv_too(
    path: Path, grown: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--json", "--top", "0", path, grown) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 2 and "compared_with" not in lines[0]
    assert lines[1]["compared_with"]["file"] == str(path)
    changes = lines[1]["compared_with"]["devices"][0]["changes"]
    leak = next(change for change in changes if change["frames"] and change["frames"][0]["name"] == "log_loss")
    assert (leak["count"], leak["bytes"]) == (10, 10 * (3 * MIB + 100))
    assert leak["after_bytes"] - leak["before_bytes"] == leak["bytes"]
    assert run("--csv", path, grown) == 0
    rows = rows_of(capsys.readouterr().out)
    assert {row["file"] for row in rows} == {path.name, "grown.pickle"}
    row = next(row for row in rows if row["file"] == "grown.pickle" and "log_loss" in row["frame"])
    assert (row["count"], row["before_count"]) == ("30", "20")
    gone = [row for row in rows if row["file"] == "grown.pickle" and row["bytes"] == "0"]
    assert gone and all(int(row["before_bytes"]) > 0 for row in gone)
    assert run("--summary", path, grown) == 0
    assert "grown.pickle compared with" in capsys.readouterr().out


def test_single_allocations_have_address_and_lifetime(
    path: Path, allocators: tuple[Allocator, Allocator], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--allocations", "--device", "0", path) == 0
    rows = rows_of(capsys.readouterr().out)
    trace = list(allocators[0].trace)
    allocs = [(n, entry) for n, entry in enumerate(trace) if entry["action"] == "alloc"]
    assert sorted((row["address"], row["allocated_entry"], row["bytes"]) for row in rows) == sorted(
        (f"{entry['addr']:#x}", str(n), str(entry["size"])) for n, entry in allocs
    )
    freed = next(row for row in rows if row["freed_entry"])
    begin, end = trace[int(freed["allocated_entry"])], trace[int(freed["freed_entry"])]
    assert int(freed["lifetime_us"]) == end["time_us"] - begin["time_us"] and end["action"] == "free_completed"
    assert run("--allocations", "--at", "now", "--device", "0", path) == 0
    held = rows_of(capsys.readouterr().out)
    assert {int(row["address"], 16) for row in held} == set(allocators[0].held)
    assert not any(row["freed_entry"] for row in held)


def test_the_memory_curve_is_a_csv(
    path: Path, allocators: tuple[Allocator, Allocator], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--curve", "--device", "1", path) == 0
    rows = rows_of(capsys.readouterr().out)
    truth = allocators[1].truth
    assert [int(row["requested_bytes"]) for row in rows] == truth.live
    assert [int(row["reserved_bytes"]) for row in rows] == truth.reserved
    assert rows[0]["action"] == "segment_alloc" and rows[0]["time_us"]
