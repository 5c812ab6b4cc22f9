"""The demo's invented past: it reaches the present however slow the machine is."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from gputop.commands.shared import demo_past
from gputop.commands.shared.demo_past import PAST_SECONDS, STEP_SECONDS, RewindableClock, remember
from gputop.model import Snapshot
from gputop.sampling.history import History
from gputop.sources.simulated import simulated_machine


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
