"""One opened GPU: its fast tier, and the places where the other tiers leave what they found."""

from __future__ import annotations

import time
from ctypes import byref, c_int, c_uint, c_void_p
from dataclasses import dataclass
from typing import Any, Final

from gputop.model import Gpu, GpuFacts, GpuProcess, Xid, memory_by_pid, unattributed
from gputop.sources import Reading
from gputop.sources.nvml import abi
from gputop.sources.nvml.calls import Fields, Handle, Quantity
from gputop.sources.nvml.errors import Fault
from gputop.sources.nvml.gpm import Gpm
from gputop.sources.nvml.gpm import supported as gpm_supported
from gputop.sources.nvml.library import Library
from gputop.sources.nvml.pcie import PcieCounters, PcieSampler
from gputop.sources.nvml.processes import UNRELIABLE, Processes, Strides
from gputop.sources.nvml.sysfs import host_memory
from gputop.sources.nvml.utilization import ProcessUtilization

#: total, used, reserved, free
Memory = tuple[int | None, int | None, int | None, int | None]

_NO_MEMORY: Final[Memory] = (None, None, None, None)
_MEMORY_TEMPERATURE: Final = (abi.FIELD_MEMORY_TEMPERATURE, 0)
_POWER_AVERAGE: Final = (abi.FIELD_POWER_AVERAGE, 0)
_POWER_INSTANT: Final = (abi.FIELD_POWER_INSTANT, 0)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a GPU is; kept by the source when the GPU itself is lost."""

    uuid: str
    name: str
    pci_bus_id: str | None = None


@dataclass(frozen=True, slots=True)
class Background:
    """What the medium and slow tiers found last. Replaced as a whole, so that the fast tier's thread sees all or
    nothing of a change."""

    facts: GpuFacts = GpuFacts()
    power_limit_watts: float | None = None
    temperature_margin_celsius: int | None = None
    fans_percent: tuple[int | None, ...] = ()
    nvlink_rx_bytes_per_second: float | None = None
    nvlink_tx_bytes_per_second: float | None = None
    notes: tuple[str, ...] = ()


class Device:
    """An opened GPU. ``read`` belongs to one thread at a time, what upkeep does to another.

    Raises Fault when a call says that the GPU or the driver is gone, or when nothing at all could be read.
    """

    def __init__(self, library: Library, pointer: c_void_p, index: int, strides: Strides) -> None:
        self.library, self.index, self.pointer = library, index, pointer
        self.handle = Handle(library, pointer)
        self.slow_handle = Handle(library, pointer)
        self.identity = _identify(self.handle, index)
        self.background = Background(power_limit_watts=_enforced_limit(self.handle))

        handle = self.handle
        self._memory = _memory(handle)
        self._utilization: Quantity[tuple[int | None, int | None]] = handle.ways(
            ("nvmlDeviceGetUtilizationRates", (), abi.Utilization(), _take_utilization)
        )
        self._temperature = _temperature(handle)
        self._power = handle.uint("nvmlDeviceGetPowerUsage")
        self._clock_sm = handle.uint("nvmlDeviceGetClockInfo", before=(c_uint(abi.CLOCK_SM),))
        self._clock_memory = handle.uint("nvmlDeviceGetClockInfo", before=(c_uint(abi.CLOCK_MEMORY),))
        self._clock_video = handle.uint("nvmlDeviceGetClockInfo", before=(c_uint(abi.CLOCK_VIDEO),))
        self._state = handle.uint("nvmlDeviceGetPerformanceState")
        self._reasons = handle.u64(
            "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
        )
        self._encoder = handle.percent("nvmlDeviceGetEncoderUtilization")
        self._decoder = handle.percent("nvmlDeviceGetDecoderUtilization")
        self._jpeg = handle.percent("nvmlDeviceGetJpgUtilization")
        self._ofa = handle.percent("nvmlDeviceGetOfaUtilization")
        self._fields = Fields(handle, (_MEMORY_TEMPERATURE, _POWER_AVERAGE, _POWER_INSTANT))
        self.processes = Processes(handle, strides, self.identity.uuid, index)
        self.gpm = Gpm(handle) if gpm_supported(handle) else None
        self.pcie = None if self.gpm is not None else PcieCounters(handle)

        self.utilization = ProcessUtilization(self.slow_handle)
        self.pcie_sampler = PcieSampler(self.slow_handle)
        self._attributed: tuple[object, ...] = ()
        self._unattributed: int | None = None

    # -- the fast tier

    def read(self, xids: tuple[Xid, ...]) -> Reading:
        """Everything that changes from one tick to the next."""
        handle = self.handle
        handle.failures.clear()
        background = self.background
        memory = self._memory.read()
        gpu_percent, memory_percent = self._utilization.read() or (None, None)
        temperature = self._temperature.read()
        power = self._power.read()
        if power is None and memory is None and gpu_percent is None and temperature is None and handle.failures:
            raise Fault(max(handle.failures))
        fields = self._fields.read()
        now = time.monotonic()
        metrics = self.gpm.read(now) if self.gpm is not None else _NOTHING
        rx, tx = self._pcie(metrics, now)
        total, used, reserved, free = memory or _NO_MEMORY
        processes = self.processes.read(self.utilization.shares, total)
        shared = self._memory.unsupported or total == 0
        if shared:
            total, used, reserved, free = _shared_memory(processes)
        power_watts = _milli(power if power is not None else fields.get(_POWER_AVERAGE))
        memory_temperature = fields.get(_MEMORY_TEMPERATURE)
        gpu = Gpu(
            index=self.index,
            uuid=self.identity.uuid,
            name=self.identity.name,
            read_at=time.time(),
            pci_bus_id=self.identity.pci_bus_id,
            memory_total_bytes=total,
            memory_used_bytes=used,
            memory_reserved_bytes=reserved,
            memory_free_bytes=free,
            memory_unattributed_bytes=self._gap(used, reserved, shared, processes),
            memory_is_shared=shared,
            utilization_gpu_percent=gpu_percent,
            utilization_memory_percent=memory_percent,
            utilization_encoder_percent=self._encoder.read(),
            utilization_decoder_percent=self._decoder.read(),
            utilization_jpeg_percent=self._jpeg.read(),
            utilization_ofa_percent=self._ofa.read(),
            sm_active_percent=metrics.get(abi.GPM_SM),
            sm_occupancy_percent=metrics.get(abi.GPM_OCCUPANCY),
            tensor_active_percent=metrics.get(abi.GPM_TENSOR),
            dram_bandwidth_percent=metrics.get(abi.GPM_DRAM_BANDWIDTH),
            temperature_celsius=temperature,
            temperature_memory_celsius=None if not memory_temperature else int(memory_temperature),
            temperature_margin_celsius=background.temperature_margin_celsius,
            power_watts=power_watts,
            power_instant_watts=_milli(fields.get(_POWER_INSTANT)),
            power_limit_watts=background.power_limit_watts,
            fans_percent=background.fans_percent,
            clock_sm_mhz=self._clock_sm.read(),
            clock_memory_mhz=self._clock_memory.read(),
            clock_video_mhz=self._clock_video.read(),
            performance_state=_known_state(self._state.read()),
            event_reasons_mask=self._reasons.read(),
            pcie_rx_bytes_per_second=rx,
            pcie_tx_bytes_per_second=tx,
            nvlink_rx_bytes_per_second=metrics.get(abi.GPM_NVLINK_RX, background.nvlink_rx_bytes_per_second),
            nvlink_tx_bytes_per_second=metrics.get(abi.GPM_NVLINK_TX, background.nvlink_tx_bytes_per_second),
            facts=background.facts,
            mig=(),
            xids=xids,
            notes=self._notes(background),
        )
        return Reading(gpu, processes)

    def _pcie(self, metrics: Any, now: float) -> tuple[float | None, float | None]:
        if self.pcie is None:
            return metrics.get(abi.GPM_PCIE_RX), metrics.get(abi.GPM_PCIE_TX)
        throughput = self.pcie.read(now)
        return self.pcie_sampler.throughput if self.pcie.serves is False else throughput

    def _gap(
        self, used: int | None, reserved: int | None, shared: bool, processes: tuple[GpuProcess, ...]
    ) -> int | None:
        """:func:`gputop.model.unattributed`, computed again only when something it depends on changed."""
        key = (used, reserved, shared, processes)
        if len(self._attributed) != 4 or self._attributed[3] is not processes or self._attributed[:3] != key[:3]:
            memory = Gpu(
                0, "", "", 0, memory_used_bytes=used, memory_reserved_bytes=reserved, memory_is_shared=shared
            )
            self._unattributed = unattributed(memory, memory_by_pid(processes))
            self._attributed = key
        return self._unattributed

    def _notes(self, background: Background) -> tuple[str, ...]:
        notes = background.notes
        if self.processes.unreliable:
            notes = (*notes, UNRELIABLE)
        if self.processes.failure not in (0, abi.INSUFFICIENT_SIZE):
            notes = (*notes, f"process list: {self.library.explain(self.processes.failure)}")
        if abi.CORRUPTED_INFOROM in self.handle.failures:
            notes = (*notes, self.library.explain(abi.CORRUPTED_INFOROM))
        return notes

    # -- the medium tier

    def read_medium(self) -> None:
        self.utilization.read(self.processes.pids)

    def close(self) -> None:
        if self.gpm is not None:
            self.gpm.close()


_NOTHING: Final[dict[int, float]] = {}


def _identify(handle: Handle, index: int) -> Identity:
    pci = abi.PciInfo()
    bus_id = None
    for name in ("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"):
        call = handle.bind(name, byref(pci))
        if call is not None and call() == 0:
            bus_id = (pci.bus_id or pci.bus_id_legacy).decode("ascii", "replace") or None
            break
    return Identity(
        uuid=handle.text("nvmlDeviceGetUUID") or f"slot:{index}",
        name=handle.text("nvmlDeviceGetName") or "NVIDIA GPU",
        pci_bus_id=bus_id,
    )


def _enforced_limit(handle: Handle) -> float | None:
    return _milli(handle.uint("nvmlDeviceGetEnforcedPowerLimit").read())


def _memory(handle: Handle) -> Quantity[Memory]:
    return handle.ways(
        ("nvmlDeviceGetMemoryInfo_v2", (), abi.MemoryV2(version=abi.version(abi.MemoryV2, 2)), take_memory_v2),
        ("nvmlDeviceGetMemoryInfo", (), abi.MemoryV1(), take_memory_v1),
    )


def take_memory_v2(memory: abi.MemoryV2) -> Memory:
    return memory.total, memory.used, memory.reserved, memory.free


def take_memory_v1(memory: abi.MemoryV1) -> Memory:
    return memory.total, memory.used, None, memory.free


def _temperature(handle: Handle) -> Quantity[int]:
    return handle.ways(
        (
            "nvmlDeviceGetTemperatureV",
            (),
            abi.Temperature(version=abi.version(abi.Temperature, 1)),
            lambda buffer: buffer.temperature,
        ),
        ("nvmlDeviceGetTemperature", (c_uint(0),), c_int(), lambda buffer: buffer.value),
    )


def _take_utilization(rates: abi.Utilization) -> tuple[int | None, int | None]:
    gpu, memory = rates.gpu, rates.memory
    return (gpu if gpu <= 100 else None, memory if memory <= 100 else None)


def _milli(value: float | None) -> float | None:
    """Milliwatts as watts; None where it is not known or the driver's blank."""
    return None if value is None or value >= abi.NOT_AVAILABLE_32 else value / 1000


def _known_state(state: int | None) -> int | None:
    """NVML_PSTATE_UNKNOWN is 32."""
    return state if state is not None and state <= 15 else None


def _shared_memory(processes: tuple[GpuProcess, ...]) -> Memory:
    """GB10, Thor…: the GPU has no memory of its own. Its total is the host's; its use is what its processes hold
    (NVML tells that even there), not what the host uses (nvtop#511, nvitop#208)."""
    known = [bytes_ for bytes_ in memory_by_pid(processes).values() if bytes_ is not None]
    used = sum(known) if known or not processes else None
    return host_memory(), used, None, None
