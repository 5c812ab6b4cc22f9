"""When to sample, and telling everybody: the heart of gputop.

Threads, all daemons, none of which the event loop ever waits for:

* the poller sets the beat: a sweep over all GPUs (on the lanes), then snapshot, history, bus;
* the upkeep thread runs the medium and slow tiers, half a beat away from the sweeps, one GPU after the other;
* the host thread reads /proc, also half a beat away;
* the events thread waits for Xids.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from gputop.model import Driver, Gpu, GpuProcess, Host, HostFacts, ProcessKey, Snapshot, TorchReport, replace
from gputop.procfs.host_reader import HostReader, ProcessDetails
from gputop.sampling.bus import Bus
from gputop.sampling.history import History
from gputop.sampling.messages import GpuBack, GpuLost, ProcessExited, ProcessStarted, SnapshotTaken
from gputop.sampling.reader_threads import ReaderThreads
from gputop.sampling.snapshot_builder import SnapshotBuilder, assemble
from gputop.sources.source import Reading, Source, SourceError

MEDIUM_SECONDS: Final = 1.0
SLOW_SECONDS: Final = 15.0
COUNT_SECONDS: Final = 5.0
HOST_SECONDS: Final = 1.0
FIRST_FACTS: Final = 0.05  # how long a new pid's first facts are waited for
BACK_OFF: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
RELEASED: Final = "GPU handles are released: press g to take them again"


class _Gate:
    """Counts the threads inside the driver, so that it is closed only when there are none."""

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


class _HostSide(threading.Thread):
    """Owns the host reader: reads the pids it is asked for, when it is asked."""

    def __init__(self, reader: HostReader) -> None:
        super().__init__(daemon=True, name="gputop-host")
        self._reader = reader
        self._wake, self._done = threading.Event(), threading.Event()
        self._pids: frozenset[int] = frozenset()
        self._fresh: Collection[int] | None = None
        self.facts: dict[int, HostFacts] = {}
        self.exists: dict[int, bool | None] = {}
        self.torch: Mapping[int, TorchReport] = {}
        self.machine: Host | None = None
        self.problem: str | None = None
        self._machine_at = 0.0

    def ask(self, pids: frozenset[int], fresh: Collection[int] | None) -> None:
        self._pids, self._fresh = pids, fresh
        self._done.clear()
        self._wake.set()

    def wait(self, timeout: float) -> bool:
        return self._done.wait(timeout)

    def run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            pids, fresh = self._pids, self._fresh
            try:
                facts = dict(self._reader.read(pids, fresh))
                exists = {pid: self._reader.exists(pid) for pid in pids if pid not in facts}
                now = time.monotonic()
                if now - self._machine_at >= HOST_SECONDS * 0.9:
                    self._machine_at = now
                    self.machine = self._reader.machine()
                    self.torch = self._reader.torch_reports(facts)
                self.facts, self.exists, self.problem = facts, exists, None
            except OSError as error:
                self.problem = f"the host's processes cannot be read: {error}"
            except Exception as error:  # a fault of ours: shown, and the thread goes on
                self.problem = f"internal error in reading the host's processes, please report it: {error!r}"
            self._done.set()


@dataclass(slots=True)
class _Want:
    """Whose facts a consumer wants, and when it had them last (monotonic)."""

    pids: Collection[int] | None
    every: float
    read_at: float = 0.0


class Poller(threading.Thread):
    """Samples *source* every *interval* seconds, from :meth:`start` until the process ends.

    ``latest`` is the newest snapshot, ``error`` why the source could not be opened at first (the poller keeps trying
    where that may help).
    """

    def __init__(
        self,
        source: Source,
        host: HostReader,
        bus: Bus,
        interval: float = 1.0,
        history: History | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(daemon=True, name="gputop-poller")
        self._source, self._bus, self._clock = source, bus, clock
        self.history = history or History()
        self.latest: Snapshot | None = None
        self.error: SourceError | None = None
        self._interval = interval
        self._wants: dict[str, _Want] = {}
        self._reader = host
        self._host = _HostSide(host)
        self._pids: frozenset[int] = frozenset()
        self._gate = _Gate()
        self._lanes = ReaderThreads(source.read, ())
        self._assembler = SnapshotBuilder()
        self._driver = Driver()
        self._slots = 0
        self._first = threading.Event()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._release = False
        self._kick_upkeep = threading.Event()
        self._upkeep_failure: SourceError | None = None
        self._count_now: int | None = None
        self._open = False
        self._host_at = 0.0
        self._fresh_at = 0.0
        self._busy = 0.0  # seconds a sweep takes, smoothed
        self._known_processes: dict[ProcessKey, GpuProcess] = {}
        self._known_gpus: dict[str, Gpu] = {}

    # -- asked from other threads

    @property
    def interval(self) -> float:
        """Seconds between sweeps as asked for."""
        return self._interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        self._interval = seconds
        self._wake.set()

    def want(self, consumer: str, pids: Collection[int] | None, every: float = HOST_SECONDS) -> None:
        """*consumer* wants host facts of *pids* (None: of all) that are no older than *every* seconds. The poller reads
        no more than the union of what is due."""
        before = self._wants.get(consumer)
        self._wants[consumer] = _Want(pids, every, before.read_at if before is not None else 0.0)

    def refresh(self) -> None:
        """Sweep now."""
        self._wake.set()

    @property
    def released(self) -> bool:
        return self._release

    @released.setter
    def released(self, released: bool) -> None:
        """Let go of all GPU handles (so that a driver reload, a reset or a MIG change can go through), or take them
        again."""
        self._release = released
        self._wake.set()

    def wait_for_first(self, timeout: float) -> Snapshot | None:
        """The first snapshot, or None when the source could not be opened (see ``error``) or is too slow."""
        self._first.wait(timeout)
        return self.latest

    def details(self, key: ProcessKey) -> ProcessDetails | None:
        """More about one process, read in the caller's thread: not the event loop's."""
        return self._reader.details(key)

    def stop(self) -> None:
        """Stop sampling; waits for nothing."""
        self._ended.set()
        self._wake.set()
        self._kick_upkeep.set()

    # -- the poller's thread

    def run(self) -> None:
        self._host.start()
        threading.Thread(target=self._upkeep, daemon=True, name="gputop-upkeep").start()
        threading.Thread(target=self._events, daemon=True, name="gputop-events").start()
        attempt = 0
        while not self._ended.is_set():
            try:
                if self._release:
                    self._stay_released()
                self._connect()
                attempt = 0
                self._beat()
            except Exception as error:
                if not isinstance(error, SourceError):  # a fault of ours must not freeze the screen unseen
                    error = SourceError(f"internal error in the readings, please report it: {error!r}")
                self.error = error
                self._disconnect()
                self._publish_problem(str(error))
                self._first.set()
                self._pause(BACK_OFF[min(attempt, len(BACK_OFF) - 1)])
                attempt += 1

    def _connect(self) -> None:
        self._driver = self._source.open()
        self._open = True
        self._slots = self._source.count()
        self._count_now = None
        self._upkeep_failure = None
        self._lanes = ReaderThreads(self._source.read, range(self._slots))
        self._gate.open()

    def _disconnect(self) -> None:
        """Close the source once no thread is inside it; a thread that hangs there keeps it open."""
        self._gate.shut(0.5)
        while not (self._lanes.idle() and self._gate.shut(0.5)):
            if self._ended.wait(0.2):
                return
            self._publish_problem("the driver does not answer: waiting for it to let go of its calls")
        self._lanes.end()
        if self._open:
            self._open = False
            self._source.close()

    def _stay_released(self) -> None:
        self._publish_problem(RELEASED)
        while self._release and not self._ended.is_set():
            self._pause(60.0)

    def _beat(self) -> None:
        """Sweep after sweep, until the source fails, is released or the program ends."""
        next_at = time.monotonic()
        while not self._ended.is_set():
            if self._release:
                self._disconnect()
                return
            started = time.monotonic()
            self._sweep(started)
            interval = self._effective_interval()
            next_at += interval
            now = time.monotonic()
            if next_at < now or next_at > now + interval:
                next_at = now + max(0.0, interval - (now - started))
            # The other tiers run half a beat away from the sweeps, so that nobody waits for the other.
            if self._pause(max(0.0, (next_at - time.monotonic()) / 2)):
                next_at = time.monotonic()
                continue
            self._read_host()
            self._kick_upkeep.set()
            if self._pause(max(0.0, next_at - time.monotonic())):
                next_at = time.monotonic()

    def _pause(self, seconds: float) -> bool:
        """Sleep; True when woken early (interval changed, refresh asked, handles released or the end)."""
        woken = self._wake.wait(seconds)
        self._wake.clear()
        return woken

    def _effective_interval(self) -> float:
        """The interval asked for, or what keeps this machine less than half busy with sweeps."""
        return self._interval if self._busy * 2 <= self._interval else self._busy * 2

    def _sweep(self, started: float) -> None:
        if self._upkeep_failure is not None:
            raise self._upkeep_failure
        if self._count_now is not None and self._count_now != self._slots:
            self._slots, self._count_now = self._count_now, None
            self._lanes.end()
            self._lanes = ReaderThreads(self._source.read, range(self._slots))
        late = self._lanes.sweep()
        if self._lanes.failure is not None:
            raise self._lanes.failure
        taken_at = self._clock()
        readings = [self._reading(slot, slot in late, taken_at) for slot in range(self._slots)]
        took = time.monotonic() - started
        if not late:
            self._busy = took if self._busy == 0 else self._busy * 0.8 + took * 0.2
        pids = frozenset(process.pid for reading in readings for process in reading.processes)
        self._facts_of_new(pids)
        host = self._host
        snapshot = assemble(
            taken_at,
            readings,
            host.facts,
            host.exists,
            torch=host.torch,
            assembler=self._assembler,
            host=host.machine,
            driver=self._driver,
            problems=(host.problem,) if host.problem else (),
            took=took,
            interval=self._effective_interval(),
            source=self._source.name,
        )
        self.error = None
        self._publish(snapshot)

    def _reading(self, slot: int, late: bool, taken_at: float) -> Reading:
        reading = self._lanes.readings.get(slot)
        if reading is None:
            gpu = Gpu(slot, f"slot:{slot}", f"GPU {slot}", taken_at, late=True)
            return Reading(replace(gpu, error="the driver has not answered for this GPU yet"))
        return Reading(replace(reading.gpu, late=True), reading.processes) if late else reading

    def _facts_of_new(self, pids: frozenset[int]) -> None:
        """Have the host side look at pids it does not know, and wait a moment for it: a row should not change its
        identity right after it appeared."""
        host = self._host
        self._pids = pids
        if pids - host.facts.keys() - host.exists.keys() or host.machine is None:
            host.ask(pids, ())
            host.wait(FIRST_FACTS if self.latest is not None else 5 * FIRST_FACTS)

    def _read_host(self) -> None:
        now = time.monotonic()
        if now - self._host_at < HOST_SECONDS * 0.9:
            return
        self._host_at = now
        due = [want for want in list(self._wants.values()) if now - want.read_at >= want.every * 0.9]
        for want in due:
            want.read_at = now
        wanted = [want.pids for want in due]
        fresh = None if None in wanted else frozenset().union(*[pids for pids in wanted if pids is not None])
        self._host.ask(self._pids, fresh)

    def _publish(self, snapshot: Snapshot) -> None:
        self.history.add(snapshot)
        self.latest = snapshot
        self._first.set()
        self._publish_changes(snapshot)
        self._bus.publish(SnapshotTaken(snapshot))

    def _publish_problem(self, words: str) -> None:
        """A snapshot without readings: the last known GPUs, each with the cause."""
        old = self.latest
        gpus = tuple(replace(gpu, error=words) for gpu in old.gpus) if old is not None else ()
        self._publish(
            Snapshot(
                taken_at=self._clock(),
                host=self._host.machine or Host(),
                driver=self._driver,
                gpus=gpus,
                problems=(words,),
                interval=self._interval,
                source=self._source.name,
            )
        )

    def _publish_changes(self, snapshot: Snapshot) -> None:
        at = snapshot.taken_at
        gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
        for uuid, gpu in gpus.items():
            before = self._known_gpus.get(uuid)
            if gpu.error is not None and (before is None or before.error is None):
                self._bus.publish(GpuLost(at, gpu))
            elif gpu.error is None and before is not None and before.error is not None:
                self._bus.publish(GpuBack(at, gpu))
        self._known_gpus = gpus
        processes = {process.key: process for process in snapshot.processes}
        known = self._known_processes
        if processes.keys() != known.keys():
            for key in processes.keys() - known.keys():
                self._bus.publish(ProcessStarted(at, processes[key]))
            for key in known.keys() - processes.keys():
                self._bus.publish(ProcessExited(at, known[key]))
        self._known_processes = processes

    # -- the other threads inside the driver

    def _upkeep(self) -> None:
        """Medium and slow tiers, one GPU after the other; each GPU's own clock decides what is due."""
        medium: dict[int, float] = {}
        slow: dict[int, float] = {}
        counted = 0.0
        while True:
            self._kick_upkeep.wait()
            self._kick_upkeep.clear()
            if self._ended.is_set():
                return
            with self._gate.entered() as inside:
                if not inside:
                    medium.clear()
                    slow.clear()
                    continue
                try:
                    now = time.monotonic()
                    if now - counted >= COUNT_SECONDS:
                        counted = now
                        self._count_now = self._source.count()
                    self._upkeep_round(medium, slow)
                except SourceError as error:
                    self._upkeep_failure = error
                except Exception as error:  # a fault of ours must not end the thread unseen: it is shown
                    self._upkeep_failure = SourceError(f"internal error in the slow readings: {error!r}")

    def _upkeep_round(self, medium: dict[int, float], slow: dict[int, float]) -> None:
        """All that is due of the medium tier, and one GPU's slow tier: its calls are the dear ones."""
        now = time.monotonic()
        slots = [slot for slot in range(self._slots) if self._lanes.late_since(slot) is None]
        for slot in slots:
            if now - medium.get(slot, -9e9) >= MEDIUM_SECONDS * 0.9:
                medium[slot] = now
                self._source.read_medium(slot)
        due = [slot for slot in slots if now - slow.get(slot, -9e9) >= SLOW_SECONDS]
        if due:
            slot = min(due, key=lambda slot: slow.get(slot, -9e9))
            slow[slot] = now
            self._source.read_slow(slot)

    def _events(self) -> None:
        while not self._ended.is_set():
            with self._gate.entered() as inside:
                if inside:
                    self._source.wait_events(0.8)
            if not inside:
                self._ended.wait(0.1)
