"""What one run of the dashboard knows and can do: made once, handed to every screen. Nothing of Textual in it.

The sampler publishes snapshots on the bus; the monitor hears them first, keeps what is kept of them (history, the
largest processes, the list of events, leak reports) and publishes what is new about *that*. A screen reads here what it
shows, and subscribes to the messages after which it has to look again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from gputop import locations, settings_file, units
from gputop.alarms.raised import RaisedAlarms
from gputop.history.detail_history import DetailHistory
from gputop.history.gpu_history import History
from gputop.history.journal import EventKind, Journal
from gputop.leaks.process_context import Investigator
from gputop.leaks.report import LeakReport
from gputop.leaks.watch import LeakWatch
from gputop.model import Gpu, ProcessKey, Severity, Snapshot, Verdict
from gputop.model.selection import only
from gputop.procfs.host_reader import ProcessDetails
from gputop.sampling.bus import Bus, OnError
from gputop.sampling.messages import (
    AlarmCleared,
    AlarmRaised,
    Announced,
    EventsNoted,
    GpuBack,
    GpuLost,
    LeaksReported,
    SettingsChanged,
    SnapshotTaken,
)
from gputop.sampling.sampler import Sampler
from gputop.sampling.shown_time import LiveTime, ShownTime
from gputop.settings import Settings
from gputop.signals.audit_log import ActionLog
from gputop.signals.protocol import Signals

JOURNAL_SECONDS: Final = 0.95  # between looks for events, where nothing came, went or failed
LEAK_FACTS_SECONDS: Final = 5.0  # the rules look at minutes, and 512 processes cost 7 ms each time


class Monitor:
    """Belongs to the event loop, but for what is said to be read from any thread.

    *sampler* is the poller, or the player of a recording. *signals* None: none can be sent (``--read-only``, or a
    recording); with *keeps_log* every one is written down, as it goes to real processes. Without an *investigator*
    nothing is found out about owners, leaks and events. *settings_problems* is what was wrong with the settings file.
    *shown_time* is the recording's where one is played.
    """

    def __init__(
        self,
        sampler: Sampler,
        bus: Bus,
        settings: Settings,
        settings_path: Path | None,
        settings_problems: tuple[str, ...] = (),
        signals: Signals | None = None,
        investigator: Callable[[], Investigator] | None = None,
        keeps_log: bool = False,
        shown_time: ShownTime | None = None,
    ) -> None:
        self.sampler, self.bus = sampler, bus
        self.shown_time = shown_time or LiveTime(sampler, bus)
        self.settings, self.settings_path, self.settings_problems = settings, settings_path, settings_problems
        self.signals = signals
        self.report = LeakReport(0.0)  # the newest
        self.journal = Journal()
        self.detail_history = DetailHistory()
        self._raised = RaisedAlarms(bus)
        self._keeps_log = keeps_log
        self._watch = None if investigator is None else LeakWatch(investigator, settings, self.take_report)
        self._events_at = 0.0  # when events were looked for last, and in what
        self._glance: tuple[int, list[bool]] = (-1, [])
        self._leaks: set[int] = set()  # pids that are in the list of events
        self._lost: set[str] = set()  # UUIDs of GPUs that were announced as lost
        bus.subscribe(SnapshotTaken, self._keep)
        bus.subscribe(GpuLost, self._gpu_lost, every=True)
        bus.subscribe(GpuBack, self._gpu_back, every=True)
        bus.subscribe(AlarmRaised, self._alarm, every=True)
        bus.subscribe(AlarmCleared, self._alarm, every=True)
        bus.subscribe(LeaksReported, self._leaks_found)
        if self._watch is not None:
            bus.subscribe(SnapshotTaken, self._observe, every=True)

    # -- life

    def attach(self, loop: asyncio.AbstractEventLoop, on_error: OnError | None = None) -> None:
        """Hear the bus from now on, before the first picture: of what ends a moment later, it must be known that it
        was."""
        self.bus.attach(loop, on_error)
        if self.latest is not None:
            self._keep(SnapshotTaken(self.latest))
            if self._watch is not None:
                self._observe(SnapshotTaken(self.latest))

    def start(self) -> None:
        """Begin to look for leaks, when the first picture is drawn."""
        if self._watch is not None:
            self.sampler.want("leaks", None, every=LEAK_FACTS_SECONDS)
            self._watch.start()

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    # -- what is known

    @property
    def latest(self) -> Snapshot | None:
        """The newest snapshot; None before the first one."""
        return self.sampler.latest

    @property
    def history(self) -> History:
        return self.sampler.history

    @property
    def alarms(self) -> Mapping[str, tuple[str, ...]]:
        """The conditions that hold, by the GPU's UUID. Another object when they changed."""
        return self._raised.by_gpu

    @cached_property
    def log(self) -> ActionLog | None:
        """Takes a line for every signal."""
        if not self._keeps_log:
            return None
        try:
            return ActionLog(locations.state_directory() / "actions.log")
        except locations.NoHome as error:
            return ActionLog(None, f"the log of actions: not written: {error.strerror}")

    def chosen(self, snapshot: Snapshot) -> Snapshot:
        """What of *snapshot* is of the GPUs that the settings choose; all of it where none of them is there."""
        chosen = only(snapshot, self.settings.gpus)[0]
        return chosen if chosen.gpus else snapshot

    def details(self, key: ProcessKey) -> ProcessDetails | None:
        """More about one process; None when it is gone. Takes milliseconds: in a thread of the caller's."""
        return self.sampler.details(key)

    # -- what can be done

    def scan_now(self) -> None:
        """Look for holders of devices now."""
        if self._watch is not None:
            self._watch.scan_now()

    def note(
        self,
        kind: EventKind,
        message: str,
        at: float | None = None,
        severity: Severity = Severity.INFO,
        gpu: Gpu | None = None,
    ) -> None:
        """Put a line into the list of events: a signal sent from here, a moment that was marked, a leak, an alarm."""
        self.journal.note(time.time() if at is None else at, kind, message, severity, gpu)
        self.bus.publish(EventsNoted())

    def change(self, settings: Settings) -> str:
        """Use *settings* from now on, and save what changed. Returns where, in words; empty where nothing changed.

        Raises :class:`gputop.settings_file.SettingsError` where they could not be saved: they are used all the same.
        """
        before = self.settings
        names = [name for name in Settings.__dataclass_fields__ if getattr(before, name) != getattr(settings, name)]
        if not names:
            return ""
        self.use(settings)
        return settings_file.save(settings, self.settings_path, names)

    def use(self, settings: Settings) -> None:
        """Use *settings* from now on, without saving them."""
        self.settings = settings
        if settings.refresh != self.sampler.interval:
            self.sampler.interval = settings.refresh
        if self._watch is not None:
            self._watch.settings = settings
        self.bus.publish(SettingsChanged(settings))

    def change_for_now(self, **changes: Any) -> None:
        """Change settings until the end of the program; F2 keeps them."""
        self.use(self.settings.changed(**changes))

    def take_report(self, report: LeakReport) -> None:
        """A new report, from the watch's thread: it is there before anybody is told of it."""
        self.report = report
        self.bus.publish(LeaksReported(report))

    # -- from the bus

    def _keep(self, message: SnapshotTaken) -> None:
        self.detail_history.add(message.snapshot)

    def _observe(self, message: object) -> None:
        if not isinstance(message, SnapshotTaken) or self._watch is None:
            return  # MessagesLost: the journal compares with what it saw last
        snapshot = message.snapshot
        self._watch.observe(snapshot)
        glance = len(snapshot.processes), [gpu.error is None for gpu in snapshot.gpus]
        if glance == self._glance and 0 <= snapshot.taken_at - self._events_at < JOURNAL_SECONDS:
            return
        self._glance, self._events_at = glance, snapshot.taken_at
        before = self.journal.version
        self.journal.observe(snapshot, self.settings)
        if self.journal.version != before:
            self.bus.publish(EventsNoted())

    def _leaks_found(self, message: object) -> None:
        if not isinstance(message, LeaksReported):
            return
        report, unit = message.report, self.settings.memory_unit
        leaks = report.those(Verdict.LEAK)
        for leak in leaks:
            if leak.process.pid not in self._leaks:
                gpu = self.latest.gpu(leak.memory[0][0]) if self.latest is not None and leak.memory else None
                user = f" ({leak.user})" if leak.user else ""
                where = f" on GPU {gpu.index}" if gpu is not None else ""
                words = f"{leak.process.pid} {(leak.command or '')[:60]}{user}: {units.size(leak.memory_bytes, unit)}"
                self.note(EventKind.LEAK, f"{words}{where} that nobody uses", report.taken_at, Severity.CRITICAL, gpu)
        self._leaks = {leak.process.pid for leak in leaks}

    def _alarm(self, message: object) -> None:
        if isinstance(message, AlarmRaised | AlarmCleared):
            alarm, raised = message.alarm, isinstance(message, AlarmRaised)
            words = f"{'' if raised else 'cleared: '}{alarm.message}  [{alarm.rule}]"
            self.note(EventKind.ALARM, words, message.at, Severity.WARNING if raised else Severity.INFO, alarm.gpu)

    def _gpu_lost(self, message: object) -> None:
        if not isinstance(message, GpuLost):
            return
        gpu, latest = message.gpu, self.latest
        if latest is None or gpu.error not in latest.problems:  # what ails all of them is in the banner, once
            self._lost.add(gpu.uuid)
            self.bus.publish(Announced(f"GPU {gpu.index} is in trouble: {gpu.error}", bad=True))

    def _gpu_back(self, message: object) -> None:
        if isinstance(message, GpuBack) and message.gpu.uuid in self._lost:
            self._lost.remove(message.gpu.uuid)
            self.bus.publish(Announced(f"GPU {message.gpu.index} is back", bad=False))
