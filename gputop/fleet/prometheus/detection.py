"""Which exporters an engine scrapes, and by which labels they name their hosts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from gputop.fleet.prometheus.client import EngineClient
from gputop.fleet.prometheus.exporters import EXPORTERS, Exporter
from gputop.fleet.prometheus.promql import quoted, selector, tagged
from gputop.fleet.prometheus.recorded import MODEL_SERIES
from gputop.fleet.prometheus.vectors import Scraped, Vectors

_NO_NAME: Final = "|localhost"  # as a pattern: a label that is absent, or of a container without a name (dcgm #572)
_SLURM: Final = "slurm_job_utilization_gpu"


@dataclass(frozen=True, slots=True)
class Detected:
    vectors: Vectors
    recorded: bool = False  # the engine has the series of the recording rules (rules.py)
    jobs: tuple[str, ...] = ()  # the names under which the engine scrapes them

    def __bool__(self) -> bool:
        return bool(self.vectors.scraped)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.exporter.name for one in self.vectors.scraped))


def detect(client: EngineClient) -> Detected:
    """Asks for counts only. Raises EngineError."""
    candidates = [one for exporter in EXPORTERS for one in _variants(exporter)]
    probes = [
        tagged(str(number), f"count by (job) ({selector(_probe(one.exporter), one.matchers)})")
        for number, one in enumerate(candidates)
    ]
    probes.append(tagged("slurm", f"count by (job) ({_SLURM})"))
    found: dict[str, set[str]] = {}
    for labels, value in client.query_all(probes).samples:
        if value > 0:
            found.setdefault(labels.get("q", ""), set()).add(labels.get("job", ""))
    scraped = tuple(one for number, one in enumerate(candidates) if str(number) in found)
    if len(scraped) == 1 and "slurm" not in found and _is_plain(client, scraped[0]):
        scraped = (dataclasses.replace(scraped[0], plain=True),)
    jobs = tuple(sorted({job for tag, names in found.items() if tag != "slurm" for job in names if job}))
    recorded = bool(client.query(f"count({MODEL_SERIES['gpus']}) > 0").samples)
    return Detected(Vectors(scraped, "slurm" in found), recorded, jobs)


def _is_plain(client: EngineClient, one: Scraped) -> bool:
    """No MIG instances, no copies for pods that share a GPU, no replicas: a series a GPU and metric."""
    exporter = one.exporter
    if exporter.info or one.host == "instance" or exporter.bare_uuid:
        return False
    if (
        exporter.mig_instance
        and client.query(
            f"count({selector(exporter.identity, one.matchers, f'{exporter.mig_instance}!=' + quoted(''))})"
        ).samples
    ):
        return False
    return bool(client.query(still_plain(Vectors((dataclasses.replace(one, plain=True),)))).samples)


def still_plain(vectors: Vectors) -> str:
    """Holds where every GPU has one series: else sums of plain series are wrong, and one has to detect again."""
    assert vectors.plain is not None
    series = selector(vectors.plain.exporter.identity, vectors.plain.matchers)
    return tagged("plain", f"count({series}) == count(count by ({vectors.name('uuid')}) ({series}))")


def _probe(exporter: Exporter) -> str:
    return exporter.identity


def _variants(exporter: Exporter) -> list[Scraped]:
    """One for each label that may name the host, for the series that have it and none of those before."""
    variants, without = [], ""
    for label in exporter.hosts:
        named = f'{label}!~"{_NO_NAME}"'
        variants.append(Scraped(exporter, label, ",".join(filter(None, (named, without)))))
        without = ",".join(filter(None, (without, f'{label}=~"{_NO_NAME}"')))
    variants.append(Scraped(exporter, "instance", without))
    return variants
