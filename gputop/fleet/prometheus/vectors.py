"""PromQL for all GPUs an engine knows: one value for each, whoever exports it, and which are free, idle, broken.

A vector has the labels it was asked to keep, out of ``host``, ``uuid``, ``model`` and ``gpu`` (the index), and is made
of the exporters in the order in which they are believed: a GPU that two of them see counts once, by its UUID, and so
does one whose series two replicas have. What free and idle mean is said in ``fleet/states.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gputop.fleet.prometheus.exporters import Exporter, Figure
from gputop.fleet.prometheus.promql import any_of, quoted, selector, union
from gputop.fleet.states import FATAL_XIDS, FREE_BELOW_BYTES, IDLE_SECONDS, IDLE_UTILIZATION_PERCENT

#: A reading older than this is stale. Prometheus itself forgets a series 5 minutes after its last sample, or at once
#: when a scrape of its target fails.
STALE_SECONDS: Final = 120.0

_FATAL: Final = "|".join(map(str, sorted(FATAL_XIDS)))
_FROM_INSTANCE: Final = "(.+?)(?::[0-9]+)?"


@dataclass(frozen=True, slots=True)
class Scraped:
    """An exporter the engine scrapes, and the label that names its hosts: "instance" where no other does. *matchers*
    pick the series that have it."""

    exporter: Exporter
    host: str = "instance"
    matchers: str = ""
    #: Every GPU has exactly one series of each metric, and all labels that are needed: nothing has to be joined or
    #: renamed, which saves the engine most of the work.
    plain: bool = False

    def of_hosts(self, names: Sequence[str]) -> str:
        """The matchers of series of *names*."""
        wanted = any_of(names)
        if self.host == "instance":
            wanted = f"(?:{wanted})(?::[0-9]+)?"
        return ",".join(filter(None, (self.matchers, f"{self.host}=~{quoted(wanted)}")))

    def host_of(self, text: str) -> str:
        """The name of the host of a series whose host label is *text*."""
        if self.host != "instance":
            return text
        head, colon, port = text.rpartition(":")
        return head if colon and port.isdecimal() else text

    def native(self, label: str) -> str:
        exporter = self.exporter
        return {"host": self.host, "uuid": exporter.uuid, "model": exporter.model, "gpu": exporter.index}[label]

    # ---------------------------------------------------------------- expressions

    def figure(
        self, figure: Figure, keep: Sequence[str], matchers: str = "", of: Callable[[str], str] = str
    ) -> str | None:
        """The values of *figure*; None where the exporter has none. *of* wraps the selector in a function."""
        found = self.exporter.figures.get(figure)
        if found is None:
            return None
        selected = of(selector(found.metric, self.matchers, matchers, found.matchers))
        is_part = figure in (Figure.MEMORY_USED, Figure.MEMORY_FREE, Figure.MEMORY_RESERVED, Figure.MEMORY_TOTAL)
        expression = self.by_gpu(selected, keep, parts=is_part)
        return expression if found.scale == 1.0 else f"{found.scale:.12g} * {expression}"

    def by_gpu(self, selected: str, keep: Sequence[str], parts: bool = False) -> str:
        """*selected*, an expression with the exporter's own labels, once a GPU. *parts*: MIG instances add up."""
        if self.plain:
            return selected
        exporter = self.exporter
        from_info = [label for label in keep if exporter.info and label in ("model", "gpu")]
        own = dict.fromkeys(self.native(label) for label in keep if label not in from_info)
        if from_info:
            own.setdefault(exporter.uuid)
        by = ",".join(own)
        if parts and exporter.mig_instance:
            expression = f"sum by ({by}) (max by ({by},{exporter.mig_instance}) ({selected}))"
        else:
            expression = f"max by ({by}) ({selected})"
        if from_info:
            names = ",".join(self.native(label) for label in from_info)
            info = f"max by ({exporter.uuid},{names}) ({selector(exporter.info, self.matchers)})"
            expression = f"({expression} * on ({exporter.uuid}) group_left ({names}) {info})"
        return self.renamed(expression, keep)

    def renamed(self, expression: str, keep: Sequence[str]) -> str:
        """With the labels *keep* instead of the exporter's own."""
        for label in keep:
            expression = self._renamed(expression, label)
        return expression

    def _renamed(self, expression: str, label: str) -> str:
        native = self.native(label)
        if label == "host" and native == "instance":
            return f'label_replace({expression},"host","$1","instance",{quoted(_FROM_INSTANCE)})'
        if label == "uuid" and self.exporter.bare_uuid:
            return f'label_replace({expression},"uuid","GPU-$1","uuid","(?:GPU-)?(.+)")'
        return expression if label == native else f'label_replace({expression},"{label}","$1","{native}","(.+)")'

    def identity(self, keep: Sequence[str], matchers: str = "", of: Callable[[str], str] = str) -> str:
        """A value for each GPU that can be seen."""
        return self.by_gpu(of(selector(self.exporter.identity, self.matchers, matchers)), keep)

    def broken(self, keep: Sequence[str], matchers: str = "") -> str:
        exporter = self.exporter
        joined = ",".join(filter(None, (self.matchers, matchers)))
        parts = [self.by_gpu(_with_matchers(text, joined), keep) for text in exporter.broken]
        if exporter.xid_counter:
            fatal = selector(exporter.xid_counter, joined, f'xid=~"{_FATAL}"')
            parts.append(self.by_gpu(f"{fatal} > 0", keep))
        if exporter.xid_gauge:  # a value becomes a label, so that it can be compared with a list
            last = f"{selector(exporter.xid_gauge, joined)} > 0"
            by = ",".join(dict.fromkeys(self.native(label) for label in ("uuid", *keep)))
            counted = f'count_values by ({by}) ("xid", {last})'
            marked = f'label_replace({counted},"fatal","1","xid","{_FATAL}")'
            fatal = f'({marked} and on (fatal) label_replace(vector(1),"fatal","1","",""))'
            parts.append(self.by_gpu(fatal, keep))
        return union(parts)

    def held(self, keep: Sequence[str], matchers: str = "") -> str | None:
        joined = ",".join(filter(None, (self.matchers, matchers)))
        parts = [self.by_gpu(_with_matchers(text, joined), keep) for text in self.exporter.held]
        return union(parts) if parts else None


