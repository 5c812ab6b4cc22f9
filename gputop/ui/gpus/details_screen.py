"""Enter on a GPU: everything that is known about it, live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gputop import units
from gputop.leaks.report import LeakReport
from gputop.model import Gpu, Snapshot
from gputop.sampling.detail_history import DetailHistory
from gputop.sampling.history import History
from gputop.text import wrap
from gputop.ui.gpus.details_text import GpuText
from gputop.ui.insight import Insight
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.frame import Hint
from gputop.ui.toolkit.scrolling_page import Part, ScrollingPage
from gputop.ui.toolkit.view import View

_LOOK: Final = 0.2  # seconds


class GpuScreen(ScrollingPage[None]):
    """Details of the GPU *uuid*. *snapshot_of* gives the newest snapshot, *history* the curves.

    *past* is what the application has kept of event reasons; without it their timeline begins now. *insight* knows
    where the bytes are. *then*: the snapshot is an earlier one.
    """

    def __init__(
        self,
        uuid: str,
        snapshot_of: Callable[[], Snapshot | None],
        history: History,
        view: View,
        past: DetailHistory | None = None,
        insight: Insight | None = None,
        then: bool = False,
    ) -> None:
        super().__init__(view)
        self.uuid, self._then = uuid, then
        self._snapshot_of, self._history = snapshot_of, history
        self._insight = insight
        self._past, self._own_past = past or DetailHistory(), past is None
        self._snapshot: Snapshot | None = None
        self._gpu: Gpu | None = None

    def on_mount(self) -> None:
        self.look()
        super().on_mount()
        self.set_interval(_LOOK, self.look)

    def look(self) -> None:
        """Take in the newest snapshot, if it is a new one."""
        snapshot = self._snapshot_of()
        if snapshot is None or snapshot is self._snapshot:
            return
        self._snapshot = snapshot
        if self._own_past:
            self._past.add(snapshot)
        self._gpu = snapshot.gpu(self.uuid) or self._gpu
        self.draw()

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
            age = max(0.0, snapshot.taken_at - gpu.read_at)
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
        return GpuText(gpu, self._snapshot, self._history, self._past, self.view, cells, self._report()).parts()

    def _report(self) -> LeakReport | None:
        return None if self._insight is None else self._insight.report

    def show_report(self, report: LeakReport) -> None:
        self.draw()
