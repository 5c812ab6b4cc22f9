"""Ask a process for a memory snapshot, and open the viewer on it once it is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual.app import App

from gputop.model import GpuProcess, Snapshot
from gputop.ui.toolkit.view import View


def ask_process(app: App[Any], process: GpuProcess, snapshot_of: Callable[[], Snapshot | None], view: View) -> None:
    """The dialog, then the viewer."""
    from gputop.ui.torch_live.ask_screen import TorchAskScreen

    def written(path: Path | None) -> None:
        if path is not None:
            from gputop.ui.torch_viewers.snapshot.screen import TorchSnapshotScreen

            app.push_screen(TorchSnapshotScreen([path], view))

    app.push_screen(TorchAskScreen(process, snapshot_of, view), written)
