"""What every layer speaks: one machine at one moment, as frozen values.

Three rules hold everywhere:

* ``None`` means that the driver (or the host) does not say. It is never 0.
* A GPU is its UUID, a process is (pid, start ticks). Indices, rows and bare pids identify nothing.
* Text from outside went through :func:`clean_text` once, before it got in here.

Field names carry their unit (bytes, percent 0-100, degrees Celsius, watts, MHz, seconds) and are
the keys of ``--json``. Times are seconds since the epoch unless a name says otherwise.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

# --------------------------------------------------------------------------- text

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def _hostile() -> dict[int, str]:
    """Characters that a terminal obeys or that turn the text around it about."""
    table = {c: REPLACEMENT for c in (*range(0x20), *range(0x7F, 0xA0))}  # C0, DEL, C1: ESC among them
    table |= {c: REPLACEMENT for c in (0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}  # bidi
    table |= {c: "" for c in (*range(0x200B, 0x2010), 0x00AD, 0x2060, 0xFEFF, *range(0xFE00, 0xFE10))}  # no width
    table |= {c: REPLACEMENT for c in range(0xD800, 0xE000)}  # lone surrogates
    table |= {c: " " for c in (0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x2028, 0x2029)}
    return table


_HOSTILE: Final = _hostile()


def clean_text(text: str | bytes, limit: int = 4096) -> str:
    """*text* from outside (process names, command lines, file names…) made safe to show anywhere.

    Bytes are read as UTF-8. Control characters, bidirectional marks and lone surrogates become
    U+FFFD, line breaks and tabs a space; characters without width are dropped, since terminals
    disagree about them. At most *limit* characters are kept.
    """
    if isinstance(text, bytes):
        text = text[: limit * 4].decode("utf-8", "replace")
    text = text[:limit]
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_HOSTILE)


# --------------------------------------------------------------------- event reasons


class Severity(enum.IntEnum):
    """How bad something is; each has a word or sign of its own on the screen, never colour alone."""

    NORMAL = 0
    INFO = 1
    WARNING = 2
    CRITICAL = 3


class EventReason(NamedTuple):
    bit: int
    words: str
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


# -------------------------------------------------------------------------- the GPU


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
    gpm: bool = False  # GPU performance monitoring (Hopper and later)
    numa_node: int | None = None
    cpu_affinity: str | None = None  # "0-31"
    topology: tuple[tuple[str, str], ...] = ()  # (other GPU's UUID, "NV18", "NODE", "SYS"…)

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

    fan_rpm: tuple[int | None, ...] = ()

    ecc_enabled: bool | None = None
    ecc_corrected: int | None = None  # volatile: since the driver was loaded
    ecc_uncorrected: int | None = None
    ecc_corrected_total: int | None = None  # aggregate: over the board's life
    ecc_uncorrected_total: int | None = None
    rows_remapped_corrected: int | None = None
    rows_remapped_uncorrected: int | None = None
    rows_remap_pending: bool | None = None
    rows_remap_failed: bool | None = None
    recovery_action: str | None = None  # in words, None where none is asked for

    nvlinks: tuple[NvLink, ...] = ()


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
    words: str
    severity: Severity


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
    error: str | None = None  # in words, with what to do
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

    fans_percent: tuple[int | None, ...] = ()  # intended speed, may exceed 100; empty: no fan to report

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

    @property
    def fan_percent(self) -> int | None:
        """The fastest fan."""
        return max((speed for speed in self.fans_percent if speed is not None), default=None)

    @property
    def event_reasons(self) -> tuple[EventReason, ...] | None:
        """Why the clocks are what they are, worst first; None where the driver does not say."""
        return event_reasons(self.event_reasons_mask)


# ---------------------------------------------------------------------- processes


class ProcessKey(NamedTuple):
    """A process. The start time (clock ticks since boot, field 22 of /proc/PID/stat) tells a reused pid from its first
    bearer; None where the host does not have the pid."""

    pid: int
    start_ticks: int | None


class RowKey(NamedTuple):
    """A process on a GPU or MIG instance: what a row of the table is."""

    process: ProcessKey
    gpu_uuid: str
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the host says about a process (/proc/PID)."""

    key: ProcessKey
    read_at: float
    start_time: float | None = None
    parent_pid: int | None = None
    group_id: int | None = None
    session_id: int | None = None
    uid: int | None = None
    user: str | None = None  # the number as text where it has no name
    name: str | None = None  # comm
    command: str | None = None  # the command line; [comm] where there is none
    state: str | None = None  # the letter of /proc/PID/stat
    threads: int | None = None
    cpu_percent: float | None = None  # 100 is one core; None at the first look
    cpu_seconds: float | None = None
    host_memory_bytes: int | None = None  # resident


