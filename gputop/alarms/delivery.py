"""Work that must never hold up sampling (commands, webhooks): a bounded queue and a few threads."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

AT_ONCE: Final = 4  # jobs
WAITING: Final = 64

Job = Callable[[], str | None]


class DeliveryQueue:
    """Runs jobs in threads of their own, :data:`AT_ONCE` at a time. What a job returns is why it failed, in words;
    *report* hears of it, from the job's thread. Jobs that find :data:`WAITING` others waiting are not done."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._threads = 0

    def put(self, job: Job, label: str) -> None:
        """Do *job* soon; *label* names it. Never blocks."""
        with self._changed:
            full = len(self._waiting) >= WAITING
            if not full:
                self._waiting.append(job)
                if self._threads < AT_ONCE:
                    self._threads += 1
                    threading.Thread(target=self._work, daemon=True, name="gputop-delivery").start()
        if full:
            self._report(f"{label}: skipped, {WAITING} others are waiting")

    def finish(self, seconds: float) -> int:
        """Wait for all jobs, at most *seconds*. Returns how many were not begun."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: not self._threads, max(0.0, deadline - time.monotonic()))
            left = len(self._waiting)
            self._waiting.clear()
        return left

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._threads -= 1
                    self._changed.notify_all()
                    return
                job = self._waiting.popleft()
            try:
                failure = job()
            except Exception as error:  # a fault of ours: reported, and the next job is done all the same
                failure = f"internal error: {error!r}"
            if failure is not None:
                self._report(failure)
