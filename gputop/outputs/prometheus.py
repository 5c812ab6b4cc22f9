"""A snapshot as Prometheus metrics: base units, ratios 0 to 1, counters end in _total, names by a UUID.

What is not known is absent, never 0 or NaN. A GPU that is lost, late or asleep has ``gputop_gpu_up`` 0 and no values.
Everything about a GPU that is no number is in ``gputop_gpu_info``; join with ``* on (uuid) group_left (gpu, name)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from gputop import __version__
from gputop.model import EVENT_REASONS, Gpu, GpuProcess, MigInstance, Snapshot, steady_time

STALE_INTERVALS: Final = 3.0  # a snapshot older than so many intervals, and STALE_SECONDS, is not given out
STALE_SECONDS: Final = 5.0

MEGA: Final = 1e6


class _Gauge(NamedTuple):
    """*values* gives (values of the labels besides uuid, value) for each sample."""

    name: str
    help: str
    labels: tuple[str, ...]
    values: Callable[[Gpu], Iterable[tuple[tuple[str, ...], float | None]]]


def _plain(name: str, help_: str, value: Callable[[Gpu], float | None]) -> _Gauge:
    return _Gauge(name, help_, (), lambda gpu: (((), value(gpu)),))


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else round(percent / 100, 6)  # 65.1 is 0.651, not 0.6509999999999999


def _hertz(gpu: Gpu) -> Iterable[tuple[tuple[str, ...], float | None]]:
    clocks = (("sm", gpu.clock_sm_mhz), ("memory", gpu.clock_memory_mhz), ("video", gpu.clock_video_mhz))
    return [((domain,), None if mhz is None else mhz * MEGA) for domain, mhz in clocks]


def _hertz_max(gpu: Gpu) -> Iterable[tuple[tuple[str, ...], float | None]]:
    facts = gpu.facts
    clocks = (
        ("sm", facts.clock_sm_max_mhz),
        ("memory", facts.clock_memory_max_mhz),
        ("video", facts.clock_video_max_mhz),
    )
    return [((domain,), None if mhz is None else mhz * MEGA) for domain, mhz in clocks]


def _reasons(gpu: Gpu) -> Iterable[tuple[tuple[str, ...], float | None]]:
    mask = gpu.event_reasons_mask
    if mask is None:
        return ()
    return [((reason.label.lower().replace(" ", "_"),), float(bool(mask & reason.bit))) for reason in EVENT_REASONS]


_GAUGES: Final = (
    _plain("memory_size_bytes", "Memory of the board.", lambda gpu: gpu.memory_total_bytes),
    _plain("memory_used_bytes", "Memory in use, without what the driver reserves.", lambda gpu: gpu.memory_used_bytes),
    _plain("memory_free_bytes", "Memory that is free.", lambda gpu: gpu.memory_free_bytes),
    _plain("memory_reserved_bytes", "Memory the driver keeps for itself.", lambda gpu: gpu.memory_reserved_bytes),
    _plain(
        "memory_unattributed_bytes",
        "Memory in use that belongs to no listed process.",
        lambda gpu: gpu.memory_unattributed_bytes,
    ),
    _plain(
        "utilization_ratio",
        "Share of time in which any kernel ran.",
        lambda gpu: _ratio(gpu.utilization_gpu_percent),
    ),
    _plain(
        "memory_bandwidth_ratio",
        "Share of time in which the memory controller was busy.",
        lambda gpu: _ratio(gpu.utilization_memory_percent),
    ),
    _plain("encoder_ratio", "Utilization of the encoder.", lambda gpu: _ratio(gpu.utilization_encoder_percent)),
    _plain("decoder_ratio", "Utilization of the decoder.", lambda gpu: _ratio(gpu.utilization_decoder_percent)),
    _plain("sm_active_ratio", "How busy the multiprocessors were (GPM).", lambda gpu: _ratio(gpu.sm_active_percent)),
    _plain(
        "sm_occupancy_ratio",
        "Resident warps, of the most there can be (GPM).",
        lambda gpu: _ratio(gpu.sm_occupancy_percent),
    ),
    _plain(
        "tensor_active_ratio", "How busy the tensor cores were (GPM).", lambda gpu: _ratio(gpu.tensor_active_percent)
    ),
    _plain(
        "dram_active_ratio", "Memory bandwidth used, of the most (GPM).", lambda gpu: _ratio(gpu.dram_bandwidth_percent)
    ),
    _plain("temperature_celsius", "Temperature of the GPU.", lambda gpu: gpu.temperature_celsius),
    _plain("memory_temperature_celsius", "Temperature of the memory.", lambda gpu: gpu.temperature_memory_celsius),
    _plain(
        "temperature_slowdown_celsius",
        "Temperature at which the clocks are lowered.",
        lambda gpu: gpu.facts.temperature_slowdown_celsius,
    ),
    _plain("power_watts", "Power drawn.", lambda gpu: gpu.power_watts),
    _plain("power_limit_watts", "Power limit enforced.", lambda gpu: gpu.power_limit_watts),
    _plain("fan_speed_ratio", "Intended speed of the fastest fan; may exceed 1.", lambda gpu: _ratio(gpu.fan_percent)),
    _plain("performance_state", "Performance state: 0 is the fastest.", lambda gpu: gpu.performance_state),
    _Gauge("clock_hertz", "Clock now.", ("domain",), _hertz),
    _Gauge("clock_max_hertz", "Highest clock.", ("domain",), _hertz_max),
    _Gauge("clock_event_reason", "1: a reason why the clocks are what they are.", ("reason",), _reasons),
    _plain("pcie_receive_bytes_per_second", "PCIe traffic to the GPU.", lambda gpu: gpu.pcie_rx_bytes_per_second),
    _plain("pcie_transmit_bytes_per_second", "PCIe traffic from the GPU.", lambda gpu: gpu.pcie_tx_bytes_per_second),
    _plain("nvlink_receive_bytes_per_second", "NVLink traffic to the GPU.", lambda gpu: gpu.nvlink_rx_bytes_per_second),
    _plain(
        "nvlink_transmit_bytes_per_second", "NVLink traffic from the GPU.", lambda gpu: gpu.nvlink_tx_bytes_per_second
    ),
    _plain("pcie_link_generation", "PCIe generation of the link now.", lambda gpu: gpu.facts.pcie_generation),
    _plain("pcie_link_width", "PCIe lanes of the link now.", lambda gpu: gpu.facts.pcie_width),
    _plain("bar1_size_bytes", "Size of BAR1.", lambda gpu: gpu.facts.bar1_total_bytes),
    _plain("bar1_used_bytes", "BAR1 in use.", lambda gpu: gpu.facts.bar1_used_bytes),
    _plain(
        "row_remap_pending",
        "1: a row remapping waits for a reset.",
        lambda gpu: None if gpu.facts.rows_remap_pending is None else float(gpu.facts.rows_remap_pending),
    ),
    _plain(
        "row_remap_failed",
        "1: a row could not be remapped.",
        lambda gpu: None if gpu.facts.rows_remap_failed is None else float(gpu.facts.rows_remap_failed),
    ),
)

#: Counters since the driver was loaded, or over the board's life where the help says so.
_COUNTERS: Final = (
    _Gauge(
        "ecc_errors",
        "ECC errors since the driver was loaded.",
        ("kind",),
        lambda gpu: (
            (("corrected",), gpu.facts.ecc_corrected),
            (("uncorrected",), gpu.facts.ecc_uncorrected),
        ),
    ),
    _Gauge(
        "rows_remapped",
        "Memory rows remapped over the board's life.",
        ("cause",),
        lambda gpu: (
            (("corrected",), gpu.facts.rows_remapped_corrected),
            (("uncorrected",), gpu.facts.rows_remapped_uncorrected),
        ),
    ),
    _plain("pcie_replays", "PCIe packets sent again.", lambda gpu: gpu.facts.pcie_replays),
)


class XidCounts:
    """Xids by GPU and code since the exporter started; fed with every snapshot, since NVML keeps none."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, int], int] = {}
        self._seen: dict[str, float] = {}

    def add(self, snapshot: Snapshot) -> None:
        for gpu in snapshot.gpus:
            if not gpu.xids:
                continue
            seen = self._seen.get(gpu.uuid, 0.0)
            for xid in gpu.xids:
                if xid.steady_at > seen:
                    key = (gpu.uuid, xid.code)
                    self.counts[key] = self.counts.get(key, 0) + 1
            self._seen[gpu.uuid] = max(seen, gpu.xids[-1].steady_at)


