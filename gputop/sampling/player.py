"""Plays a recording onto the bus, in the poller's place: it can be paused, moved and played faster.

The bus gets the snapshots as they were, with the times they were taken; the history is that of the recorded time, and
made anew after every jump (a moment later, so that keys held down find it idle).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from gputop.history.gpu_history import SAMPLES, History
from gputop.model import ProcessKey, Snapshot
from gputop.procfs.host_reader import ProcessDetails
from gputop.recording.reading import Recording
from gputop.sampling.bus import Bus
from gputop.sampling.messages import SnapshotTaken

SPEEDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_PUBLISH_SECONDS: Final = 0.05  # least time between two snapshots on the bus, however fast it plays
_GAP_INTERVALS: Final = 5.0  # without a record: played as one
_SETTLE_SECONDS: Final = 0.15  # after a jump before the history is made anew
_MOST_BEHIND_SECONDS: Final = 1.0  # it may fall behind before its clock is set anew


class Player(threading.Thread):
    """See :class:`gputop.sampling.sampler.Sampler`. *window*: seconds of history to have before the time shown.

    What is asked for by :meth:`seek`, :meth:`step` and the properties happens in the player's thread, soon.
    """

    def __init__(self, recording: Recording, bus: Bus, window: float = 600.0, speed: float = 1.0) -> None:
        super().__init__(daemon=True, name="gputop-player")
        self.recording, self._bus, self._window = recording, bus, window
        self.history = History()
        self._cursor = recording.cursor()
        self.latest: Snapshot | None = self._cursor.snapshot()
        self.released = False
        self.jumps = 0  # how often the time shown changed otherwise than by playing on
        self._speed = speed
        self._playing = True
        self._changed = threading.Condition()
        self._jobs: list[Callable[[], None]] = []
        self._stopped = False
        self._history_due: float | None = 0.0  # monotonic time at which the history is to be made; None: it is right
        self._published = 0.0

    # -- asked from other threads

    @property
    def playing(self) -> bool:
        """Whether time goes on. At the end of the recording it does not."""
        return self._playing

    @playing.setter
    def playing(self, playing: bool) -> None:
        if playing and self.is_at_end:
            self.seek(self.recording.first_at)
        self._do(lambda: self._set_playing(playing))

    @property
    def speed(self) -> float:
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        self._speed = max(SPEEDS[0], min(SPEEDS[-1], speed))
        self._do(self._publish)

    def faster(self, by: int) -> None:
        """To the next of :data:`SPEEDS` (1), or the one before (-1)."""
        others = [speed for speed in SPEEDS if (speed - self._speed) * by > 0]
        if others:
            self.speed = min(others) if by > 0 else max(others)

    @property
    def window(self) -> float:
        """Seconds of history to have before the time shown."""
        return self._window

    @window.setter
    def window(self, seconds: float) -> None:
        if seconds != self._window:
            self._window = seconds
            self._do(self._jumped)

    def seek(self, at: float) -> None:
        """Show the last record at or before *at* (as the recording counts times)."""
        self._do(lambda: self._seek(at))

    def skip(self, seconds: float) -> None:
        """Seek relative to the time shown, and stay there."""
        self._do(lambda: self._skip(seconds))

    def step(self, by: int) -> None:
        """Show the next record (1) or the one before (-1), and stay there."""
        self._do(lambda: self._step(by))

    @property
    def at(self) -> float:
        """The time shown, as the recording counts it."""
        return self._cursor.at

    @property
    def position(self) -> int:
        """Number of the record shown, from 0 to ``recording.records`` - 1."""
        return self._cursor.number

    @property
    def is_at_end(self) -> bool:
        return self.position >= self.recording.records - 1

    def stop(self) -> None:
        """End; waits for nothing."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    # -- as a sampler

    @property
    def interval(self) -> float:
        """Seconds between records, as recorded: setting it changes nothing."""
        return self.latest.interval if self.latest is not None else 1.0

    @interval.setter
    def interval(self, seconds: float) -> None:
        pass

    def want(self, consumer: str, pids: Collection[int] | None, every: float = 1.0) -> None:
        """What is not in the recording cannot be had."""

    def refresh(self) -> None:
        self._do(self._publish)

    def details(self, key: ProcessKey) -> ProcessDetails | None:
        latest = self.latest
        facts = next((p.host for p in latest.processes if p.host and p.key == key), None) if latest else None
        if facts is None:
            return None
        return ProcessDetails(facts, problems=("a recording holds only what the table shows",))

    # -- the player's thread

    def _do(self, job: Callable[[], None]) -> None:
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()

    def run(self) -> None:
        due = time.monotonic()  # when the next record is to be shown
        while True:
            with self._changed:
                if not (self._jobs or self._stopped):
                    self._changed.wait(self._seconds_to_wait(due))
                jobs, self._jobs = self._jobs, []
                if self._stopped:
                    return
            if jobs:
                for job in jobs:
                    job()
                due = time.monotonic() + self._until_next()
                continue
            now = time.monotonic()
            if self._history_due is not None and now >= self._history_due:
                self._make_history()
                due += time.monotonic() - now
            elif self._playing and now >= due:
                due = self._play_on(due)

    def _seconds_to_wait(self, due: float) -> float | None:
        """Seconds until there is something to do."""
        ends = [due] if self._playing else []
        if self._history_due is not None:
            ends.append(self._history_due)
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _until_next(self) -> float:
        """Seconds at this speed from the record shown to the next one."""
        return self.interval / self._speed

    def _play_on(self, due: float) -> float:
        """Show the next record. Returns when the one after is due."""
        before = self._cursor.at
        if not self._cursor.step(1):
            self._playing = False
            self._publish()
            return due
        now = time.monotonic()
        publish = now - self._published >= _PUBLISH_SECONDS or self.is_at_end
        if publish:
            self._show()
        elif self._history_due is None:
            self.history.add(self._cursor.snapshot())
        passed = self._cursor.at - before
        if not 0 < passed <= _GAP_INTERVALS * self.interval:
            passed = self.interval
        due += passed / self._speed
        return due if due > now - _MOST_BEHIND_SECONDS else now

    def _show(self) -> None:
        """Publish the record at the cursor, and keep it in the history while that is right."""
        snapshot = self._cursor.snapshot()
        if self._history_due is None:
            self.history.add(snapshot)
        self.latest = snapshot
        self._publish()

    def _publish(self) -> None:
        self._published = time.monotonic()
        if self.latest is not None:
            self._bus.publish(SnapshotTaken(self.latest))

    def _set_playing(self, playing: bool) -> None:
        self._playing = playing
        self._publish()

    def _seek(self, at: float) -> None:
        self._cursor.seek(at)
        self._jumped()

    def _skip(self, seconds: float) -> None:
        self._playing = False
        self._seek(max(self.recording.first_at, self._cursor.at + seconds))

    def _step(self, by: int) -> None:
        self._playing = False
        if self._cursor.step(by):
            self._jumped(by < 0)

    def _jumped(self, far: bool = True) -> None:
        if far:
            self.jumps += 1
            self._history_due = time.monotonic() + _SETTLE_SECONDS
        self._show()

    def _make_history(self) -> None:
        """The curves up to the time shown: at first as far back as every sample is kept, then what is wanted besides.
        Left unfinished when something is asked for meanwhile."""
        end = self._cursor.at
        for window in sorted({min(self._window, SAMPLES * self.interval), self._window}):
            history = History()
            for snapshot in self.recording.snapshots(end - window, end):
                history.add(snapshot)
                if self._jobs or self._stopped:
                    return
            self.history.tracks = history.tracks
            self.jumps += 1
            self._history_due = None  # also where it does not reach back as far as it will: it is right up to now
            self._publish()
