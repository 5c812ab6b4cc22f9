"""The tiers run in threads of their own, over GPUs that come and go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from gputop.sources.nvml import source
from tests.driver import GIB, SimulatedDriver
from tests.unit.sources.nvml_source import opened


def test_all_tiers_at_once_while_faults_come_and_go(driver: SimulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "RETRY_SECONDS", (0.0,))
    driver.gpus = 4
    with driver.together():
        for slot in range(4):
            driver.gpu(slot).gpm(True).set(nvlink_links=2)
            for pid in range(100, 120):
                driver.gpu(slot).process(pid, memory=GIB, sm=5)
        driver.gpu(3).mig(0, gi=1)
    trouble: list[BaseException] = []
    over = threading.Event()

    def again(work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            while not over.is_set():
                try:
                    work()
                except BaseException as error:
                    trouble.append(error)
                    return

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    with opened(driver) as opened_source:
        reads = [0, 0, 0, 0]

        def read(slot: int) -> None:
            reading = opened_source.read(slot)
            reads[slot] += 1
            assert reading.gpu.index == slot
            assert reading.gpu.error is not None or len(reading.processes) == 20

        def background() -> None:
            for slot in range(4):
                opened_source.read_medium(slot)
                opened_source.read_slow(slot)
            opened_source.count()

        threads = [again(lambda slot=slot: read(slot)) for slot in range(4)]  # type: ignore[misc]
        threads += [again(background), again(lambda: opened_source.wait_events(0.02))]
        until = time.monotonic() + 1.5
        while time.monotonic() < until and not trouble:
            with driver.faulty("gpu 1 lost"):
                driver.xid(0, 31)
                time.sleep(0.05)
            with driver.faulty("gpu 2 call nvmlDeviceGetUtilizationRates unknown"):
                time.sleep(0.05)
            driver.gpu(3).no_mig(0)
            time.sleep(0.02)
            driver.gpu(3).mig(0, gi=1)
            time.sleep(0.02)
        over.set()
        for thread in threads:
            thread.join(10)
        assert not trouble, trouble[0]
        assert min(reads) > 10


def test_a_gpu_that_hangs_holds_only_its_own_thread(driver: SimulatedDriver) -> None:
    with opened(driver) as opened_source:
        opened_source.read(0), opened_source.read(1)
        driver.fault("gpu 1 hang")
        stuck = threading.Thread(target=lambda: opened_source.read(1))
        stuck.start()
        for _ in range(20):
            assert opened_source.read(0).gpu.error is None
        assert stuck.is_alive()
        driver.clear_faults()
        stuck.join(10)
        assert not stuck.is_alive()
        assert opened_source.read(1).gpu.error is None
