"""Rings, sparkline buckets and the memory trend."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.history.gpu_history import BUCKET_SECONDS, SAMPLES, Buckets, History, Series, trend
from gputop.model import Gpu, Snapshot

GIB = 1024**3


def gpu(at: float, used: int | None, **more) -> Gpu:
    return Gpu(0, "GPU-0", "H200", at, memory_total_bytes=100 * GIB, memory_used_bytes=used, **more)


def test_a_spike_between_two_columns_is_not_averaged_away():
    buckets = Buckets()
    for n in range(40):
        buckets.put(n * 0.5, 95.0 if n == 21 else 10.0, 1.5)
    assert 95.0 in buckets.last(12)


def test_nothing_known_is_a_gap_and_not_zero():
    history = History()
    for n in range(20):
        history.add(Snapshot(n * 2.0, gpus=(gpu(n * 2.0, None if 5 <= n < 10 else GIB),), interval=2.0))
    track = history.track("GPU-0")
    assert sum(math.isnan(value) for value in track.memory.last(20)) == 5
    assert sum(math.isnan(value) for _, value in track.since("memory", 0)) == 5


def test_a_late_gpu_leaves_a_gap_instead_of_repeating_its_last_value():
    history = History()
    history.add(Snapshot(2.0, gpus=(gpu(2.0, GIB),)))
    history.add(Snapshot(4.0, gpus=(gpu(2.0, GIB, late=True),)))
    assert math.isnan(history.track("GPU-0").memory.last(1)[0])


def test_samples_rarer_than_columns_leave_no_holes():
    buckets = Buckets()
    for n in range(10):
        buckets.put(n * 5.0, 50.0, 15.0)
    assert not any(math.isnan(value) for value in buckets.last(15))


def test_a_long_silence_leaves_a_gap():
    buckets = Buckets()
    buckets.put(2.0, 50.0, 1.5)
    buckets.put(60.0, 50.0, 1.5)
    assert all(math.isnan(value) for value in buckets.last(20)[:-1])


def test_window_longer_than_the_fine_ring_has_the_maxima_of_before():
    history = History()
    for n in range(SAMPLES * 2):
        history.add(Snapshot(n * 0.5, gpus=(gpu(n * 0.5, 90 * GIB if n == 100 else GIB),), interval=0.5))
    points = history.track("GPU-0").since("memory", 0)
    assert max(value for _, value in points) == 90 * GIB
    times = [at for at, _ in points]
    assert times == sorted(times)


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=60), st.floats(0, 1100))
def test_since_gives_what_a_plain_list_would(steps, start):
    series, plain = Series(16), []
    at = 0.0
    for step in steps:
        at += step
        series.put(at, {"memory": step})
        plain.append((at, step))
    assert list(series.since("memory", start)) == [point for point in plain[-16:] if point[0] >= start]


def test_rings_do_not_grow():
    history = History()
    history.add(Snapshot(0.0, gpus=(gpu(0.0, GIB),)))
    track = history.track("GPU-0")
    sizes = [len(track.fine.times), len(track.coarse.times), len(track.memory.values)]
    for n in range(1, 5000):
        history.add(Snapshot(n * 1.0, gpus=(gpu(n * 1.0, GIB),)))
    assert sizes == [len(track.fine.times), len(track.coarse.times), len(track.memory.values)]


def line(minutes: float, per_minute: float, start: float = 10 * GIB, every: float = 0.5, noise: float = 0.0):
    rng = random.Random(1)
    steps = int(minutes * 60 / every)
    return [(n * every, start + per_minute * n * every / 60 + rng.uniform(-noise, noise)) for n in range(steps)]


def test_trend_tells_the_slope_and_when_memory_is_full():
    found = trend(line(3, 1.2 * GIB), 100 * GIB)
    assert found.bytes_per_second * 60 == pytest.approx(1.2 * GIB, rel=0.02)
    assert found.seconds_to_full == pytest.approx((90 - 3 * 1.2) / 1.2 * 60, rel=0.05)


def test_trend_is_not_misled_by_a_sawtooth():
    points = [(at, value + (at % 10) * 0.05 * GIB) for at, value in line(3, 1.2 * GIB)]
    assert trend(points, None).bytes_per_second * 60 == pytest.approx(1.2 * GIB, rel=0.15)


def test_trend_is_not_misled_by_one_spike():
    points = line(3, 1.2 * GIB)
    points[200] = (points[200][0], 90 * GIB)
    assert trend(points, None).bytes_per_second * 60 == pytest.approx(1.2 * GIB, rel=0.05)


@pytest.mark.parametrize(
    "points",
    [
        [],
        line(0.2, 5 * GIB),
        line(3, 0),
        line(3, 0, noise=GIB),
        [(at, 10 * GIB if at < 60 else 40 * GIB) for at, _ in line(3, 0)],
        [(at, math.nan) for at, _ in line(3, 0)],
        line(3, GIB / 1024),
    ],
    ids=["nothing", "too short", "flat", "noise", "one jump", "unknown", "too little"],
)
def test_no_trend_where_none_can_be_told(points):
    assert trend(points, 100 * GIB).bytes_per_second == 0


def test_memory_that_falls_has_no_time_to_full():
    found = trend(line(3, -2 * GIB, start=80 * GIB), 100 * GIB)
    assert found.bytes_per_second < 0
    assert found.seconds_to_full is None


def test_bucket_length_is_what_the_design_says():
    assert BUCKET_SECONDS == 2.0
