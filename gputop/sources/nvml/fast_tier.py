"""The fast tier of one GPU: what changes from one tick to the next, in a few dozen microseconds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from ctypes import c_int
from dataclasses import dataclass
from typing import Final

from gputop.model import PROCESSES_UNRELIABLE, Gpu, GpuFacts, GpuProcess, Xid, memory_by_pid, steady_time, unattributed
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.calls import Fields, Handle, Quantity
from gputop.sources.nvml.driver.errors import NvmlError
from gputop.sources.nvml.readings.gpm import Gpm
from gputop.sources.nvml.readings.gpm import supported as gpm_supported
from gputop.sources.nvml.readings.identity import Identity
from gputop.sources.nvml.readings.memory import NO_MEMORY, memory_quantity, shared_memory
from gputop.sources.nvml.readings.mig import MigInstances
from gputop.sources.nvml.readings.pcie import PcieCounters, Throughput
from gputop.sources.nvml.readings.processes import EntryLayoutProbe, Processes, SamplesByPid
from gputop.sources.nvml.sysfs import host_memory
from gputop.sources.source import Reading

_MEMORY_TEMPERATURE: Final = (abi.FIELD_MEMORY_TEMPERATURE, 0)
_POWER_INSTANT: Final = (abi.FIELD_POWER_INSTANT, 0)
_NOTHING: Final[Mapping[int, float]] = {}


@dataclass(frozen=True, slots=True)
class BackgroundReadings:
    """What the medium and slow tiers found last. Replaced as a whole, so that the fast tier's thread sees all or
    nothing of a change."""

    facts: GpuFacts = GpuFacts()
    power_limit_watts: float | None = None
    temperature_margin_celsius: int | None = None
    fans_percent: tuple[int | None, ...] | None = None
    nvlink_rx_bytes_per_second: float | None = None
    nvlink_tx_bytes_per_second: float | None = None
    notes: tuple[str, ...] = ()


class FastTier:
    """What changes from one tick to the next."""

    def __init__(
        self, handle: Handle, identity: Identity, index: int, layouts: EntryLayoutProbe, mig: MigInstances
    ) -> None:
        self.handle, self.identity, self.index, self._mig = handle, identity, index, mig
        self._memory = memory_quantity(handle)
        self._utilization: Quantity[tuple[int | None, int | None]] = handle.first_of(
            ("nvmlDeviceGetUtilizationRates", (), abi.Utilization(), _decode_utilization)
        )
        self._temperature: Quantity[int] = handle.first_of(
            (
                "nvmlDeviceGetTemperatureV",  # missing on R550 and before
                (),
                abi.Temperature(version=abi.version(abi.Temperature, 1)),
                lambda buffer: buffer.temperature,
            ),
            ("nvmlDeviceGetTemperature", (0,), c_int(), lambda buffer: buffer.value),
        )
        self._power = handle.uint("nvmlDeviceGetPowerUsage")  # what nvidia-smi's power.draw is, on every GPU
        self._clock_sm = handle.uint("nvmlDeviceGetClockInfo", before=(abi.CLOCK_SM,))
        self._clock_memory = handle.uint("nvmlDeviceGetClockInfo", before=(abi.CLOCK_MEMORY,))
        self._clock_video = handle.uint("nvmlDeviceGetClockInfo", before=(abi.CLOCK_VIDEO,))
        self._state = handle.uint("nvmlDeviceGetPerformanceState")
        self._reasons = handle.u64(
            "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
        )
        self._encoder = handle.percent("nvmlDeviceGetEncoderUtilization")
        self._decoder = handle.percent("nvmlDeviceGetDecoderUtilization")
        self._jpeg = handle.percent("nvmlDeviceGetJpgUtilization")
        self._ofa = handle.percent("nvmlDeviceGetOfaUtilization")
        self._power_average = handle.field(abi.FIELD_POWER_AVERAGE)
        self._fields = Fields(handle, (_MEMORY_TEMPERATURE, _POWER_INSTANT))
        self.processes = Processes(handle, layouts, identity.uuid, index)
        self.pcie = PcieCounters(handle)
        self.has_gpm = gpm_supported(handle)
        self.gpm = Gpm(handle) if self.has_gpm else None
        self._unattributed_of: tuple[int | None, int | None, bool, tuple[GpuProcess, ...]] | None = None
        self._unattributed_bytes: int | None = None

    def read(
        self,
        background: BackgroundReadings,
        samples: SamplesByPid | None,
        sampled: Throughput,
        xids: tuple[Xid, ...],
    ) -> Reading:
        """Everything, with what the other tiers found: *background*, per-process utilization, the blocking PCIe call.
        Raises NvmlError when a call says that the GPU or the driver is gone, or when nothing at all could be read."""
        handle, identity = self.handle, self.identity
        handle.failures.clear()
        memory = self._memory.read()
        gpu_percent, memory_percent = self._utilization.read() or (None, None)
        temperature = self._temperature.read()
        power = self._power.read()
        if handle.failures and memory is None and gpu_percent is None and temperature is None and power is None:
            raise NvmlError(max(handle.failures))
        fields = self._fields.read()
        now = time.monotonic()
        metrics = self.gpm.read(now) if self.gpm is not None else _NOTHING
        rx, tx = self._pcie(metrics, now, sampled)
        total, used, reserved, free = memory or NO_MEMORY
        processes = self.processes.read(samples, total or host_memory(), used, self._mig.instances)
        # A GPU without memory of its own says so by "not supported" or by a total of 0.
        processes_error = self._processes_error()
        shared = total == 0 or (self._memory.unsupported and not self._mig.enabled)
        if shared:
            total, used, reserved, free = shared_memory(processes if processes_error is None else None)
        gpu = Gpu(
            index=self.index,
            uuid=identity.uuid,
            name=identity.name,
            read_at=time.time(),
            steady=steady_time(),
            pci_bus_id=identity.pci_bus_id,
            memory_total_bytes=total,
            memory_used_bytes=used,
            memory_reserved_bytes=reserved,
            memory_free_bytes=free,
            memory_unattributed_bytes=None
            if processes_error is not None
            else self._unattributed(used, reserved, shared, processes),
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
            temperature_memory_celsius=_degrees(fields.get(_MEMORY_TEMPERATURE)),
            temperature_margin_celsius=background.temperature_margin_celsius,
            power_watts=watts(self._power_average.read() if power is None else power),
            power_instant_watts=watts(fields.get(_POWER_INSTANT)),
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
            mig=self._mig.read() if self._mig.instances else (),
            xids=xids,
            notes=self._notes(background, processes_error),
            processes_error=processes_error,
        )
        return Reading(gpu, processes)

    @property
    def pcie_by_gpm(self) -> bool:
        """Whether GPM gives PCIe throughput (its first figures come with the second tick)."""
        return self.gpm is not None and self.gpm.has(abi.GPM_PCIE_RX)

    def _pcie(self, metrics: Mapping[int, float], now: float, sampled: Throughput) -> Throughput:
        if self.pcie_by_gpm:
            return metrics.get(abi.GPM_PCIE_RX), metrics.get(abi.GPM_PCIE_TX)
        throughput = self.pcie.read(now)
        return sampled if self.pcie.serves is False else throughput

    def _unattributed(
        self, used: int | None, reserved: int | None, shared: bool, processes: tuple[GpuProcess, ...]
    ) -> int | None:
        """:func:`gputop.model.unattributed`, computed again only when something it depends on changed."""
        before = self._unattributed_of
        if before is None or before[3] is not processes or before[:3] != (used, reserved, shared):
            memory = Gpu(
                0, "", "", 0.0, memory_used_bytes=used, memory_reserved_bytes=reserved, memory_is_shared=shared
            )
            self._unattributed_bytes = unattributed(memory, memory_by_pid(processes))
            self._unattributed_of = used, reserved, shared, processes
        return self._unattributed_bytes

    def _processes_error(self) -> str | None:
        if self.processes.unreliable:
            return PROCESSES_UNRELIABLE
        code = self.processes.failure
        return f"process list: {self.handle.library.explain(code)}" if code else None

    def _notes(self, background: BackgroundReadings, processes_error: str | None) -> tuple[str, ...]:
        notes, explain = background.notes, self.handle.library.explain
        if processes_error is not None:
            notes = (*notes, processes_error)
        for code in (abi.CORRUPTED_INFOROM, abi.RESET_REQUIRED):
            if code in self.handle.failures:
                notes = (*notes, explain(code))
        return notes

    def close(self) -> None:
        if self.gpm is not None:
            self.gpm.close()


def _decode_utilization(rates: abi.Utilization) -> tuple[int | None, int | None]:
    gpu, memory = rates.gpu, rates.memory
    return (gpu if gpu <= 100 else None, memory if memory <= 100 else None)


def _degrees(value: float | None) -> int | None:
    """0 is a sensor that is not there, and drivers have blanks that are no temperature (DCGM#199)."""
    return int(value) if value is not None and 0 < value < 200 else None


def watts(milliwatts: float | None) -> float | None:
    """Milliwatts as watts; None where they are not known or the driver's blank."""
    return None if milliwatts is None or milliwatts >= abi.NOT_AVAILABLE_32 else milliwatts / 1000


def _known_state(state: int | None) -> int | None:
    """NVML_PSTATE_UNKNOWN is 32."""
    return state if state is not None and state <= 15 else None
