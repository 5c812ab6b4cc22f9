"""Enter on a GPU: everything that is known about it, live."""

from __future__ import annotations

from collections.abc import Sequence

from gputop import units
from gputop.history.detail_history import DetailHistory
from gputop.history.history_until import HistoryUntil
from gputop.model import Gpu, Snapshot
from gputop.monitor import Monitor
from gputop.sampling.messages import LeaksReported, SnapshotTaken
from gputop.text import wrap
from gputop.ui.gpus.details_text import GpuText
from gputop.ui.monitor_screen import MonitorScreen
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.frame import Hint
from gputop.ui.toolkit.scrolling_page import Part, ScrollingPage


class GpuScreen(MonitorScreen, ScrollingPage[None]):
    """Details of the GPU *uuid*: as it is now, or as it was in *then*."""

    shows = (SnapshotTaken, LeaksReported)

    def __init__(self, monitor: Monitor, uuid: str, then: Snapshot | None = None) -> None:
        super().__init__(monitor)
        self.uuid, self._then = uuid, then
        self._snapshot: Snapshot | None = None
        self._gpu: Gpu | None = None
        if then is None:
            self._history, self._past = monitor.history, monitor.detail_history
        else:
            self._history, self._past = HistoryUntil(monitor.history, then.taken_at), DetailHistory()
            self._past.add(then)
        self._take_in()

    def look(self) -> None:
        self._take_in()
        self.draw()

    def _take_in(self) -> None:
        self._snapshot = self._then or self.monitor.latest
        if self._snapshot is not None:
            self._gpu = self._snapshot.gpu(self.uuid) or self._gpu

    # ------------------------------------------------------------------ drawing

    def heading(self) -> tuple[str, str]:
        if self._gpu is None or self._snapshot is None:
            return f"GPU {self.uuid}", ""
        when = units.clock(self._gpu.read_at)
        return f"GPU {self._gpu.index} · {self._gpu.name}", f"as it was at {when}" if self._then else when

    def before(self, cells: int) -> Sequence[Line]:
        gpu, snapshot = self._gpu, self._snapshot
        if gpu is None or snapshot is None:
            return [(("This GPU has not been read yet.", "dim"),)]
        said: list[tuple[str, str]] = []
        if snapshot.gpu(self.uuid) is None:
            said.append(("The driver does not list this GPU any more; these were its last values.", "critical"))
        if gpu.error is not None:
            said.append((gpu.error, "critical"))
        if gpu.late:
            age = max(0.0, snapshot.steady_at - gpu.steady_at)
            said.append((f"Stale for {age:.0f} s: a driver call for it takes too long.", "warning"))
        if gpu.asleep:
            said.append(("Asleep, and left asleep: reading it would wake it.", "dim"))
        if gpu.facts.recovery_action:
            said.append((f"The driver asks for: {gpu.facts.recovery_action}", "critical"))
        said += [(note, "warning") for note in gpu.notes]
        sign = self.view.glyphs.warning
        lines: list[Line] = [
            ((f"{sign} " if not n else "  ", f"{style}+b"), (part, style))
            for words, style in said
            for n, part in enumerate(wrap(words, cells - 2))
        ]
        return [*lines, ()] if lines else ()

    def hints(self) -> Sequence[Hint]:
        return (("Esc q", "back"),)

    def parts(self, cells: int) -> Sequence[Part]:
        gpu = self._gpu
        if gpu is None:
            return ()
        return GpuText(gpu, self._snapshot, self._history, self._past, self.view, cells, self.monitor.report).parts()
