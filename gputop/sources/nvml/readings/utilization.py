"""How much of a GPU each process uses (nvmlDeviceGetProcessUtilization: 2 ms of CPU a call, hence the medium tier;
docs/nvml-quirks.md §5)."""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Collection, Mapping
from ctypes import byref, c_uint, c_ulonglong
from typing import Final

from gputop.model import steady_time
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.calls import Handle
from gputop.sources.nvml.driver.errors import PERMANENT
from gputop.sources.nvml.readings.processes import SamplesByPid, UtilizationSample

#: A value stands this long without a new sample: drivers sample less often than we may ask (nvtop#364).
HOLD_SECONDS: Final = 2.0
FUTURE_MICROSECONDS: Final = 86_400_000_000  # a sample later than this from now is garbage (nvtop#110)

_SAMPLE: Final = struct.Struct("=I4xQIIII")  # pid, time stamp in µs, SM, memory, encoder, decoder
_TRIES: Final = 3
_CAPACITY_MAX: Final = 16384


class ProcessUtilization:
    """Utilization by pid of one GPU. ``samples`` is replaced as a whole, for the fast tier's thread to pick up.

    ``samples`` is None where the GPU does not tell (MIG, old boards); pids not in it were idle.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._function = handle.library.function("nvmlDeviceGetProcessUtilization")
        self._last_seen = 0  # driver's µs since the epoch
        self._set_back = 0.0  # seconds the clock was set back since gputop was started
        self._held: dict[int, tuple[float, UtilizationSample]] = {}  # pid: when it was sampled (monotonic), values
        self._count = c_uint()
        self.samples: SamplesByPid | None = None
        self._allocate(256)

    def _allocate(self, capacity: int) -> None:
        self._capacity = min(capacity, _CAPACITY_MAX)
        self._buffer = ctypes.create_string_buffer(self._capacity * _SAMPLE.size)

    def read(self, pids: Collection[int]) -> None:
        """Bring ``samples`` up to date for *pids*. Raises NvmlError when the GPU or the driver is gone."""
        if self._function is None:
            return
        if not pids:
            self._held.clear()
            return
        set_back = steady_time() - time.time()
        if set_back - self._set_back > 1:  # the clock was: no sample would be newer than those before
            self._last_seen = 0
        self._set_back = set_back
        code = self._call()
        if code in (0, abi.NOT_FOUND):  # NOT_FOUND: nobody was active since
            self._publish(pids, self._newest(self._count.value if code == 0 else 0))
        elif code in PERMANENT:
            self._function, self.samples = None, None
        else:
            self.samples = None
            self._handle.failed(code)

    def _call(self) -> int:
        assert self._function is not None
        code = abi.INSUFFICIENT_SIZE
        for _ in range(_TRIES):
            self._count.value = self._capacity
            code = self._function(self._handle.pointer, self._buffer, byref(self._count), c_ulonglong(self._last_seen))
            if code != abi.INSUFFICIENT_SIZE:
                break
            self._allocate(max(self._count.value * 2 + 5, self._capacity * 2))
        return code

    def _newest(self, count: int) -> dict[int, UtilizationSample]:
        """The newest sample of each pid since the last look, without what cannot be true: pids of 0, samples over
        100 %, times of another age."""
        now = time.time_ns() // 1000
        # Before the first look the driver gives all it has, also of processes long dead.
        since = self._last_seen or now - int(HOLD_SECONDS * 1e6)
        newest: dict[int, tuple[int, UtilizationSample]] = {}
        last_seen = self._last_seen
        used = memoryview(self._buffer)[: min(count, self._capacity) * _SAMPLE.size]
        for pid, stamp, *samples in _SAMPLE.iter_unpack(used):
            if pid == 0 or max(samples) > 100 or stamp > now + FUTURE_MICROSECONDS:
                continue
            last_seen = max(last_seen, stamp)
            if stamp > since and (pid not in newest or stamp > newest[pid][0]):
                sm, memory, encoder, decoder = samples
                newest[pid] = (stamp, (sm, memory, encoder, decoder))
        self._last_seen = last_seen
        return {pid: samples for pid, (_, samples) in newest.items()}

    def _publish(self, pids: Collection[int], newest: Mapping[int, UtilizationSample]) -> None:
        now = time.monotonic()
        held = {pid: kept for pid, kept in self._held.items() if now - kept[0] < HOLD_SECONDS and pid in pids}
        held.update((pid, (now, samples)) for pid, samples in newest.items() if pid in pids)
        self._held = held
        samples = {pid: kept[1] for pid, kept in held.items()}
        if samples != self.samples:  # the same object while nothing changed, so that the fast tier can tell
            self.samples = samples
