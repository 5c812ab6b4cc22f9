"""Sums by user, job, namespace, model or any label of the series, made by the engine; the largest GROUPS_MOST."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gputop.fleet.model import FleetGroup, Totals
from gputop.fleet.prometheus.client import Sample
from gputop.fleet.prometheus.exporters import Figure
from gputop.fleet.prometheus.promql import quoted, selector, tagged, union
from gputop.fleet.prometheus.vectors import Scraped, Vectors
from gputop.model import clean_text

GROUPS_MOST: Final = 200

_OF_THE_GPU: Final = ("model", "host")


def queries(vectors: Vectors, by: str, hosts: str = "") -> list[str]:
    """*by* is one of ``totals.GROUPS`` or a label; *hosts* an expression of the hosts that count, "" for all."""
    named = _named(vectors, by)
    if hosts:
        named = f"({named} and on (host) {hosts})"
    known = f"max by (uuid, g) ({named})"

    def sums(tag: str, how: str, figure: str) -> str:
        joined = f"({known} * 0 + on (uuid) group_left () max by (uuid) ({figure}))"
        return tagged(tag, f"{how} by (g) ({joined})")

    return [
        tagged("gpus", f"topk({GROUPS_MOST}, count by (g) ({known}))"),
        sums("used", "sum", vectors.figure(Figure.MEMORY_USED)),
        sums("power", "sum", vectors.figure(Figure.POWER)),
        sums("util", "avg", vectors.figure(Figure.UTILIZATION)),
        sums("free", "count", vectors.free()),
        sums("idle", "count", vectors.idle()),
        sums("broken", "count", vectors.broken()),
    ]


def _named(vectors: Vectors, by: str) -> str:
    """Every GPU with the label ``g``, its group; a GPU of two users twice."""
    if by in _OF_THE_GPU:
        return f'label_replace({vectors.gpus((by, "host"))},"g","$1","{by}","(.*)")'
    if by == "state":
        of = {"broken": vectors.broken, "free": vectors.free, "idle": vectors.idle, "busy": vectors.gpus}
        parts = [(name, vector(("host",))) for name, vector in of.items()]  # what is none of the first three is busy
        return " or on (uuid) ".join(
            f'label_replace({expression},"g",{quoted(name)},"","")' for name, expression in parts
        )
    labelled = [text for one in vectors.scraped for text in _labelled(one, by)]
    if vectors.slurm and by in ("user", "job"):
        label = "slurmjobid" if by == "job" else "user"
        jobs = 'label_replace(slurm_job_utilization_gpu,"host","$1","instance","(.+?)(?::[0-9]+)?")'
        named = f'label_replace(max by (host,gpu,{label}) ({jobs}),"g","$1",{quoted(label)},"(.+)")'
        gpus = vectors.gpus(("host", "gpu"))
        labelled.append(f"({named} * 0 + on (host,gpu) group_left (uuid) max by (host,gpu,uuid) ({gpus}))")
    everything = f'label_replace({vectors.gpus(("host",))},"g","","","")'
    return f"(({union(labelled)}) or on (uuid) {everything})" if labelled else everything


def _labelled(one: Scraped, by: str) -> list[str]:
    exporter, found = one.exporter, []
    of_identity = [label for label, name in exporter.usage_labels if name == by] or (
        [by] if by.isidentifier() and by not in ("user", "job", "pod", "namespace", "container", "unit") else []
    )
    of_processes = [label for label, name in exporter.process_labels if name == by]
    for metric, labels in ((exporter.identity, of_identity), (exporter.processes, of_processes)):
        for label in labels:
            if not metric:
                continue
            selected = selector(metric, one.matchers, f'{label}!=""')
            kept = f"max by ({one.host},{exporter.uuid},{label}) ({selected})"
            renamed = f'label_replace({kept},"g","$1",{quoted(label)},"(.+)")'
            found.append(one.renamed(renamed, ("host", "uuid")))
    return found


def read(samples: Iterable[Sample]) -> tuple[FleetGroup, ...]:
    """The largest first."""
    sums: dict[str, dict[str, float]] = {}
    for labels, value in samples:
        sums.setdefault(clean_text(labels.get("g", ""), 200), {})[labels.get("q", "")] = value
    groups = []
    for label, of in sums.items():
        if not (gpus := int(of.get("gpus", 0))):
            continue
        free, idle, broken = (int(of.get(tag, 0)) for tag in ("free", "idle", "broken"))
        used = of.get("used")
        totals = Totals(
            gpus=gpus,
            gpus_free=free,
            gpus_idle_held=idle,
            gpus_broken=broken,
            gpus_busy=max(0, gpus - free - idle - broken),
            memory_used_bytes=None if used is None else int(used),
            power_watts=of.get("power"),
            utilization_percent=of.get("util"),
        )
        groups.append(FleetGroup(label, totals))
    return tuple(sorted(groups, key=lambda group: (-group.totals.gpus, group.label)))
