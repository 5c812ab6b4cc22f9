"""Which moment the dashboard shows, and going to another one: of its own past, or of a recording."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final, Protocol

from gputop import units
from gputop.history.gpu_history import History
from gputop.history.history_until import HistoryUntil
from gputop.model import Snapshot
from gputop.sampling.bus import Bus
from gputop.sampling.messages import SnapshotTaken
from gputop.sampling.sampler import Sampler

if TYPE_CHECKING:
    from gputop.recording.tape import Tape
    from gputop.sampling.player import Player

TAPE_SECONDS: Final = 0.95  # between readings kept
NO_ANSWER_YET: Final = (
    "the driver has not answered yet; without persistence mode it takes seconds for each GPU to start, "
    "and a hung one never answers: see `dmesg`"
)


class ShownTime(Protocol):
    """Moves are by readings or by seconds, forward or (negative) back."""

    @property
    def snapshot(self) -> Snapshot:
        """The moment shown; before the first reading, one that says so."""
        ...

    @property
    def past(self) -> Snapshot | None:
        """The earlier moment that is shown while the present goes on; None where the newest is shown."""
        ...

    @property
    def history(self) -> History:
        """What there was up to that moment."""
        ...

    @property
    def jumps(self) -> int:
        """Counts up where the history is of another time than before."""
        ...

    @property
    def is_frozen(self) -> bool:
        """What is shown stays as it is, whatever comes."""
        ...

    def pause(self) -> None:
        """Stay at this moment, or go on."""
        ...

    def step(self, readings: int) -> bool:
        """Whether there was somewhere to go."""
        ...

    def skip(self, seconds: float) -> bool:
        """Whether there was somewhere to go."""
        ...

    def end(self) -> None:
        """To the newest."""
        ...

    def badge(self, with_day: bool) -> tuple[str, ...]:
        """What is out of the ordinary about the moment, for the header."""
        ...


class LiveTime:
    """The present; and its past, a reading a second, kept on a tape of a fixed size (:mod:`gputop.recording.tape`)."""

    jumps = 0

    def __init__(self, sampler: Sampler, bus: Bus) -> None:
        self.past: Snapshot | None = None
        self._sampler = sampler
        self._frozen: Snapshot | None = None
        self._tape: Tape | None = None
        self._first: Snapshot | None = None
        self._kept_at = 0.0
        bus.subscribe(SnapshotTaken, lambda message: self.add(message.snapshot))

    def add(self, snapshot: Snapshot) -> None:
        """Keep the newest snapshot, one a second at the most: a reading costs a third of a millisecond and more."""
        if not snapshot.gpus or 0 <= snapshot.taken_at - self._kept_at < TAPE_SECONDS:
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
    def snapshot(self) -> Snapshot:
        found = self.past or self._frozen or self._sampler.latest
        return found or Snapshot(time.time(), problems=(NO_ANSWER_YET,), interval=self._sampler.interval)

    @property
    def history(self) -> History:
        history = self._sampler.history
        return history if self.past is None else HistoryUntil(history, self.past.taken_at)

    @property
    def is_frozen(self) -> bool:
        return self._frozen is not None

    def pause(self) -> None:
        self._frozen = None if self.is_frozen else self._sampler.latest

    def step(self, readings: int) -> bool:
        """On from the last one is the present."""
        times = self._times()
        if readings > 0:
            if self.past is not None:
                self._look_at(times, bisect_right(times, self.past.taken_at))
            return True
        place = len(times) - 2 if self.past is None else bisect_left(times, self.past.taken_at) - 1
        if place < 0:
            return False
        self._look_at(times, place)
        return True

    def skip(self, seconds: float) -> bool:
        times = self._times()
        if not times or (self.past is None and seconds > 0):
            return seconds > 0
        at = times[-1] if self.past is None else self.past.taken_at
        if seconds < 0:
            place = max(0, bisect_right(times, at + seconds) - 1)
            moved = times[place] < at
        else:
            place, moved = bisect_left(times, at + seconds), True
        if moved:
            self._look_at(times, place)
        return moved

    def end(self) -> None:
        self.past = self._frozen = None

    def badge(self, with_day: bool) -> tuple[str, ...]:
        latest = self._sampler.latest
        if self.past is None or latest is None:
            return ("PAUSED",) if self.is_frozen else ()
        return units.clock(self.past.taken_at), f"{units.duration(latest.taken_at - self.past.taken_at)} ago, End: live"

    def _times(self) -> list[float]:
        return [] if self._tape is None else self._tape.times()

    def _look_at(self, times: list[float], place: int) -> None:
        """The reading at *place*; the newest one and beyond is the present."""
        if self._tape is not None and place < len(times) - 1:
            self.past = self._tape.snapshot(times[place])
        else:
            self.end()


class RecordedTime:
    """The time of a recording: *player* does what is asked in its own thread, and publishes where it has come to."""

    past = None
    is_frozen = False

    def __init__(self, player: Player) -> None:
        self.player = player

    @property
    def snapshot(self) -> Snapshot:
        return self.player.latest or Snapshot(self.player.at)

    @property
    def history(self) -> History:
        return self.player.history

    @property
    def jumps(self) -> int:
        return self.player.jumps

    def pause(self) -> None:
        self.player.playing = not self.player.playing

    def step(self, readings: int) -> bool:
        self.player.step(readings)
        return True

    def skip(self, seconds: float) -> bool:
        self.player.skip(seconds)
        return True

    def end(self) -> None:
        self.player.seek(self.player.recording.last_at)

    def badge(self, with_day: bool) -> tuple[str, ...]:
        player = self.player
        at = self.snapshot.taken_at
        when = units.timestamp(at) if with_day else units.clock(at)
        share = 100 * (player.position + 1) // max(1, player.recording.records)
        speed = f"{player.speed:g}×" if player.playing else "paused"
        return f"REPLAY {when}", speed, "end" if player.is_at_end else f"{share}%"
