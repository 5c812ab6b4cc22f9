"""One snapshot out of what was read where: GPU readings from the driver, host facts from /proc."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Final

from gputop.model import Driver, GpuProcess, Host, HostFacts, Snapshot, TorchReport
from gputop.sources.source import Reading

_NAMES: Final = tuple(field.name for field in dataclasses.fields(GpuProcess))
_values: Final = attrgetter(*_NAMES)
_EXISTS: Final = _NAMES.index("exists")
_HOST: Final = _NAMES.index("host")
_TORCH: Final = _NAMES.index("torch")
_NO_REPORTS: Final[Mapping[int, TorchReport]] = {}

#: What was joined, and the result.
_Joined = tuple[GpuProcess, HostFacts | None, bool | None, TorchReport | None, GpuProcess]


class SnapshotBuilder:
    """Joins processes with their host facts, and gives the same object again where nothing changed: what draws can
    then tell an unchanged row by identity. Made for hundreds of processes of which few change from tick to tick."""

    def __init__(self) -> None:
        self._joined: list[_Joined] = []

    def join(
        self,
        processes: Iterable[GpuProcess],
        facts: Mapping[int, HostFacts],
        exists: Mapping[int, bool | None],
        torch: Mapping[int, TorchReport] = _NO_REPORTS,
    ) -> tuple[GpuProcess, ...]:
        """*processes* with host facts and torch's reports by pid; *exists* says it of pids without facts."""
        before = self._joined
        after: list[_Joined] = []
        moved: dict[int, _Joined] | None = None  # by id() of the process
        for n, process in enumerate(processes):
            pid = process.pid
            host = facts.get(pid)
            there = not host.is_zombie if host is not None else exists.get(pid)
            report = torch.get(pid) if torch else None
            old = before[n] if n < len(before) else None
            if old is None or old[0] is not process:  # other figures, or in another place
                if moved is None:
                    moved = {id(joined[0]): joined for joined in before}
                old = moved.get(id(process))
            if old is None or old[1] is not host or old[2] is not there or old[3] is not report:
                values = list(_values(process))  # a quarter of the time that dataclasses.replace takes
                values[_EXISTS], values[_HOST], values[_TORCH] = there, host, report
                old = (process, host, there, report, GpuProcess(*values))
            after.append(old)
        self._joined = after
        return tuple([joined[4] for joined in after])


def assemble(
    taken_at: float,
    readings: Iterable[Reading],
    facts: Mapping[int, HostFacts],
    exists: Mapping[int, bool | None],
    *,
    torch: Mapping[int, TorchReport] = _NO_REPORTS,
    assembler: SnapshotBuilder | None = None,
    host: Host | None = None,
    driver: Driver | None = None,
    problems: tuple[str, ...] = (),
    took: float = 0.0,
    interval: float = 1.0,
    source: str = "nvml",
    steady: float | None = None,
) -> Snapshot:
    """A snapshot of *readings*, in their order."""
    readings = list(readings)
    return Snapshot(
        taken_at=taken_at,
        host=host or Host(),
        driver=driver or Driver(),
        gpus=tuple(reading.gpu for reading in readings),
        processes=(assembler or SnapshotBuilder()).join(
            (process for reading in readings for process in reading.processes), facts, exists, torch
        ),
        problems=problems,
        took=took,
        interval=interval,
        source=source,
        steady=steady,
    )