_UUID: Final = ("uuid",)


@dataclass(frozen=True, slots=True)
class Vectors:
    """All that is scraped. *matchers* narrow it: ``cluster="a"``. *slurm*: whether there is slurm-job-exporter."""

    scraped: tuple[Scraped, ...]
    slurm: bool = False

    @property
    def plain(self) -> Scraped | None:
        """The only exporter, where its series are plain; then vectors have its own labels (:meth:`name`)."""
        return self.scraped[0] if len(self.scraped) == 1 and self.scraped[0].plain and not self.slurm else None

    def name(self, label: str) -> str:
        """How the label ``host``, ``uuid``, ``model`` or ``gpu`` is called in vectors."""
        return label if self.plain is None else self.plain.native(label)

    @property
    def on_uuid(self) -> str:
        return f"on ({self.name('uuid')})"

    def general(self) -> Vectors:
        """The same with the usual labels, at the usual cost."""
        return Vectors(tuple(dataclasses.replace(one, plain=False) for one in self.scraped), self.slurm)

    def of_host(self, name: str) -> Vectors:
        """Those of one host."""
        return self.of_hosts([name])

    def of_hosts(self, names: Sequence[str]) -> Vectors:
        scraped = tuple(dataclasses.replace(one, matchers=one.of_hosts(names)) for one in self.scraped)
        return Vectors(scraped, self.slurm)

    def figure(
        self, figure: Figure, keep: Sequence[str] = _UUID, of: Callable[[str], str] = str, matchers: str = ""
    ) -> str:
        keep = _with_uuid(keep)
        return self._first(one.figure(figure, keep, matchers, of) for one in self.scraped)

    def gpus(self, keep: Sequence[str] = _UUID, of: Callable[[str], str] = str, matchers: str = "") -> str:
        """All GPUs that can be seen."""
        keep = _with_uuid(keep)
        return self._first(one.identity(keep, matchers, of) for one in self.scraped)

    def memory_total(self, keep: Sequence[str] = _UUID) -> str:
        """Where an exporter does not tell it, it is what is used, free and reserved (if that is told)."""
        keep = _with_uuid(keep)
        parts = []
        for one in self.scraped:
            told = one.figure(Figure.MEMORY_TOTAL, keep)
            used = one.figure(Figure.MEMORY_USED, keep)
            free, reserved = (one.figure(figure, _UUID) for figure in (Figure.MEMORY_FREE, Figure.MEMORY_RESERVED))
            if used is not None and free is not None and reserved is not None:
                both = f"({used} + {self.on_uuid} group_left () {free})"
                total = f"({both} + {self.on_uuid} group_left () {reserved}) or {self.on_uuid} {both}"
                told = total if told is None else f"({told}) or {self.on_uuid} ({total})"
            parts.append(told)
        return self._first(parts)

    def broken(self, keep: Sequence[str] = _UUID) -> str:
        keep = _with_uuid(keep)
        return self._first(one.broken(keep) for one in self.scraped)

    def held(self, keep: Sequence[str] = _UUID) -> str | None:
        """GPUs somebody has by a label, whether they use it or not; None where no exporter can tell."""
        keep = _with_uuid(keep)
        parts = [held for one in self.scraped if (held := one.held(keep)) is not None]
        if self.slurm:
            jobs = f'label_replace(slurm_job_utilization_gpu,"host","$1","instance",{quoted(_FROM_INSTANCE)})'
            everywhere = self.gpus((*keep, "host", "gpu"))
            parts.append(f"({everywhere} and on (host, gpu) {jobs})")
        return f"({self._first(parts)})" if parts else None

    def free(self, keep: Sequence[str] = _UUID) -> str:
        if self.plain is not None:
            one = self.plain
            used = self._compared(Figure.MEMORY_USED, "<", FREE_BELOW_BYTES, one.exporter.not_held)
            busy = self._compared(Figure.UTILIZATION, ">", IDLE_UTILIZATION_PERCENT)
            by_label = None if one.exporter.not_held else self.held()
            but_held = "" if by_label is None else f" unless {self.on_uuid} {by_label}"
            return f"({used} unless {self.on_uuid} {busy}{but_held} unless {self.on_uuid} ({self.broken()}))"
        used = self.figure(Figure.MEMORY_USED, keep)
        busy = self.figure(Figure.UTILIZATION)
        expression = f"(({used}) < {FREE_BELOW_BYTES})"
        expression += f" unless on (uuid) (({busy}) > {IDLE_UTILIZATION_PERCENT})"
        held = self.held()
        expression += f" unless on (uuid) {held}" if held is not None else ""
        return f"({expression} unless on (uuid) ({self.broken()}))"

    def idle(self, keep: Sequence[str] = _UUID) -> str:
        """Held, and not used during the last IDLE_SECONDS."""
        if self.plain is not None:
            taken = self._compared(Figure.MEMORY_USED, ">=", FREE_BELOW_BYTES)
            labelled = self.held()
            taken = f"({taken} or {self.on_uuid} {labelled})" if labelled is not None else taken
            most = self._compared(Figure.UTILIZATION, "<=", IDLE_UTILIZATION_PERCENT, of=over(IDLE_SECONDS, "max"))
            return f"({most} and {self.on_uuid} {taken} unless {self.on_uuid} ({self.broken()}))"
        used = self.figure(Figure.MEMORY_USED, keep)
        expression = f"(({used}) >= {FREE_BELOW_BYTES})"
        held = self.held(keep)
        expression = f"({expression} or on (uuid) {held})" if held is not None else expression
        most = self.figure(Figure.UTILIZATION, of=over(IDLE_SECONDS, "max"))
        idle = f"(({most}) <= {IDLE_UTILIZATION_PERCENT})"
        return f"({expression} and on (uuid) {idle} unless on (uuid) ({self.broken()}))"

    def age(self) -> str:
        """Seconds since a host was read last, by host and by the engine's clock."""
        seen = [one.identity(("host",), of=lambda selected: f"timestamp({selected})") for one in self.scraped]
        return f"(time() - (max by ({self.name('host')}) ({union(seen)})))"

    def _compared(
        self, figure: Figure, operator: str, level: float, matchers: str = "", of: Callable[[str], str] = str
    ) -> str:
        """The series of the plain exporter that compare so, in its own unit."""
        assert self.plain is not None
        found = self.plain.exporter.figures[figure]
        selected = of(selector(found.metric, self.plain.matchers, found.matchers, matchers))
        return f"({selected} {operator} {level / found.scale:.12g})"

    @staticmethod
    def _first(expressions: Iterable[str | None]) -> str:
        """GPUs of the first expression, then those only a later one has."""
        known = [expression for expression in expressions if expression]
        return f"({' or on (uuid) '.join(f'({one})' for one in known)})" if known else "(vector(0) < 0)"


def over(seconds: float, how: str) -> Callable[[str], str]:
    """The *how* ("max", "avg", "last") over the last *seconds*, as an argument ``of``."""
    return lambda selected: f"{how}_over_time({selected}[{seconds:.0f}s])"


def _with_matchers(text: str, matchers: str) -> str:
    return text.replace("MATCHERS" if matchers else "MATCHERS,", matchers).replace("MATCHERS", "")


def _with_uuid(keep: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(("uuid", *keep)))
