"""Who is inside the driver: it is closed only when nobody is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class DriverGate:
    """Counts the threads inside the driver beside those of a sweep."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inside = 0
        self._open = False

    @contextmanager
    def entered(self) -> Iterator[bool]:
        with self._condition:
            inside = self._open
            self._inside += inside
        try:
            yield inside
        finally:
            if inside:
                with self._condition:
                    self._inside -= 1
                    self._condition.notify_all()

    def open(self) -> None:
        with self._condition:
            self._open = True

    def shut(self, timeout: float) -> bool:
        """Let nobody in any more; whether everybody is out."""
        with self._condition:
            self._open = False
            return self._condition.wait_for(lambda: self._inside == 0, timeout)
