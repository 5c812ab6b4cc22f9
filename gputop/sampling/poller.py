"""When to sample, and telling everybody: an asynchronous NVML poller.

Asynchronous means threads that may block in the driver, all of them daemons that the event loop never waits for, and
one hop through the bus onto the event loop:

* the poller keeps the interval: a sweep over all GPUs (``sweeper``), then history, then bus;
* the slow tiers (``slow_tiers``) are read half an interval away from the sweeps;
* so is /proc (``host_side``);
* a thread waits for Xid events.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from gputop.crash import exit_status, out_of_resources
from gputop.history.gpu_history import History
from gputop.model import Driver, Gpu, GpuProcess, Host, ProcessKey, Snapshot, replace, steady_time
from gputop.procfs.host_reader import HostReader, ProcessDetails
from gputop.sampling.bus import Bus
from gputop.sampling.driver_gate import DriverGate
from gputop.sampling.host_side import HostSide
from gputop.sampling.messages import GpuBack, GpuLost, ProcessExited, ProcessStarted, SnapshotTaken
from gputop.sampling.slow_tiers import SlowTiers
from gputop.sampling.sweeper import Sweeper, pids_of
from gputop.sources.source import Source, SourceError

HOST_SECONDS: Final = 1.0  # between two looks at the processes
NEW_PROCESS_SECONDS: Final = 0.05  # a sweep waits for what /proc says of a new pid
BACK_OFF_SECONDS: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # before the source is opened again
RELEASED: Final = "GPU handles are released: press g to take them again"


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
        self._steady = steady_time if clock is time.time else clock
        self.history = history or History()
        self.latest: Snapshot | None = None
        self.error: SourceError | None = None
        self._interval = interval
        self._reader = host
        self._host = HostSide(host, HOST_SECONDS)
        self._pids: frozenset[int] = frozenset()
        self._gate = DriverGate()
        self._slow_tiers = SlowTiers(source, self._gate)
        self._sweeper = Sweeper(source, Driver(), 0, self._host)
        self._first = threading.Event()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._release = False
        self._open = False
        self._sweep_seconds = 0.0  # smoothed
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
        """*consumer* wants host facts of *pids* (None: of all) that are no older than *every* seconds. No more than the
        union of what is due is read."""
        self._host.want(consumer, pids, every)

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
        self._slow_tiers.stop()

    def start(self) -> None:
        """Begin. Raises RuntimeError where no more threads can be had."""
        self._host.start()
        self._slow_tiers.start()
        threading.Thread(target=self._events, daemon=True, name="gputop-events").start()
        super().start()

    # -- the poller's thread

    def run(self) -> None:
        attempt = 0
        while not self._ended.is_set():
            try:
                if self._release:
                    self._stay_released()
                self._connect()
                attempt = 0
                self._sweep_on()
            except Exception as error:
                if not isinstance(error, SourceError):  # a fault of ours must not freeze the screen unseen
                    refused = out_of_resources(error)
                    message = refused or f"internal error in the readings, please report it: {error!r}"
                    error = SourceError(message, exit_status(error) if refused else 8)
                self.error = error
                self._disconnect()
                self._publish_problem(str(error))
                self._first.set()
                self._pause(BACK_OFF_SECONDS[min(attempt, len(BACK_OFF_SECONDS) - 1)])
                attempt += 1

    def _connect(self) -> None:
        driver = self._source.open()
        self._open = True
        self._set_sweeper(driver, self._source.count())
        self._slow_tiers.failure = None
        self._gate.open()

    def _set_sweeper(self, driver: Driver, slots: int) -> None:
        self._sweeper = self._slow_tiers.sweeper = Sweeper(self._source, driver, slots, self._host)
        self._slow_tiers.gpus = None  # until they are counted again

    def _disconnect(self) -> None:
        """Close the source once no thread is inside it; a thread that hangs there keeps it open."""
        self._gate.shut(0.5)
        while not (self._sweeper.threads.idle() and self._gate.shut(0.5)):
            if self._ended.wait(0.2):
                return
            self._publish_problem("the driver does not answer: waiting for it to let go of its calls")
        self._sweeper.threads.end()
        if self._open:
            self._open = False
            self._source.close()

    def _stay_released(self) -> None:
        self._publish_problem(RELEASED)
        while self._release and not self._ended.is_set():
            self._pause(60.0)

    def _sweep_on(self) -> None:
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
            # The host and the slow tiers are read half an interval away from the sweeps: nobody waits for the other.
            if self._pause(max(0.0, (next_at - time.monotonic()) / 2)):
                next_at = time.monotonic()
                continue
            self._host.read_due(self._pids)
            self._slow_tiers.go()
            if self._pause(max(0.0, next_at - time.monotonic())):
                next_at = time.monotonic()

    def _pause(self, seconds: float) -> bool:
        """Sleep; True when woken early (interval changed, refresh asked, handles released or the end)."""
        woken = self._wake.wait(seconds)
        self._wake.clear()
        return woken

    def _effective_interval(self) -> float:
        """The interval asked for, or what keeps this machine less than half busy with sweeps."""
        return max(self._interval, self._sweep_seconds * 2)

    def _sweep(self, started: float) -> None:
        tiers, sweeper = self._slow_tiers, self._sweeper
        if tiers.failure is not None:
            raise tiers.failure
        if tiers.gpus is not None and tiers.gpus != sweeper.slots:
            sweeper.threads.end()
            self._set_sweeper(sweeper.driver, tiers.gpus)
            sweeper = self._sweeper
        late = sweeper.sweep()
        taken_at = self._clock()
        readings = sweeper.readings(late, taken_at)
        took = time.monotonic() - started
        if not late:
            self._sweep_seconds = took if self._sweep_seconds == 0 else self._sweep_seconds * 0.8 + took * 0.2
        # A row should not change its identity right after it appeared: new processes are looked at first.
        self._pids = pids_of(readings)
        self._host.read_new(self._pids, NEW_PROCESS_SECONDS if self.latest is not None else 5 * NEW_PROCESS_SECONDS)
        problems = (self._host.problem,) if self._host.problem else ()
        snapshot = sweeper.snapshot(readings, taken_at, problems, took, self._effective_interval(), self._steady())
        self.error = None
        self._publish(snapshot)

    def _publish(self, snapshot: Snapshot) -> None:
        self.history.add(snapshot)
        self.latest = snapshot
        self._first.set()
        self._publish_changes(snapshot)
        self._bus.publish(SnapshotTaken(snapshot))

    def _publish_problem(self, problem: str) -> None:
        """A snapshot without readings: the last known GPUs, each with the cause."""
        old = self.latest
        gpus = tuple(replace(gpu, error=problem) for gpu in old.gpus) if old is not None else ()
        self._publish(
            Snapshot(
                taken_at=self._clock(),
                host=self._host.machine or Host(),
                driver=self._sweeper.driver,
                gpus=gpus,
                problems=(problem,),
                interval=self._interval,
                source=self._source.name,
                steady=self._steady(),
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
            unread = {gpu.uuid for gpu in snapshot.gpus if gpu.processes_error is not None}
            for key in known.keys() - processes.keys():
                if known[key].gpu_uuid in unread:
                    processes[key] = known[key]  # it may be there still
                else:
                    self._bus.publish(ProcessExited(at, known[key]))
        self._known_processes = processes

    def _events(self) -> None:
        while not self._ended.is_set():
            with self._gate.entered() as inside:
                if inside:
                    self._source.wait_events(0.8)
            if not inside:
                self._ended.wait(0.1)
