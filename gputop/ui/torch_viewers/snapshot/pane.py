"""What the views of a memory snapshot have in common: the device that is looked at, and stacks."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.text import fit, width
from gputop.torch_files.snapshot.frames import Frame
from gputop.torch_files.snapshot.memory_snapshot import DeviceSnapshot
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.torch_viewers.pane import Pane
from gputop.ui.torch_viewers.snapshot.state import TorchState

NO_TRACE = "The snapshot has no trace: torch.cuda.memory._record_memory_history() was not called before it was taken."


class SnapshotPane(Pane):
    """A view of the device that *state* is about."""

    def __init__(self, state: TorchState) -> None:
        super().__init__(state.view)
        self.state = state

    @property
    def device(self) -> DeviceSnapshot:
        device = self.state.device
        assert device is not None
        return device


def stack_lines(frames: Sequence[Frame], cells: int, rows: int, title: str = "") -> list[Line]:
    """A stack, the innermost frame first; the directories of a file give way to its name."""
    found: list[Line] = [((title, "dim"),)] if title else []
    if not frames:
        return [*found, (("no frames: allocated before recording began, or without a context", "dim"),)]
    room = max(1, rows - len(found))
    shown = frames[:room] if len(frames) <= room else frames[: room - 1]
    for n, frame in enumerate(shown):
        where = f"{frame.filename}:{frame.line}" if frame.line else frame.filename
        file = where[len(frame.filename) - len(frame.file) :]
        path = where[: len(where) - len(file)]
        name = fit(frame.name, min(width(frame.name), max(8, cells // 2)))
        left = cells - width(name) - width(file) - 4
        if width(path) > left:
            path = "…" + path[len(path) - max(0, left - 1) :] if left > 1 else ""
        spans: tuple[Span, ...] = (
            (name, "title" if not n else "text"),
            ("  ", "text"),
            (path, "dim"),
            (file, "accent"),
        )
        found.append(spans)
    if len(shown) < len(frames):
        found.append(((f"… and {len(frames) - len(shown)} more frames further out", "dim"),))
    return found
