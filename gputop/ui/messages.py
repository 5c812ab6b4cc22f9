"""What the bus says, as messages of Textual's."""

from __future__ import annotations

from textual.message import Message

from gputop.leaks.report import LeakReport
from gputop.model import Snapshot


class SnapshotArrived(Message):
    """A new snapshot; a newer one in the queue replaces it."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, SnapshotArrived)


class ReportArrived(Message):
    """The leak watch found something new; a newer report in the queue replaces it."""

    def __init__(self, report: LeakReport) -> None:
        super().__init__()
        self.report = report

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, ReportArrived)


class GpuEvent(Message):
    """A GPU was lost, or is back: said in a toast."""

    def __init__(self, words: str, bad: bool) -> None:
        super().__init__()
        self.words, self.bad = words, bad
