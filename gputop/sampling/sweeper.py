"""One sweep: every GPU is read, and joined with what the host says to a snapshot. The poller's and the one-shot's."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.model import Driver, Gpu, Snapshot, replace
from gputop.sampling.host_side import HostSide
from gputop.sampling.reader_threads import ReaderThreads
from gputop.sampling.snapshot_builder import SnapshotBuilder, assemble
from gputop.sources.source import Reading, Source


class Sweeper:
    """Sweeps over the *slots* of *source*, which is open; *apart*: each GPU has a thread of its own from the start."""

    def __init__(self, source: Source, driver: Driver, slots: int, host: HostSide, apart: bool = False) -> None:
        self.source, self.driver, self.slots, self.host = source, driver, slots, host
        self.threads = ReaderThreads(source.read, range(slots), apart)
        self._builder = SnapshotBuilder()

    def sweep(self, until: float = 0.0) -> set[int]:
        """Read every GPU; returns the slots that are late, which is waited for as :meth:`ReaderThreads.wait` has it.
        Raises SourceError where the driver is gone."""
        self.threads.start()
        return self.wait(until)

    def wait(self, until: float = 0.0) -> set[int]:
        """The end of a sweep that was started on ``threads``."""
        late = self.threads.wait(until)
        if self.threads.failure is not None:
            raise self.threads.failure
        return late

    def readings(self, late: set[int], at: float) -> list[Reading]:
        """The newest reading of each GPU; *at*: epoch seconds, for those that have none."""
        return [self._reading(slot, slot in late, at) for slot in range(self.slots)]

    def _reading(self, slot: int, late: bool, at: float) -> Reading:
        reading = self.threads.readings.get(slot)
        if reading is None:
            gpu = Gpu(slot, f"slot:{slot}", f"GPU {slot}", at, late=True)
            return Reading(replace(gpu, error="the driver has not answered for this GPU yet"))
        return Reading(replace(reading.gpu, late=True), reading.processes) if late else reading

    def snapshot(
        self,
        readings: Iterable[Reading],
        at: float,
        problems: tuple[str, ...],
        took: float,
        interval: float,
        steady: float | None = None,
    ) -> Snapshot:
        """*readings* with what the host side knows now. *at* and *steady* are epoch seconds, *took* and
        *interval* are seconds."""
        host = self.host
        return assemble(
            at,
            readings,
            host.facts,
            host.exists,
            torch=host.torch,
            assembler=self._builder,
            host=host.machine,
            driver=self.driver,
            problems=problems,
            took=took,
            interval=interval,
            source=self.source.name,
            steady=steady,
        )


def pids_of(readings: Iterable[Reading]) -> frozenset[int]:
    return frozenset(process.pid for reading in readings for process in reading.processes)
