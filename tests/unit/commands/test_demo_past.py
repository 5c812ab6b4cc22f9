"""The demo's invented past: it reaches the present however slow the machine is."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from gputop.commands.shared import demo_past
from gputop.commands.shared.demo_past import BEGINS_NOW, PAST_SECONDS, STEP_SECONDS, RewindableClock, remember
from gputop.history.gpu_history import History
from gputop.model import Snapshot
from gputop.sources.simulated import SCENARIOS, simulated_machine


class Recorder(History):
    """Keeps the times of what is added."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def add(self, snapshot: Snapshot) -> None:
        self.times.append(snapshot.taken_at)
        super().add(snapshot)


def remembered() -> list[float]:
    clock, history = RewindableClock(), Recorder()
    clock.rewind(PAST_SECONDS)
    remember(simulated_machine("2xh200", 0, clock).source, history, clock)
    return history.times


@pytest.mark.parametrize("patience", [3600.0, 0.02, 0.0], ids=["fast", "slow", "far too slow"])
def test_the_chart_of_a_demo_on_a_busy_machine_has_no_hole_before_now(
    monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    monkeypatch.setattr(demo_past, "COMPUTING_SECONDS", patience)
    times = remembered()
    assert all(later - earlier == pytest.approx(STEP_SECONDS, abs=0.01) for earlier, later in pairwise(times))
    assert time.time() - times[-1] < 2 * STEP_SECONDS
    if patience == 3600.0:
        assert times[-1] - times[0] > PAST_SECONDS - 4 * STEP_SECONDS
    if patience == 0.0:
        assert len(times) <= 2


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_demo_has_a_past_and_what_goes_wrong_is_still_to_come(name: str) -> None:
    """`--demo lost-gpu` began with an empty chart."""
    clock, history = RewindableClock(), Recorder()
    clock.rewind(PAST_SECONDS)
    made = simulated_machine(name, 0, clock, -PAST_SECONDS if name in BEGINS_NOW else 0.0)
    remember(made.source, history, clock)
    assert len(history.times) >= 2
    gpus = [made.source.read(slot) for slot in range(made.source.open() and made.source.count())]
    if name in BEGINS_NOW:
        assert all(reading.gpu.error is None for reading in gpus)
    for track in history.tracks.values():
        known = [value for _, value in track.since("memory", 0.0) if value == value]
        assert all(0 <= value <= 2**40 for value in known)


def test_the_memory_of_a_demo_lives() -> None:
    """Every curve of memory was a flat line."""
    clock, history = RewindableClock(), Recorder()
    clock.rewind(PAST_SECONDS)
    remember(simulated_machine("8xh200", 0, clock).source, history, clock)
    moving = 0
    for track in history.tracks.values():
        known = [value for _, value in track.since("memory", 0.0) if value == value]
        moving += max(known) > 1.02 * min(known)
    assert moving >= 6
