"""w: why this GPU is full. The same page as ``gputop why``, live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gputop import units
from gputop.leaks.report import LeakReport
from gputop.model import ProcessKey, Snapshot
from gputop.sampling.history import History
from gputop.text import wrap
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.frame import Hint
from gputop.ui.toolkit.scrolling_page import Part, ScrollingPage
from gputop.ui.toolkit.view import View
from gputop.why.diagnosis import ObservedTrend, diagnose, headline

_LOOK: Final = 1.0  # seconds


class WhyScreen(ScrollingPage[None]):
    """The diagnosis of the GPU *uuid*. *report_of* gives what is known of leaks."""

    closing_keys = ("escape", "q", "f10", "w")

    def __init__(
        self,
        uuid: str,
        snapshot_of: Callable[[], Snapshot | None],
        report_of: Callable[[], LeakReport],
        history: History,
        view: View,
    ) -> None:
        super().__init__(view)
        self.uuid = uuid
        self._snapshot_of, self._report_of, self._history = snapshot_of, report_of, history
        self._began: Snapshot | None = None
        self._snapshot: Snapshot | None = None

    def on_mount(self) -> None:
        self.look()
        super().on_mount()
        self.set_interval(_LOOK, self.look)

    def look(self) -> None:
        """Take in the newest snapshot, if it is a new one."""
        snapshot = self._snapshot_of()
        if snapshot is not None and snapshot is not self._snapshot:
            self._began, self._snapshot = self._began or snapshot, snapshot
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
        sections = diagnose(snapshot, gpu, self._report_of(), self._trend(snapshot))
        return [
            Part(f"{n}. {section.title}", [part for line in section.lines for part in _lines(line, cells)])
            for n, section in enumerate(sections, 1)
        ]

    def _trend(self, snapshot: Snapshot) -> ObservedTrend:
        track = self._history.track(self.uuid)
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
