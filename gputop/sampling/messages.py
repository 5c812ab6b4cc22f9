"""What the bus carries: one class a kind of message. Times are epoch seconds."""

from __future__ import annotations

from dataclasses import dataclass

from gputop.leaks.report import LeakReport
from gputop.model import Gpu, GpuProcess, Snapshot
from gputop.settings import Settings


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class GpuLost:
    at: float
    gpu: Gpu


@dataclass(frozen=True, slots=True)
class GpuBack:
    at: float
    gpu: Gpu


@dataclass(frozen=True, slots=True)
class ProcessStarted:
    at: float
    process: GpuProcess


@dataclass(frozen=True, slots=True)
class ProcessExited:
    at: float
    process: GpuProcess  # as it was seen last


@dataclass(frozen=True, slots=True)
class LeaksReported:
    report: LeakReport


@dataclass(frozen=True, slots=True)
class EventsNoted:
    """The journal has more than before."""


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    settings: Settings


@dataclass(frozen=True, slots=True)
class Announced:
    """Something to be told the user at once, in a sentence; *bad* news or good."""

    message: str
    bad: bool


@dataclass(frozen=True, slots=True)
class AlarmDetails:
    """What an alarm is about. ``rule`` is its condition as it was written; (``rule``, ``subject``) names the alarm."""

    rule: str
    subject: str  # "GPU-…", "GPU-…/41832", "pid 1234"
    message: str  # what is wrong, in a sentence
    gpu: Gpu | None = None
    process: GpuProcess | None = None
    value: float | None = None  # of the condition's first quantity, in *unit*
    unit: str | None = None  # percent, bytes, celsius, watts, seconds, bytes/window
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class AlarmRaised:
    at: float
    alarm: AlarmDetails


@dataclass(frozen=True, slots=True)
class AlarmCleared:
    at: float
    alarm: AlarmDetails


@dataclass(frozen=True, slots=True)
class AlarmUnclear:
    """Whether a condition holds cannot be told for some time; *over*: it can again. The alarm stays as it was."""

    at: float
    alarm: AlarmDetails
    over: bool


@dataclass(frozen=True, slots=True)
class MessagesLost:
    """A subscriber with ``every=True`` was too slow for *count* messages."""

    count: int
