"""One snapshot without a poller, whatever the driver does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping

import pytest

from gputop.model import Driver, Gpu, GpuProcess, Host, HostFacts, ProcessKey
from gputop.sampling import one_shot as sampling
from gputop.sampling.one_shot import sample
from gputop.sources.source import Reading, SourceError

FOREVER = threading.Event()


class Source:
    """Two GPUs; *hangs* are the calls that never come back."""

    name = "nvml"

    def __init__(self, *hangs: str) -> None:
        self.hangs = hangs
        self.read_at: list[float] = []

    def _enter(self, call: str) -> None:
        if call in self.hangs:
            FOREVER.wait()

    def open(self) -> Driver:
        self._enter("open")
        return Driver("580.159.04")

    def count(self) -> int:
        self._enter("count")
        return 2

    def read(self, slot: int) -> Reading:
        self._enter(f"read {slot}")
        self.read_at += [time.monotonic()] if slot == 0 else []
        gpu = Gpu(slot, f"GPU-{slot}", "NVIDIA H200", time.time(), memory_used_bytes=slot)
        return Reading(gpu, (GpuProcess(100 + slot, gpu.uuid, "C"),))

    def read_medium(self, slot: int) -> None:
        self._enter(f"medium {slot}")

    def read_slow(self, slot: int) -> None:
        self._enter(f"slow {slot}")
        if f"fail {slot}" in self.hangs:
            raise SourceError("the driver is gone", 4)

    def wait_events(self, timeout: float) -> None:
        raise AssertionError("nobody asks for events")

    def close(self) -> None:
        raise AssertionError("whoever opened it closes it")


class Reader:
    def __init__(self, hangs: bool = False) -> None:
        self.hangs = hangs
        self.asked: list[set[int]] = []

    def read(self, pids: Iterable[int], fresh: object = None) -> Mapping[int, HostFacts]:
        if self.hangs:
            FOREVER.wait()
        self.asked.append(set(pids))
        return {100: HostFacts(ProcessKey(100, 5), 0.0, user="ml", cpu_percent=float(len(self.asked)))}

    def exists(self, pid: int) -> bool | None:
        return False

    def machine(self) -> Host:
        return Host("gpu01")

    def details(self, key: ProcessKey) -> None:
        raise AssertionError("nobody asks for details")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "TIMEOUT_SECONDS", 0.5)


def test_two_readings_at_least_100_ms_apart() -> None:
    source, reader = Source(), Reader()
    snapshot, ready = sample(source, reader, lambda: "ready")
    assert ready == "ready"
    first, second = source.read_at
    assert second - first >= 0.1
    assert [gpu.uuid for gpu in snapshot.gpus] == ["GPU-0", "GPU-1"] and snapshot.problems == ()
    known, gone = snapshot.processes
    assert known.host is not None and known.host.cpu_percent == 2.0  # of the second look
    assert gone.host is None and gone.exists is False
    assert reader.asked == [{100, 101}, {100, 101}]


@pytest.mark.parametrize("call", ["read 1", "slow 1", "medium 1"])
def test_a_gpu_that_hangs_is_told_and_the_others_are_there(call: str) -> None:
    snapshot, _ = sample(Source(call), Reader(), lambda: None)
    good, stuck = snapshot.gpus
    assert good.error is None and good.memory_used_bytes == 0
    assert stuck.late and stuck.error is not None and "did not answer" in stuck.error
    assert len(snapshot.problems) == 1 and snapshot.problems[0].startswith("GPU 1: ")


@pytest.mark.parametrize("call", ["open", "count"])
def test_a_driver_that_hangs_as_a_whole_is_told(call: str) -> None:
    with pytest.raises(SourceError, match="did not answer") as caught:
        sample(Source(call), Reader(), lambda: None)
    assert caught.value.exit_status == 8


def test_a_driver_that_goes_away_meanwhile_is_told() -> None:
    with pytest.raises(SourceError, match="the driver is gone"):
        sample(Source("fail 0"), Reader(), lambda: None)


def test_a_proc_that_hangs_costs_the_host_side_only() -> None:
    snapshot, _ = sample(Source(), Reader(hangs=True), lambda: None)
    assert [gpu.error for gpu in snapshot.gpus] == [None, None]
    assert [process.host for process in snapshot.processes] == [None, None]
    assert len(snapshot.problems) == 1 and "could not be read" in snapshot.problems[0]