class SnapshotCollector(Collector):
    """Gives out the latest snapshot at each scrape; asks the driver nothing.

    *latest* gives it, None while there is none.
    """

    def __init__(
        self,
        latest: Callable[[], Snapshot | None],
        xids: XidCounts,
        clock: Callable[[], float] = steady_time,
    ) -> None:
        self._latest, self._xids, self._clock = latest, xids, clock

    def describe(self) -> Iterable[Metric]:
        return ()

    def current(self) -> Snapshot | None:
        """The snapshot of now; None where there is none, an old one, or one in which no GPU could be read."""
        snapshot = self._latest()
        if snapshot is None or self._stale(snapshot):
            return None
        return snapshot if not snapshot.gpus or any(gpu.error is None for gpu in snapshot.gpus) else None

    def _stale(self, snapshot: Snapshot) -> bool:
        age = self._clock() - snapshot.steady_at
        return age > max(STALE_SECONDS, STALE_INTERVALS * snapshot.interval)

    def collect(self) -> Iterator[Metric]:
        snapshot = self._latest()
        success = self.current() is not None
        yield InfoMetricFamily("gputop_build", "The exporter.", {"version": __version__})
        yield _one("gputop_exporter_last_collect_success", "1: the GPUs were read, and lately.", float(success))
        if snapshot is None:
            return
        yield _one("gputop_exporter_last_collect_timestamp_seconds", "When the GPUs were read last.", snapshot.taken_at)
        yield _one("gputop_exporter_collect_duration_seconds", "How long reading them took.", snapshot.took)
        driver = snapshot.driver
        versions = {"driver": driver.version, "nvml": driver.nvml_version, "cuda": driver.cuda_version}
        yield InfoMetricFamily("gputop_driver", "Versions.", {name: text for name, text in versions.items() if text})
        stale = self._stale(snapshot)
        gpus = list({gpu.uuid: gpu for gpu in snapshot.gpus}.values())
        good = [gpu for gpu in gpus if not stale and is_up(gpu)]
        up = GaugeMetricFamily("gputop_gpu_up", "1: its values are those of now.", labels=("uuid",))
        readable = {gpu.uuid for gpu in good}
        for gpu in gpus:
            up.add_metric((gpu.uuid,), float(gpu.uuid in readable))
        yield up
        yield _info(gpus)
        for gauge in _GAUGES:
            yield from _family(GaugeMetricFamily, gauge, good)
        for counter in _COUNTERS:
            yield from _family(CounterMetricFamily, counter, good)
        yield self._xid_counter(gpus)
        yield from _mig(good)
        yield from _process_counts(snapshot.processes, [gpu.uuid for gpu in good if gpu.processes_known])

    def _xid_counter(self, gpus: list[Gpu]) -> Metric:
        family = CounterMetricFamily(
            "gputop_gpu_xid_errors", "Xids since the exporter started.", labels=("uuid", "xid")
        )
        there = {gpu.uuid for gpu in gpus}
        for (uuid, code), count in sorted(self._xids.counts.items()):
            if uuid in there:
                family.add_metric((uuid, str(code)), count)
        return family


