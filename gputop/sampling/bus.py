"""How everybody hears of what happened: publish from any thread, handle on the event loop.

What draws subscribes plainly and gets the *newest* message of a type: what it was too slow for is conflated away, so
nothing queues up. What must not miss anything (a recorder, alarms, an event pane) subscribes with ``every=True`` to a
bounded queue; when that overflows, it hears of it by :class:`MessagesLost`. The bus knows nothing of Textual.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from gputop.leaks.report import LeakReport
from gputop.model import Gpu, GpuProcess, Snapshot

QUEUE_LIMIT: Final = 1024

M = TypeVar("M")


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
class AlarmMessage:
    """What an alarm is about. ``rule`` is its condition as it was written; (``rule``, ``subject``) names the alarm."""

    rule: str
    subject: str  # "GPU-…", "GPU-…/41832", "pid 1234"
    words: str  # what is so, in a sentence
    gpu: Gpu | None = None
    process: GpuProcess | None = None
    value: float | None = None  # of the condition's first quantity, in *unit*
    unit: str | None = None  # percent, bytes, celsius, watts, seconds, bytes/window
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class AlarmRaised:
    at: float
    alarm: AlarmMessage


@dataclass(frozen=True, slots=True)
class AlarmCleared:
    at: float
    alarm: AlarmMessage


@dataclass(frozen=True, slots=True)
class AlarmUnclear:
    """Whether a condition holds cannot be told for some time; *over*: it can again. The alarm stays as it was."""

    at: float
    alarm: AlarmMessage
    over: bool


@dataclass(frozen=True, slots=True)
class MessagesLost:
    """A subscriber with ``every=True`` was too slow for *count* messages."""

    count: int


class Subscription:
    """One handler's share of the bus; ``cancel()`` ends it."""

    def __init__(self, bus: Bus, type_: type, handler: Callable[[Any], None], every: bool) -> None:
        self._bus, self._type, self._handler = bus, type_, handler
        self._pending: deque[Any] = deque(maxlen=None if every else 1)
        self._every = every
        self._lost = 0
        self._scheduled = False

    def cancel(self) -> None:
        self._bus._remove(self._type, self)

    def _offer(self, message: object, loop: asyncio.AbstractEventLoop) -> None:
        """Called under the bus's lock, from any thread."""
        if self._every and len(self._pending) >= QUEUE_LIMIT:
            self._lost += 1
        else:
            self._pending.append(message)
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._bus._lock:
            messages, lost = list(self._pending), self._lost
            self._pending.clear()
            self._lost = 0
            self._scheduled = False
        for message in messages:
            self._handler(message)
        if lost:
            self._handler(MessagesLost(lost))


class Bus:
    """Publish and subscribe. Handlers run on *loop*, the one that was running when the bus was attached."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: dict[type, list[Subscription]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Deliver on *loop* from now on; what was published before is gone (the history has it)."""
        with self._lock:
            self._loop = loop

    def detach(self) -> None:
        with self._lock:
            self._loop = None

    def subscribe(self, type_: type[M], handler: Callable[[M], None], every: bool = False) -> Subscription:
        """Call *handler* on the event loop with messages of exactly *type_*: the newest one, or *every* one (then also
        :class:`MessagesLost`)."""
        subscription = Subscription(self, type_, handler, every)
        with self._lock:
            self._subscriptions.setdefault(type_, []).append(subscription)
        return subscription

    def publish(self, message: object) -> None:
        """Never blocks, from any thread."""
        with self._lock:
            loop = self._loop
            if loop is None or loop.is_closed():
                return
            for subscription in self._subscriptions.get(type(message), ()):
                subscription._offer(message, loop)

    def _remove(self, type_: type, subscription: Subscription) -> None:
        with self._lock:
            subscriptions = self._subscriptions.get(type_, [])
            if subscription in subscriptions:
                subscriptions.remove(subscription)
