"""Watches for leaks: fed with snapshots, thinks in a thread of its own, answers with reports.

How it is used::

    watch = LeakWatch(machine.investigator, settings, on_report=lambda report: bus.publish(LeaksReported(report)))
    watch.start()
    poller.want("leaks", None)          # host facts of all processes, not only of the rows in sight
    bus.subscribe(SnapshotTaken, lambda message: watch.observe(message.snapshot), every=True)
    watch.latest                        # the newest LeakReport, never None
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from gputop.model import Snapshot
from gputop.processes.report import Investigator, LeakReport
from gputop.settings import Settings


class LeakWatch(threading.Thread):
    """Reads owners of new processes at once, the rules' facts every few seconds, open files of all processes only
    where there is a ghost or a gap, or on demand. Never blocks its callers."""

    def __init__(
        self,
        investigator: Investigator,
        settings: Settings,
        on_report: Callable[[LeakReport], None] | None = None,
    ) -> None:
        super().__init__(daemon=True, name="gputop-leaks")
        self.latest = LeakReport(0.0)
        self.settings = settings  # may be replaced at any time

    def observe(self, snapshot: Snapshot) -> None:
        """What is seen now. Cheap; from any one thread."""

    def scan_now(self) -> None:
        """Look for holders now, memory maps included (a key, or a kill that freed nothing)."""

    def stop(self) -> None:
        """End the thread; waits for nothing."""