@dataclass(frozen=True, slots=True)
class TorchPhase:
    """A phase of the newest step, on one device: most allocated in it, and what it left allocated."""

    name: str
    seconds: float
    peak_bytes: int
    kept_bytes: int  # may be negative


@dataclass(frozen=True, slots=True)
class TorchDevice:
    """PyTorch's allocator on one device, of one process. ``index`` is torch's, not the driver's."""

    index: int
    uuid: str | None = None
    pci_bus_id: str | None = None
    allocated_bytes: int = 0  # in tensors
    reserved_bytes: int = 0  # taken from the driver: in tensors, and cached
    active_bytes: int = 0  # in tensors, and freed ones that a stream is waited for
    inactive_split_bytes: int = 0  # cached, and not to be released: in segments that are in use
    retries: int = 0  # the cache was flushed to make room: the early warning
    ooms: int = 0
    peak_bytes: int | None = None  # most allocated
    step_peak_bytes: int | None = None
    phases: tuple[TorchPhase, ...] = ()

    @property
    def cached_bytes(self) -> int:
        return max(0, self.reserved_bytes - self.active_bytes)

    @property
    def releasable_bytes(self) -> int:
        """What empty_cache() could give back at most. With expandable segments torch counts none of it as stuck."""
        return max(0, self.cached_bytes - self.inactive_split_bytes)


@dataclass(frozen=True, slots=True)
class TorchAnswer:
    """What became of a request to the process."""

    id: str
    words: str
    path: str | None = None  # of the snapshot


@dataclass(frozen=True, slots=True)
class TorchReport:
    """What a process that uses gputop.torch_monitor tells of its allocator. ``written_at``: it may be long ago."""

    written_at: float
    torch_version: str | None = None
    backend: str | None = None
    steps: int = 0
    step_seconds: float | None = None
    recording: bool = False
    phase: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    devices: tuple[TorchDevice, ...] = ()
    answers: tuple[TorchAnswer, ...] = ()  # the newest last

    def on(self, gpu: Gpu) -> TorchDevice | None:
        """The device that is *gpu*, by UUID or PCI bus id."""
        for device in self.devices:
            if device.uuid is not None and device.uuid == gpu.uuid:
                return device
            known = device.pci_bus_id is not None and gpu.pci_bus_id is not None
            if known and _pci(device.pci_bus_id or "") == _pci(gpu.pci_bus_id or ""):
                return device
        return None


