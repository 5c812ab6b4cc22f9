"""What a page asks of a source: which hosts, in which order, grouped by what, and which rows are seen."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from gputop.fleet.filter import FleetFilter


class HostSort(enum.StrEnum):
    """What hosts are sorted by, in its natural order: names from a, problems first, everything else largest first.
    Hosts whose figure is not known are last, and the same are in the order of their names."""

    NAME = "name"  # digits in it count as numbers: node2 before node10
    PROBLEM = "problem"  # unreachable, broken GPUs, stale, other problems
    GPUS = "gpus"
    FREE = "free"
    UTILIZATION = "utilization"
    MEMORY = "memory"  # used
    POWER = "power"
    TEMPERATURE = "temperature"
    AGE = "age"


@dataclass(frozen=True, slots=True)
class FleetView:
    """*count* None: all rows, which only commands without a screen ask for."""

    filter: FleetFilter = field(default_factory=FleetFilter)
    sort: HostSort = HostSort.NAME
    reverse: bool = False  # the other way about than the natural order; unknown stays last
    group_by: str = ""  # one of totals.GROUPS or a label of hosts; "": no groups
    first: int = 0
    count: int | None = None
