"""The quantities of a GPU that history charts can show: kept by the history, named in settings, drawn by the chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gputop.model.gpu import Gpu


class ChartMetric(NamedTuple):
    """One quantity. Its id is what the setting ``chart_metrics`` has, its *unit* one that ui/chart/scale.py knows."""

    id: str
    label: str
    unit: str  # "B", "B/s", "%", "W", "°C" or "MHz": what the axis says
    top: float | None  # where the axis ends; None: it adapts
    of: Callable[[Gpu], float | None]


def _nvlink(gpu: Gpu) -> float | None:
    received, sent = gpu.nvlink_rx_bytes_per_second, gpu.nvlink_tx_bytes_per_second
    return None if received is None or sent is None else received + sent


CHART_METRICS: Final[dict[str, ChartMetric]] = {
    metric.id: metric
    for metric in (
        ChartMetric("utilization", "GPU utilization", "%", 100, lambda gpu: gpu.utilization_gpu_percent),
        ChartMetric("memory", "memory used", "B", None, lambda gpu: gpu.memory_used_bytes),
        ChartMetric("sm_active", "SM active", "%", 100, lambda gpu: gpu.sm_active_percent),
        ChartMetric("memory_bandwidth", "memory controller busy", "%", 100, lambda gpu: gpu.utilization_memory_percent),
        ChartMetric("power", "power", "W", None, lambda gpu: gpu.power_watts),
        ChartMetric("temperature", "temperature", "°C", None, lambda gpu: gpu.temperature_celsius),
        ChartMetric("pcie_rx", "PCIe to the GPU", "B/s", None, lambda gpu: gpu.pcie_rx_bytes_per_second),
        ChartMetric("pcie_tx", "PCIe from the GPU", "B/s", None, lambda gpu: gpu.pcie_tx_bytes_per_second),
        ChartMetric("nvlink", "NVLink, both directions", "B/s", None, _nvlink),
        ChartMetric("clock_sm", "SM clock", "MHz", None, lambda gpu: gpu.clock_sm_mhz),
    )
}

#: What charts show unless the settings say otherwise: as many as there is room for, in this order.
USUAL_METRICS: Final = ("utilization", "memory", "power", "nvlink")


def next_metrics(shown: tuple[str, ...], gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """What charts show after *shown*: the usual ones, then each metric that one of *gpus* tells for itself, then none
    (empty), and again the usual ones."""
    told = [id_ for id_, metric in CHART_METRICS.items() if any(metric.of(gpu) is not None for gpu in gpus)]
    sets = [USUAL_METRICS, *((id_,) for id_ in told), ()]
    return sets[(sets.index(shown) + 1) % len(sets)] if shown in sets else USUAL_METRICS
