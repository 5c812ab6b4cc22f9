"""The nvidia_gpu_prometheus_exporter that Princeton's jobstats uses (plazonic's, after mindprince's).

Metrics, units and labels: its main.go. The job is the value of ``nvidia_gpu_jobId``, 0 for none, and a label ``jobid``
since September 2025 (jobstats' CHANGELOG); power is in milliwatts, memory in bytes.
"""

from __future__ import annotations

from typing import Final

from gputop.fleet.prometheus.exporters.exporter import Exporter, Figure, FigureMetric

_WHOLE: Final = 'uuid=~"GPU-.*"'  # a MIG instance has a series of its own, with its own UUID

JOB_GAUGE: Final = "nvidia_gpu_jobId"
UID_GAUGE: Final = "nvidia_gpu_jobUid"

JOBSTATS: Final = Exporter(
    name="nvidia_gpu_prometheus_exporter",
    figures={
        Figure.UTILIZATION: FigureMetric("nvidia_gpu_duty_cycle", 1.0, _WHOLE),
        Figure.MEMORY_TOTAL: FigureMetric("nvidia_gpu_memory_total_bytes", 1.0, _WHOLE),
        Figure.MEMORY_USED: FigureMetric("nvidia_gpu_memory_used_bytes", 1.0, _WHOLE),
        Figure.POWER: FigureMetric("nvidia_gpu_power_usage_milliwatts", 1e-3, _WHOLE),
        Figure.TEMPERATURE: FigureMetric("nvidia_gpu_temperature_celsius", 1.0, _WHOLE),
    },
    identity="nvidia_gpu_memory_used_bytes",
    uuid="uuid",
    model="name",
    index="minor_number",
    held=(f"{JOB_GAUGE}{{MATCHERS}} > 0",),
    usage_labels=(("jobid", "job"),),
)
