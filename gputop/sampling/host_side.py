"""What /proc says of the processes on the GPUs, read in a thread of its own: /proc may hang as the driver may."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from gputop.model import Host, HostFacts, TorchReport
from gputop.procfs.host_reader import HostReader

HUNG_SECONDS: Final = 3.0  # a reading may take before it is said that it hangs


@dataclass(slots=True)
class _Demand:
    """Whose facts a consumer wants, and when it had them last (monotonic)."""

    pids: Collection[int] | None
    every: float  # seconds
    read_at: float = 0.0


class HostSide(threading.Thread):
    """Owns *reader*: reads what it is asked for, when it is asked. What it read last is in its attributes.

    *period*: the least seconds between two looks at the machine as a whole, and between two due readings. *torch*: also
    what processes with gputop.torch_monitor tell.
    """

    def __init__(self, reader: HostReader, period: float, torch: bool = True) -> None:
        super().__init__(daemon=True, name="gputop-host")
        self._reader, self._period, self._torch = reader, period * 0.9, torch
        self._wake, self._done = threading.Event(), threading.Event()
        self._pids: frozenset[int] = frozenset()
        self._fresh: Collection[int] | None = None
        self._demands: dict[str, _Demand] = {}
        self.facts: dict[int, HostFacts] = {}
        self.exists: dict[int, bool | None] = {}
        self.torch: Mapping[int, TorchReport] = {}
        self.machine: Host | None = None
        self._problem: str | None = None
        self._busy_since: float | None = None  # monotonic
        self._machine_at = self._due_at = 0.0

    @property
    def problem(self) -> str | None:
        """Why what is known of the processes is old, in words."""
        since = self._busy_since
        if since is not None and (hung := time.monotonic() - since) >= HUNG_SECONDS:
            return f"/proc has not answered for {hung:.0f} s: what is shown of the processes is older than that"
        return self._problem

    def want(self, consumer: str, pids: Collection[int] | None, every: float) -> None:
        """*consumer* wants facts of *pids* (None: of all) that are no older than *every* seconds."""
        before = self._demands.get(consumer)
        self._demands[consumer] = _Demand(pids, every, before.read_at if before is not None else 0.0)

    def read(self, pids: frozenset[int], fresh: Collection[int] | None, timeout: float) -> bool:
        """Read *pids*, those in *fresh* (None: all) anew. Whether that was done within *timeout* seconds; it goes on
        in any case."""
        self._pids, self._fresh = pids, fresh
        self._done.clear()
        self._wake.set()
        done = self._done.wait(timeout)
        if not done and (unseen := pids - self.facts.keys() - self.exists.keys()):
            self.exists = {
                **self.exists,
                **{pid: self._reader.exists(pid) for pid in unseen},
            }  # asks no file that hangs
        return done

    def read_new(self, pids: frozenset[int], timeout: float) -> None:
        """Look at those of *pids* that are not known yet, and wait up to *timeout* seconds for it."""
        if pids - self.facts.keys() - self.exists.keys() or self.machine is None:
            self.read(pids, (), timeout)

    def read_due(self, pids: frozenset[int]) -> None:
        """Read, without waiting, no more than the union of what consumers want now."""
        now = time.monotonic()
        if now - self._due_at < self._period:
            return
        self._due_at = now
        due = [demand for demand in list(self._demands.values()) if now - demand.read_at >= demand.every * 0.9]
        for demand in due:
            demand.read_at = now
        wanted = [demand.pids for demand in due]
        fresh = None if None in wanted else frozenset().union(*[pids for pids in wanted if pids is not None])
        self.read(pids, fresh, 0.0)

    def run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            pids, fresh = self._pids, self._fresh
            self._busy_since = time.monotonic()
            try:
                facts = dict(self._reader.read(pids, fresh))
                exists = {pid: self._reader.exists(pid) for pid in pids if pid not in facts}
                now = time.monotonic()
                if now - self._machine_at >= self._period:
                    self._machine_at = now
                    self.machine = self._reader.machine()
                    if self._torch:
                        self.torch = self._reader.torch_reports(facts)
                self.facts, self.exists, self._problem = facts, exists, None
            except OSError as error:
                self._problem = f"the host's processes cannot be read: {error}"
            except Exception as error:  # a fault of ours: shown, and the thread goes on
                self._problem = f"internal error while reading the host's processes, please report it: {error!r}"
            self._busy_since = None
            self._done.set()
