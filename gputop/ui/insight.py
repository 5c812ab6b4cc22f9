"""What was found out beside the figures: whose processes are, leaks, what happened. Shared by the screens."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import Final

from gputop import locations
from gputop.leaks.process_context import Investigator
from gputop.leaks.report import LeakReport
from gputop.leaks.watch import LeakWatch
from gputop.sampling.bus import Bus
from gputop.sampling.journal import EventKind, Journal
from gputop.sampling.messages import LeaksReported, SnapshotTaken
from gputop.sampling.sampler import Sampler
from gputop.settings import Settings
from gputop.signals.audit_log import ActionLog
from gputop.ui.processes.annotations import ProcessAnnotations

JOURNAL: Final = 0.95  # seconds between looks for events, where nothing came, went or failed
LEAK_FACTS: Final = 5.0  # seconds: the rules look at minutes, and 512 processes cost 7 ms each time


class Insight:
    """``report`` is the newest. With *keeps_log* every signal is written down: it is sent to real processes.

    Without an *investigator* (a recording is played) nothing is found out about owners and leaks.
    """

    def __init__(
        self,
        sampler: Sampler,
        bus: Bus,
        settings: Settings,
        investigator: Callable[[], Investigator] | None = None,
        keeps_log: bool = False,
    ) -> None:
        self.report = LeakReport(0.0)
        self.annotations = ProcessAnnotations()
        self.journal = Journal()
        self._keeps_log = keeps_log
        self._sampler, self._bus, self._settings = sampler, bus, settings
        self._watch: LeakWatch | None = None
        self._glance: tuple[int, list[bool]] = (-1, [])
        self._journal_at = 0.0
        if investigator is not None:
            self._watch = LeakWatch(investigator, settings, lambda report: bus.publish(LeaksReported(report)))

    @cached_property
    def log(self) -> ActionLog | None:
        """Takes a line for every signal."""
        return ActionLog(locations.state_directory() / "actions.log") if self._keeps_log else None

    def follow(self) -> None:
        """From the event loop, before the first picture: of what ends a moment later, it must be known that it was."""
        if self._watch is None:
            return
        self._bus.subscribe(SnapshotTaken, self._observe, every=True)
        if self._sampler.latest is not None:
            self._observe(SnapshotTaken(self._sampler.latest))

    def start(self) -> None:
        """Begin to look for leaks, when the first picture is drawn."""
        if self._watch is None:
            return
        self._sampler.want("leaks", None, every=LEAK_FACTS)
        self._watch.start()

    def take(self, report: LeakReport) -> None:
        self.report, self.annotations = report, ProcessAnnotations(report)

    def use(self, settings: Settings) -> None:
        """From now on by these."""
        self._settings = settings
        if self._watch is not None:
            self._watch.settings = settings

    def scan_now(self) -> None:
        """Look for holders of devices now."""
        if self._watch is not None:
            self._watch.scan_now()

    def note_signal(self, words: str) -> None:
        """What became of signals sent from here, for the list of events."""
        self.journal.note(time.time(), EventKind.SIGNAL, words)

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    def _observe(self, message: SnapshotTaken) -> None:
        snapshot = message.snapshot
        if self._watch is not None:
            self._watch.observe(snapshot)
        glance = len(snapshot.processes), [gpu.error is None for gpu in snapshot.gpus]
        if glance != self._glance or not 0 <= snapshot.taken_at - self._journal_at < JOURNAL:
            self._glance, self._journal_at = glance, snapshot.taken_at
            self.journal.observe(snapshot, self._settings)
