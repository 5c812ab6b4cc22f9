"""Metrics of more than one look: how long a process has been idle, where the memory of a GPU or process is going.

Times are seconds watched: what nobody looked at does not count.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from gputop.history.gpu_history import trend

_POINTS: Final = 60  # kept of a window


class IdleTime:
    """Seconds without work. What cannot be told neither counts nor starts it anew."""

    __slots__ = ("_seconds", "_was_idle")

    def __init__(self) -> None:
        self._seconds = 0.0
        self._was_idle = False

    def put(self, idle: bool | None, passed: float) -> float:
        """*idle* now; *passed* seconds since the last look. Returns the seconds so far."""
        if idle is False:
            self._seconds = 0.0
        elif idle and self._was_idle:
            self._seconds += passed
        self._was_idle = bool(idle)
        return self._seconds


class MemoryTrend:
    """The trend of memory over a window, in bytes per window: the median of the slopes (``history.trend``),
    which a job's start or a sawtooth does not mislead."""

    __slots__ = ("_next", "_points", "_rate", "_window")

    def __init__(self, window: float) -> None:
        self._window = window
        self._points: deque[tuple[float, float]] = deque()
        self._next = 0.0
        self._rate: float | None = None

    def put(self, now: float, value: float | None) -> float | None:
        """*value*: bytes now. Returns the trend, None before half a window has been seen."""
        if value is not None and now >= self._next:
            points = self._points
            self._next = now + self._window / _POINTS
            points.append((now, value))
            while points[0][0] < now - self._window:
                points.popleft()
            self._rate = self._trend()
        return None if value is None else self._rate

    def _trend(self) -> float | None:
        points = self._points
        if points[-1][0] - points[0][0] < self._window / 2:
            return None
        return trend(list(points), None).bytes_per_second * self._window
