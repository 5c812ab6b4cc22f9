"""One snapshot out of what was read where: GPU readings from the driver, host facts from /proc."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gputop.model import Driver, GpuProcess, Host, HostFacts, RowKey, Snapshot, replace
from gputop.sources import Reading


class Assembler:
    """Joins processes with their host facts, and gives the same object again where nothing changed: what draws can
    then tell an unchanged row by identity."""

    def __init__(self) -> None:
        self._joined: dict[RowKey, tuple[GpuProcess, HostFacts | None, bool | None, GpuProcess]] = {}

    def join(
        self,
        processes: Iterable[GpuProcess],
        facts: Mapping[int, HostFacts],
        exists: Mapping[int, bool | None],
    ) -> tuple[GpuProcess, ...]:
        """*processes* with host facts by pid; *exists* says it of pids without facts."""
        before, after = self._joined, {}
        result = []
        for process in processes:
            host = facts.get(process.pid)
            there = True if host is not None else exists.get(process.pid)
            key = process.row
            old = before.get(key)
            if old is not None and old[0] is process and old[1] is host and old[2] is there:
                after[key] = old
            else:
                after[key] = old = (process, host, there, replace(process, host=host, exists=there))
            result.append(old[3])
        self._joined = after
        return tuple(result)


def assemble(
    taken_at: float,
    readings: Iterable[Reading],
    facts: Mapping[int, HostFacts],
    exists: Mapping[int, bool | None],
    *,
    assembler: Assembler | None = None,
    host: Host | None = None,
    driver: Driver | None = None,
    problems: tuple[str, ...] = (),
    took: float = 0.0,
    interval: float = 1.0,
    source: str = "nvml",
) -> Snapshot:
    """A snapshot of *readings*, in their order."""
    readings = list(readings)
    return Snapshot(
        taken_at=taken_at,
        host=host or Host(),
        driver=driver or Driver(),
        gpus=tuple(reading.gpu for reading in readings),
        processes=(assembler or Assembler()).join(
            (process for reading in readings for process in reading.processes), facts, exists
        ),
        problems=problems,
        took=took,
        interval=interval,
        source=source,
    )
