"""What can be asked of a GPU.

The values of one that is lost, late or asleep are not those of now: whoever asks looks first.
"""

from __future__ import annotations

from typing import Final

from gputop.filters.field import Field, FieldRegistry
from gputop.filters.quantities import BYTES, CELSIUS, PERCENT, WATTS
from gputop.model import Gpu
from gputop.units import percent_of

GPU_FIELDS: Final[FieldRegistry[[Gpu]]] = FieldRegistry(
    (
        Field(
            "memory",
            ("memory", "mem", "memory used", "gpu memory", "gpu-mem"),
            {
                BYTES: lambda gpu: gpu.memory_used_bytes,
                PERCENT: lambda gpu: percent_of(gpu.memory_used_bytes, gpu.memory_total_bytes),
            },
            whole="the size of the GPU's memory",
        ),
        Field(
            "free memory",
            ("free memory", "memory free"),
            {
                BYTES: lambda gpu: gpu.memory_free_bytes,
                PERCENT: lambda gpu: percent_of(gpu.memory_free_bytes, gpu.memory_total_bytes),
            },
            whole="the size of the GPU's memory",
        ),
        Field(
            "unattributed memory",
            ("unattributed memory", "unattributed"),
            {
                BYTES: lambda gpu: gpu.memory_unattributed_bytes,
                PERCENT: lambda gpu: percent_of(gpu.memory_unattributed_bytes, gpu.memory_total_bytes),
            },
            whole="the size of the GPU's memory",
        ),
        Field(
            "utilization",
            ("utilization", "util", "gpu utilization"),
            {PERCENT: lambda gpu: gpu.utilization_gpu_percent},
        ),
        Field("sm active", ("sm active",), {PERCENT: lambda gpu: gpu.sm_active_percent}),
        Field("temperature", ("temperature", "temp"), {CELSIUS: lambda gpu: gpu.temperature_celsius}),
        Field("memory temperature", ("memory temperature",), {CELSIUS: lambda gpu: gpu.temperature_memory_celsius}),
        Field(
            "power",
            ("power",),
            {
                WATTS: lambda gpu: gpu.power_watts,
                PERCENT: lambda gpu: percent_of(gpu.power_watts, gpu.power_limit_watts),
            },
            whole="the power limit",
        ),
    )
)
