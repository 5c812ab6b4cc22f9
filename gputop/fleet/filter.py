"""What the ``/`` prompt asks of hosts, in the grammar of gputop/filters: ``free>=4 model:h100 state:down rack:r12``.

A filter is data: a source that is asked elsewhere (PromQL) translates the terms, ``in_memory`` asks :meth:`matches`.
Of ``name:value`` the beginning of the value will do, of ``model:`` and words any part; case does not matter. A host
passes ``user:ml`` where any of its GPUs does. A name that is none of NAMES is a label of the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gputop.filters.comparison import Comparison, comparison_of
from gputop.filters.errors import FilterError
from gputop.filters.field import Field, FieldRegistry, unknown_field
from gputop.filters.quantities import BYTES, CELSIUS, PERCENT, SECONDS, WATTS, Unit, number_parser
from gputop.filters.terms import Grammar, Term
from gputop.fleet.model import FleetHost, GpuState
from gputop.fleet.totals import labels_of
from gputop.units import percent_of, short_number

HostField = Field[[FleetHost]]

COUNT: Final = Unit("count", "", "4", number_parser("", "4"), short_number)

HOST_FIELDS: Final[FieldRegistry[[FleetHost]]] = FieldRegistry(
    (
        Field("free GPUs", ("free", "free gpus"), {COUNT: lambda host: host.gpus_free}),
        Field("GPUs", ("gpus",), {COUNT: lambda host: len(host.gpus)}),
        Field("idle GPUs", ("idle", "idle gpus"), {COUNT: lambda host: host.count(GpuState.IDLE_HELD)}),
        Field("broken GPUs", ("broken", "broken gpus"), {COUNT: lambda host: host.count(GpuState.BROKEN)}),
        Field("utilization", ("util", "utilization"), {PERCENT: lambda host: host.utilization_percent}),
        Field(
            "memory",
            ("mem", "memory"),
            {
                BYTES: lambda host: host.memory_used_bytes,
                PERCENT: lambda host: percent_of(host.memory_used_bytes, host.memory_total_bytes),
            },
            whole="the memory of the host's GPUs",
        ),
        Field("power", ("power",), {WATTS: lambda host: host.power_watts}),
        Field("temperature", ("temp", "temperature"), {CELSIUS: lambda host: host.temperature_celsius}),
        Field("age", ("age",), {SECONDS: lambda host: host.age_seconds}),
    )
)

#: What may stand before a colon; other names are labels of the hosts.
NAMES: Final = ("host", "model", "user", "job", "pod", "namespace", "container", "unit", "state")
#: Of ``state:``, besides those of HostState and GpuState.
STATE_ALIASES: Final = {"down": "unreachable", "held": "idle"}

_ANY_LABEL: Final = r"[a-z_]\w*"  # Grammar takes the names as a pattern
_GRAMMAR: Final = Grammar((*NAMES, _ANY_LABEL), HOST_FIELDS)


@dataclass(frozen=True, slots=True)
class Named:
    """``user:ml,cv``: *name* has one of *values* (in lower case)."""

    name: str
    values: tuple[str, ...]
    negated: bool = False

    def matches(self, host: FleetHost) -> bool:
        return any(map(self._is_asked_for, _texts(host, self.name))) is not self.negated

    def _is_asked_for(self, text: str) -> bool:
        text = text.casefold()
        if self.name == "model":
            return any(value in text for value in self.values)
        return text.startswith(self.values)


@dataclass(frozen=True, slots=True)
class Word:
    """A word that stands in the host's name, a model, a label or whoever uses a GPU; in lower case."""

    value: str
    negated: bool = False

    def matches(self, host: FleetHost) -> bool:
        return any(self.value in text.casefold() for text in _everything(host)) is not self.negated


@dataclass(frozen=True, slots=True)
class Compared:
    """``free>=4``. Not known passes neither it nor its opposite."""

    comparison: Comparison[[FleetHost]]

    def matches(self, host: FleetHost) -> bool:
        return self.comparison.test()(host)


HostTerm = Named | Word | Compared


@dataclass(frozen=True, slots=True)
class FleetFilter:
    """A parsed filter: all terms must match. Those that make no sense (yet) are in ``problems`` and hide nothing."""

    text: str = ""
    terms: tuple[HostTerm, ...] = ()
    problems: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> FleetFilter:
        terms: list[HostTerm] = []
        problems: list[str] = []
        for term in _GRAMMAR.terms(text):
            try:
                terms.append(_term(term))
            except FilterError as error:
                problems.append(f"{term.text}: {error}")
        return cls(text, tuple(terms), tuple(problems))

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, host: FleetHost) -> bool:
        return all(term.matches(host) for term in self.terms)


def _term(term: Term) -> HostTerm:
    if term.is_comparison:
        field = HOST_FIELDS.get(term.name)
        if field is None:
            raise unknown_field(term.name, (HOST_FIELDS,), term.position)
        return Compared(comparison_of(term, field, "GiB"))
    if not term.name:
        if not term.value:
            raise FilterError("a word is missing after it", term.position)
        return Word(term.value.casefold(), term.negated)
    values = tuple(value.casefold() for value in term.values)
    if term.name == "state":
        values = tuple(STATE_ALIASES.get(value, value) for value in values)
    return Named(term.name, values, term.negated)


def _texts(host: FleetHost, name: str) -> set[str]:
    if name == "state":
        return {host.state.value, *(gpu.state.value for gpu in host.gpus)}
    if name == "host":
        return {host.name}
    if name not in NAMES:
        return {value for label, value in host.labels.items() if label.casefold() == name}
    return {text for gpu in host.gpus for text in labels_of(host, gpu, name) if text}


def _everything(host: FleetHost) -> set[str]:
    named = (text for name in ("host", "model", "user", "job", "pod", "namespace") for text in _texts(host, name))
    return {*named, *host.labels.values()}
