"""The history of the GPUs as it was at an earlier time: what came after it has not happened yet."""

from __future__ import annotations

from gputop.history.gpu_history import BUCKET_SECONDS, NAN, Buckets, GpuHistory, History, Trend


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
