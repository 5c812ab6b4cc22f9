"""The poller, its reader threads and the bus, against sources that are slow, hang, fail and come back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable

import pytest

from gputop.model import Driver, Gpu, GpuProcess, Host, HostFacts, ProcessKey, Snapshot, TorchReport
from gputop.sampling.bus import Bus
from gputop.sampling.messages import GpuBack, GpuLost, MessagesLost, ProcessExited, ProcessStarted, SnapshotTaken
from gputop.sampling.poller import Poller
from gputop.sampling.reader_threads import LATE_SECONDS, ReaderThreads
from gputop.sources.source import Reading, SourceError


class FakeHost:
    def __init__(self) -> None:
        self.reads: list[tuple[frozenset[int], object]] = []

    def read(self, pids: Iterable[int], fresh: object = None) -> dict[int, HostFacts]:
        self.reads.append((frozenset(pids), fresh))
        return {pid: HostFacts(ProcessKey(pid, pid * 10), time.time(), user="ml") for pid in pids if pid < 900}

    def exists(self, pid: int) -> bool:
        return False

    def torch_reports(self, facts: object) -> dict[int, TorchReport]:
        return {}

    def machine(self) -> Host:
        return Host("box")

    def details(self, key: ProcessKey) -> None:
        return None


class FakeSource:
    """Eight GPUs, a process each; ``before`` is run in the driver, so to say."""

    name = "fake"

    def __init__(self, gpus: int = 8, before: Callable[[int], None] = lambda slot: None) -> None:
        self.gpus, self.before = gpus, before
        self.fail: SourceError | None = None
        self.errors: dict[int, str] = {}
        self.opened = self.closed = 0
        self.inside = 0
        self.medium: list[int] = []
        self.slow: list[int] = []

    def open(self) -> Driver:
        if self.fail:
            raise self.fail
        self.opened += 1
        return Driver("580.1")

    def count(self) -> int:
        return self.gpus

    def read(self, slot: int) -> Reading:
        if self.fail:
            raise self.fail
        self.inside += 1
        try:
            self.before(slot)
        finally:
            self.inside -= 1
        gpu = Gpu(slot, f"GPU-{slot}", "H200", time.time(), memory_total_bytes=100, memory_used_bytes=slot)
        if slot in self.errors:
            return Reading(Gpu(slot, f"GPU-{slot}", "H200", time.time(), error=self.errors[slot]))
        return Reading(gpu, (GpuProcess(100 + slot, gpu.uuid, "C", slot, memory_bytes=1),))

    def read_medium(self, slot: int) -> None:
        self.medium.append(slot)

    def read_slow(self, slot: int) -> None:
        self.slow.append(slot)

    def wait_events(self, timeout: float) -> None:
        time.sleep(timeout)

    def close(self) -> None:
        assert self.inside == 0, "closed while a thread was inside the driver"
        self.closed += 1


def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.005)


@pytest.fixture
def polled():
    pollers = []

    def start(source: FakeSource, interval: float = 0.05, bus: Bus | None = None) -> Poller:
        poller = Poller(source, FakeHost(), bus or Bus(), interval)
        pollers.append(poller)
        poller.start()
        return poller

    yield start
    for poller in pollers:
        poller.stop()


def test_snapshot_has_every_gpu_in_order_and_processes_with_their_host_facts(polled):
    snapshot = polled(FakeSource()).wait_for_first(5)
    assert [gpu.index for gpu in snapshot.gpus] == list(range(8))
    assert all(process.host.user == "ml" and process.exists for process in snapshot.processes)
    assert snapshot.host.name == "box"
    assert snapshot.driver.version == "580.1"


def test_one_gpu_that_hangs_does_not_stop_the_other_seven(polled):
    released = threading.Event()
    source = FakeSource(
        before=lambda slot: released.wait(10) if slot == 3 and source.opened and late.is_set() else None
    )
    late = threading.Event()
    poller = polled(source)
    poller.wait_for_first(5)
    late.set()
    until(lambda: poller.latest.gpus[3].late)
    at = poller.latest.gpus[0].read_at
    until(lambda: poller.latest.gpus[0].read_at > at + 0.2)
    hung = poller.latest.gpus[3]
    assert hung.late
    assert hung.memory_used_bytes == 3, "the last good values stay"
    assert not any(gpu.late for gpu in poller.latest.gpus if gpu.index != 3)
    late.clear()
    released.set()
    until(lambda: not poller.latest.gpus[3].late)
    until(lambda: poller._sweeper.threads.count == 1)  # its thread ended: none is left behind


def test_gpu_that_never_answered_says_so(polled):
    released = threading.Event()
    poller = polled(FakeSource(before=lambda slot: released.wait(10) if slot == 0 else None))
    snapshot = poller.wait_for_first(5)
    assert "has not answered" in snapshot.gpus[0].error
    assert snapshot.gpus[7].error is None
    released.set()


def test_sweep_over_gpus_that_all_hang_still_returns():
    released = threading.Event()

    def read(slot: int) -> Reading:
        released.wait(10)
        return Reading(Gpu(slot, str(slot), "x", 0.0))

    threads = ReaderThreads(read, range(8))
    started = time.monotonic()
    threads.start()
    late = threads.wait()
    assert time.monotonic() - started < 10 * LATE_SECONDS
    assert late
    assert not threads.idle()
    released.set()
    until(threads.idle)
    threads.end()


def test_driver_that_goes_away_is_explained_and_used_again_when_it_is_back(polled):
    source = FakeSource()
    poller = polled(source)
    poller.wait_for_first(5)
    source.fail = SourceError("the driver is being reloaded", 4)
    until(lambda: poller.latest.problems == ("the driver is being reloaded",))
    assert len(poller.latest.gpus) == 8
    assert all(gpu.error == "the driver is being reloaded" for gpu in poller.latest.gpus)
    source.fail = None
    until(lambda: not poller.latest.problems)
    assert source.opened == 2
    assert source.closed == 1


def test_first_open_failing_is_told_with_its_exit_status(polled):
    source = FakeSource()
    source.fail = SourceError("no library", 3, transient=False)
    poller = polled(source)
    assert poller.wait_for_first(5) is not None
    assert poller.error.exit_status == 3


def test_handles_are_let_go_of_and_taken_again(polled):
    source = FakeSource()
    poller = polled(source)
    poller.wait_for_first(5)
    poller.released = True
    until(lambda: source.closed == 1)
    until(lambda: poller.latest.problems)
    poller.released = False
    until(lambda: source.opened == 2)
    until(lambda: not poller.latest.problems)


def test_gpu_count_changes_are_followed(polled, monkeypatch):
    monkeypatch.setattr("gputop.sampling.slow_tiers.COUNT_SECONDS", 0.05)
    source = FakeSource()
    poller = polled(source)
    poller.wait_for_first(5)
    source.gpus = 6
    until(lambda: len(poller.latest.gpus) == 6)
    source.gpus = 8
    until(lambda: len(poller.latest.gpus) == 8)


def test_host_facts_are_read_of_the_wanted_pids_only(polled, monkeypatch):
    monkeypatch.setattr("gputop.sampling.poller.HOST_SECONDS", 0.01)
    poller = polled(FakeSource())
    poller.want("table", {101, 102})
    poller.want("kill", {102, 103})
    poller.wait_for_first(5)
    until(lambda: poller._reader.reads[-1][1] == frozenset({101, 102, 103}))
    poller.want("json", None)
    until(lambda: poller._reader.reads[-1][1] is None)


def test_all_tiers_of_all_gpus_are_read(polled, monkeypatch):
    monkeypatch.setattr("gputop.sampling.slow_tiers.MEDIUM_SECONDS", 0.01)
    monkeypatch.setattr("gputop.sampling.slow_tiers.SLOW_SECONDS", 0.2)
    source = FakeSource()
    polled(source)
    until(lambda: set(source.slow) == set(range(8)) == set(source.medium))


async def test_bus_gives_the_newest_to_those_who_draw_and_everything_to_those_who_record():
    bus = Bus()
    bus.attach(asyncio.get_running_loop())
    newest, every = [], []
    bus.subscribe(SnapshotTaken, lambda m: newest.append(m.snapshot.taken_at))
    bus.subscribe(SnapshotTaken, lambda m: every.append(m.snapshot.taken_at), every=True)
    thread = threading.Thread(target=lambda: [bus.publish(SnapshotTaken(Snapshot(float(n)))) for n in range(100)])
    thread.start()
    thread.join()
    await asyncio.sleep(0.05)
    assert newest == [99.0]
    assert every == [float(n) for n in range(100)]


async def test_bus_tells_a_recorder_what_it_was_too_slow_for():
    bus = Bus()
    bus.attach(asyncio.get_running_loop())
    heard = []
    bus.subscribe(SnapshotTaken, heard.append, every=True)
    for n in range(2000):
        bus.publish(SnapshotTaken(Snapshot(float(n))))
    await asyncio.sleep(0.05)
    assert heard[-1] == MessagesLost(2000 - 1024)


async def test_bus_says_who_came_and_went(polled):
    bus = Bus()
    bus.attach(asyncio.get_running_loop())
    heard: list[object] = []
    for type_ in (GpuLost, GpuBack, ProcessStarted, ProcessExited):
        bus.subscribe(type_, heard.append, every=True)
    source = FakeSource(2)
    polled(source, bus=bus)
    await asyncio.sleep(0.3)
    assert {m.process.pid for m in heard if isinstance(m, ProcessStarted)} == {100, 101}
    heard.clear()
    source.errors[1] = "fell off the bus"
    await asyncio.sleep(0.3)
    assert [type(m) for m in heard] == [GpuLost, ProcessExited]
    heard.clear()
    del source.errors[1]
    await asyncio.sleep(0.3)
    assert [type(m) for m in heard] == [GpuBack, ProcessStarted]


def test_interval_is_kept_without_drift(polled):
    taken = []

    class Listening(Bus):
        def publish(self, message: object) -> None:
            if isinstance(message, SnapshotTaken):
                taken.append(time.monotonic())

    polled(FakeSource(), interval=0.1, bus=Listening())
    until(lambda: len(taken) > 21)
    assert abs((taken[21] - taken[1]) / 20 - 0.1) < 0.02


def test_interval_the_driver_cannot_keep_is_stretched_and_said(polled):
    poller = polled(FakeSource(4, before=lambda slot: time.sleep(0.02)), interval=0.1)
    poller.wait_for_first(5)
    until(lambda: poller.latest.interval > 0.12)
