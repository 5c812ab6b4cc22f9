"""Which hosts pass a view's filter, with the figure they are sorted by: one short row a host, which no page needs to
fetch again while only rows are refreshed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gputop.filters.quantities import PERCENT
from gputop.fleet.filter import Compared, HostTerm, Named, Word
from gputop.fleet.model import GpuState, HostState
from gputop.fleet.prometheus.exporters import Figure
from gputop.fleet.prometheus.promql import any_of, pattern, quoted, union
from gputop.fleet.prometheus.vectors import STALE_SECONDS, Vectors
from gputop.fleet.view import FleetView, HostSort

_HOST: Final = ("host",)


def index_of(vectors: Vectors, view: FleetView) -> str:
    """A value for each host that passes; not for those that are gone."""
    figure = _SORTED_BY.get(view.sort)
    expression = f"({hosts_of(vectors)})" if figure is None else f"({figure(vectors)})"
    if figure is not None:  # hosts without the figure are there, too: those of the second have no sort value
        expression = f'({expression} or {_on(vectors)} label_replace({hosts_of(vectors)},"unknown","1","",""))'
    passing = passing_of(vectors, view)
    return f"{expression} and {_on(vectors)} {passing}" if passing else expression


def hosts_of(vectors: Vectors) -> str:
    return f"group {_by(vectors)} ({vectors.gpus(_HOST)})"


def passing_of(vectors: Vectors, view: FleetView) -> str:
    """The hosts that pass the terms an engine can judge; "" where there are none."""
    expressions = [(term, text) for term in view.filter.terms if (text := _term(vectors, term)) is not None]
    if not expressions:
        return ""
    result = hosts_of(vectors)
    for term, text in expressions:
        negated = not isinstance(term, Compared) and term.negated
        result += f" {'unless' if negated else 'and'} {_on(vectors)} ({text})"
    return f"({result})"


def _by(vectors: Vectors) -> str:
    return f"by ({vectors.name('host')})"


def _on(vectors: Vectors) -> str:
    return f"on ({vectors.name('host')})"


# ----------------------------------------------------------------------- figures


def _count(expression: str, vectors: Vectors) -> str:
    """By host, 0 where there is none."""
    return f"(count {_by(vectors)} ({expression}) or {_on(vectors)} 0 * {hosts_of(vectors)})"


def _problem(vectors: Vectors) -> str:
    broken = f"(3 * group {_by(vectors)} ({vectors.broken(_HOST)}))"
    return f"({broken} or {_on(vectors)} (2 * ({vectors.age()} > bool {STALE_SECONDS:g})))"


def _memory_share(vectors: Vectors) -> str:
    used, total = vectors.figure(Figure.MEMORY_USED, _HOST), vectors.memory_total(_HOST)
    return f"100 * sum {_by(vectors)} ({used}) / {_on(vectors)} sum {_by(vectors)} ({total})"


def _by_host(how: str, figure: Figure) -> Callable[[Vectors], str]:
    return lambda vectors: f"{how} {_by(vectors)} ({vectors.figure(figure, _HOST)})"


_SORTED_BY: Final[Mapping[HostSort, Callable[[Vectors], str]]] = {
    HostSort.PROBLEM: _problem,
    HostSort.GPUS: lambda vectors: f"count {_by(vectors)} ({vectors.gpus(_HOST)})",
    HostSort.FREE: lambda vectors: _count(vectors.free(_HOST), vectors),
    HostSort.UTILIZATION: _by_host("avg", Figure.UTILIZATION),
    HostSort.MEMORY: _by_host("sum", Figure.MEMORY_USED),
    HostSort.POWER: _by_host("sum", Figure.POWER),
    HostSort.TEMPERATURE: _by_host("max", Figure.TEMPERATURE),
    HostSort.AGE: lambda vectors: vectors.age(),
}

#: By the label of the field in fleet/filter.py.
_COMPARED: Final[Mapping[str, Callable[[Vectors], str]]] = {
    "free GPUs": _SORTED_BY[HostSort.FREE],
    "GPUs": _SORTED_BY[HostSort.GPUS],
    "idle GPUs": lambda vectors: _count(vectors.idle(_HOST), vectors),
    "broken GPUs": lambda vectors: _count(vectors.broken(_HOST), vectors),
    "utilization": _SORTED_BY[HostSort.UTILIZATION],
    "memory": _SORTED_BY[HostSort.MEMORY],
    "power": _SORTED_BY[HostSort.POWER],
    "temperature": _SORTED_BY[HostSort.TEMPERATURE],
    "age": _SORTED_BY[HostSort.AGE],
}


# ------------------------------------------------------------------------- terms


def _term(vectors: Vectors, term: HostTerm) -> str | None:
    """The hosts of which *term*, not negated, is true; None where an engine cannot judge it (see ``judges``)."""
    if isinstance(term, Compared):
        comparison = term.comparison
        figure = _COMPARED[comparison.field.label]
        if comparison.field.label == "memory" and comparison.unit is PERCENT:
            figure = _memory_share
        return f"({figure(vectors)}) {comparison.operator} {comparison.level:.12g}"
    if isinstance(term, Word):
        wanted = quoted(f"(?i).*{pattern(term.value)}.*")
        matchers = [f"{one.host}=~{wanted}" for one in vectors.scraped] + [f"model=~{wanted}"]
        return union(f"group {_by(vectors)} ({_matching(vectors, matcher)})" for matcher in dict.fromkeys(matchers))
    return _named(vectors, term)


def _named(vectors: Vectors, term: Named) -> str | None:
    if term.name == "state":
        return union(filter(None, (_state(vectors, value) for value in term.values))) or "vector(0) < 0"
    begins = quoted(f"(?i)(?:{any_of(term.values)}).*")
    if term.name == "host":
        parts = [f"group {_by(vectors)} ({one.identity(_HOST, f'{one.host}=~{begins}')})" for one in vectors.scraped]
        return union(parts)
    if term.name == "model":
        inside = quoted(f"(?i).*(?:{any_of(term.values)}).*")
        return f"group {_by(vectors)} ({_matching(vectors, f'model=~{inside}')})"
    labels = _LABELS.get(term.name, (term.name,))
    parts = [
        f"group {_by(vectors)} ({one.identity(_HOST, f'{label}=~{begins}')})"
        for one in vectors.scraped
        for label in labels
    ]
    parts += [
        f"group {_by(vectors)} ({one.by_gpu(f'{one.exporter.processes}{{{label}=~{begins}}}', _HOST)})"
        for one in vectors.scraped
        for label in labels
        if one.exporter.processes
    ]
    if vectors.slurm and term.name in ("user", "job"):
        label = "slurmjobid" if term.name == "job" else "user"
        jobs = (
            f'label_replace(slurm_job_utilization_gpu{{{label}=~{begins}}},"host","$1","instance","(.+?)(?::[0-9]+)?")'
        )
        parts.append(f"group {_by(vectors)} ({jobs})")
    if term.name == "job" and any(one.exporter.held and "jobId" in one.exporter.held[0] for one in vectors.scraped):
        exact = [value for value in term.values if value.isdecimal()]
        gauge = 'label_replace(nvidia_gpu_jobId == {},"host","$1","instance","(.+?)(?::[0-9]+)?")'
        parts += [f"group {_by(vectors)} ({gauge.format(value)})" for value in exact]
    return union(parts)


#: Under which labels exporters tell what a filter calls so.
_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "user": ("user",),
    "job": ("hpc_job", "jobid", "job_id"),
    "pod": ("exported_pod", "pod"),
    "namespace": ("exported_namespace", "namespace"),
    "container": ("exported_container", "container"),
    "unit": ("unit",),
}


def _matching(vectors: Vectors, matcher: str) -> str:
    """All GPUs whose series (of info, where there is such a metric) match."""
    parts = []
    for one in vectors.scraped:
        own = matcher.replace("model=~", f"{one.exporter.model}=~")
        metric = one.exporter.info or one.exporter.identity
        parts.append(one.by_gpu(f"{metric}{{{','.join(filter(None, (one.matchers, own)))}}}", ("host",)))
    return union(parts)


def _state(vectors: Vectors, value: str) -> str | None:
    """The beginning of a state will do; of those that are gone the engine knows nothing."""
    parts = []
    if HostState.STALE.value.startswith(value):
        parts.append(f"{vectors.age()} > {STALE_SECONDS:g}")
    if HostState.UP.value.startswith(value):
        parts.append(f"{vectors.age()} <= {STALE_SECONDS:g}")
    for state, expression in (
        (GpuState.FREE, vectors.free),
        (GpuState.IDLE_HELD, vectors.idle),
        (GpuState.BROKEN, vectors.broken),
    ):
        if state.value.startswith(value):
            parts.append(f"group {_by(vectors)} ({expression(_HOST)})")
    if GpuState.BUSY.value.startswith(value):
        others = f"unless {vectors.on_uuid} {vectors.free()} unless {vectors.on_uuid} {vectors.idle()}"
        busy = f"({vectors.gpus(_HOST)}) {others}"
        parts.append(f"group {_by(vectors)} ({busy} unless {vectors.on_uuid} ({vectors.broken()}))")
    return union(parts) if parts else None
