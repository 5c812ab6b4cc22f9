"""What an alarm's condition can compare: the fields of filters/, and those that need more than one look.

The values of a GPU that is lost, late or asleep are not known.
"""

from __future__ import annotations

from typing import Final

from gputop.filters.field import Field, FieldRegistry
from gputop.filters.gpu_fields import GPU_FIELDS
from gputop.filters.process_fields import PROCESS_FIELDS, ProcessField, ProcessFields
from gputop.filters.quantities import BYTES, SECONDS, SIZE_SUFFIX, TIME_SUFFIX, Unit
from gputop.model import Gpu, GpuProcess
from gputop.units import short_size

GROWTH: Final = Unit(
    "bytes/window", rf"(?:{SIZE_SUFFIX})\s*/\s*[\d.]*\s*(?:{TIME_SUFFIX})", "1GiB/10min", BYTES.parse, short_size
)
_GROWTH_NAMES: Final = ("memory grows", "grows")

#: Kept by the evaluation (timed_metrics.py): no snapshot has them.
GPU_GROWTH: Final[Field[[Gpu]]] = Field("memory grows", _GROWTH_NAMES, {GROWTH: lambda gpu: None})
PROCESS_GROWTH: Final[ProcessField] = Field(
    "memory grows", _GROWTH_NAMES, {GROWTH: lambda process, host, capacity: None}
)
IDLE: Final[ProcessField] = Field("idle", ("idle",), {SECONDS: lambda process, host, capacity: None})

GPU_METRICS: Final[FieldRegistry[[Gpu]]] = FieldRegistry((*GPU_FIELDS, GPU_GROWTH))
PROCESS_METRICS: Final[ProcessFields] = FieldRegistry((*PROCESS_FIELDS, IDLE, PROCESS_GROWTH))


def is_idle(process: GpuProcess, gpu: Gpu) -> bool | None:
    """Whether the process does no work on the GPU now: by its own utilization, else by the GPU's where that is 0."""
    if process.sm_percent is not None:
        return not (process.sm_percent or process.encoder_percent or process.decoder_percent)
    return True if gpu.utilization_gpu_percent == 0 else None
