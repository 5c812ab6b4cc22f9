"""``gputop torch-snapshot`` in a real terminal: keys arrive, it ends cleanly, files that cannot be read are said."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.pty.conftest import Start
from tests.unit import allocator_simulator as sim


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
