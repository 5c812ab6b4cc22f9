"""Poller and bus without a screen: until a signal ends it, on the event loop, with nothing drawn."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Callable, Collection
from typing import Final

from gputop.commands.shared.machine import Machine
from gputop.history.gpu_history import NoHistory
from gputop.model import Snapshot
from gputop.sampling.bus import Bus
from gputop.sampling.messages import SnapshotTaken
from gputop.sampling.poller import Poller

FIRST_READING_SECONDS: Final = 3.0  # after which it goes on without one: a GPU may hang


class Headless:
    """A poller on *machine*, with fresh facts of the processes *pids* (None: all). Raises SourceError where its first
    reading fails; what fails later is in the snapshots."""

    def __init__(self, machine: Machine, interval: float, pids: Collection[int] | None) -> None:
        gc.disable()  # what start-up makes is no garbage; see run()
        self.bus = Bus()
        self.poller = Poller(machine.source, machine.host, self.bus, interval, NoHistory())
        self.poller.want("headless", pids)

    def start(self) -> Snapshot | None:
        """The first reading, or None where it takes too long."""
        self.poller.start()
        first = self.poller.wait_for_first(FIRST_READING_SECONDS)
        if self.poller.error is not None:
            raise self.poller.error
        return first

    def run(self, on_snapshot: Callable[[Snapshot], None], seconds: float | None = None) -> int:
        """Call *on_snapshot* with every snapshot until SIGINT, SIGTERM or SIGHUP (unless ignored: nohup), or for so
        many *seconds*. Returns 0: to be ended is no fault.

        What *on_snapshot* raises is raised here.
        """
        return asyncio.run(self._run(on_snapshot, seconds))

    async def _run(self, on_snapshot: Callable[[Snapshot], None], seconds: float | None) -> int:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def end(error: BaseException | None = None) -> None:
            if not ended.done():
                ended.set_result(None) if error is None else ended.set_exception(error)

        def handle(message: object) -> None:
            try:
                if isinstance(message, SnapshotTaken):
                    on_snapshot(message.snapshot)
                else:  # MessagesLost
                    say(f"too slow: {getattr(message, 'count', 0)} readings were skipped")
            except Exception as error:
                end(error)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, end)
        if seconds is not None:
            loop.call_later(seconds, end)
        self.bus.subscribe(SnapshotTaken, handle, every=True)
        if self.poller.latest is not None:
            handle(SnapshotTaken(self.poller.latest))
        self.bus.attach(loop)
        gc.collect()
        gc.freeze()
        gc.enable()
        try:
            await ended
        finally:
            self.bus.detach()
            self.poller.stop()
        return 0


def say(message: str) -> None:
    """A line on stderr, from any thread."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):  # nobody reads it, and there is nobody else to tell
            sys.stderr.write(f"gputop: {message}\n")
            sys.stderr.flush()
