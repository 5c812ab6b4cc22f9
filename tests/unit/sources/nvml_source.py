"""What the tests of the NVML source share: the real source, on the simulated driver in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gputop.model import Gpu
from gputop.sources.nvml import NvmlSource
from gputop.sources.source import Reading
from tests.driver import SimulatedDriver

TICK = 0.12  # seconds; GPM wants 100 ms between two samples


@contextmanager
def opened(driver: SimulatedDriver, root: Path = Path("/")) -> Iterator[NvmlSource]:
    """The source, with its GPUs counted."""
    driver.load()
    source = NvmlSource(root)
    source.open()
    source.count()
    try:
        yield source
    finally:
        source.close()


def full(source: NvmlSource, slot: int = 0) -> Reading:
    """A reading after every tier had its turn, and a tick later."""
    source.read(slot)
    source.read_medium(slot)
    source.read_slow(slot)
    time.sleep(TICK)
    source.read(slot)
    source.read_medium(slot)
    source.read_slow(slot)
    return source.read(slot)


def gpu(driver: SimulatedDriver, slot: int = 0) -> Gpu:
    """One GPU, as a fresh source reads it."""
    with opened(driver) as source:
        return full(source, slot).gpu


def calls(driver: SimulatedDriver, function: str) -> Callable[[], int]:
    """How often *function* was called since now; the driver is loaded."""
    before = driver.calls(function)
    return lambda: driver.calls(function) - before
