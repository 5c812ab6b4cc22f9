"""`gputop --once` ended in a segmentation fault on two busy H200s: NVML's GPM calls are not safe against each other."""

from __future__ import annotations

import threading
import time

from gputop.sources.nvml import NvmlSource
from gputop.sources.nvml.readings import gpm as gpm_module
from tests.driver import SimulatedDriver


def gpm_source(driver: SimulatedDriver) -> NvmlSource:
    for index in range(2):
        driver.gpu(index).gpm({2: 50.0})
    driver.load()
    source = NvmlSource()
    source.open()
    source.count()
    return source


def test_gpm_calls_of_two_gpus_never_overlap(driver: SimulatedDriver, monkeypatch) -> None:
    source = gpm_source(driver)
    inside, most = [], []
    original = gpm_module.Gpm._read

    def watched(self, now):
        inside.append(self)
        most.append(len(inside))
        time.sleep(0.005)
        try:
            return original(self, now)
        finally:
            inside.pop()

    monkeypatch.setattr(gpm_module.Gpm, "_read", watched)
    deadline = time.monotonic() + 1.0

    def read(slot: int) -> None:
        while time.monotonic() < deadline:
            source.read(slot)

    threads = [threading.Thread(target=read, args=(slot,)) for slot in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    source.close()
    assert len(most) > 4
    assert max(most) == 1


def test_a_gpm_call_that_hangs_leaves_the_other_gpus_their_other_values(driver: SimulatedDriver) -> None:
    source = gpm_source(driver)
    with gpm_module._GPM_LOCK:  # another GPU's call does not come back
        gpu = source.read(1).gpu
    source.close()
    assert gpu.error is None
    assert gpu.sm_active_percent is None
    assert gpu.memory_total_bytes is not None
