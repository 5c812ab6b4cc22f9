"""Few and many GPUs and processes: all are there, or the screen says how many more there are."""

from __future__ import annotations

import re

from tests.pty.conftest import Start


def test_16_gpus_fit_80_by_24(gputop: Start) -> None:
    terminal = gputop("--demo=16xb200", columns=80, rows=24)
    for n in range(16):
        assert re.search(rf"^.?{n:>2} B200 .*\d+°C", terminal.text(), re.M), n
    assert re.search(r"↓ \d+ more", terminal.text())


def test_64_gpus_scroll_and_say_so(gputop: Start) -> None:
    terminal = gputop("--demo=64xh200", columns=80, rows=24)
    terminal.wait_for(re.compile(r"\d+ more GPUs below"))
    terminal.press("tab", "end")
    terminal.wait_for(re.compile(r"^.63 H200", re.M))
    terminal.wait_for("49 more GPUs above")
    terminal.press("home")
    terminal.wait_for(re.compile(r"^. 0 H200", re.M))
    for _ in range(63):
        terminal.press("down")
    terminal.wait_for(re.compile(r"^▸63 H200", re.M))


def test_nobody_there_is_said(gputop: Start) -> None:
    terminal = gputop("--demo=empty", columns=80, rows=24)
    terminal.wait_for("no process uses a GPU")
    terminal.press("F9")
    terminal.wait_for("No process is at the cursor")
    terminal.press("enter", "space", "down", "pgdn", "end", "t", "I", "+", "-", "u", "y")
    terminal.press("q")
    assert terminal.wait_end() == 0


def test_a_thousand_processes_scroll_and_say_how_many_more(gputop: Start) -> None:
    terminal = gputop("--demo=thousand", columns=200, rows=60)
    assert re.search(r"1000 processes", terminal.text())
    shown = len(re.findall(r"^ +\d +\d{4,} \w", terminal.text(), re.M))
    assert f"↓ {1000 - shown} more" in terminal.text()
    terminal.press("/")
    terminal.type("user:ml")
    terminal.press("enter")
    terminal.wait_for(re.compile(r"\d+ of 1000 processes"))
    terminal.press("t")
    terminal.press("end")
    assert terminal.process.poll() is None


def test_a_gpu_cut_into_instances_shows_each_of_them(gputop: Start) -> None:
    terminal = gputop("--demo=mig", columns=120, rows=45)
    text = terminal.text()
    assert len(re.findall(r"[1-7]g\.\d+gb", text)) >= 3
    assert re.search(r"\b0:\d+:\d+\b", text), "processes name their instance"


def test_only_the_gpus_asked_for(gputop: Start) -> None:
    terminal = gputop("--demo=8xh200", "--gpus", "2,5", columns=120, rows=40)
    assert re.search(r"╭ 2 · NVIDIA H200", terminal.text()) and re.search(r"╭ 5 · NVIDIA H200", terminal.text())
    assert not re.search(r"╭ [013467] · ", terminal.text())
    assert "2 × NVIDIA H200" in terminal.lines()[0]
