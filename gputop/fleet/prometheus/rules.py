"""The recording and alert rules of grafana/: the same definitions as the head's, evaluated by the engine beforehand.

    python -m gputop.fleet.prometheus.rules dcgm   > grafana/fleet-dcgm.rules.yml
    python -m gputop.fleet.prometheus.rules gputop > grafana/fleet-gputop.rules.yml

Where an engine has them, the head of ``gputop fleet`` and its histories are read from their few series
(``recorded.py``), which costs the same for ten GPUs and for ten thousand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Final

from gputop.fleet.prometheus import sums
from gputop.fleet.prometheus.exporters import DCGM, GPUTOP
from gputop.fleet.prometheus.exporters.exporter import Figure
from gputop.fleet.prometheus.recorded import MODEL_SERIES
from gputop.fleet.prometheus.vectors import STALE_SECONDS, Scraped, Vectors

INTERVAL: Final = "30s"

_SCRAPED: Final = {"dcgm": Scraped(DCGM, "Hostname"), "gputop": Scraped(GPUTOP)}


def rules_of(name: str) -> str:
    """The rules for *name* ("dcgm" or "gputop") as YAML, of which JSON strings are a part."""
    vectors = Vectors((_SCRAPED[name],))
    lines = [
        f"# Made by `python -m gputop.fleet.prometheus.rules {name}`; docs/fleet.md says what for.",
        "groups:",
        f"- name: gputop-fleet-{name}",
        f"  interval: {INTERVAL}",
        "  rules:",
    ]
    for record, expression in _recorded(vectors):
        lines += [f"  - record: {record}", f"    expr: {json.dumps(expression)}"]
    lines += [f"- name: gputop-fleet-{name}-alerts", "  rules:"]
    for alert, hold, severity, expression, summary in _alerts(vectors, name):
        lines += [
            f"  - alert: {alert}",
            f"    expr: {json.dumps(expression)}",
            f"    for: {hold}",
            f"    labels: {{severity: {severity}}}",
            f"    annotations: {{summary: {json.dumps(summary)}}}",
        ]
    return "\n".join(lines) + "\n"


def _recorded(vectors: Vectors) -> Iterator[tuple[str, str]]:
    for tag, how, expression in sums.parts_of(vectors):
        yield MODEL_SERIES[tag], f"{how} by (model) ({expression})"
    age = vectors.age()
    yield MODEL_SERIES["hosts"], f"count({age})"
    yield MODEL_SERIES["hosts_stale"], f"count({age} > {STALE_SECONDS:g}) or vector(0)"
    gpus, busy = MODEL_SERIES["gpus"], MODEL_SERIES["busy"]
    yield "gputop:fleet_utilization_percent:avg", f"sum({busy} * on (model) {gpus}) / sum({gpus} and on (model) {busy})"
    yield "gputop:fleet_memory_used_bytes:sum", f"sum({MODEL_SERIES['used']})"
    yield "gputop:fleet_power_watts:sum", f"sum({MODEL_SERIES['power']})"
    yield "gputop:fleet_gpus_free:count", f"sum({MODEL_SERIES['free']}) or vector(0)"
    yield "gputop:fleet_temperature_celsius:max", f"max({vectors.figure(Figure.TEMPERATURE)})"


def _alerts(vectors: Vectors, name: str) -> Iterator[tuple[str, str, str, str, str]]:
    keep = ("host", "uuid", "model", "gpu")
    by = f"max by ({','.join(keep)})"
    job = "dcgm.*" if name == "dcgm" else "gputop.*"
    where = "GPU {{ $labels.gpu }} of {{ $labels.host }}"
    yield (
        "GpuBroken", "1m", "critical", f"{by} ({vectors.broken(keep)})",
        f"{where} is broken: a fatal Xid, a failed row remapping, or its exporter cannot read it",
    )  # fmt: skip
    yield (
        "GpuHostUnreachable", "5m", "critical", f'up{{job=~"{job}"}} == 0',
        "{{ $labels.instance }} cannot be scraped: the host or its exporter is down",
    )  # fmt: skip
    yield (
        "GpuHeldButIdle", "1h", "warning", f"{by} ({vectors.idle(keep)})",
        f"{where} is held and has not been used for an hour",
    )  # fmt: skip
    yield (
        "GpuHot", "5m", "warning", f"{by} ({vectors.figure(Figure.TEMPERATURE, keep)}) >= 88",
        f"{where} is at {{{{ $value }}}} °C",
    )  # fmt: skip
    yield (
        "NoFreeGpu", "30m", "info", f"sum({MODEL_SERIES['gpus']}) > 0 unless sum({MODEL_SERIES['free']}) > 0",
        "not one GPU has been free for half an hour",
    )  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(rules_of(sys.argv[1]))
