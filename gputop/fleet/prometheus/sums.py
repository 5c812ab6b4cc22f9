"""The head: sums of all GPUs by model, made by the engine; a few rows, however large the fleet.

What changes within seconds is asked at each refresh; sizes of memory and who has been idle for ten minutes, which cost
the engine more, each SLOW_SECONDS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gputop.fleet.model import Totals
from gputop.fleet.prometheus.client import Sample
from gputop.fleet.prometheus.exporters import Figure
from gputop.fleet.prometheus.promql import tagged
from gputop.fleet.prometheus.vectors import STALE_SECONDS, Vectors
from gputop.model import clean_text

SLOW_SECONDS: Final = 30.0

#: Of each model, by tag.
Sums = Mapping[str, Mapping[str, float]]


def fast(vectors: Vectors, hosts: str = "") -> list[str]:
    """*hosts*: an expression by host; only GPUs of those count."""
    used, busy = (
        vectors.figure(Figure.MEMORY_USED, ("model", "host")),
        vectors.figure(Figure.UTILIZATION, ("model", "host")),
    )
    parts = [
        ("gpus", "count", vectors.gpus(("model", "host"))),
        ("used", "sum", used),
        ("power", "sum", vectors.figure(Figure.POWER, ("model", "host"))),
        ("busy", "sum", busy),
        ("busy_known", "count", busy),
        ("free", "count", vectors.free(("model", "host"))),
        ("broken", "count", vectors.broken(("model", "host"))),
    ]
    return [*_by_model(parts, hosts), *_of_hosts(vectors, hosts)]


def slow(vectors: Vectors, hosts: str = "") -> list[str]:
    keep = ("model", "host")
    return _by_model([("total", "sum", vectors.memory_total(keep)), ("idle", "count", vectors.idle(keep))], hosts)


def _by_model(parts: Iterable[tuple[str, str, str]], hosts: str) -> list[str]:
    restricted = f" and on (host) {hosts}" if hosts else ""
    return [tagged(tag, f"{how} by (model) (({expression}){restricted})") for tag, how, expression in parts]


def _of_hosts(vectors: Vectors, hosts: str) -> list[str]:
    restricted = f" and on (host) {hosts}" if hosts else ""
    age = vectors.age()
    return [
        tagged("hosts", f"count({age}{restricted})"),
        tagged("hosts_stale", f"count(({age} > {STALE_SECONDS:g}){restricted})"),
    ]


def read(samples: Iterable[Sample]) -> dict[str, dict[str, float]]:
    """Values by tag and model."""
    sums: dict[str, dict[str, float]] = {}
    for labels, value in samples:
        model = clean_text(labels.get("model", ""), 100)
        by_model = sums.setdefault(labels.get("q", ""), {})
        by_model[model] = by_model.get(model, 0.0) + value
    return sums


def totals_by_model(sums: Sums) -> dict[str, Totals]:
    """The most frequent model first."""
    gpus = sums.get("gpus", {})
    return {model: _totals(sums, [model]) for model in sorted(gpus, key=lambda model: (-gpus[model], model))}


def totals(sums: Sums) -> Totals:
    """Of all models."""
    return _totals(sums, sums.get("gpus", {}))


def _totals(sums: Sums, models: Iterable[str]) -> Totals:
    models = list(models)

    def known(tag: str) -> float | None:
        values = [value for model in models if (value := sums.get(tag, {}).get(model)) is not None]
        return sum(values) if values else None

    def count(tag: str) -> int:
        return int(known(tag) or 0)

    gpus, free, broken = count("gpus"), count("free"), count("broken")
    idle = min(count("idle"), max(0, gpus - free - broken))  # asked for less often than the others
    total, used, busy, busy_known = known("total"), known("used"), known("busy"), known("busy_known")
    return Totals(
        hosts=int(sum(sums.get("hosts", {}).values())),
        hosts_stale=int(sum(sums.get("hosts_stale", {}).values())),
        gpus=gpus,
        gpus_free=free,
        gpus_busy=max(0, gpus - free - idle - broken),
        gpus_idle_held=idle,
        gpus_broken=broken,
        memory_total_bytes=None if total is None else int(total),
        memory_used_bytes=None if used is None else int(used),
        power_watts=known("power"),
        utilization_percent=busy / busy_known if busy is not None and busy_known else None,
    )
