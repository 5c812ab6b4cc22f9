"""One GPU at one moment, what rarely changes about it, and what its event reasons mean."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from gputop.model.json_key import formerly


class Severity(enum.IntEnum):
    """How bad something is; each has a word or sign of its own on the screen, never colour alone."""

    NORMAL = 0
    INFO = 1
    WARNING = 2
    CRITICAL = 3


class EventReason(NamedTuple):
    bit: int
    label: str
    severity: Severity


#: Bits of ``nvmlDeviceGetCurrentClocksEventReasons`` (nvml.h, nvmlClocksEventReason*), worst first.
EVENT_REASONS: Final = (
    EventReason(0x08, "HW slowdown", Severity.CRITICAL),
    EventReason(0x40, "HW thermal", Severity.CRITICAL),
    EventReason(0x80, "HW power brake", Severity.CRITICAL),
    EventReason(0x20, "SW thermal", Severity.WARNING),
    EventReason(0x200, "board limit", Severity.WARNING),
    EventReason(0x400, "reliability", Severity.WARNING),
    EventReason(0x04, "power cap", Severity.INFO),  # normal at full load
    EventReason(0x10, "sync boost", Severity.INFO),
    EventReason(0x100, "display clocks", Severity.NORMAL),
    EventReason(0x02, "app clocks", Severity.NORMAL),
    EventReason(0x01, "idle", Severity.NORMAL),
)


@lru_cache(256)
def event_reasons(mask: int | None) -> tuple[EventReason, ...] | None:
    """The reasons set in *mask*, worst first; None where the driver does not say."""
    if mask is None:
        return None
    return tuple(reason for reason in EVENT_REASONS if mask & reason.bit)


@dataclass(frozen=True, slots=True)
class NvLink:
    """One NVLink of a GPU (nvmlDeviceGetNvLinkState, field values 138/139 by scope)."""

    index: int
    active: bool | None = None
    rx_bytes_per_second: float | None = None
    tx_bytes_per_second: float | None = None
    peer: str | None = None


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What changes rarely or never: read once, or every 5 to 30 s."""

    minor_number: int | None = None  # N of /dev/nvidiaN, not the index
    architecture: str | None = None
    compute_capability: str | None = None
    serial: str | None = None
    vbios: str | None = None
    compute_mode: str | None = None
    persistence_mode: bool | None = None
    display_active: bool | None = None
    mig_mode: bool | None = None  # None: this GPU has no MIG
    gpm: bool | None = None  # GPU performance monitoring (Hopper and later)
    numa_node: int | None = None
    cpu_affinity: str | None = None  # "0-31"
    topology: tuple[tuple[str, str], ...] | None = None  # (other GPU's UUID, "NV18", "NODE", "SYS"…)

    clock_sm_max_mhz: int | None = None
    clock_memory_max_mhz: int | None = None
    clock_video_max_mhz: int | None = None

    temperature_shutdown_celsius: int | None = None
    temperature_slowdown_celsius: int | None = None
    temperature_max_celsius: int | None = None
    temperature_memory_max_celsius: int | None = None

    power_limit_default_watts: float | None = None
    power_limit_min_watts: float | None = None
    power_limit_max_watts: float | None = None

    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None

    bar1_total_bytes: int | None = None
    bar1_used_bytes: int | None = None

    fan_rpm: tuple[int | None, ...] | None = None

    ecc_enabled: bool | None = None
    ecc_corrected: int | None = None  # volatile: since the driver was loaded
    ecc_uncorrected: int | None = None
    ecc_corrected_total: int | None = None  # aggregate: over the board's life
    ecc_uncorrected_total: int | None = None
    rows_remapped_corrected: int | None = None
    rows_remapped_uncorrected: int | None = None
    rows_remap_pending: bool | None = None
    rows_remap_failed: bool | None = None
    recovery_action: str | None = None  # what the driver asks for ("reset the GPU"), None where it asks for none

    nvlinks: tuple[NvLink, ...] | None = None  # empty: it has none


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG device of a GPU. Compute instances of one GPU instance share its memory: never sum them."""

    uuid: str
    gpu_instance_id: int
    compute_instance_id: int
    name: str  # "3g.71gb"
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    sm_active_percent: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Xid:
    """An Xid event of a GPU, stamped on arrival (NVML gives neither time nor history)."""

    at: float
    code: int
    message: str = field(metadata=formerly("words"))
    severity: Severity
    steady: float | None = field(default=None, compare=False, repr=False)  # see Snapshot.steady

    @property
    def steady_at(self) -> float:
        """``at`` by a clock that nobody sets; to be compared with ``Snapshot.steady_at``."""
        return self.at if self.steady is None else self.steady


#: Why a process list is not known: entries that cannot be right, or more than the driver would write.
PROCESSES_UNRELIABLE: Final = "process list unreliable"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU at one moment.

    ``uuid`` is ``slot:N`` until the driver told it. With ``error`` the values are unknown, or the last good
    ones where ``read_at`` is older than the snapshot (a GPU whose driver call is late or hangs).
    """

    index: int
    uuid: str
    name: str
    read_at: float  # when these values were read
    pci_bus_id: str | None = None
    error: str | None = None  # a sentence that says what to do
    late: bool = False  # a driver call for it takes too long; the values are those of read_at
    asleep: bool = False  # a laptop's sleeping GPU, left asleep (sysfs power/runtime_status)

    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None  # without reserved, as nvidia-smi has it; with it where reserved is None
    memory_reserved_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_unattributed_bytes: int | None = None  # used minus the sum over pids, at least 0
    memory_is_shared: bool = False  # unified memory: total is the host's, used the processes' sum

    utilization_gpu_percent: int | None = None
    utilization_memory_percent: int | None = None  # share of time the memory controller was busy, not capacity
    utilization_encoder_percent: int | None = None
    utilization_decoder_percent: int | None = None
    utilization_jpeg_percent: int | None = None
    utilization_ofa_percent: int | None = None

    sm_active_percent: float | None = None  # GPM 2
    sm_occupancy_percent: float | None = None  # GPM 3
    tensor_active_percent: float | None = None  # GPM 5
    dram_bandwidth_percent: float | None = None  # GPM 10

    temperature_celsius: int | None = None
    temperature_memory_celsius: int | None = None
    temperature_margin_celsius: int | None = None  # to the start of slowdown

    power_watts: float | None = None  # as nvidia-smi's power.draw
    power_instant_watts: float | None = None
    power_limit_watts: float | None = None  # the enforced one

    fans_percent: tuple[int | None, ...] | None = None  # intended speed, may exceed 100; empty: no fan to report

    clock_sm_mhz: int | None = None
    clock_memory_mhz: int | None = None
    clock_video_mhz: int | None = None
    performance_state: int | None = None  # 0 to 15
    event_reasons_mask: int | None = None

    pcie_rx_bytes_per_second: float | None = None  # to the GPU
    pcie_tx_bytes_per_second: float | None = None  # from the GPU
    nvlink_rx_bytes_per_second: float | None = None
    nvlink_tx_bytes_per_second: float | None = None

    facts: GpuFacts = field(default_factory=GpuFacts)
    mig: tuple[MigInstance, ...] = ()
    xids: tuple[Xid, ...] = ()  # newest last
    notes: tuple[str, ...] = ()  # what a reader should know: "persistence off", "process list unreliable"…
    processes_error: str | None = None  # why its process list is not known, or not all of it; also among the notes
    steady: float | None = field(default=None, compare=False, repr=False)  # see Snapshot.steady

    @property
    def steady_at(self) -> float:
        """``read_at`` by a clock that nobody sets; to be compared with ``Snapshot.steady_at``."""
        return self.read_at if self.steady is None else self.steady

    @property
    def processes_known(self) -> bool:
        """Whether a process that is not listed is not on it: a list that failed is not an empty one."""
        return self.processes_error is None and self.error is None and not self.late

    @property
    def fan_percent(self) -> int | None:
        """The fastest fan."""
        return max((speed for speed in self.fans_percent or () if speed is not None), default=None)

    @property
    def event_reasons(self) -> tuple[EventReason, ...] | None:
        """Why the clocks are what they are, worst first; None where the driver does not say."""
        return event_reasons(self.event_reasons_mask)
