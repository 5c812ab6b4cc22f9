"""The GPUs of some hosts, with all that is known of them and who uses them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gputop.fleet.model import FleetGpu, FleetHost, GpuUsage, HostState
from gputop.fleet.prometheus.client import EngineClient, Sample
from gputop.fleet.prometheus.exporters import Exporter, Figure
from gputop.fleet.prometheus.exporters.jobstats import JOB_GAUGE, UID_GAUGE
from gputop.fleet.prometheus.promql import any_of, quoted, selector, tagged
from gputop.fleet.prometheus.vectors import STALE_SECONDS, Scraped, Vectors, over
from gputop.fleet.states import IDLE_SECONDS, IDLE_UTILIZATION_PERCENT, fleet_gpu
from gputop.model import EVENT_REASONS, Gpu, GpuFacts, MigInstance, clean_text
from gputop.units import duration_in_words

HOSTS_A_QUERY: Final = 100
#: Labels that say something about the exporter or a GPU; all others are the site's own.
_NOT_OF_THE_SITE: Final = frozenset(
    (
        "__name__", "q", "instance", "job", "UUID", "uuid", "gpu", "device", "modelName", "name", "index", "Hostname",
        "hostname", "pci_bus_id", "minor_number", "ordinal", "GPU_I_ID", "GPU_I_PROFILE", "serial", "vbios", "err_code",
        "err_msg", "architecture", "pod", "namespace", "container", "exported_pod", "exported_namespace",
        "exported_container", "hpc_job", "jobid", "driver_version", "cuda_version", "vbios_version", "compute_cap",
        "driver_model_current", "driver_model_pending", "pci_sub_device_id", "DCGM_FI_DRIVER_VERSION", "prometheus",
        "prometheus_replica", "replica", "endpoint", "service", "exported_instance", "exported_job",
    )
)  # fmt: skip
_WHOLE_NUMBERS: Final = frozenset(
    figure
    for figure in Figure
    if figure.value.startswith(("utilization", "memory", "temperature", "clock", "performance"))
)
_GPUTOP_REASONS: Final = {reason.label.lower().replace(" ", "_"): reason.bit for reason in EVENT_REASONS}


@dataclass
class _Seen:
    """A GPU while its series are read."""

    scraped: Scraped
    host: str
    labels: Mapping[str, str]
    values: dict[tuple[str, str], float] = field(default_factory=dict)  # by metric and extra label
    parts: dict[str, dict[str, float]] = field(default_factory=dict)  # by MIG instance and metric
    profiles: dict[str, str] = field(default_factory=dict)
    usages: list[GpuUsage] = field(default_factory=list)
    site: dict[str, str] = field(default_factory=dict)
    idle: bool | None = None
    reasons: int | None = None
    xids: set[int] = field(default_factory=set)


def rows_of(client: EngineClient, vectors: Vectors, names: Sequence[str]) -> tuple[dict[str, FleetHost], list[str]]:
    """The hosts called *names* that the engine knows now, and warnings. Raises EngineError."""
    hosts: dict[str, FleetHost] = {}
    warnings: list[str] = []
    for start in range(0, len(names), HOSTS_A_QUERY):
        some = names[start : start + HOSTS_A_QUERY]
        gpus: dict[str, _Seen] = {}
        ages: dict[str, float] = {}
        for one in vectors.scraped:  # the first that sees a GPU is believed
            answer = client.query_all(_queries(one, some))
            warnings += answer.warnings
            _read(one, answer.samples, gpus, ages)
        if vectors.slurm:
            _read_slurm(client, some, gpus)
        by_host: dict[str, list[_Seen]] = {}
        for seen in gpus.values():
            by_host.setdefault(seen.host, []).append(seen)
        hosts |= {name: _host(name, of_host, ages.get(name)) for name, of_host in by_host.items()}
    return hosts, warnings


def _queries(one: Scraped, names: Sequence[str]) -> list[str]:
    """Values without labels that repeat, and once for each GPU all its labels."""
    exporter, hosts = one.exporter, one.of_hosts(names)
    metrics = {found.metric for found in exporter.figures.values()}
    metrics |= {exporter.xid_gauge, exporter.xid_counter, *exporter.broken_messages} - {""}
    metrics |= {JOB_GAUGE, UID_GAUGE} if any(JOB_GAUGE in text for text in exporter.held) else set()
    extra = [*exporter.extra, *(["xid"] if exporter.xid_counter else []), exporter.mig_instance]
    by = ",".join(filter(None, ("__name__", exporter.uuid, *extra)))
    named = f"__name__=~{quoted(any_of(sorted(metrics)))}"
    parts = [tagged("value", f"max by ({by}) ({selector('', named, hosts)})")]
    info = selector(exporter.info or exporter.identity, hosts)
    parts.append(tagged("info", info))
    seen = selector(exporter.identity, hosts)
    parts.append(tagged("age", f"time() - max by ({one.host}) (timestamp({seen}))"))
    busiest = over(IDLE_SECONDS, "max")(selector(exporter.figures[Figure.UTILIZATION].metric, hosts))
    scale = exporter.figures[Figure.UTILIZATION].scale
    parts.append(tagged("busiest", f"{scale:g} * max by ({exporter.uuid}) ({busiest})"))
    if exporter.processes:
        parts.append(tagged("process", selector(exporter.processes, hosts)))
        by_process = f"{exporter.uuid},pid"
        parts.append(tagged("process_memory", f"max by ({by_process}) ({selector(exporter.process_memory, hosts)})"))
    if exporter.name == "gputop serve":
        reasons = selector("gputop_gpu_clock_event_reason", hosts)
        parts.append(tagged("reason", f"max by (uuid,reason) ({reasons})"))
    return parts


# ----------------------------------------------------------------------- reading


def _read(one: Scraped, samples: Iterable[Sample], gpus: dict[str, _Seen], ages: dict[str, float]) -> None:
    exporter = one.exporter
    parts: dict[str, list[Sample]] = {}
    for sample in samples:
        parts.setdefault(sample.labels.get("q", ""), []).append(sample)
    mine: dict[str, _Seen] = {}
    for labels, _ in parts.get("info", ()):
        uuid = _uuid(exporter, labels)
        host = clean_text(one.host_of(labels.get(one.host, "")), 200)
        if not uuid or not host or uuid in gpus:
            continue
        seen = mine.setdefault(uuid, _Seen(one, host, labels))
        seen.site |= {key: clean_text(value, 200) for key, value in labels.items() if key not in _NOT_OF_THE_SITE}
        if exporter.mig_instance and (instance := labels.get(exporter.mig_instance)):
            seen.profiles[instance] = clean_text(labels.get(exporter.mig_profile, ""), 40)
        _add_usage(seen, _usage(exporter.usage_labels, labels))
    for labels, value in parts.get("age", ()):
        host = clean_text(one.host_of(labels.get(one.host, "")), 200)
        ages[host] = min(ages.get(host, value), value)
    for labels, value in parts.get("value", ()):
        found = mine.get(_uuid(exporter, labels))
        if found is not None:
            _take(found, labels, value)
    for labels, value in parts.get("busiest", ()):
        if (found := mine.get(_uuid(exporter, labels))) is not None:
            found.idle = value <= IDLE_UTILIZATION_PERCENT
    for labels, value in parts.get("reason", ()):
        if (found := mine.get(_uuid(exporter, labels))) is not None:
            bit = _GPUTOP_REASONS.get(labels.get("reason", ""), 0)
            found.reasons = (found.reasons or 0) | (bit if value else 0)
    memory = {
        (_uuid(exporter, labels), labels.get("pid", "")): value for labels, value in parts.get("process_memory", ())
    }
    for labels, _ in parts.get("process", ()):
        if (found := mine.get(_uuid(exporter, labels))) is not None:
            known = memory.get((_uuid(exporter, labels), labels.get("pid", "")))
            _add_usage(found, _usage(exporter.process_labels, labels, None if known is None else int(known)))
    gpus |= mine


def _uuid(exporter: Exporter, labels: Mapping[str, str]) -> str:
    uuid = clean_text(labels.get(exporter.uuid, ""), 80)
    return f"GPU-{uuid.removeprefix('GPU-')}" if exporter.bare_uuid and uuid else uuid


def _take(seen: _Seen, labels: Mapping[str, str], value: float) -> None:
    exporter, metric = seen.scraped.exporter, labels.get("__name__", "")
    if metric == exporter.xid_counter:
        if value > 0 and labels.get("xid", "").isdecimal():
            seen.xids.add(int(labels["xid"]))
        return
    if exporter.mig_instance and (instance := labels.get(exporter.mig_instance)):
        seen.parts.setdefault(instance, {})[metric] = value
        return
    seen.values[metric, next((labels[name] for name in exporter.extra if name in labels), "")] = value


def _usage(names: Sequence[tuple[str, str]], labels: Mapping[str, str], memory: int | None = None) -> GpuUsage | None:
    found: dict[str, Any] = {}
    for label, name in names:
        text = clean_text(labels.get(label, ""), 200)
        if not text or (name == "pod" and "dcgm-exporter" in text):
            continue
        found.setdefault(name, int(text) if name in ("pid", "rank") and text.isdecimal() else text)
    if set(found) <= {"namespace", "container"}:  # labels of the exporter's own pod say nothing
        return None
    found = {name: value for name, value in found.items() if name not in ("pid", "rank") or isinstance(value, int)}
    return GpuUsage(**found, memory_bytes=memory)


def _add_usage(seen: _Seen, usage: GpuUsage | None) -> None:
    if usage is not None and usage not in seen.usages:
        seen.usages.append(usage)


def _read_slurm(client: EngineClient, names: Sequence[str], gpus: Mapping[str, _Seen]) -> None:
    """slurm-job-exporter names GPUs by host and index: https://github.com/guilbaults/slurm-job-exporter."""
    hosts = f"instance=~{quoted(f'(?:{any_of(names)})(?::[0-9]+)?')}"
    by_place = {(seen.host, _index(seen)): seen for seen in gpus.values()}
    for labels, _ in client.query(selector("slurm_job_utilization_gpu", hosts)).samples:
        host = labels.get("instance", "").rpartition(":")[0] or labels.get("instance", "")
        index = labels.get("gpu", "")
        seen = by_place.get((host, int(index))) if index.isdecimal() else None
        if seen is not None:
            user, job = (clean_text(labels.get(name, ""), 100) or None for name in ("user", "slurmjobid"))
            seen.usages = [GpuUsage(user=user, job=job), *(usage for usage in seen.usages if usage.job != job)]


