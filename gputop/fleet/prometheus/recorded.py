"""The series that the recording rules of grafana/ make (rules.py)."""

from __future__ import annotations

from typing import Final

from gputop.fleet.model import Quantity
from gputop.fleet.prometheus.promql import tagged

#: Recorded series by the tag they have in ``sums``; those of hosts have no model.
MODEL_SERIES: Final = {
    "gpus": "gputop:model_gpus:count",
    "free": "gputop:model_gpus_free:count",
    "idle": "gputop:model_gpus_idle_held:count",
    "broken": "gputop:model_gpus_broken:count",
    "used": "gputop:model_memory_used_bytes:sum",
    "total": "gputop:model_memory_total_bytes:sum",
    "power": "gputop:model_power_watts:sum",
    "busy": "gputop:model_utilization_percent:avg",
    "hosts": "gputop:fleet_hosts:count",
    "hosts_stale": "gputop:fleet_hosts_stale:count",
}

#: The fleet's, by the recording rules.
FLEET_SERIES: Final = {
    Quantity.UTILIZATION: "gputop:fleet_utilization_percent:avg",
    Quantity.MEMORY: "gputop:fleet_memory_used_bytes:sum",
    Quantity.POWER: "gputop:fleet_power_watts:sum",
    Quantity.FREE: "gputop:fleet_gpus_free:count",
    Quantity.TEMPERATURE: "gputop:fleet_temperature_celsius:max",
}


def recorded(*tags: str) -> list[str]:
    """What ``sums`` would ask of all GPUs, from the recorded series."""
    return [tagged(tag, MODEL_SERIES[tag]) for tag in tags]
