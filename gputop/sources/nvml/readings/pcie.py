"""PCIe throughput, by the cheapest way that tells the truth on this GPU.

GPM 20/21 where there is GPM; else byte counters (fields 197/198), unless they have 32 bits and the link could move
4 GiB between two readings; else the call that blocks 20 ms a direction, in the medium tier; else unknown.
RX is to the GPU, TX from it, in bytes per second. (docs/nvml-quirks.md §6)
"""

from __future__ import annotations

from collections import deque
from typing import Final

from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.calls import Field, Fields, Handle

#: (RX, TX)
Throughput = tuple[float | None, float | None]
UNKNOWN: Final[Throughput] = (None, None)

#: Of PCIe 1 to 7, after encoding.
LANE_BYTES_PER_SECOND: Final = {1: 250e6, 2: 500e6, 3: 984.6e6, 4: 1969.2e6, 5: 3938.5e6, 6: 7563e6, 7: 15125e6}

_TX: Final[Field] = (abi.FIELD_PCIE_TX, 0)
_RX: Final[Field] = (abi.FIELD_PCIE_RX, 0)
_WRAP_BYTES: Final = 1 << 32


class PcieCounters:
    """Throughput from the differences of byte counters. ``serves`` says whether they do at the present beat; None
    until that is known."""

    def __init__(self, handle: Handle) -> None:
        generation = handle.uint("nvmlDeviceGetMaxPcieLinkGeneration").read()
        width = handle.uint("nvmlDeviceGetMaxPcieLinkWidth").read()
        self._link = LANE_BYTES_PER_SECOND.get(generation or 0, 0) * (width or 0)  # bytes per second; 0: not known
        self._fields = Fields(handle, (_RX, _TX))
        self._wide: bool | None = None
        self._at: float | None = None
        self._last: tuple[int, int] | None = None
        self.serves: bool | None = None

    def read(self, now: float) -> Throughput:
        """The mean since the last reading; *now* is monotonic. Raises NvmlError when the GPU or the driver is gone."""
        interval = now - self._at if self._at is not None else None
        self._at = now
        safe = self._wide or (interval is not None and 0 < self._link * interval < _WRAP_BYTES)
        if self._wide is False and not safe:
            self.serves, self._last = False, None
            return UNKNOWN
        values = self._fields.read()
        if _RX not in values or _TX not in values:
            self.serves, self._last = False, None
            return UNKNOWN
        self._wide = self._fields.wide[_RX] and self._fields.wide[_TX]
        last, self._last = self._last, (int(values[_RX]), int(values[_TX]))
        if last is None or interval is None or interval <= 0:
            return UNKNOWN
        self.serves = bool(self._wide or safe)
        if not self.serves:
            return UNKNOWN
        rx, tx = (_difference(then, now_, self._wide) for then, now_ in zip(last, self._last, strict=True))
        return (None if rx is None else rx / interval, None if tx is None else tx / interval)


def _difference(then: int, now: int, wide: bool) -> int | None:
    """What was counted in between; None where a 64-bit counter went back (it was reset)."""
    if wide:
        return now - then if now >= then else None
    return (now - then) % _WRAP_BYTES


class PcieSampler:
    """nvmlDeviceGetPcieThroughput: blocks 20 ms a direction. ``throughput`` is replaced as a whole."""

    def __init__(self, handle: Handle) -> None:
        self._rx = handle.uint("nvmlDeviceGetPcieThroughput", before=(abi.PCIE_RX,))
        self._tx = handle.uint("nvmlDeviceGetPcieThroughput", before=(abi.PCIE_TX,))
        self.throughput: Throughput = UNKNOWN
        self.sampled_at = 0.0

    @property
    def unsupported(self) -> bool:
        return self._rx.unsupported and self._tx.unsupported

    def read(self, now: float) -> None:
        self.sampled_at = now
        rx, tx = self._rx.read(), self._tx.read()  # KiB/s
        self.throughput = (None if rx is None else rx * 1024.0, None if tx is None else tx * 1024.0)


class RateLimiter:
    """Who may block in a sample: *per_second* GPUs, the one that waited longest first."""

    def __init__(self, per_second: int = 2) -> None:
        self._starts: deque[float] = deque(maxlen=per_second)

    def acquire(self, now: float, sampler: PcieSampler, waiting: list[PcieSampler]) -> bool:
        if len(self._starts) == self._starts.maxlen and now - self._starts[0] < 0.85:
            return False
        if any(other.sampled_at < sampler.sampled_at for other in waiting):
            return False
        self._starts.append(now)
        return True
