"""``gputop serve``: see outputs/prometheus.py. Series have the label uuid; name and index are in gputop_gpu_info."""

from __future__ import annotations

from typing import Final

from gputop.fleet.prometheus.exporters.exporter import Exporter, Figure, FigureMetric

_MHZ_PER_HERTZ: Final = 1e-6

GPUTOP: Final = Exporter(
    name="gputop serve",
    figures={
        Figure.UTILIZATION: FigureMetric("gputop_gpu_utilization_ratio", 100.0),
        Figure.UTILIZATION_MEMORY: FigureMetric("gputop_gpu_memory_bandwidth_ratio", 100.0),
        Figure.UTILIZATION_ENCODER: FigureMetric("gputop_gpu_encoder_ratio", 100.0),
        Figure.UTILIZATION_DECODER: FigureMetric("gputop_gpu_decoder_ratio", 100.0),
        Figure.MEMORY_TOTAL: FigureMetric("gputop_gpu_memory_size_bytes"),
        Figure.MEMORY_USED: FigureMetric("gputop_gpu_memory_used_bytes"),
        Figure.MEMORY_FREE: FigureMetric("gputop_gpu_memory_free_bytes"),
        Figure.MEMORY_RESERVED: FigureMetric("gputop_gpu_memory_reserved_bytes"),
        Figure.POWER: FigureMetric("gputop_gpu_power_watts"),
        Figure.POWER_LIMIT: FigureMetric("gputop_gpu_power_limit_watts"),
        Figure.TEMPERATURE: FigureMetric("gputop_gpu_temperature_celsius"),
        Figure.TEMPERATURE_MEMORY: FigureMetric("gputop_gpu_memory_temperature_celsius"),
        Figure.CLOCK_SM: FigureMetric("gputop_gpu_clock_hertz", _MHZ_PER_HERTZ, 'domain="sm"'),
        Figure.CLOCK_MEMORY: FigureMetric("gputop_gpu_clock_hertz", _MHZ_PER_HERTZ, 'domain="memory"'),
        Figure.SM_ACTIVE: FigureMetric("gputop_gpu_sm_active_ratio", 100.0),
        Figure.SM_OCCUPANCY: FigureMetric("gputop_gpu_sm_occupancy_ratio", 100.0),
        Figure.TENSOR_ACTIVE: FigureMetric("gputop_gpu_tensor_active_ratio", 100.0),
        Figure.DRAM_ACTIVE: FigureMetric("gputop_gpu_dram_active_ratio", 100.0),
        Figure.PCIE_RX: FigureMetric("gputop_gpu_pcie_receive_bytes_per_second"),
        Figure.PCIE_TX: FigureMetric("gputop_gpu_pcie_transmit_bytes_per_second"),
        Figure.PERFORMANCE_STATE: FigureMetric("gputop_gpu_performance_state"),
    },
    identity="gputop_gpu_up",
    uuid="uuid",
    model="name",
    index="gpu",
    info="gputop_gpu_info",
    pci_bus_id="pci_bus_id",
    extra=("domain",),
    xid_counter="gputop_gpu_xid_errors_total",
    broken=("(gputop_gpu_up{MATCHERS} == bool 0) > 0", "gputop_gpu_row_remap_failed{MATCHERS} > 0"),
    broken_messages={
        "gputop_gpu_up": "its exporter cannot read it: it is lost, or the driver hangs",
        "gputop_gpu_row_remap_failed": "row remapping failed: the GPU must be replaced",
    },
    held=("gputop_gpu_processes{MATCHERS} > 0",),
    processes="gputop_process_info",
    process_memory="gputop_process_memory_used_bytes",
    process_labels=(
        ("pid", "pid"),
        ("user", "user"),
        ("name", "process"),
        ("job_id", "job"),
        ("exported_pod", "pod"),  # where the target has a label of that name, too
        ("exported_namespace", "namespace"),
        ("exported_container", "container"),
        ("pod", "pod"),
        ("namespace", "namespace"),
        ("container", "container"),
        ("unit", "unit"),
        ("rank", "rank"),
    ),
)
