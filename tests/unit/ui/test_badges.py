"""`power cap` came and went with every reading."""

from __future__ import annotations

import itertools
import random

from gputop.model import Severity
from gputop.ui.gpus.badges import HOLD_SECONDS, Badge
from gputop.ui.gpus.remarks import Remark

CAP = Remark(Severity.INFO, "power cap", "power cap")
SLOW = Remark(Severity.INFO, "sync boost", "sync boost")
IDLE = Remark(Severity.NORMAL, "idle", "idle")
HOT = Remark(Severity.WARNING, "hot", "hot")


def frames(readings: list[list[Remark]], step: float = 0.5) -> list[str]:
    badge = Badge()
    shown = [badge.remark(true, n * step) for n, true in enumerate(readings)]
    return ["" if remark is None else remark.message for remark in shown]


def test_a_badge_flickers_with_every_reading() -> None:
    assert set(frames([[CAP], []] * 50)) == {"power cap"}
    assert set(frames([[CAP], [SLOW]] * 50)) == {"power cap"}


def test_no_cell_of_a_badge_toggles_faster_than_its_hold_of_five_seconds() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        readings = [[r for r in (CAP, SLOW, IDLE) if chance.random() < 0.2] for _ in range(100)]
        readings = [sorted(true, key=lambda remark: -remark.severity) for true in readings]
        shown = frames(readings)
        toggles = [n for n in range(1, 100) if shown[n] != shown[n - 1]]
        assert all((other - one) * 0.5 >= HOLD_SECONDS for one, other in itertools.pairwise(toggles)), (seed, shown)


def test_a_worse_remark_has_to_wait() -> None:
    assert frames([[CAP], [HOT, CAP], [CAP]]) == ["power cap", "hot", "hot"]


def test_what_is_over_for_certain_stays() -> None:
    dead = Remark(Severity.WARNING, "38.0G held by dead 50211", "38.0G dead", "dead", lasting=False)
    assert frames([[dead], []]) == ["38.0G held by dead 50211", ""]


def test_time_that_goes_back_shows_what_was_true_then() -> None:
    badge = Badge()
    assert badge.remark([HOT], 100.0) == HOT
    assert badge.remark([], 40.0) is None


def test_figures_of_a_remark_stand_still_though_they_count() -> None:
    badge = Badge()
    seen = [
        badge.remark([Remark(Severity.WARNING, f"stale {n} s", f"stale {n} s", "stale")], float(n)) for n in range(3)
    ]
    assert [remark.message for remark in seen if remark] == ["stale 0 s", "stale 1 s", "stale 2 s"]
