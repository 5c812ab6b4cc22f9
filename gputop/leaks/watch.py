"""Watches for leaks: fed with snapshots, thinks in a thread of its own, answers with reports.

How it is used::

    watch = LeakWatch(machine.investigator, settings, on_report=lambda report: bus.publish(LeaksReported(report)))
    watch.start()
    poller.want("leaks", None)  # host facts of all processes, not only of the rows in sight
    bus.subscribe(SnapshotTaken, lambda message: watch.observe(message.snapshot))
    watch.latest  # the newest LeakReport, never None
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from gputop.leaks.process_context import Investigator
from gputop.leaks.report import LeakReport
from gputop.model import Snapshot, replace
from gputop.settings import Settings

PERIOD: Final = 2.0  # seconds between looks: the rules speak of 5 s and more


class LeakWatch(threading.Thread):
    """Reads owners of new processes at once, the rules' facts every few seconds, open files of all processes only
    where there is a dead pid or unattributed memory, or on demand. Never blocks its callers."""

    def __init__(
        self,
        investigator: Callable[[], Investigator],
        settings: Settings,
        on_report: Callable[[LeakReport], None] | None = None,
    ) -> None:
        super().__init__(daemon=True, name="gputop-leaks")
        self.latest = LeakReport(0.0)
        self.settings = settings  # may be replaced at any time
        self._investigator = investigator  # called in the thread
        self._on_report = on_report
        self._newest: Snapshot | None = None
        self._wake, self._ended = threading.Event(), threading.Event()
        self._scan_now = False

    def observe(self, snapshot: Snapshot) -> None:
        """What is seen now; the newest one counts. Cheap, from any thread."""
        self._newest = snapshot

    def scan_now(self) -> None:
        """Look for holders now, memory maps included (a key, or a kill that freed nothing)."""
        self._scan_now = True
        self._wake.set()

    def stop(self) -> None:
        """End the thread; waits for nothing."""
        self._ended.set()
        self._wake.set()

    def run(self) -> None:
        from gputop.leaks.finder import LeakFinder  # its rules are not needed for the first picture

        finder = LeakFinder(self._investigator())
        done: Snapshot | None = None
        while not self._ended.is_set():
            snapshot, scan_now = self._newest, self._scan_now
            if snapshot is not None and (snapshot is not done or scan_now):
                self._scan_now = False
                done = snapshot
                try:
                    report = finder.step(snapshot, self.settings, scan_now)
                except Exception as error:  # a fault of ours is shown, and does not end the watch
                    report = replace(self.latest, taken_at=snapshot.steady_at, unsure=(f"internal error: {error!r}",))
                changed = replace(report, taken_at=self.latest.taken_at) != self.latest
                self.latest = report
                if changed and self._on_report is not None:
                    self._on_report(report)
            self._wake.wait(PERIOD if done is not None else PERIOD / 10)
            self._wake.clear()
