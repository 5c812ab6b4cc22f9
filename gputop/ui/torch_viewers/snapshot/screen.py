"""The viewer of memory snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from gputop.model import clean_text
from gputop.text import fit, width
from gputop.torch_files.snapshot.groups import TERMS
from gputop.torch_files.snapshot.memory_snapshot import MemorySnapshot, UnreadableFile, open_snapshot
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.frame import Hint
from gputop.ui.toolkit.view import View
from gputop.ui.torch_viewers.screen import ViewerScreen
from gputop.ui.torch_viewers.snapshot.allocations import AllocationsPane
from gputop.ui.torch_viewers.snapshot.lists import DiffPane, LeaksPane, OomPane, SegmentsPane
from gputop.ui.torch_viewers.snapshot.overview import OverviewPane
from gputop.ui.torch_viewers.snapshot.pane import SnapshotPane
from gputop.ui.torch_viewers.snapshot.state import TorchState
from gputop.ui.torch_viewers.snapshot.timeline import TimelinePane
from gputop.units.fine import size

_PANES: Final = (OverviewPane, TimelinePane, AllocationsPane, LeaksPane, SegmentsPane, OomPane, DiffPane)
_PARTS: Final = {"reading": (0.0, 0.5), "sorting": (0.5, 0.25), "replaying": (0.75, 0.25)}  # of the progress


class TorchSnapshotScreen(ViewerScreen[list[MemorySnapshot]]):
    """Views of the snapshots in *paths*."""

    PROGRAM: ClassVar[str] = "gputop torch-snapshot"

    def __init__(self, paths: Sequence[Path], view: View, device: int | None = None, filter_text: str = "") -> None:
        super().__init__(view)
        self.state: TorchState | None = None  # once the files are read
        self._paths, self._device, self._filter = list(paths), device, filter_text

    # -- reading

    def read(self) -> tuple[list[MemorySnapshot] | None, list[str]]:
        """The files are read in children of their own, one after the other."""
        found: list[MemorySnapshot] = []
        problems: list[str] = []
        for n, path in enumerate(self._paths):
            try:
                found.append(open_snapshot(path, lambda what, share, n=n: self._tell(n, what, share)))  # type: ignore[misc]
            except UnreadableFile as error:
                problems.append(f"{clean_text(str(path), 500)}: {error}")
        for snapshot in found:
            for device in snapshot.devices:
                _ = device.peak
        return found or None, problems

    def _tell(self, n: int, what: str, share: float) -> None:
        if not self.is_running:
            raise UnreadableFile("given up")  # the screen was closed: the child ends
        start, length = _PARTS.get(what, (0.0, 1.0))
        words = f"{what} {clean_text(self._paths[n].name, 80)}"
        self.progress(words, (n + start + length * share) / len(self._paths))

    def take_in(self, found: list[MemorySnapshot]) -> Sequence[SnapshotPane]:
        self.state = state = TorchState(found, self.view)
        if self._device is not None:
            state.next_device(self._device)
        state.set_filter(self._filter)
        state.file = len(found) - 1  # the newest one; the first is what it is compared with
        return [make(state) for make in _PANES]

    @property
    def _open(self) -> TorchState:
        assert self.state is not None
        return self.state

    # -- drawing

    def nothing(self) -> str | None:
        if self._open.device is not None:
            return None
        return "The file has no segments and no trace: CUDA was not used, or another allocator was."

    def heading(self, cells: int) -> Line:
        state = self._open
        snapshot = state.snapshot
        dot = f" {self.view.glyphs.bullet} "
        left = f" {clean_text(snapshot.name, 200)}"
        if len(state.snapshots) > 1:
            left += f" ({state.file + 1} of {len(state.snapshots)})"
        facts = [size(snapshot.file_bytes), f"{snapshot.entries:,} trace entries"]
        device = state.device
        label = device.label if device is not None else "no device"
        if len(snapshot.devices) > 1:
            label += f" of {len(snapshot.devices)}"
        right: list[Span] = [(f" {label} ", "g0+br")]
        if state.filter:
            right.insert(0, (f" filter: {clean_text(state.filter.text, 60)} ", "warning+br"))
        taken = sum(width(text) for text, _ in right)
        return ((fit(dot.join((left, *facts)), max(0, cells - taken)), "title+b@bar"), *right)

    def hints(self) -> Sequence[Hint]:
        state = self._open
        several = (("g", "device"),) if len(state.snapshot.devices) > 1 else ()
        return (*several, ("r", "file")) if len(state.snapshots) > 1 else several

    def keys(self) -> Sequence[tuple[str, str]]:
        return (
            ("o t a l s m d", "overview, timeline, allocations, leaks, segments, OOM, diff"),
            ("/ F3", "filter allocations, in every view:"),
            *((f"    {term}", words) for term, words in TERMS),
            ("g", "next device"),
            ("r", "next file"),
            ("w", "allocations: now, at the peak, at the timeline's cursor; diff: dumps, peaks"),
            ("v", "allocations as table, tree, flame graph, single blocks with address and lifetime"),
            ("f", "only your frames, or torch's and C++ ones too"),
            ("← → , .", "timeline: move the cursor by a column, by an entry"),
            ("↑ ↓ + - z", "timeline: zoom in, out, show all"),
            ("p n", "timeline: go to the peak, to the next OOM"),
        )

    def about(self) -> str:
        return (
            "Bytes are what the program requested, as a trace records them (memory_stats: requested_bytes), unless a "
            "column says otherwise; reserved is what torch took from the driver. M and G are binary."
        )

    # -- keys

    @property
    def filter_text(self) -> str:
        return self._open.filter.text

    def set_filter(self, text: str) -> str | None:
        return self._open.set_filter(text)

    def key_pressed(self, key: str) -> bool:
        state = self._open
        match key:
            case "enter" if isinstance(self.pane, OomPane) and state.device is not None and state.device.ooms:
                self.show_pane(next(pane for pane in self.panes if isinstance(pane, TimelinePane)))
            case "g":
                state.next_device()
            case "r":
                state.next_file()
            case _:
                return False
        return True
