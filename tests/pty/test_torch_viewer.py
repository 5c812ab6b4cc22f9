"""The viewers, ``gputop torch-snapshot`` and ``torch-trace``, in a real terminal: keys arrive, they end cleanly, files
that cannot be read are said."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.pty.conftest import Start
from tests.unit.torch_files import allocator_simulator as sim


@pytest.fixture
def path(tmp_path: Path) -> Path:
    allocator = sim.Allocator()
    sim.training(allocator, steps=10)
    path = tmp_path / "run.pickle"
    path.write_bytes(sim.dumps(sim.snapshot(allocator)))
    return path


def test_the_viewer_opens_walks_and_quits(gputop: Start, path: Path) -> None:
    terminal = gputop("torch-snapshot", str(path), drawn="rounding loss", columns=80, rows=24)
    terminal.type("l")
    terminal.wait_for("metrics.py")
    terminal.type("a/build")
    terminal.wait_for("filter: build")
    terminal.press("Enter")
    terminal.resize(120, 40)
    terminal.wait_for(lambda: len(terminal.lines()) == 40 and "train.py:12 build" in terminal.text())
    terminal.type("q")
    assert terminal.wait_end() == 0
    terminal.assert_restored()


def test_a_signal_restores_the_terminal(gputop: Start, path: Path) -> None:
    terminal = gputop("torch-snapshot", str(path), drawn="rounding loss")
    terminal.signal(signal.SIGTERM)
    assert terminal.wait_end() == 143
    terminal.assert_restored()


def test_a_file_that_cannot_be_read_is_said_and_is_status_1(gputop: Start, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pickle"
    bad.write_bytes(b"PK\x03\x04")
    terminal = gputop("torch-snapshot", str(bad), drawn="torch.save")
    terminal.type("q")
    assert terminal.wait_end() == 1


TRACE = str(Path(__file__).resolve().parents[1] / "data" / "h200" / "torch_trace_stacks.json.gz")


def test_the_viewer_of_a_trace_opens_walks_and_quits(gputop: Start) -> None:
    terminal = gputop("torch-trace", TRACE, drawn="How it adds up")
    terminal.type("m")
    terminal.wait_for("Held by 9 origins")
    terminal.type("t/addmm")
    terminal.wait_for("filter: addmm")
    terminal.press("Enter")
    terminal.type("s")
    terminal.wait_for("CALLS▾")
    terminal.type("q")
    assert terminal.wait_end() == 0
    terminal.assert_restored()


@pytest.mark.parametrize("option", [("--summary",), ("--top", "3"), ("--group-by-input-shape",), ("--csv",)])
def test_what_is_said_about_the_table_prints_it_also_to_a_terminal(gputop: Start, option: tuple[str, ...]) -> None:
    terminal = gputop("torch-trace", TRACE, *option, drawn=None)
    assert terminal.wait_end() == 0
    assert "aten::" in terminal.text() and b"\x1b[?1049h" not in terminal.since(0)
