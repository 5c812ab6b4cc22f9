"""GPU performance monitoring (Hopper and later): what the SMs, tensor cores, memory, PCIe and NVLink really do.

A metric is computed from two samples at least 100 ms apart; two sample buffers take turns.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Mapping
from ctypes import Structure, byref, c_char, c_uint, c_void_p, sizeof
from typing import Final

from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.calls import Handle
from gputop.sources.nvml.driver.errors import GPU_GONE, PERMANENT, NvmlError

#: NVML's GPM calls are not safe against each other, not even for different GPUs: on two H200s (driver 580.159) a
#: nvmlGpmMetricsGet beside another thread's nvmlGpmSampleGet ended in a segmentation fault, two times in three
#: (docs/nvml-quirks.md §7).
_GPM_LOCK: Final = threading.Lock()
LOCK_TIMEOUT_SECONDS: Final = 0.05  # while another GPU is being asked
#: Closer together than this, two samples may be one and the same. (NVML asks for 100 ms; beats jitter.)
MIN_INTERVAL_SECONDS: Final = 0.095

METRICS: Final = (
    abi.GPM_SM,
    abi.GPM_OCCUPANCY,
    abi.GPM_TENSOR,
    abi.GPM_DRAM_BANDWIDTH,
    abi.GPM_PCIE_TX,
    abi.GPM_PCIE_RX,
    abi.GPM_NVLINK_RX,
    abi.GPM_NVLINK_TX,
)

_METRIC: Final = struct.Struct("=IId24x")
assert _METRIC.size == sizeof(abi.GpmMetric)


class _Request(Structure):
    """nvmlGpmMetricsGet_t, with room for every metric any driver knows."""

    _fields_ = (
        ("version", c_uint),
        ("count", c_uint),
        ("first", c_void_p),
        ("second", c_void_p),
        ("metrics", abi.GpmMetric * abi.GPM_METRIC_MAX),
    )


def supported(handle: Handle) -> bool | None:
    """Whether this GPU has GPM (nvmlGpmQueryDeviceSupport); None where the driver does not say."""
    support = abi.GpmSupport(version=1)
    code = handle.library.call("nvmlGpmQueryDeviceSupport", handle.pointer, byref(support))
    if code:
        return False if code in PERMANENT else None
    return bool(support.supported)


class Gpm:
    """The metrics of one GPU, or of one MIG GPU instance of it (nvmlGpmMigSampleGet)."""

    def __init__(self, handle: Handle, metrics: tuple[int, ...] = METRICS, gpu_instance_id: int | None = None) -> None:
        self._handle = handle
        library = handle.library
        self._free = library.function("nvmlGpmSampleFree")
        self._get = library.function("nvmlGpmMetricsGet")
        name = "nvmlGpmSampleGet" if gpu_instance_id is None else "nvmlGpmMigSampleGet"
        self._sample = library.function(name)
        self._before = () if gpu_instance_id is None else (c_uint(gpu_instance_id),)
        self._samples: list[c_void_p] = []
        self._taken = -1.0  # monotonic time of the newest sample
        self._values: dict[int, float] = {}
        self._request = _Request(version=1)
        self._request_reference = byref(self._request)
        self._ask(metrics)
        if self._get is not None and self._sample is not None:
            self._allocate()

    def _allocate(self) -> None:
        for _ in range(2):
            sample = c_void_p()
            if self._handle.library.call("nvmlGpmSampleAlloc", byref(sample)) or not sample.value:
                self.close()
                return
            self._samples.append(sample)

    def _ask(self, metrics: tuple[int, ...]) -> None:
        self._metrics = metrics
        self._request.count = len(metrics)
        for entry, id_ in zip(self._request.metrics, metrics, strict=False):
            entry.id = id_
        self._answers = (c_char * (len(metrics) * _METRIC.size)).from_buffer(self._request, _Request.metrics.offset)

    def has(self, metric: int) -> bool:
        """Whether *metric* is there, as far as is known by now."""
        return bool(self._samples) and metric in self._metrics

    def read(self, now: float) -> Mapping[int, float]:
        """Metrics over the time since the last sample; *now* is monotonic. Empty at first, and where unsupported.
        Percent are 0 to 100, throughputs bytes per second. Raises NvmlError when the GPU or the driver is gone."""
        if not self._samples or now - self._taken < MIN_INTERVAL_SECONDS:
            return self._values
        if not _GPM_LOCK.acquire(timeout=LOCK_TIMEOUT_SECONDS):
            self._values = {}  # another GPU's call hangs: nothing is known now
            return self._values
        try:
            return self._read(now)
        finally:
            _GPM_LOCK.release()

    def _read(self, now: float) -> Mapping[int, float]:
        older, newer = self._samples
        assert self._sample is not None and self._get is not None
        code = self._sample(self._handle.pointer, *self._before, older)
        if code:
            return self._failed(code)
        first = self._taken < 0
        self._samples = [newer, older]  # what was older was overwritten just now
        self._taken = now
        if not first:
            self._request.first, self._request.second = newer, older
            code = self._get(self._request_reference)
            if code:
                return self._failed(code)
            self._decode()
        return self._values

    def _decode(self) -> None:
        values: dict[int, float] = {}
        dropped = []
        for id_, code, value in _METRIC.iter_unpack(self._answers):
            if code == 0 and 0 <= value < 1e9:  # NaN and blanks are neither
                values[id_] = value * 1048576.0 if id_ >= abi.GPM_PCIE_TX else min(value, 100.0)
            elif code in PERMANENT or code == abi.INVALID_ARGUMENT:
                dropped.append(id_)
        self._values = values
        if dropped:
            self._ask(tuple(id_ for id_ in self._metrics if id_ not in dropped))

    def _failed(self, code: int) -> Mapping[int, float]:
        self._values = {}
        self._taken = -1.0
        if code in GPU_GONE:
            raise NvmlError(code)
        if code in PERMANENT or code == abi.NO_PERMISSION:
            self.close()
        return self._values

    def close(self) -> None:
        """Give the samples back."""
        samples, self._samples = self._samples, []
        if self._free is not None:
            for sample in samples:
                self._free(sample)
