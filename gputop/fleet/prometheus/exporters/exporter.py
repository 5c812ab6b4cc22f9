"""What is said about an exporter: its metrics with their units, and which labels name host, GPU and user."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Figure(enum.Enum):
    """A quantity of a GPU: the field of :class:`gputop.model.Gpu` it is, in that field's unit."""

    UTILIZATION = "utilization_gpu_percent"
    UTILIZATION_MEMORY = "utilization_memory_percent"
    UTILIZATION_ENCODER = "utilization_encoder_percent"
    UTILIZATION_DECODER = "utilization_decoder_percent"
    MEMORY_TOTAL = "memory_total_bytes"
    MEMORY_USED = "memory_used_bytes"
    MEMORY_FREE = "memory_free_bytes"
    MEMORY_RESERVED = "memory_reserved_bytes"
    POWER = "power_watts"
    POWER_LIMIT = "power_limit_watts"
    TEMPERATURE = "temperature_celsius"
    TEMPERATURE_MEMORY = "temperature_memory_celsius"
    CLOCK_SM = "clock_sm_mhz"
    CLOCK_MEMORY = "clock_memory_mhz"
    SM_ACTIVE = "sm_active_percent"
    SM_OCCUPANCY = "sm_occupancy_percent"
    TENSOR_ACTIVE = "tensor_active_percent"
    DRAM_ACTIVE = "dram_bandwidth_percent"
    PCIE_RX = "pcie_rx_bytes_per_second"
    PCIE_TX = "pcie_tx_bytes_per_second"
    PERFORMANCE_STATE = "performance_state"


@dataclass(frozen=True, slots=True)
class FigureMetric:
    """*scale* times its value is in the figure's unit. *matchers* pick one of several series of a GPU."""

    metric: str
    scale: float = 1.0
    matchers: str = ""


@dataclass(frozen=True, slots=True)
class Exporter:
    """Names of metrics and labels, as the exporter writes them."""

    name: str  # as people call it
    figures: Mapping[Figure, FigureMetric]
    identity: str  # a metric that each GPU has as long as it can be seen, with the labels below but those of info
    uuid: str  # labels
    model: str
    index: str
    hosts: tuple[str, ...] = ()  # labels that may name the host, best first; else it is that of "instance"
    info: str = ""  # the metric that has model and index; "": all have
    bare_uuid: bool = False  # its UUIDs lack "GPU-"
    pci_bus_id: str = ""
    driver_version: str = ""
    #: Labels that tell apart several series of a GPU and metric, beside the MIG instance.
    extra: tuple[str, ...] = ()
    mig_instance: str = ""
    mig_profile: str = ""
    #: Values other than 0 of these mean that the GPU is broken (``MATCHERS`` stands for matchers).
    broken: tuple[str, ...] = ()
    broken_messages: Mapping[str, str] = field(default_factory=dict)  # by metric
    #: A gauge whose value is the last Xid.
    xid_gauge: str = ""
    #: A counter by the label "xid".
    xid_counter: str = ""
    #: Expressions that hold for GPUs somebody has, though they may be empty.
    held: tuple[str, ...] = ()
    #: Matchers of the series of GPUs nobody has by a label; *held* are the others.
    not_held: str = ""
    #: Labels of *identity* that say who has it: field of GpuUsage by label, the first that has a value counts.
    usage_labels: tuple[tuple[str, str], ...] = ()
    #: A metric with a series for each process of a GPU, and its labels likewise.
    processes: str = ""
    process_memory: str = ""
    process_labels: tuple[tuple[str, str], ...] = ()
