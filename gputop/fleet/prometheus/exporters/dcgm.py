"""NVIDIA's dcgm-exporter. Metrics and units: NVIDIA/dcgm-exporter etc/default-counters.csv and
etc/dcp-metrics-included.csv; labels: internal/pkg/rendermetrics/render_metrics.go.

``Hostname`` is ``hostname`` in versions of 2026 (PR #655), and reads ``localhost`` in some containers (#572). Pods of a
shared GPU have a copy of each series each (#594), so everything is counted by UUID. Without ``honor_labels`` the
labels pod, namespace and container are those of the exporter itself, the workload's are ``exported_…`` (#85).
"""

from __future__ import annotations

from typing import Final

from gputop.fleet.prometheus.exporters.exporter import Exporter, Figure, FigureMetric
from gputop.units import MIB

_DEV: Final = "DCGM_FI_DEV_"
_PROF: Final = "DCGM_FI_PROF_"

DCGM: Final = Exporter(
    name="dcgm-exporter",
    figures={
        Figure.UTILIZATION: FigureMetric(f"{_DEV}GPU_UTIL"),
        Figure.UTILIZATION_MEMORY: FigureMetric(f"{_DEV}MEM_COPY_UTIL"),
        Figure.UTILIZATION_ENCODER: FigureMetric(f"{_DEV}ENC_UTIL"),
        Figure.UTILIZATION_DECODER: FigureMetric(f"{_DEV}DEC_UTIL"),
        Figure.MEMORY_TOTAL: FigureMetric(f"{_DEV}FB_TOTAL", MIB),
        Figure.MEMORY_USED: FigureMetric(f"{_DEV}FB_USED", MIB),
        Figure.MEMORY_FREE: FigureMetric(f"{_DEV}FB_FREE", MIB),
        Figure.MEMORY_RESERVED: FigureMetric(f"{_DEV}FB_RESERVED", MIB),
        Figure.POWER: FigureMetric(f"{_DEV}POWER_USAGE"),
        Figure.POWER_LIMIT: FigureMetric(f"{_DEV}POWER_MGMT_LIMIT"),
        Figure.TEMPERATURE: FigureMetric(f"{_DEV}GPU_TEMP"),
        Figure.TEMPERATURE_MEMORY: FigureMetric(f"{_DEV}MEMORY_TEMP"),
        Figure.CLOCK_SM: FigureMetric(f"{_DEV}SM_CLOCK"),
        Figure.CLOCK_MEMORY: FigureMetric(f"{_DEV}MEM_CLOCK"),
        Figure.SM_ACTIVE: FigureMetric(f"{_PROF}SM_ACTIVE", 100.0),
        Figure.SM_OCCUPANCY: FigureMetric(f"{_PROF}SM_OCCUPANCY", 100.0),
        Figure.TENSOR_ACTIVE: FigureMetric(f"{_PROF}PIPE_TENSOR_ACTIVE", 100.0),
        Figure.DRAM_ACTIVE: FigureMetric(f"{_PROF}DRAM_ACTIVE", 100.0),
        Figure.PCIE_RX: FigureMetric(f"{_PROF}PCIE_RX_BYTES"),
        Figure.PCIE_TX: FigureMetric(f"{_PROF}PCIE_TX_BYTES"),
    },
    identity=f"{_DEV}FB_USED",
    uuid="UUID",
    model="modelName",
    index="gpu",
    hosts=("Hostname", "hostname"),
    pci_bus_id="pci_bus_id",
    driver_version="DCGM_FI_DRIVER_VERSION",
    mig_instance="GPU_I_ID",
    mig_profile="GPU_I_PROFILE",
    xid_gauge=f"{_DEV}XID_ERRORS",
    broken=(f"{_DEV}ROW_REMAP_FAILURE{{MATCHERS}} > 0",),
    broken_messages={f"{_DEV}ROW_REMAP_FAILURE": "row remapping failed: the GPU must be replaced"},
    held=(
        f'{_DEV}FB_USED{{MATCHERS,exported_pod!=""}}',
        f'{_DEV}FB_USED{{MATCHERS,exported_pod="",pod!~"|.*dcgm-exporter.*"}}',
        f'{_DEV}FB_USED{{MATCHERS,hpc_job!=""}}',
    ),
    not_held='exported_pod="",pod=~"|.*dcgm-exporter.*",hpc_job=""',
    usage_labels=(
        ("exported_pod", "pod"),
        ("exported_namespace", "namespace"),
        ("exported_container", "container"),
        ("pod", "pod"),
        ("namespace", "namespace"),
        ("container", "container"),
        ("hpc_job", "job"),
    ),
)
