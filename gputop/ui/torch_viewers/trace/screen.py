"""The viewer of profiler traces and memory timelines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from gputop.model import clean_text
from gputop.text import fit, width
from gputop.torch_files.trace.memory_timeline import MemoryTimeline
from gputop.torch_files.trace.profiler_file import UnreadableTrace
from gputop.torch_files.trace.profiler_trace import open_profile
from gputop.ui.toolkit.background import in_background
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.frame import Hint
from gputop.ui.toolkit.view import View
from gputop.ui.torch_viewers.pane import Pane
from gputop.ui.torch_viewers.screen import ViewerScreen
from gputop.ui.torch_viewers.trace.memory import TraceMemoryPane
from gputop.ui.torch_viewers.trace.ops import OpsPane
from gputop.ui.torch_viewers.trace.overview import TraceOverviewPane
from gputop.ui.torch_viewers.trace.state import Peaks, TraceState
from gputop.ui.torch_viewers.trace.timeline_panes import CategoriesPane
from gputop.units.fine import size

Opened = Peaks | MemoryTimeline


class TorchTraceScreen(ViewerScreen[Opened]):
    """Views of the file at *path*."""

    PROGRAM: ClassVar[str] = "gputop torch-trace"

    def __init__(self, path: Path, view: View) -> None:
        super().__init__(view)
        self.state: TraceState | None = None  # once a trace is read
        self._path = path
        self._facts = ""

    # -- reading

    def read(self) -> tuple[Opened | None, list[str]]:
        try:
            return self._read(), []
        except UnreadableTrace as error:
            return None, [f"{clean_text(str(self._path), 500)}: {error}"]

    def _read(self) -> Opened:
        name = clean_text(self._path.name, 80)
        profile = open_profile(self._path, lambda share: self._tell(f"reading {name}", 0.75 * share))
        if isinstance(profile, MemoryTimeline):
            return profile
        self._tell(f"adding up {name}", 0.75)
        return Peaks(profile)

    def _tell(self, words: str, share: float) -> None:
        if not self.is_running:
            raise UnreadableTrace("given up")  # the screen was closed
        self.progress(words, share)

    def take_in(self, found: Opened) -> Sequence[Pane]:
        if isinstance(found, MemoryTimeline):
            self._facts, self.filters = f"{len(found):,} moments", False
            return [CategoriesPane(found, self.view)]
        self._facts = f"{found.trace.events.seen:,} events"
        self.state = TraceState(found, self.view, self._in_background)
        return [TraceOverviewPane(self.state), TraceMemoryPane(self.state), OpsPane(self.state)]

    def _in_background(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        def done(value: Any) -> None:
            if isinstance(value, UnreadableTrace):
                self.problems.append(str(value))
                value = []
            then(value)
            self.draw()

        def or_error() -> Any:
            try:
                return work()
            except UnreadableTrace as error:
                return error

        in_background(self, or_error, done)

    # -- drawing

    def heading(self, cells: int) -> Line:
        dot = f" {self.view.glyphs.bullet} "
        right: list[Span] = []
        if self.state is not None and self.state.curve is not None:
            curve = self.state.curve
            of = f" of {len(self.state.trace.curves)}" if len(self.state.trace.curves) > 1 else ""
            right.append((f" {curve.device}{of}, peak {size(curve.peak.allocated)} ", "g0+br"))
        if self.filter_text:
            right.insert(0, (f" filter: {clean_text(self.filter_text, 60)} ", "warning+br"))
        left = f" {clean_text(self._path.name, 200)}{dot}{self._facts}"
        taken = sum(width(text) for text, _ in right)
        return ((fit(left, max(0, cells - taken)), "title+b@bar"), *right)

    def hints(self) -> Sequence[Hint]:
        return (("g", "device"),) if self.state is not None and len(self.state.trace.curves) > 1 else ()

    def keys(self) -> Sequence[tuple[str, str]]:
        curve = (
            ("← → , .", "memory: move the cursor by a column, by one event"),
            ("↑ ↓ + - z", "memory: zoom in, out, show all"),
            ("p", "memory: go to the peak"),
        )
        if self.state is None:
            return curve
        return (
            ("o m t", "overview, memory over time, table of ops"),
            ("/ F3", "filter ops by name, shape and stack"),
            ("g", "next device"),
            *curve,
            ("s S F6", "ops: sort by the next, the previous column"),
            ("h", "ops: a row for each input shape"),
            ("k", "ops: a row for each of your functions that called it; for each stack of 5 frames"),
            ("y", "ops: show Python functions as rows too"),
        )

    def about(self) -> str:
        if self.state is None:
            return "Categories are torch's guesses. M and G are binary."
        return (
            "Memory in the table is net: allocated minus freed while the op ran, by itself or with what it called. MEM "
            "is as in torch's key_averages(), which counts what every thread did meanwhile; THREAD is what its own "
            "thread did. M and G are binary."
        )

    # -- keys

    @property
    def filter_text(self) -> str:
        return "" if self.state is None else self.state.filter

    def set_filter(self, text: str) -> str | None:
        if self.state is not None:
            self.state.filter = text
        return None

    def key_pressed(self, key: str) -> bool:
        if key != "g" or self.state is None:
            return False
        self.state.next_device()
        return True
