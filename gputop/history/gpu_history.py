"""What was: rings of samples per GPU, filled by the poller before it publishes, so what draws never waits for them.

All rings are allocated when a GPU is first seen; nothing grows afterwards. Unknown is NaN in the rings, a gap on the
screen. One writer (the poller); readers on other threads may see a sample more or less, never a torn one (the GIL).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gputop import units
from gputop.model import Gpu, Snapshot
from gputop.model.chart_metrics import CHART_METRICS

NAN: Final = math.nan


def _memory_percent(gpu: Gpu) -> float | None:
    return units.percent_of(gpu.memory_used_bytes, gpu.memory_total_bytes)


SAMPLES: Final = 1200  # 10 minutes at 500 ms
COARSE_SECONDS: Final = 5.0
COARSE_SAMPLES: Final = 2160  # 3 hours
BUCKET_SECONDS: Final = 2.0
BUCKETS: Final = 256
CLOCK_STEP_SECONDS: Final = 2.0  # a clock set back by less only delays the curve


class Series:
    """A ring of samples of all metrics of one GPU, with the times they were read (epoch seconds)."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = 0  # ever written
        self.times = array("d", bytes(8 * size))
        self.values = {id_: array("d", [NAN]) * size for id_ in CHART_METRICS}

    def put(self, at: float, sample: dict[str, float]) -> None:
        position = self.count % self.size
        self.times[position] = at
        for id_, value in sample.items():
            self.values[id_][position] = value
        self.count += 1

    def since(self, metric: str, start: float) -> Iterator[tuple[float, float]]:
        """(time, value) of samples not older than *start*, oldest first; a value may be NaN."""
        values, times = self.values[metric], self.times
        first = max(0, self.count - self.size)
        low, high = first, self.count
        while low < high:  # the times only rise: find the first one wanted
            middle = (low + high) // 2
            if times[middle % self.size] < start:
                low = middle + 1
            else:
                high = middle
        for n in range(low, self.count):
            yield times[n % self.size], values[n % self.size]

    @property
    def newest(self) -> float:
        """Time of the newest sample; minus infinity when there is none."""
        return self.times[(self.count - 1) % self.size] if self.count else -math.inf

    @property
    def oldest(self) -> float:
        """Time of the oldest sample kept; infinity when there is none."""
        return self.times[max(0, self.count - self.size) % self.size] if self.count else math.inf


class Buckets:
    """The columns of a sparkline: the *maximum* seen in each bucket of time, so that a spike is never averaged away
    and the row shifts only when a bucket closes. The last one is still open. NaN: nothing known."""

    def __init__(self, size: int = BUCKETS) -> None:
        self.size = size
        self.values = array("d", [NAN]) * size
        self.newest = 0  # number of the open bucket: time divided by its length
        self._last = NAN
        self._cut: tuple[tuple[int, int, float], tuple[float, ...]] | None = None

    def put(self, at: float, value: float, hold: float) -> None:
        """*hold*: seconds a value stands for the time after it, where samples are rarer than buckets."""
        number = int(at / BUCKET_SECONDS)
        if number > self.newest:
            skipped = number - self.newest - 1
            held = self._last if skipped * BUCKET_SECONDS <= hold else NAN
            for n in range(self.newest + 1, number) if skipped < self.size else range(number - self.size, number):
                self.values[n % self.size] = held
            self.newest = number
            self.values[number % self.size] = value
        elif number == self.newest:
            old = self.values[number % self.size]
            if not value <= old:  # also where old is NaN
                self.values[number % self.size] = value if value == value else old
        self._last = value

    def last(self, columns: int) -> tuple[float, ...]:
        """The newest *columns* buckets, oldest first, the open one last. The same object while they are the same."""
        columns = min(columns, self.size)
        key = (columns, self.newest, self.values[self.newest % self.size])
        if self._cut is None or self._cut[0] != key:
            first = self.newest - columns + 1
            self._cut = key, tuple([self.values[n % self.size] for n in range(first, self.newest + 1)])
        return self._cut[1]


@dataclass(frozen=True, slots=True)
class Trend:
    """Where memory is going. ``bytes_per_second`` is 0 where it stands still or nothing can be said."""

    bytes_per_second: float = 0.0
    seconds_to_full: float | None = None


