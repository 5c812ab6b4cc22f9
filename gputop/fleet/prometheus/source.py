"""An engine with Prometheus' HTTP API as a :class:`gputop.fleet.source.FleetSource`."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Generic, TypeVar

from gputop.fleet.in_memory import in_order, natural
from gputop.fleet.model import FleetGroup, FleetHost, FleetSnapshot, History, HistoryRequest, HostState, Totals
from gputop.fleet.prometheus import groups, index, rows, sums
from gputop.fleet.prometheus.client import Answer, EngineClient, EngineError
from gputop.fleet.prometheus.detection import Detected, detect, still_plain
from gputop.fleet.prometheus.exporters import EXPORTERS
from gputop.fleet.prometheus.lost import LostHosts
from gputop.fleet.prometheus.past import history_of
from gputop.fleet.prometheus.recorded import recorded
from gputop.fleet.prometheus.vectors import Vectors
from gputop.fleet.totals import totals_by_model, totals_of
from gputop.fleet.view import FleetView, HostSort
from gputop.model import clean_text

T = TypeVar("T")

REFRESH_SECONDS: Final = 5.0
FIRST_REFRESH_SECONDS: Final = 1.0
DETECT_SECONDS: Final = 300.0
JUST_DETECTED_SECONDS: Final = 5.0
STATES_SECONDS: Final = 15.0  # about as often as exporters are scraped
IDLE_SECONDS: Final = 30.0
SIZES_SECONDS: Final = 600.0
INDEX_SECONDS: Final = 30.0  # hosts do not jump about at each refresh
LOST_SECONDS: Final = 60.0
MATCHED_BY_NAME_MOST: Final = 200  # hosts that pass a filter and are summed by their names

_NOTHING: Final = (
    "the engine has no series of GPUs: none of "
    + ", ".join(one.name for one in EXPORTERS)
    + " is scraped (docs/fleet.md says how to set one up)"
)


#: What the recording rules have instead.
_TAGS: Final[Mapping[Callable[[Vectors], list[str]], tuple[str, ...]]] = {
    sums.load: ("used", "power", "busy"),
    sums.states: ("gpus", "free", "broken", "hosts", "hosts_stale"),
    sums.idle: ("idle",),
    sums.sizes: ("total",),
}
_Asking = Callable[[Detected], tuple[str, ...]]


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

    def __init__(self, client: EngineClient) -> None:
        self.name = f"prometheus {client.url}"
        self.timeout_seconds = 3 * client.timeout_seconds
        self._client = client
        self._pool = ThreadPoolExecutor(2, "gputop-engine")
        self._lock = threading.Lock()  # one poll at a time; hosts(), host() and history() need none of what it guards
        self._detected: _Kept[Detected | None] = _Kept(None)
        self._load: _Kept[dict[str, dict[str, float]]] = _Kept({})
        self._states: _Kept[dict[str, dict[str, float]]] = _Kept({})
        self._idle: _Kept[dict[str, dict[str, float]]] = _Kept({})
        self._sizes: _Kept[dict[str, dict[str, float]]] = _Kept({})
        self._index: _Kept[dict[str, float | None]] = _Kept({})
        self._matched: _Kept[Totals | None] = _Kept(None)
        self._grouped: _Kept[tuple[FleetGroup, ...]] = _Kept(())
        self._raw: dict[str, str] = {}  # names that are shown cleaned, as they came
        self._lost_hosts = LostHosts()
        self._lost: _Kept[dict[str, FleetHost]] = _Kept({})
        self._last: FleetSnapshot | None = None
        self._view: FleetView | None = None

    @property
    def refresh_seconds(self) -> float:
        """Soon again while something was never asked: the first poll answers without sizes, idle and lost hosts."""
        new = self._last is not None and any(kept.at < 0 for kept in (self._sizes, self._idle, self._lost))
        return FIRST_REFRESH_SECONDS if new else REFRESH_SECONDS

    def open(self) -> None:
        """Nothing is asked yet: an engine that is down now may be back soon."""

    def close(self) -> None:
        self._client.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def poll(self, view: FleetView) -> FleetSnapshot:
        with self._lock:
            warnings: list[str] = []
            try:
                self._last = self._read(view, warnings)
                self._view = view
            except EngineError as error:
                last = self._last or FleetSnapshot(time.time(), self.name)
                if view != self._view:  # its rows are those of another page
                    last = dataclasses.replace(
                        last, hosts=(), hosts_matched=0, matched=None, groups=(), first=view.first
                    )
                return dataclasses.replace(last, problems=tuple(dict.fromkeys((str(error), *warnings))))
            return self._last

    def hosts(self) -> tuple[FleetHost, ...]:
        return self.poll(FleetView()).hosts

    def host(self, name: str) -> FleetHost | None:
        detected = self._detected.value
        if detected is None:
            return None
        try:
            found, _ = rows.rows_of(self._client, detected.vectors, self._named([name]))
        except EngineError as error:
            known = self._lost.value.get(name)
            return known or FleetHost(name, reason=str(error))
        return found.get(name) or self._lost.value.get(name)

    def history(self, request: HistoryRequest) -> History:
        detected = self._detected.value
        if detected is None:
            return History(request, problem="the engine has not answered yet")
        host = None if request.host is None else self._raw.get(request.host, request.host)
        history = history_of(self._client, detected.vectors, dataclasses.replace(request, host=host))
        return dataclasses.replace(history, request=request)

    # ------------------------------------------------------------------- reading

    def _read(self, view: FleetView, warnings: list[str]) -> FleetSnapshot:
        """The load and the rows each time; of what is dearer, what this view cannot do without and one thing that is
        due. With all rows (which no screen asks for) everything."""
        detected = self._detect()
        if not detected:
            raise EngineError(_NOTHING)
        started = time.time()
        order = (view.filter.text, view.sort)
        ask_index = partial(self._ask_index, view)
        needed: list[_Asking] = [] if self._states.value else [self._ask_states]
        needed += [] if self._index.of == order else [ask_index]
        later: list[tuple[_Kept[Any], float, _Asking]] = [
            (self._states, STATES_SECONDS, self._ask_states),
            (self._index, INDEX_SECONDS, ask_index),
            (self._sizes, SIZES_SECONDS, self._ask_sizes),
            (self._idle, IDLE_SECONDS, self._ask_idle),
            (self._lost, LOST_SECONDS, self._ask_lost),
        ]
        due = [(kept.at + seconds, ask) for kept, seconds, ask in later if not kept.is_fresh(seconds, kept.of)]
        due.sort(key=lambda one: max(0.0, one[0]))  # what was never asked first, in the order above
        if view.count is None:
            needed += [ask for _, ask in due if ask not in needed]
            due = []
        chosen = [ask for _, ask in due[:1]] if not needed else []
        asked = [self._pool.submit(ask, detected) for ask in needed]
        besides = [self._pool.submit(ask, detected) for ask in chosen]
        if not self._load.is_fresh(REFRESH_SECONDS / 2):
            self._load.keep(self._sums(sums.load, detected))
        for future in asked:
            warnings += future.result()
        names = self._ordered(view)
        end = None if view.count is None else view.first + view.count
        page = names[view.first : end]
        lost = self._lost.value
        found, more = rows.rows_of(
            self._client, detected.vectors, self._named(name for name in page if name not in lost)
        )
        warnings += more
        problems: list[str] = []
        for future in besides:
            try:
                warnings += future.result()
            except EngineError as error:
                problems.append(str(error))
        matched: Totals | None = None
        grouped: tuple[FleetGroup, ...] = ()
        try:  # dear with many hosts: where they fail, the rest of the page is there
            matched = self._matched_totals(view, warnings)
            grouped = self._groups(view, warnings)
        except EngineError as error:
            problems.append(str(error))
        every = {**self._states.value, **self._load.value, **self._idle.value, **self._sizes.value}
        return FleetSnapshot(
            taken_at=started,
            source=self.name,
            totals=_with_lost(sums.totals(every), lost.values()),
            by_model=_models_with_lost(sums.totals_by_model(every), lost.values()),
            hosts=tuple(found.get(name) or lost.get(name) or _gone(name) for name in page),
            first=view.first,
            hosts_matched=len(names),
            matched=matched,
            groups=grouped,
            problems=tuple(dict.fromkeys([*problems, *(f"a partial answer: {warning}" for warning in warnings)])),
        )

    # Each asks for one thing and keeps it; they run beside each other. They return warnings, or raise EngineError.

    def _sums(self, ask: Callable[[Vectors], list[str]], detected: Detected) -> dict[str, dict[str, float]]:
        if detected.recorded:
            return sums.read(self._client.query_all(recorded(*_TAGS[ask])).samples)
        vectors = detected.vectors
        return sums.read(self._client.query_all(ask(vectors)).samples, vectors.name("model"))

    def _ask_states(self, detected: Detected) -> tuple[str, ...]:
        self._states.at = time.monotonic()  # where it fails, it is not asked again at once
        if detected.recorded:
            self._states.keep(self._sums(sums.states, detected))
            return ()
        vectors = detected.vectors
        asked = sums.states(vectors)
        check = vectors.plain is not None and not self._detected.is_fresh(JUST_DETECTED_SECONDS)
        asked += [still_plain(vectors)] if check else []
        answer = self._client.query_all(asked)
        read = sums.read(answer.samples, vectors.name("model"))
        if check and "plain" not in read:  # a pod shares a GPU now, or a replica is back
            self._detected.at = -1e9
            detected = self._detect()
            read = self._sums(sums.states, detected)
            self._load.at = -1e9
        self._states.keep(read)
        return answer.warnings

    def _ask_index(self, view: FleetView, detected: Detected) -> tuple[str, ...]:
        self._index.at = time.monotonic()
        host = detected.vectors.name("host")
        answer = self._client.query(index.index_of(detected.vectors, view))
        values = {}
        for labels, value in answer.samples:
            raw = labels.get(host, "")
            name = clean_text(raw, 200)
            values[name] = None if "unknown" in labels else value
            if name != raw:
                self._raw[name] = raw
        self._index.keep(values, (view.filter.text, view.sort))
        return answer.warnings

    def _ask_sizes(self, detected: Detected) -> tuple[str, ...]:
        self._sizes.at = time.monotonic()
        self._sizes.keep(self._sums(sums.sizes, detected))
        return ()

    def _ask_idle(self, detected: Detected) -> tuple[str, ...]:
        self._idle.at = time.monotonic()
        self._idle.keep(self._sums(sums.idle, detected))
        return ()

    def _ask_lost(self, detected: Detected) -> tuple[str, ...]:
        self._lost.at = time.monotonic()
        host = detected.vectors.name("host")
        answer = self._client.query(index.hosts_of(detected.vectors))
        alive = {clean_text(labels.get(host, ""), 200) for labels, _ in answer.samples}
        self._lost.keep(self._lost_hosts.find(self._client, detected, alive))
        return answer.warnings

    def _named(self, names: Iterable[str]) -> list[str]:
        """As the engine has them."""
        return [self._raw.get(name, name) for name in names]

    def _detect(self) -> Detected:
        known = self._detected.value
        if known is None or not known or not self._detected.is_fresh(DETECT_SECONDS):
            found = detect(self._client)
            if known and not found:  # all of them are down: their hosts are lost, not forgotten
                found = known
            known = self._detected.keep(found) or found
        return known

    def _ask_all(self, expressions: list[str], warnings: list[str]) -> Answer:
        answer = self._client.query_all(expressions)
        warnings += answer.warnings
        return answer

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
        vectors, names = detected.vectors, [name for name in self._index.value if name]
        few = len(names) <= MATCHED_BY_NAME_MOST
        if not names:
            self._matched.keep(Totals(), text)
        elif not self._matched.is_fresh(REFRESH_SECONDS / 2 if few else INDEX_SECONDS, text):
            hosts = ""
            if few:  # their series only, instead of asking all hosts again whether they pass
                vectors = vectors.of_hosts(self._named(names))
            else:
                hosts = index.passing_of(vectors, view)
            asked = sums.everything(vectors, hosts)
            read = sums.read(self._ask_all(asked, warnings).samples, vectors.name("model"))
            self._matched.keep(sums.totals(read), text)
        lost = [host for host in self._lost.value.values() if view.filter.matches(host)]
        assert self._matched.value is not None
        return _with_lost(self._matched.value, lost)

    def _groups(self, view: FleetView, warnings: list[str]) -> tuple[FleetGroup, ...]:
        if not view.group_by:
            return ()
        detected = self._detected.value
        assert detected is not None
        vectors = detected.vectors.general()
        if not self._grouped.is_fresh(INDEX_SECONDS, (view.group_by, view.filter.text)):
            hosts = index.passing_of(vectors, view)
            self._grouped.keep((), (view.group_by, view.filter.text))  # where it fails, it is not asked again at once
            answer = self._ask_all(groups.queries(vectors, view.group_by, hosts), warnings)
            self._grouped.keep(groups.read(answer.samples), (view.group_by, view.filter.text))
        return self._grouped.value


def _gone(name: str) -> FleetHost:
    """A host of the index without rows: lost since, or its UUIDs are another host's (a machine that was renamed)."""
    return FleetHost(
        name, HostState.UNREACHABLE, "the engine has no GPU of it any more, or has the same GPUs under another host"
    )


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
