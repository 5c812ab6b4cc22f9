"""utkuozdemir's nvidia_gpu_exporter. Metrics, units and labels: its docs/METRICS.md.

Series have the label uuid only, without "GPU-"; name, index and driver are labels of ``nvidia_smi_gpu_info``.
"""

from __future__ import annotations

from typing import Final

from gputop.fleet.prometheus.exporters.exporter import Exporter, Figure, FigureMetric

_MHZ_PER_HERTZ: Final = 1e-6

NVIDIA_GPU_EXPORTER: Final = Exporter(
    name="nvidia_gpu_exporter",
    figures={
        Figure.UTILIZATION: FigureMetric("nvidia_smi_utilization_gpu_ratio", 100.0),
        Figure.UTILIZATION_MEMORY: FigureMetric("nvidia_smi_utilization_memory_ratio", 100.0),
        Figure.MEMORY_TOTAL: FigureMetric("nvidia_smi_memory_total_bytes"),
        Figure.MEMORY_USED: FigureMetric("nvidia_smi_memory_used_bytes"),
        Figure.MEMORY_FREE: FigureMetric("nvidia_smi_memory_free_bytes"),
        Figure.MEMORY_RESERVED: FigureMetric("nvidia_smi_memory_reserved_bytes"),
        Figure.POWER: FigureMetric("nvidia_smi_power_draw_watts"),
        Figure.POWER_LIMIT: FigureMetric("nvidia_smi_enforced_power_limit_watts"),
        Figure.TEMPERATURE: FigureMetric("nvidia_smi_temperature_gpu"),
        Figure.TEMPERATURE_MEMORY: FigureMetric("nvidia_smi_temperature_memory"),
        Figure.CLOCK_SM: FigureMetric("nvidia_smi_clocks_current_sm_clock_hz", _MHZ_PER_HERTZ),
        Figure.CLOCK_MEMORY: FigureMetric("nvidia_smi_clocks_current_memory_clock_hz", _MHZ_PER_HERTZ),
        Figure.PERFORMANCE_STATE: FigureMetric("nvidia_smi_pstate"),
    },
    identity="nvidia_smi_memory_used_bytes",
    uuid="uuid",
    model="name",
    index="index",
    info="nvidia_smi_gpu_info",
    bare_uuid=True,
    pci_bus_id="pci_bus_id",
    driver_version="driver_version",
    xid_counter="nvidia_smi_xid_errors_total",
    broken=("nvidia_smi_gpu_recovery_action{MATCHERS} > 0", "nvidia_smi_remapped_rows_failure{MATCHERS} > 0"),
    broken_messages={
        "nvidia_smi_gpu_recovery_action": "the driver asks to reset the GPU or to reboot",
        "nvidia_smi_remapped_rows_failure": "row remapping failed: the GPU must be replaced",
    },
    held=("nvidia_smi_compute_apps{MATCHERS} > 0",),
    processes="nvidia_smi_compute_app_info",
    process_memory="nvidia_smi_compute_app_used_memory_bytes",
    process_labels=(("pid", "pid"), ("process_name", "process")),
)
