"""What changes rarely or never: the static tier (read once) and the slow tier (every 5 to 30 s).

On an H200 the static tier costs 10 ms, once (maximum clocks 2 ms each, thresholds 0.2 to 2 ms), and the slow one 5 ms
(margin 1.2 ms) beside the NVLinks. Total energy (3 ms and more) is never asked for, and the CPUs next to a GPU are read
from sysfs: nvmlDeviceGetCpuAffinity took 9 ms. (docs/nvml-quirks.md §8)
"""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import c_int
from pathlib import Path
from typing import Any, Final

from gputop.model import GpuFacts, replace
from gputop.sources.nvml import sysfs
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.calls import Fields, Handle, Quantity

_ARCHITECTURE: Final = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
_COMPUTE_MODE: Final = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_RECOVERY: Final = {
    1: "reset the GPU",
    2: "reboot the node",
    3: "drain peer-to-peer traffic",
    4: "drain peer-to-peer traffic, then reset the GPU",
    5: "recover the IMEX domain",
    6: "reset the GPU's PCIe bus",
    7: "reboot",
}
_RETIREMENT_PENDING: Final = (abi.FIELD_RETIRED_PENDING, 0)
_RECOVERY_ACTION: Final = (abi.FIELD_RECOVERY_ACTION, 0)
_NUMA_NOTE: Final = "GPU memory is a NUMA node: the kernel may keep files and pages of the host in it"


def read_static(handle: Handle, pci_bus_id: str | None, gpm: bool | None, root: Path = Path("/")) -> GpuFacts:
    """What never changes while the driver is loaded. Raises NvmlError when the GPU or the driver is gone."""
    address = sysfs.address_of(pci_bus_id) if pci_bus_id else None
    capability = handle.numbers("nvmlDeviceGetCudaComputeCapability", 2, kind=c_int).read()
    architecture = handle.uint("nvmlDeviceGetArchitecture").read()
    ecc = handle.numbers("nvmlDeviceGetEccMode", 2).read()  # another mode takes a reboot

    def clock(kind: int) -> int | None:
        return handle.uint("nvmlDeviceGetMaxClockInfo", before=(kind,)).read()

    def threshold(kind: int) -> int | None:
        return handle.uint("nvmlDeviceGetTemperatureThreshold", before=(kind,)).read()

    return GpuFacts(
        minor_number=handle.uint("nvmlDeviceGetMinorNumber").read(),
        architecture=None if architecture is None else _ARCHITECTURE.get(architecture),
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
        serial=handle.text("nvmlDeviceGetSerial").read(),
        vbios=handle.text("nvmlDeviceGetVbiosVersion").read(),
        gpm=gpm,
        numa_node=sysfs.numa_node(address, root) if address else None,
        cpu_affinity=sysfs.cpu_affinity(address, root) if address else None,
        ecc_enabled=None if ecc is None else bool(ecc[0]),
        clock_sm_max_mhz=clock(abi.CLOCK_SM),
        clock_memory_max_mhz=clock(abi.CLOCK_MEMORY),
        clock_video_max_mhz=clock(abi.CLOCK_VIDEO),
        temperature_shutdown_celsius=threshold(abi.THRESHOLD_SHUTDOWN),
        temperature_slowdown_celsius=threshold(abi.THRESHOLD_SLOWDOWN),
        temperature_max_celsius=threshold(abi.THRESHOLD_GPU_MAX),
        temperature_memory_max_celsius=threshold(abi.THRESHOLD_MEMORY_MAX),
        pcie_generation_max=handle.uint("nvmlDeviceGetMaxPcieLinkGeneration").read(),
        pcie_width_max=handle.uint("nvmlDeviceGetMaxPcieLinkWidth").read(),
    )


class Fans:
    """Intended speed of every fan, in percent of its highest (medium tier), and revolutions a minute (slow tier)."""

    def __init__(self, handle: Handle) -> None:
        count = handle.uint("nvmlDeviceGetNumFans")
        number = count.read()
        self.counted = number is not None or count.unsupported
        if number is None:  # before R510 there was one, or none
            self._percent = [handle.uint("nvmlDeviceGetFanSpeed")]
        else:
            self._percent = [handle.uint("nvmlDeviceGetFanSpeed_v2", before=(fan,)) for fan in range(number)]
        self._rpm: list[Quantity[int]] = [
            handle.first_of(
                (
                    "nvmlDeviceGetFanSpeedRPM",
                    (),
                    abi.FanSpeed(version=abi.version(abi.FanSpeed, 1), fan=fan),
                    lambda buffer: buffer.speed,
                )
            )
            for fan in range(len(self._percent))
        ]

    def percent(self) -> tuple[int | None, ...]:
        """Empty where there is no fan to report (SXM, passive, laptop); 0 is a fan that stands still."""
        speeds = tuple([fan.read() for fan in self._percent])
        return () if all(fan.unsupported for fan in self._percent) else speeds

    def rpm(self) -> tuple[int | None, ...]:
        speeds = tuple([fan.read() for fan in self._rpm])
        return () if all(fan.unsupported for fan in self._rpm) else speeds


