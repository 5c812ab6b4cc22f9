"""The exporters whose series gputop reads, a file each; in the order in which they are believed where two see a GPU.

docs/fleet.md has the table of their metrics, units and labels with the sources. ``slurm_job`` has no GPUs of its own:
it tells who uses those of the others.
"""

from __future__ import annotations

from typing import Final

from gputop.fleet.prometheus.exporters.dcgm import DCGM
from gputop.fleet.prometheus.exporters.exporter import Exporter, Figure, FigureMetric
from gputop.fleet.prometheus.exporters.gputop_serve import GPUTOP
from gputop.fleet.prometheus.exporters.jobstats import JOBSTATS
from gputop.fleet.prometheus.exporters.nvidia_gpu_exporter import NVIDIA_GPU_EXPORTER

EXPORTERS: Final = (GPUTOP, DCGM, NVIDIA_GPU_EXPORTER, JOBSTATS)

__all__ = ["DCGM", "EXPORTERS", "GPUTOP", "JOBSTATS", "NVIDIA_GPU_EXPORTER", "Exporter", "Figure", "FigureMetric"]
