"""What the screen asks of whoever takes its snapshots: the poller, or the player of a recording."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from gputop.history.gpu_history import History
from gputop.model import ProcessKey, Snapshot
from gputop.procfs.host_reader import ProcessDetails


class Sampler(Protocol):
    """Publishes :class:`SnapshotTaken` and keeps the history, in threads of its own. Nothing here blocks,
    but :meth:`details`."""

    history: History
    latest: Snapshot | None
    interval: float  # seconds between snapshots as asked for
    released: bool  # all GPU handles are let go of

    def want(self, consumer: str, pids: Collection[int] | None, every: float = 1.0) -> None:
        """*consumer* wants host facts of *pids* (None: of all) that are no older than *every* seconds."""
        ...

    def refresh(self) -> None:
        """A snapshot now."""
        ...

    def details(self, key: ProcessKey) -> ProcessDetails | None:
        """More about one process; None when it is gone. Takes milliseconds: not on the event loop."""
        ...