class SlowFacts:
    """What changes, but rarely. Raises NvmlError when the GPU or the driver is gone."""

    def __init__(self, handle: Handle) -> None:
        self._limit = handle.uint("nvmlDeviceGetEnforcedPowerLimit")
        self._limit_default = handle.uint("nvmlDeviceGetPowerManagementDefaultLimit")
        self._limits = handle.numbers("nvmlDeviceGetPowerManagementLimitConstraints", 2)
        self._margin: Quantity[int] = handle.first_of(
            (
                "nvmlDeviceGetMarginTemperature",
                (),
                abi.MarginTemperature(version=abi.version(abi.MarginTemperature, 1)),
                lambda buffer: buffer.margin,
            )
        )
        self._compute_mode = handle.uint("nvmlDeviceGetComputeMode")
        self._persistence = handle.uint("nvmlDeviceGetPersistenceMode")
        self._display = handle.uint("nvmlDeviceGetDisplayActive")
        self._generation = handle.uint("nvmlDeviceGetCurrPcieLinkGeneration")
        self._width = handle.uint("nvmlDeviceGetCurrPcieLinkWidth")
        self._replays = handle.uint("nvmlDeviceGetPcieReplayCounter")
        self._bar1: Quantity[tuple[int, int]] = handle.first_of(
            ("nvmlDeviceGetBAR1MemoryInfo", (), abi.Bar1Memory(), lambda buffer: (buffer.total, buffer.used))
        )
        self._ecc = {
            (kind, counter): handle.u64("nvmlDeviceGetTotalEccErrors", before=(kind, counter))
            for kind in (abi.ERROR_CORRECTED, abi.ERROR_UNCORRECTED)
            for counter in (abi.COUNTER_VOLATILE, abi.COUNTER_AGGREGATE)
        }
        self._rows = handle.numbers("nvmlDeviceGetRemappedRows", 4)  # corrected, uncorrected, pending, failed
        self._fields = Fields(handle, (_RETIREMENT_PENDING, _RECOVERY_ACTION))
        self._numa = handle.uint("nvmlDeviceGetNumaNodeId")
        self.power_limit_watts: float | None = None
        self.margin_celsius: int | None = None
        self.notes: tuple[str, ...] = ()

    def read(self, facts: GpuFacts) -> GpuFacts:
        """*facts* brought up to date; ``power_limit_watts``, ``margin_celsius`` and ``notes`` too."""
        self.power_limit_watts = _watts(self._limit.read())
        self.margin_celsius = self._margin.read()
        fields = self._fields.read()
        recovery = fields.get(_RECOVERY_ACTION)
        new: dict[str, Any] = {
            "compute_mode": _COMPUTE_MODE.get(_number(self._compute_mode.read())),
            "persistence_mode": _flag(self._persistence.read()),
            "display_active": _flag(self._display.read()),
            "pcie_generation": self._generation.read(),
            "pcie_width": self._width.read(),
            "pcie_replays": self._replays.read(),
            "power_limit_default_watts": _watts(self._limit_default.read()),
            "recovery_action": None if recovery is None else _RECOVERY.get(int(recovery), _other_recovery(recovery)),
        }
        low, high = self._limits.read() or (None, None)
        new["power_limit_min_watts"], new["power_limit_max_watts"] = _watts(low), _watts(high)
        new["bar1_total_bytes"], new["bar1_used_bytes"] = self._bar1.read() or (None, None)
        new["ecc_corrected"] = self._ecc[abi.ERROR_CORRECTED, abi.COUNTER_VOLATILE].read()
        new["ecc_uncorrected"] = self._ecc[abi.ERROR_UNCORRECTED, abi.COUNTER_VOLATILE].read()
        new["ecc_corrected_total"] = self._ecc[abi.ERROR_CORRECTED, abi.COUNTER_AGGREGATE].read()
        new["ecc_uncorrected_total"] = self._ecc[abi.ERROR_UNCORRECTED, abi.COUNTER_AGGREGATE].read()
        rows = self._rows.read() or (None, None, None, None)
        new["rows_remapped_corrected"], new["rows_remapped_uncorrected"] = rows[:2]
        new["rows_remap_pending"], new["rows_remap_failed"] = (_flag(row) for row in rows[2:])
        facts = replace(facts, **new)
        self.notes = tuple(self._notes(facts, bool(fields.get(_RETIREMENT_PENDING))))
        return facts

    def _notes(self, facts: GpuFacts, retirement_pending: bool) -> Iterable[str]:
        if facts.recovery_action is not None:
            yield f"the driver asks to {facts.recovery_action}"
        if facts.rows_remap_failed:
            yield "remapping memory rows failed: have the board serviced"
        if facts.rows_remap_pending:
            yield "memory rows are waiting to be remapped: reset the GPU"
        if retirement_pending:
            yield "memory pages are waiting to be retired: reset the GPU"
        if facts.persistence_mode is False:
            yield "persistence off"
        if self._numa.read() is not None:
            yield _NUMA_NOTE


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _number(value: int | None) -> int:
    return -1 if value is None else value


def _other_recovery(action: float) -> str | None:
    return f"recover (action {action:.0f})" if action else None
