"""Looking back: the dashboard's own past, a reading at a time, while the present goes on unseen."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from gputop.model import Snapshot
from gputop.sampling.history import BUCKET_SECONDS, NAN, Buckets, GpuHistory, History, Trend

if TYPE_CHECKING:
    from gputop.recording.tape import Tape


EVERY: Final = 0.95  # seconds between readings kept


class LookingBack:
    """Keeps what was (:mod:`gputop.recording.tape`) and which moment of it is looked at. ``snapshot`` is that one, None
    while the present is."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self._tape: Tape | None = None
        self._first: Snapshot | None = None
        self._kept_at = 0.0

    def add(self, snapshot: Snapshot) -> None:
        """Keep the newest snapshot, one a second at the most: a reading costs a third of a millisecond and more."""
        if 0 <= snapshot.taken_at - self._kept_at < EVERY:
            return
        self._kept_at = snapshot.taken_at
        if self._tape is None:
            if self._first is None:
                self._first = snapshot
                return  # the first picture is due: what a tape is made of takes a while to import
            from gputop.recording.tape import Tape

            self._tape = Tape()
            self._tape.add(self._first)
        self._tape.add(snapshot)

    @property
    def at(self) -> float | None:
        """The time looked at, None for the present."""
        return None if self.snapshot is None else self.snapshot.taken_at

    def step(self, by: int) -> bool:
        """One reading back (-1) or on (1); on from the last one is the present. False: there is nothing further
        back."""
        times = self._times()
        at = self.at
        if by > 0:
            if at is not None:
                self._look_at(times, bisect_right(times, at))
            return True
        place = len(times) - 2 if at is None else bisect_left(times, at) - 1
        if place < 0:
            return False
        self._look_at(times, place)
        return True

    def skip(self, seconds: float) -> bool:
        """So many seconds on, or back where negative."""
        times = self._times()
        if not times or (self.at is None and seconds > 0):
            return seconds > 0
        at = times[-1] if self.at is None else self.at
        if seconds < 0:
            place = max(0, bisect_right(times, at + seconds) - 1)
            moved = times[place] < at
        else:
            place, moved = bisect_left(times, at + seconds), True
        if moved:
            self._look_at(times, place)
        return moved

    def end(self) -> None:
        """Back to the present."""
        self.snapshot = None

    def _times(self) -> list[float]:
        return [] if self._tape is None else self._tape.times()

    def _look_at(self, times: list[float], place: int) -> None:
        """The reading at *place*; the newest one and beyond is the present."""
        past = self._tape is not None and place < len(times) - 1
        self.snapshot = self._tape.snapshot(times[place]) if past and self._tape is not None else None


class _BucketsUntil(Buckets):
    """Buckets as they were at a time: those after it have not happened yet."""

    def __init__(self, buckets: Buckets, at: float) -> None:
        self.size, self.values = buckets.size, buckets.values
        self._now = buckets.newest
        self.newest = min(buckets.newest, int(at / BUCKET_SECONDS))

    def last(self, columns: int) -> tuple[float, ...]:
        columns = min(columns, self.size)
        kept = self._now - self.size  # this one and those before it have been written over
        numbers = range(self.newest - columns + 1, self.newest + 1)
        return tuple([self.values[n % self.size] if n > kept else NAN for n in numbers])


class _GpuHistoryUntil(GpuHistory):
    """A GPU's history up to a time. What is not kept for every moment (peak, trend) is not told."""

    def __init__(self, track: GpuHistory, at: float) -> None:
        # GpuHistory's own constructor would take room for rings.
        self.fine, self.coarse, self.trend = track.fine, track.coarse, Trend()
        self.peak_bytes = self.peak_at = None
        self.memory, self.utilization = _BucketsUntil(track.memory, at), _BucketsUntil(track.utilization, at)
        if track.peak_at is not None and track.peak_at <= at:
            self.peak_bytes, self.peak_at = track.peak_bytes, track.peak_at


class HistoryUntil(History):
    """*history* as it was at a time."""

    def __init__(self, history: History, at: float) -> None:
        super().__init__()
        self.tracks = {uuid: _GpuHistoryUntil(track, at) for uuid, track in history.tracks.items()}
