"""w: why this GPU is full. The same page as ``gputop why``, live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gputop import units
from gputop.model import ProcessKey, Snapshot
from gputop.monitor import Monitor
from gputop.sampling.messages import SnapshotTaken
from gputop.text import wrap
from gputop.ui.monitor_screen import MonitorScreen
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.frame import Hint
from gputop.ui.toolkit.scrolling_page import Part, ScrollingPage
from gputop.why.diagnosis import ObservedTrend, diagnose, headline

_LOOK_SECONDS: Final = 0.95  # between diagnoses: they cost more than a picture of the figures


class WhyScreen(MonitorScreen, ScrollingPage[None]):
    """The diagnosis of the GPU *uuid*: as it is now, or as it was in *then*."""

    closing_keys = ("escape", "q", "f10", "w")
    shows = (SnapshotTaken,)

    def __init__(self, monitor: Monitor, uuid: str, then: Snapshot | None = None) -> None:
        super().__init__(monitor)
        self.uuid, self._then = uuid, then
        self._began = self._snapshot = self._newest()

    def _newest(self) -> Snapshot | None:
        latest = self.monitor.latest
        return self._then or (None if latest is None else self.monitor.chosen(latest))

    def look(self) -> None:
        old, latest = self._snapshot, self.monitor.latest
        if self._then is not None:
            return
        if old is not None and latest is not None and 0 <= latest.taken_at - old.taken_at < _LOOK_SECONDS:
            return
        self._snapshot = self._newest()
        self._began = self._began or self._snapshot
        self.draw()

    def heading(self) -> tuple[str, str]:
        snapshot = self._snapshot
        gpu = snapshot.gpu(self.uuid) if snapshot is not None else None
        if snapshot is None or gpu is None:
            return "Why", ""
        return f"Why: {headline(snapshot, gpu)}", units.clock(snapshot.taken_at)

    def hints(self) -> Sequence[Hint]:
        return (("Esc q", "back"),)

    def parts(self, cells: int) -> Sequence[Part]:
        snapshot = self._snapshot
        gpu = snapshot.gpu(self.uuid) if snapshot is not None else None
        if snapshot is None or gpu is None:
            return [Part("Why", [(("This GPU has not been read yet.", "dim"),)])]
        sections = diagnose(snapshot, gpu, self.monitor.report, self._trend(snapshot))
        return [
            Part(f"{n}. {section.title}", [part for line in section.lines for part in _lines(line, cells)])
            for n, section in enumerate(sections, 1)
        ]

    def _trend(self, snapshot: Snapshot) -> ObservedTrend:
        track = self.monitor.history.track(self.uuid)
        began = self._began or snapshot
        seconds = snapshot.taken_at - began.taken_at
        before, now = _sizes(began, self.uuid), _sizes(snapshot, self.uuid)
        grown = {key: bytes_ - before[key] for key, bytes_ in now.items() if key in before}
        if track is None:
            return ObservedTrend(None, None, grown, seconds)
        return ObservedTrend(track.trend.bytes_per_second, track.trend.seconds_to_full, grown, seconds)


def _sizes(snapshot: Snapshot, uuid: str) -> dict[ProcessKey, int]:
    return {p.key: p.memory_bytes for p in snapshot.processes if p.gpu_uuid == uuid and p.memory_bytes is not None}


def _lines(line: str, cells: int) -> list[Line]:
    """Commands and code stand out, and are left whole where they fit."""
    if line.startswith(("$ ", "> ")):
        return [((part, "accent"),) for part in wrap(f"  {line[2:]}", cells)]
    return [((part, "text"),) for part in wrap(line, cells)]
