"""The head: sums of all GPUs by model, made by the engine; a few rows, however large the fleet.

An engine takes some 10 µs for each series it looks at, so that one sum over ten thousand GPUs takes it a tenth of a
second. What is asked is therefore in parts, by how soon it changes: :func:`load` at each refresh, :func:`states` about
as often as exporters are scraped, :func:`idle` and :func:`sizes` more seldom still.
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

#: Of each model, by tag.
Sums = Mapping[str, Mapping[str, float]]


Part = tuple[str, str, str]  # tag, how it is summed by model, a value for each GPU

_KEEP: Final = ("model", "host")


def _load(vectors: Vectors) -> list[Part]:
    return [
        ("used", "sum", vectors.figure(Figure.MEMORY_USED, _KEEP)),
        ("power", "sum", vectors.figure(Figure.POWER, _KEEP)),
        ("busy", "avg", vectors.figure(Figure.UTILIZATION, _KEEP)),
    ]


def _states(vectors: Vectors) -> list[Part]:
    return [
        ("gpus", "count", vectors.gpus(_KEEP)),
        ("free", "count", vectors.free(_KEEP)),
        ("broken", "count", vectors.broken(_KEEP)),
    ]


def _idle(vectors: Vectors) -> list[Part]:
    return [("idle", "count", vectors.idle(_KEEP))]


def _sizes(vectors: Vectors) -> list[Part]:
    return [("total", "sum", vectors.memory_total(_KEEP))]


def parts_of(vectors: Vectors) -> list[Part]:
    """All that is summed by model; the recording rules are made of these."""
    return [part for of in (_load, _states, _idle, _sizes) for part in of(vectors)]


def load(vectors: Vectors, hosts: str = "") -> list[str]:
    """*hosts*: an expression by host; only GPUs of those count. So everywhere here."""
    return _by_model(vectors, _load(vectors), hosts)


def states(vectors: Vectors, hosts: str = "") -> list[str]:
    age = vectors.age()
    restricted = f" and on ({vectors.name('host')}) {hosts}" if hosts else ""
    late = tagged("hosts", f'count_values("late", ({age} > bool {STALE_SECONDS:g}){restricted})')
    return [*_by_model(vectors, _states(vectors), hosts), late]


def idle(vectors: Vectors, hosts: str = "") -> list[str]:
    return _by_model(vectors, _idle(vectors), hosts)


def sizes(vectors: Vectors, hosts: str = "") -> list[str]:
    return _by_model(vectors, _sizes(vectors), hosts)


def everything(vectors: Vectors, hosts: str = "") -> list[str]:
    return [part for of in (load, states, idle, sizes) for part in of(vectors, hosts)]


def _by_model(vectors: Vectors, parts: Iterable[tuple[str, str, str]], hosts: str) -> list[str]:
    restricted = f" and on ({vectors.name('host')}) {hosts}" if hosts else ""
    by = f"by ({vectors.name('model')})"
    return [tagged(tag, f"{how} {by} (({expression}){restricted})") for tag, how, expression in parts]


def read(samples: Iterable[Sample], model_label: str = "model") -> dict[str, dict[str, float]]:
    """Values by tag and model."""
    sums: dict[str, dict[str, float]] = {}
    for labels, value in samples:
        model = clean_text(labels.get(model_label, ""), 100)
        tag = labels.get("q", "")
        for of in (tag, "hosts_stale") if labels.get("late") == "1" else (tag,):
            by_model = sums.setdefault(of, {})
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
    total, used = known("total"), known("used")
    shares = {model: share for model in models if (share := sums.get("busy", {}).get(model)) is not None}
    weights = sum(sums.get("gpus", {}).get(model, 0.0) for model in shares)
    busy = sum(share * sums.get("gpus", {}).get(model, 0.0) for model, share in shares.items())
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
        utilization_percent=busy / weights if weights else None,
    )
