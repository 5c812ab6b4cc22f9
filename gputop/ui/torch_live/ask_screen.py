"""T on a process that uses gputop.torch_monitor: ask it for a memory snapshot, or to record history."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from textual import events

from gputop.model import GpuProcess, TorchAnswer
from gputop.monitor import Monitor
from gputop.sampling.messages import SnapshotTaken
from gputop.text import fit, wrap
from gputop.torch_monitor import reports
from gputop.ui.monitor_screen import MonitorScreen
from gputop.ui.toolkit.background import in_background
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.dialog import Dialog
from gputop.ui.toolkit.frame import Hint

_CLOCK_SECONDS: Final = 1.0  # it counts the seconds
_SLOW_SECONDS: Final = 10.0  # seconds without an answer after which it is said what that may mean


class _Choice(NamedTuple):
    label: str
    description: str
    action: str  # empty: close


class TorchAskScreen(MonitorScreen, Dialog[Path | None]):
    """Nothing is asked before Enter on a line; the first line is Cancel. Gives the path of the snapshot, once written.

    The request is a file in the runtime directory of the process's user; no signal is sent. It is obeyed in the
    process's next ``monitor.step()``.
    """

    shows = (SnapshotTaken,)

    def __init__(self, monitor: Monitor, process: GpuProcess) -> None:
        super().__init__(monitor)
        self._process = process
        recording = process.torch is not None and process.torch.recording
        stop = _Choice("Stop recording", "torch stops recording allocations", "stop")
        record = _Choice("Start recording", "allocations and their lines of code from now on; a few µs each", "record")
        with_lines = "with lines of code" if recording else "sizes only, nothing is recorded yet"
        self._choices = (
            _Choice("Cancel", "", ""),
            _Choice("Write a snapshot", f"{with_lines}; takes a few seconds", "dump"),
            stop if recording else record,
        )
        self._at = 0
        self._id: str | None = None
        self._asked_at = 0.0
        self._message = ""
        self._done = False

    def on_mount(self) -> None:
        self.set_interval(_CLOCK_SECONDS, self.draw)

    def heading(self) -> str:
        return "PyTorch memory of a process"

    def hints(self) -> Sequence[Hint]:
        return (("Esc", "close"),) if self._id or self._done else (("Enter", "do it"), ("Esc", "cancel"))

    def needs(self) -> tuple[int, int]:
        return 40, len(self._lines(40))

    def content(self, cells: int, rows: int) -> Sequence[Line]:
        return self._lines(cells)[:rows]

    def _lines(self, cells: int) -> list[Line]:
        process = self._process
        host = process.host
        who = f"{process.pid} {host.user if host else ''}".rstrip()
        lines: list[Line] = [((who, "title+b"),)]
        if host is not None and host.command:
            lines.append(((fit(host.command, cells), "text"),))
        lines.append(())
        if self._message:
            lines += [((part, "title"),) for part in wrap(self._message, cells)]
        if self._id is None and not self._done:
            for n, choice in enumerate(self._choices):
                here = n == self._at
                text = fit(f" {choice.label:<17} {choice.description}", cells)
                lines.append(((text, "title+b@cursor" if here else "text"),))
        elif not self._done:
            waited = time.monotonic() - self._asked_at
            lines.append(((f"asked {waited:.0f} s ago; it answers at its next step()", "dim"),))
            if waited > _SLOW_SECONDS:
                words = "No answer yet: a slow step or dump, or it no longer calls monitor.step(). Esc stops waiting."
                lines += [((part, "warning"),) for part in wrap(words, cells)]
        return lines

    def clicked(self, row: int, column: int) -> None:
        first = len(self.content(self.most_cells - 4, 50)) - len(self._choices)
        if self._id is None and not self._done and 0 <= row - first < len(self._choices):
            self._at = row - first
            self.draw()

    def on_key(self, event: events.Key) -> None:
        event.stop()
        if event.key in ("escape", "q"):
            self.dismiss(None)
            return
        if self._id is not None or self._done:
            if self._done and event.key == "enter":
                self.dismiss(None)
            return
        if event.key in ("down", "tab"):
            self._at = (self._at + 1) % len(self._choices)
        elif event.key in ("up", "shift+tab"):
            self._at = (self._at - 1) % len(self._choices)
        elif event.key == "enter":
            self._do(self._choices[self._at])
            return
        self.draw()

    def _do(self, choice: _Choice) -> None:
        process = self._process
        if not choice.action or process.host is None or process.host.uid is None:
            self.dismiss(None)
            return
        try:
            self._id = reports.ask(process.key, process.host.uid, choice.action)
            self._asked_at = time.monotonic()
        except OSError as error:
            self._message, self._done = f"Cannot ask it: {error.strerror or error}", True
        self.draw()

    def look(self) -> None:
        if self._id is None or self._done:
            return
        snapshot = self.monitor.latest
        rows = [row for row in snapshot.processes if row.key == self._process.key] if snapshot is not None else []
        if not rows:
            self._message, self._done = "The process is gone.", True
        for row in rows:
            for answer in row.torch.answers if row.torch is not None else ():
                if answer.id == self._id:
                    self._answered(answer)
                    return
        self.draw()

    def _answered(self, answer: TorchAnswer) -> None:
        self._message, self._done = answer.message, True
        if answer.path is not None and self._process.host is not None:
            path, uid = Path(answer.path), self._process.host.uid
            in_background(self, lambda: is_file_of(path, uid), lambda fine: self._looked_at(path, fine))
        self.draw()

    def _looked_at(self, path: Path, fine: bool) -> None:
        if fine:
            self.dismiss(path)
            return
        self._message += (
            " It cannot be opened from here: not a regular file of the process's user (inside a container?)."
        )
        self.draw()


def is_file_of(path: Path, uid: int | None) -> bool:
    """Whether *path*, which another process named, is a plain file of that process's user: no pipe, no device."""
    try:
        facts = os.lstat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(facts.st_mode) and facts.st_uid == uid
