"""A view applied to hosts that are all at hand: filter, order, rows, sums, groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gputop.fleet.model import FleetHost, FleetSnapshot, GpuState, HostState
from gputop.fleet.totals import groups_of, totals_by_model, totals_of
from gputop.fleet.view import FleetView, HostSort


def snapshot_of(
    hosts: Sequence[FleetHost], view: FleetView, taken_at: float, source: str, problems: Iterable[str] = ()
) -> FleetSnapshot:
    """What :meth:`FleetSource.poll` answers where *hosts* are all there are."""
    matched = [host for host in hosts if view.filter.matches(host)] if view.filter else list(hosts)
    ordered = in_order(matched, view.sort, view.reverse)
    end = None if view.count is None else view.first + view.count
    return FleetSnapshot(
        taken_at=taken_at,
        source=source,
        totals=totals_of(hosts),
        by_model=totals_by_model(hosts),
        hosts=tuple(ordered[view.first : end]),
        first=view.first,
        hosts_matched=len(matched),
        matched=totals_of(matched) if view.filter else None,
        groups=groups_of(matched, view.group_by) if view.group_by else (),
        problems=tuple(problems),
    )


_FIGURES: Final[dict[HostSort, Callable[[FleetHost], float | None]]] = {
    HostSort.GPUS: lambda host: len(host.gpus),
    HostSort.FREE: lambda host: host.gpus_free,
    HostSort.UTILIZATION: lambda host: host.utilization_percent,
    HostSort.MEMORY: lambda host: host.memory_used_bytes,
    HostSort.POWER: lambda host: host.power_watts,
    HostSort.TEMPERATURE: lambda host: host.temperature_celsius,
    HostSort.AGE: lambda host: host.age_seconds,
}


def in_order(hosts: Iterable[FleetHost], sort: HostSort, reverse: bool = False) -> list[FleetHost]:
    by_name = sorted(hosts, key=lambda host: natural(host.name), reverse=reverse and sort is HostSort.NAME)
    if sort is HostSort.NAME:
        return by_name
    if sort is HostSort.PROBLEM:
        return sorted(by_name, key=_badness, reverse=not reverse)
    figure = _FIGURES[sort]
    sign = 1 if reverse else -1

    def key(host: FleetHost) -> tuple[bool, float]:
        value = figure(host)
        return value is None, sign * (value or 0.0)

    return sorted(by_name, key=key)


def _badness(host: FleetHost) -> int:
    if host.state is HostState.UNREACHABLE:
        return 4
    if host.count(GpuState.BROKEN):
        return 3
    return 2 if host.state is HostState.STALE else 1 if host.problem else 0


def natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """A key by which node2 comes before node10."""
    parts = re.findall(r"\d+|\D+", name.casefold())
    return tuple((not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts)