def is_up(gpu: Gpu) -> bool:
    """Whether its values are those of now."""
    return gpu.error is None and not gpu.late and not gpu.asleep


def _one(name: str, help_: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_, value=value)


def _family(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily], gauge: _Gauge, gpus: list[Gpu]
) -> Iterator[Metric]:
    """The family, unless no GPU has a value."""
    family = kind(f"gputop_gpu_{gauge.name}", gauge.help, labels=("uuid", *gauge.labels))
    for gpu in gpus:
        for labels, value in gauge.values(gpu):
            if value is not None:
                family.add_metric((gpu.uuid, *labels), value)
    if family.samples:
        yield family


def _info(gpus: list[Gpu]) -> Metric:
    labels = ("uuid", "gpu", "name", "pci_bus_id", "minor_number", "serial", "vbios", "architecture")
    family = GaugeMetricFamily("gputop_gpu_info", "A GPU; its index is in gpu.", labels=labels)
    for gpu in gpus:
        facts = gpu.facts
        minor = "" if facts.minor_number is None else str(facts.minor_number)
        texts = (gpu.name, gpu.pci_bus_id, minor, facts.serial, facts.vbios, facts.architecture)
        family.add_metric((gpu.uuid, str(gpu.index), *(text or "" for text in texts)), 1)
    return family