def _pci(bus_id: str) -> tuple[int, str]:
    """Domains have 4 or 8 digits."""
    domain, _, rest = bus_id.lower().partition(":")
    return int(domain, 16), rest


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process on a GPU or MIG instance. A pid in the compute and the graphics list is one of these, kind C+G."""

    pid: int
    gpu_uuid: str
    kind: str  # "C", "G", "C+G" or "M" (MPS)
    gpu_index: int = 0  # for showing only
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    memory_bytes: int | None = None
    sm_percent: int | None = None
    memory_bandwidth_percent: int | None = None
    encoder_percent: int | None = None
    decoder_percent: int | None = None
    exists: bool | None = None  # on this host; None: cannot be told (another PID namespace)
    host: HostFacts | None = None
    torch: TorchReport | None = None  # where it uses gputop.torch_monitor

    @property
    def key(self) -> ProcessKey:
        return self.host.key if self.host is not None else ProcessKey(self.pid, None)

    @property
    def row(self) -> RowKey:
        return RowKey(self.key, self.gpu_uuid, self.gpu_instance_id, self.compute_instance_id)


# ------------------------------------------------------------------------- leaks


class Verdict(enum.IntEnum):
    """What is thought of a process that holds GPU memory, the worst last (facts/nvml.md §4.3)."""

    NOTE = 0  # worth knowing, no reproach: an orphan that does its work
    IDLE = 1  # holds memory and does nothing; never called a leak
    SUSPECT = 2
    STUCK = 3  # no signal helps, or only some time
    LEAK = 4  # nobody who could use the memory is left


class Finding(NamedTuple):
    """A rule that holds, and the evidence for it as a sentence with its figures and times."""

    rule: str  # "R1" to "R12"
    words: str


@dataclass(frozen=True, slots=True)
class LeakVerdict:
    """A verdict on one process (or, with start ticks None, on a pid that only the driver knows), over all its GPUs."""

    verdict: Verdict
    process: ProcessKey
    memory: tuple[tuple[str, int | None], ...]  # (GPU's UUID, bytes that its end would free), the largest first
    findings: tuple[Finding, ...]  # the rule that decides first
    doubts: tuple[str, ...]  # what would make it wrong
    targets: tuple[ProcessKey, ...]  # whom to end to free the memory: itself, or those who hold a dead pid's
    since: float | None = None  # since when it is so, epoch seconds, as far as gputop knows
    user: str | None = None
    command: str | None = None

    @property
    def memory_bytes(self) -> int | None:
        """Over all GPUs; None where the driver says of none."""
        known = [bytes_ for _, bytes_ in self.memory if bytes_ is not None]
        return sum(known) if known else None

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(finding.rule for finding in self.findings))


# ------------------------------------------------------------------ the whole machine


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver's versions (nvmlSystemGetDriverVersion, …NVMLVersion, …CudaDriverVersion_v2)."""

    version: str | None = None
    nvml_version: str | None = None
    cuda_version: str | None = None  # "13.0"


@dataclass(frozen=True, slots=True)
class Host:
    """The machine the GPUs are in."""

    name: str = ""
    cpu_percent: float | None = None  # of all cores together
    cpu_count: int | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None  # total minus available
    load: tuple[float, float, float] | None = None
    pids_are_host: bool | None = None  # False: gputop runs in a PID namespace of its own


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One machine at one moment; what the bus carries and everything draws, records or prints."""

    taken_at: float
    host: Host = field(default_factory=Host)
    driver: Driver = field(default_factory=Driver)
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    problems: tuple[str, ...] = ()  # what failed for the whole machine, in words, with what to do
    took: float = 0.0  # seconds the sweep took
    interval: float = 1.0  # seconds between sweeps now; longer than asked where the machine cannot keep up
    source: str = "nvml"

    def gpu(self, uuid: str) -> Gpu | None:
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)


# ------------------------------------------------------------------------- helpers


def memory_by_pid(processes: tuple[GpuProcess, ...] | list[GpuProcess]) -> dict[int, int | None]:
    """Memory by pid on one GPU: the *largest* figure NVML gives for a pid, since the compute and the graphics list
    carry the same one. None where no figure of that pid is known."""
    found: dict[int, int | None] = {}
    for process in processes:
        known = found.get(process.pid)
        if process.memory_bytes is not None and (known is None or process.memory_bytes > known):
            found[process.pid] = process.memory_bytes
        else:
            found.setdefault(process.pid, None)
    return found


def unattributed(gpu: Gpu, by_pid: Mapping[int, int | None]) -> int | None:
    """Bytes used on *gpu* that no listed process accounts for.

    None where it cannot be told: only memory v1 answers (its used includes reserved), or a process's figure is unknown.
    A sum above used (CUDA IPC counts an allocation at both ends) gives 0.
    """
    if gpu.memory_used_bytes is None or gpu.memory_reserved_bytes is None or gpu.memory_is_shared:
        return None
    total = 0
    for bytes_ in by_pid.values():
        if bytes_ is None:
            return None
        total += bytes_
    return max(0, gpu.memory_used_bytes - total)


replace = dataclasses.replace