# ------------------------------------------------------------------------ hosts


def _host(name: str, gpus: list[_Seen], age: float | None) -> FleetHost:
    stale = age is not None and age > STALE_SECONDS
    reason = f"no new reading for {duration_in_words(age)}" if stale and age is not None else None
    made = sorted((_gpu(seen) for seen in gpus), key=lambda gpu: (gpu.gpu.index, gpu.gpu.uuid))
    exporter = gpus[0].scraped.exporter
    driver = clean_text(gpus[0].labels.get(exporter.driver_version, ""), 40) if exporter.driver_version else ""
    shared = dict(gpus[0].site)
    for seen in gpus[1:]:
        shared = {key: value for key, value in shared.items() if seen.site.get(key) == value}
    return FleetHost(
        name,
        HostState.STALE if stale else HostState.UP,
        reason,
        None if age is None else max(0.0, age),
        tuple(made),
        shared,
        driver_version=driver or None,
    )


def _gpu(seen: _Seen) -> FleetGpu:
    exporter = seen.scraped.exporter
    known: dict[str, Any] = {}
    for figure, found in exporter.figures.items():
        wanted = found.matchers.partition('"')[2].rstrip('"') if exporter.extra and found.matchers else ""
        value = seen.values.get((found.metric, wanted))
        if value is None:
            value = _of_parts(seen, figure, found.metric)
        if value is not None:
            scaled = value * found.scale
            known[figure.value] = round(scaled) if figure in _WHOLE_NUMBERS else round(scaled, 3)
    used, free, reserved = (known.get(f"memory_{name}_bytes") for name in ("used", "free", "reserved"))
    if "memory_total_bytes" not in known and used is not None and free is not None:
        known["memory_total_bytes"] = used + free + (reserved or 0)
    gauge = int(seen.values.get((exporter.xid_gauge, ""), 0)) if exporter.xid_gauge else 0
    gauge = gauge or int(max((part.get(exporter.xid_gauge, 0) for part in seen.parts.values()), default=0))
    labels = seen.labels
    gpu = Gpu(
        _index(seen),
        _uuid(exporter, labels),
        clean_text(labels.get(exporter.model, ""), 100),
        0.0,
        pci_bus_id=clean_text(labels.get(exporter.pci_bus_id, ""), 40) or None,
        error=_error(seen),
        event_reasons_mask=seen.reasons,
        facts=GpuFacts(mig_mode=True if seen.profiles else None),
        mig=tuple(_instance(seen, number) for number in sorted(seen.profiles, key=_number)),
        **known,
    )
    usages = seen.usages
    job = seen.values.get((JOB_GAUGE, ""))
    if job and not any(usage.job for usage in usages):
        uid = seen.values.get((UID_GAUGE, ""))
        usages = [GpuUsage(user=None if uid is None else str(int(uid)), job=str(int(job))), *usages]
    xid = gauge or next(iter(sorted(seen.xids, reverse=True)), None)
    return fleet_gpu(gpu, usages, seen.idle, xid or None)


def _of_parts(seen: _Seen, figure: Figure, metric: str) -> float | None:
    """Of a GPU in MIG mode the exporter tells instances only: memory adds up, the rest is the board's."""
    values = [part[metric] for part in seen.parts.values() if metric in part]
    if not values:
        return None
    return sum(values) if figure.value.startswith("memory_") else max(values)


def _instance(seen: _Seen, number: str) -> MigInstance:
    part, figures = seen.parts.get(number, {}), seen.scraped.exporter.figures

    def size(figure: Figure) -> int | None:
        value = part.get(figures[figure].metric)
        return None if value is None else int(value * figures[figure].scale)

    used, free = size(Figure.MEMORY_USED), size(Figure.MEMORY_FREE)
    total = used + free if used is not None and free is not None else None
    return MigInstance("", _number(number), 0, seen.profiles[number], total, used, free)


def _error(seen: _Seen) -> str | None:
    for metric, message in seen.scraped.exporter.broken_messages.items():
        value = seen.values.get((metric, ""))
        if value is not None and (value == 0 if metric == "gputop_gpu_up" else value > 0):
            return message
    return None


def _index(seen: _Seen) -> int:
    return _number(seen.labels.get(seen.scraped.exporter.index, ""))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 6 else 0