# ------------------------------------------------------------------------------- MIG

_MIG_LABELS: Final = ("uuid", "mig_uuid")


def _mig(gpus: list[Gpu]) -> Iterator[Metric]:
    """Each MIG device once, by its UUID. Compute instances of one GPU instance share its memory: sum over
    gpu_instance_id of the info, not over devices."""
    instances = {mig.uuid: (gpu, mig) for gpu in gpus for mig in gpu.mig}
    if not instances:
        return
    labels = (*_MIG_LABELS, "gpu_instance_id", "compute_instance_id", "profile")
    info = GaugeMetricFamily("gputop_mig_info", "A MIG device.", labels=labels)
    for gpu, mig in instances.values():
        ids = (str(mig.gpu_instance_id), str(mig.compute_instance_id))
        info.add_metric((gpu.uuid, mig.uuid, *ids, mig.name), 1)
    yield info
    readings: tuple[tuple[str, str, Callable[[MigInstance], float | None]], ...] = (
        ("memory_size_bytes", "Memory of the GPU instance.", lambda mig: mig.memory_total_bytes),
        ("memory_used_bytes", "Memory of the GPU instance in use.", lambda mig: mig.memory_used_bytes),
        ("memory_free_bytes", "Memory of the GPU instance that is free.", lambda mig: mig.memory_free_bytes),
        ("sm_active_ratio", "How busy its multiprocessors were (GPM).", lambda mig: _ratio(mig.sm_active_percent)),
    )
    for name, help_, value in readings:
        family = GaugeMetricFamily(f"gputop_mig_{name}", help_, labels=_MIG_LABELS)
        for gpu, mig in instances.values():
            if mig.error is None and (known := value(mig)) is not None:
                family.add_metric((gpu.uuid, mig.uuid), known)
        if family.samples:
            yield family


# ------------------------------------------------------------------------- processes


def _process_counts(processes: Iterable[GpuProcess], uuids: Iterable[str]) -> Iterator[Metric]:
    """Of the GPUs *uuids*, whose process lists are known."""
    pids: dict[str, set[int]] = {uuid: set() for uuid in uuids}
    for process in processes:
        if process.gpu_uuid in pids:
            pids[process.gpu_uuid].add(process.pid)
    family = GaugeMetricFamily("gputop_gpu_processes", "Processes on the GPU.", labels=("uuid",))
    for uuid, found in sorted(pids.items()):
        family.add_metric((uuid,), len(found))
    if pids:
        yield family
