"""Publish from any thread, handle on the event loop: the one place where a message changes threads.

What draws subscribes plainly and is called with the *newest* message of a type: what it was too slow for is dropped, so
nothing queues up. What must not miss anything (a recorder, alarms, an event pane) subscribes with ``every=True`` to a
bounded queue; when that overflows, it hears of it by :class:`MessagesLost`.

What a subscriber may expect, so that it need not queue again:

* Its handler runs on the event loop, in the context (:mod:`contextvars`) in which the bus was attached: attach from
  within the running application, and a handler may touch widgets directly. No second newest-wins mailbox is needed.
* It is called once a turn of the loop at most, with what is newest at that moment.
* What it raises goes to *on_error* of :meth:`Bus.attach`, and the other subscribers are served all the same.

The bus knows nothing of Textual, nor of the messages (``messages``) but :class:`MessagesLost`.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from gputop.sampling.messages import MessagesLost

QUEUED_MESSAGES: Final = 1024  # of a subscriber with every=True

M = TypeVar("M")
OnError = Callable[[Exception], None]


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

    def _offer(self, message: object, loop: asyncio.AbstractEventLoop, context: contextvars.Context) -> None:
        """Called under the bus's lock, from any thread."""
        if self._every and len(self._pending) >= QUEUED_MESSAGES:
            self._lost += 1
        else:
            self._pending.append(message)
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon_threadsafe(self._deliver, context=context)

    def _deliver(self) -> None:
        with self._bus._lock:
            messages, lost = list(self._pending), self._lost
            self._pending.clear()
            self._lost = 0
            self._scheduled = False
        for message in [*messages, MessagesLost(lost)] if lost else messages:
            try:
                self._handler(message)
            except Exception as error:
                if self._bus._on_error is None:
                    raise  # to the loop's own exception handler
                self._bus._on_error(error)


class Bus:
    """Publish and subscribe. Handlers run on the event loop that the bus was attached to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: dict[type, list[Subscription]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = contextvars.Context()
        self._on_error: OnError | None = None

    def attach(self, loop: asyncio.AbstractEventLoop, on_error: OnError | None = None) -> None:
        """Deliver on *loop* from now on, in the caller's context; what was published before is gone (the history has
        it). *on_error* is called, on the loop, with what a handler raised."""
        with self._lock:
            self._loop, self._context, self._on_error = loop, contextvars.copy_context(), on_error

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
                subscription._offer(message, loop, self._context)

    def _remove(self, type_: type, subscription: Subscription) -> None:
        with self._lock:
            subscriptions = self._subscriptions.get(type_, [])
            if subscription in subscriptions:
                subscriptions.remove(subscription)