class GpuHistory:
    """The history of one GPU."""

    def __init__(self) -> None:
        self.fine = Series(SAMPLES)
        self.coarse = Series(COARSE_SAMPLES)
        self.memory = Buckets()  # percent of total
        self.utilization = Buckets()
        self.peak_bytes: int | None = None
        self.peak_at: float | None = None
        self.trend = Trend()
        self._coarse_number = 0
        self._coarse: dict[str, float] = {}
        self._trend_at = 0.0

    def put(self, gpu: Gpu, at: float, interval: float) -> None:
        sample = {}
        for id_, metric in CHART_METRICS.items():
            value = metric.of(gpu)
            sample[id_] = NAN if value is None else float(value)
        self.fine.put(at, sample)
        self._put_coarse(at, sample)
        memory, utilization = _memory_percent(gpu), gpu.utilization_gpu_percent
        if utilization is None and gpu.sm_active_percent is not None:
            utilization = round(gpu.sm_active_percent)
        self.memory.put(at, NAN if memory is None else memory, 3 * interval)
        self.utilization.put(at, NAN if utilization is None else float(utilization), 3 * interval)
        if gpu.memory_used_bytes is not None and (self.peak_bytes is None or gpu.memory_used_bytes > self.peak_bytes):
            self.peak_bytes, self.peak_at = gpu.memory_used_bytes, at
        if at - self._trend_at >= TREND_PERIOD_SECONDS:
            self._trend_at = at
            total = gpu.memory_total_bytes
            full = None if total is None else total - (gpu.memory_reserved_bytes or 0)
            self.trend = trend(list(self.fine.since("memory", at - TREND_WINDOW_SECONDS)), full)

    def _put_coarse(self, at: float, sample: dict[str, float]) -> None:
        """The maximum of each 5 s, for windows longer than the fine ring."""
        number = int(at / COARSE_SECONDS)
        if number != self._coarse_number:
            if self._coarse:
                self.coarse.put(self._coarse_number * COARSE_SECONDS, self._coarse)
            self._coarse_number, self._coarse = number, dict(sample)
            return
        for id_, value in sample.items():
            if not value <= self._coarse.get(id_, NAN) and value == value:
                self._coarse[id_] = value

    def since(self, metric: str, start: float) -> list[tuple[float, float]]:
        """(time, value) from *start* on: every sample where the fine ring reaches back that far, else maxima of 5 s."""
        if self.fine.oldest <= start or self.fine.count <= self.fine.size:
            return list(self.fine.since(metric, start))
        old = [point for point in self.coarse.since(metric, start) if point[0] < self.fine.oldest]
        return old + list(self.fine.since(metric, start))

    def value_at(self, metric: str, at: float) -> float | None:
        """The value of the reading nearest to *at*; None where it is unknown or there was no reading near."""
        best, distance = None, 2 * COARSE_SECONDS
        for time_, value in self.since(metric, at - distance):
            if abs(time_ - at) > distance:
                break
            best, distance = value, abs(time_ - at)
        return best if best == best else None


class History:
    """The histories of all GPUs, by UUID. They outlive a lost GPU: the curve goes on when it is back. They begin anew
    when the clock was set back: a curve has one direction only."""

    def __init__(self) -> None:
        self.tracks: dict[str, GpuHistory] = {}

    def add(self, snapshot: Snapshot) -> None:
        for gpu in snapshot.gpus:
            track = self.tracks.get(gpu.uuid)
            if track is None or snapshot.taken_at < track.fine.newest - CLOCK_STEP_SECONDS:
                track = self.tracks[gpu.uuid] = GpuHistory()
            if gpu.late or gpu.error is not None or gpu.asleep:
                gpu = Gpu(index=gpu.index, uuid=gpu.uuid, name=gpu.name, read_at=gpu.read_at)  # nothing is known now
            track.put(gpu, snapshot.taken_at, snapshot.interval)

    def track(self, uuid: str) -> GpuHistory | None:
        return self.tracks.get(uuid)


class NoHistory(History):
    """For those who look at the present only: nothing is kept."""

    def add(self, snapshot: Snapshot) -> None:
        pass


# ----------------------------------------------------------------------------- trend

TREND_WINDOW_SECONDS: Final = 180.0  # looked back
TREND_PERIOD_SECONDS: Final = 3.0
_LEAST_SPAN_SECONDS: Final = 20.0
_MOST_POINTS: Final = 40
_LEAST_RISE_BYTES: Final = 64 * 1024**2


def trend(points: list[tuple[float, float]], full_bytes: float | None) -> Trend:
    """The slope of memory over *points* by Theil and Sen (the median of the slopes between all pairs), which a
    sawtooth, a spike or a single jump does not mislead.

    It is called a trend only when most pairs agree, the rise is more than noise, and the latest third still goes the
    same way; a jump followed by a plateau is none.
    """
    known = [point for point in points if point[1] == point[1]]
    if len(known) < 8 or known[-1][0] - known[0][0] < _LEAST_SPAN_SECONDS:
        return Trend()
    thinned = _thin(known)
    slope, agreement = _slope(thinned)
    span = thinned[-1][0] - thinned[0][0]
    if abs(slope) * span < _LEAST_RISE_BYTES or agreement < 0.75:
        return Trend()
    late, _ = _slope(_thin(known[-max(4, len(known) // 3) :]))
    if late * slope <= 0 or abs(late) < abs(slope) / 4:
        return Trend()
    to_full = None
    if slope > 0 and full_bytes is not None:
        to_full = max(0.0, full_bytes - known[-1][1]) / slope
    return Trend(slope, to_full)


def _thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= _MOST_POINTS:
        return points
    step = (len(points) - 1) / (_MOST_POINTS - 1)
    return [points[round(n * step)] for n in range(_MOST_POINTS)]


def _slope(points: list[tuple[float, float]]) -> tuple[float, float]:
    """(median slope, share of the pairs whose slope has its sign)."""
    slopes = sorted((v2 - v1) / (t2 - t1) for n, (t1, v1) in enumerate(points) for t2, v2 in points[n + 1 :] if t2 > t1)
    if not slopes:
        return 0.0, 0.0
    median = slopes[len(slopes) // 2]
    same = sum(1 for slope in slopes if slope * median > 0)
    return median, same / len(slopes)
