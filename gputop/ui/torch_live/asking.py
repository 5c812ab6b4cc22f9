"""Ask a process for a memory snapshot, and open the viewer on it once it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from textual.screen import Screen

from gputop.model import GpuProcess
from gputop.monitor import Monitor


def ask_process(screen: Screen[Any], monitor: Monitor, process: GpuProcess | None) -> None:
    """The dialog over *screen*, then the viewer; or a sentence that says why *process* cannot be asked."""
    if monitor.signals is None:
        message = "gputop runs with --read-only: it makes no requests to processes."
        screen.notify(message, severity="warning", markup=False)
        return
    if process is None or process.torch is None:
        message = "This process does not use gputop.torch_monitor (two lines in its script: press w to see them)."
        screen.notify(message if process is not None else "No process is at the cursor.", markup=False)
        return
    from gputop.ui.torch_live.ask_screen import TorchAskScreen

    dialog = TorchAskScreen(monitor, process)

    def written(path: Path | None) -> None:
        if path is not None:
            from gputop.ui.torch_viewers.snapshot.screen import TorchSnapshotScreen

            screen.app.push_screen(TorchSnapshotScreen([path], dialog.view))

    screen.app.push_screen(dialog, written)
