"""An engine with Prometheus' HTTP API as a :class:`gputop.fleet.source.FleetSource`."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Collection, Mapping
from typing import Final, Generic, TypeVar

from gputop.fleet.in_memory import in_order, natural
from gputop.fleet.model import FleetGroup, FleetHost, FleetSnapshot, History, HistoryRequest, Totals
from gputop.fleet.prometheus import groups, index, rows, sums
from gputop.fleet.prometheus.client import Answer, EngineClient, EngineError
from gputop.fleet.prometheus.detection import Detected, detect
from gputop.fleet.prometheus.exporters import EXPORTERS
from gputop.fleet.prometheus.lost import LostHosts
from gputop.fleet.prometheus.past import history_of
from gputop.fleet.totals import totals_by_model, totals_of
from gputop.fleet.view import FleetView, HostSort

T = TypeVar("T")

REFRESH_SECONDS: Final = 5.0
DETECT_SECONDS: Final = 300.0
INDEX_SECONDS: Final = 30.0  # hosts do not jump about at each refresh
LOST_SECONDS: Final = 60.0

_NOTHING: Final = (
    "the engine has no series of GPUs: none of "
    + ", ".join(one.name for one in EXPORTERS)
    + " is scraped (docs/fleet.md says how to set one up)"
)


class _Kept(Generic[T]):
    """Something that is asked again when it is old, or when it was of something else."""

    def __init__(self, value: T) -> None:
        self.value = value
        self.of: object = None
        self.at = -1e9

    def is_fresh(self, seconds: float, of: object = None) -> bool:
        return self.of == of and time.monotonic() - self.at < seconds

    def keep(self, value: T, of: object = None) -> T:
        self.value, self.of, self.at = value, of, time.monotonic()
        return value


class PrometheusFleet:
    """See the protocol for threads, times and errors."""

    has_past = True
    refresh_seconds = REFRESH_SECONDS

    def __init__(self, client: EngineClient) -> None:
        self.name = f"prometheus {client.url}"
        self.timeout_seconds = 3 * client.timeout_seconds
        self._client = client
        self._lock = threading.Lock()  # one poll at a time; hosts(), host() and history() need none of what it guards
        self._detected: _Kept[Detected | None] = _Kept(None)
        self._fast: _Kept[dict[str, dict[str, float]]] = _Kept({})
        self._slow: _Kept[dict[str, dict[str, float]]] = _Kept({})
        self._index: _Kept[dict[str, float | None]] = _Kept({})
        self._matched: _Kept[Totals | None] = _Kept(None)
        self._lost_hosts = LostHosts()
        self._lost: _Kept[dict[str, FleetHost]] = _Kept({})
        self._last: FleetSnapshot | None = None

    def open(self) -> None:
        """Nothing is asked yet: an engine that is down now may be back soon."""

    def close(self) -> None:
        self._client.close()

    def poll(self, view: FleetView) -> FleetSnapshot:
        with self._lock:
            warnings: list[str] = []
            try:
                self._last = self._read(view, warnings)
            except EngineError as error:
                last = self._last or FleetSnapshot(time.time(), self.name)
                return dataclasses.replace(last, problems=tuple(dict.fromkeys((str(error), *warnings))))
            return self._last

    def hosts(self) -> tuple[FleetHost, ...]:
        return self.poll(FleetView()).hosts

    def host(self, name: str) -> FleetHost | None:
        detected = self._detected.value
        if detected is None:
            return None
        try:
            found, _ = rows.rows_of(self._client, detected.vectors, [name])
        except EngineError as error:
            known = self._lost.value.get(name)
            return known or FleetHost(name, reason=str(error))
        return found.get(name) or self._lost.value.get(name)

    def history(self, request: HistoryRequest) -> History:
        detected = self._detected.value
        if detected is None:
            return History(request, problem="the engine has not answered yet")
        return history_of(self._client, detected.vectors, request)

    # ------------------------------------------------------------------- reading

    def _read(self, view: FleetView, warnings: list[str]) -> FleetSnapshot:
        detected = self._detect()
        if not detected:
            raise EngineError(_NOTHING)
        vectors, client = detected.vectors, self._client
        started = time.time()
        if not self._fast.is_fresh(REFRESH_SECONDS / 2):
            self._fast.keep(sums.read(self._ask_all(sums.fast(vectors), warnings).samples))
        if not self._slow.is_fresh(sums.SLOW_SECONDS):
            self._slow.keep(sums.read(self._ask_all(sums.slow(vectors), warnings).samples))
        order = (view.filter.text, view.sort)
        if not self._index.is_fresh(INDEX_SECONDS, order):
            answer = self._ask(index.index_of(vectors, view), warnings)
            self._index.keep(
                {labels.get("host", ""): None if "unknown" in labels else value for labels, value in answer.samples},
                order,
            )
        if not self._lost.is_fresh(LOST_SECONDS):
            alive = self._alive(view)
            self._lost.keep(self._lost_hosts.find(client, detected, alive))
        names = self._ordered(view)
        end = None if view.count is None else view.first + view.count
        page = names[view.first : end]
        lost = self._lost.value
        found, more = rows.rows_of(client, vectors, [name for name in page if name not in lost])
        warnings += more
        gone = FleetHost("", reason=None)
        shown = tuple(found.get(name) or lost.get(name) or dataclasses.replace(gone, name=name) for name in page)
        every = {**self._fast.value, **{k: v for k, v in self._slow.value.items() if k in ("total", "idle")}}
        return FleetSnapshot(
            taken_at=started,
            source=self.name,
            totals=_with_lost(sums.totals(every), lost.values()),
            by_model=_models_with_lost(sums.totals_by_model(every), lost.values()),
            hosts=shown,
            first=view.first,
            hosts_matched=len(names),
            matched=self._matched_totals(view, warnings),
            groups=self._groups(view, warnings),
            problems=tuple(dict.fromkeys(f"a partial answer: {warning}" for warning in warnings)),
        )

    def _detect(self) -> Detected:
        known = self._detected.value
        if known is None or not known or not self._detected.is_fresh(DETECT_SECONDS):
            known = detect(self._client)
            self._detected.keep(known)
        return known

    def _ask(self, expression: str, warnings: list[str]) -> Answer:
        answer = self._client.query(expression)
        warnings += answer.warnings
        return answer

    def _ask_all(self, expressions: list[str], warnings: list[str]) -> Answer:
        answer = self._client.query_all(expressions)
        warnings += answer.warnings
        return answer

    def _alive(self, view: FleetView) -> set[str]:
        """All hosts the engine has now; those that pass, where the view filters nothing."""
        if not view.filter and self._index.value:
            return set(self._index.value)
        assert self._detected.value is not None
        samples = self._client.query(index.hosts_of(self._detected.value.vectors)).samples
        return {labels.get("host", "") for labels, _ in samples}

    def _ordered(self, view: FleetView) -> list[str]:
        lost = [host for host in self._lost.value.values() if view.filter.matches(host)]
        values = {name: value for name, value in self._index.value.items() if name and name not in self._lost.value}
        if view.sort is HostSort.NAME:
            return sorted([*values, *(host.name for host in lost)], key=natural, reverse=view.reverse)
        gone = [host.name for host in in_order(lost, HostSort.NAME)]
        sign = 1.0 if view.reverse else -1.0

        def place(name: str) -> tuple[object, ...]:
            value = values[name]
            return value is None, sign * (value or 0.0), natural(name)

        if view.sort is HostSort.PROBLEM:  # the worst of all is not to be there; no problem is known, not unknown
            values = {name: value or 0.0 for name, value in values.items()}
            here = sorted(values, key=place)
            return [*here, *gone] if view.reverse else [*gone, *here]
        return [*sorted(values, key=place), *gone]

    def _matched_totals(self, view: FleetView, warnings: list[str]) -> Totals | None:
        if not view.filter:
            return None
        detected, text = self._detected.value, view.filter.text
        assert detected is not None
        if not self._matched.is_fresh(REFRESH_SECONDS / 2, text):
            hosts = index.passing_of(detected.vectors, view)
            asked = [*sums.fast(detected.vectors, hosts), *sums.slow(detected.vectors, hosts)]
            self._matched.keep(sums.totals(sums.read(self._ask_all(asked, warnings).samples)), text)
        lost = [host for host in self._lost.value.values() if view.filter.matches(host)]
        assert self._matched.value is not None
        return _with_lost(self._matched.value, lost)

    def _groups(self, view: FleetView, warnings: list[str]) -> tuple[FleetGroup, ...]:
        if not view.group_by:
            return ()
        detected = self._detected.value
        assert detected is not None
        hosts = index.passing_of(detected.vectors, view)
        answer = self._ask_all(groups.queries(detected.vectors, view.group_by, hosts), warnings)
        return groups.read(answer.samples)


def _with_lost(totals: Totals, lost: Collection[FleetHost]) -> Totals:
    """*totals* and the GPUs that are remembered."""
    gone = totals_of(lost)
    return dataclasses.replace(
        totals,
        hosts=totals.hosts + gone.hosts,
        hosts_unreachable=gone.hosts,
        gpus=totals.gpus + gone.gpus,
        gpus_unreachable=gone.gpus,
    )


def _models_with_lost(by_model: Mapping[str, Totals], lost: Collection[FleetHost]) -> dict[str, Totals]:
    gone = totals_by_model(lost)
    merged = dict(by_model)
    for model, totals in gone.items():
        known = merged.get(model, Totals())
        merged[model] = dataclasses.replace(
            known, gpus=known.gpus + totals.gpus, gpus_unreachable=totals.gpus_unreachable
        )
    return merged
