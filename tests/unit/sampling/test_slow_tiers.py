"""The slow readings of one GPU hang: those of the others go on."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.sampling import slow_tiers
from gputop.sampling.driver_gate import DriverGate
from gputop.sampling.slow_tiers import SlowTiers
from tests.unit.children import wait_for


class Source:
    """Four GPUs. *hangs*: (tier, slot) whose next call does not return until ``gate`` is set."""

    def __init__(self, *hangs: tuple[str, int]) -> None:
        self.gate = threading.Event()
        self.hangs = set(hangs)
        self.read: list[tuple[str, int, float]] = []

    def count(self) -> int:
        return self._call("count", 0) or 4

    def read_medium(self, slot: int) -> None:
        self._call("medium", slot)

    def read_slow(self, slot: int) -> None:
        self._call("slow", slot)

    def _call(self, tier: str, slot: int) -> None:
        if (tier, slot) in self.hangs:
            self.gate.wait(60)
        self.read.append((tier, slot, time.monotonic()))

    def reads(self, tier: str, slot: int) -> int:
        return sum(one[:2] == (tier, slot) for one in list(self.read))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("MEDIUM", 0.02), ("SLOW", 0.05), ("COUNT", 0.02), ("HUNG", 0.1)):
        monkeypatch.setattr(slow_tiers, f"{name}_SECONDS", seconds)


def _tiers(source: Source) -> tuple[SlowTiers, DriverGate]:
    gate = DriverGate()
    gate.open()
    tiers = SlowTiers(source, gate)  # type: ignore[arg-type]
    tiers.sweeper = _Sweeper()  # type: ignore[assignment]
    tiers.start()
    return tiers, gate


class _Sweeper:
    slots = 4
    threads = SimpleNamespace(is_being_read=lambda slot: False)


def _goes(tiers: SlowTiers, condition: Any) -> None:
    def met() -> bool:
        tiers.go()
        time.sleep(0.01)
        return bool(condition())

    wait_for(met)


@pytest.mark.parametrize("tier", ["medium", "slow"])
def test_a_gpu_whose_slow_readings_hang_does_not_stop_those_of_the_others(tier: str) -> None:
    source = Source((tier, 1))
    tiers, _ = _tiers(source)
    try:
        others = (0, 2, 3)
        _goes(tiers, lambda: all(source.reads(t, n) >= 5 for t in ("medium", "slow") for n in others))
        assert source.reads(tier, 1) == 0
        assert tiers.gpus == 4 and tiers.failure is None
        source.hangs.clear()
        source.gate.set()
        _goes(tiers, lambda: source.reads("medium", 1) >= 3 and source.reads("slow", 1) >= 3)
    finally:
        source.gate.set()
        tiers.stop()


def test_counting_that_hangs_does_not_stop_the_readings() -> None:
    source = Source(("count", 0))
    tiers, _ = _tiers(source)
    try:
        _goes(tiers, lambda: all(source.reads("medium", n) >= 5 for n in range(4)))
    finally:
        source.gate.set()
        tiers.stop()


def test_three_of_four_hang_and_the_fourth_is_read_with_as_many_threads_as_hang() -> None:
    source = Source(("medium", 0), ("slow", 1), ("medium", 2))
    tiers, _ = _tiers(source)
    before = threading.active_count()
    try:
        _goes(tiers, lambda: source.reads("medium", 3) >= 20 and source.reads("slow", 3) >= 3)
        assert threading.active_count() - before <= 3
        source.hangs.clear()
        source.gate.set()
        _goes(tiers, lambda: all(source.reads("slow", n) >= 2 for n in range(4)))
        wait_for(lambda: threading.active_count() <= before)
    finally:
        source.gate.set()
        tiers.stop()


def test_the_driver_is_not_closed_while_a_slow_reading_hangs_in_it() -> None:
    source = Source(("medium", 1))
    tiers, gate = _tiers(source)
    try:
        _goes(tiers, lambda: source.reads("medium", 3) >= 5)
        assert not gate.shut(0.1)
        source.gate.set()
        assert gate.shut(5.0)
    finally:
        source.gate.set()
        tiers.stop()
