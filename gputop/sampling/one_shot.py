"""One snapshot for those who want no more than one, without a poller.

Two readings are taken, so that what is a difference (CPU, PCIe, per-process utilization) is known.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from gputop.model import Gpu, Host, HostFacts, Snapshot, replace
from gputop.procfs.host_reader import HostReader
from gputop.sampling.snapshot_builder import assemble
from gputop.sources.source import Reading, Source, SourceError

APART: Final = 0.105  # seconds between the two readings; GPM needs 100 ms
PATIENCE: Final = 3.0  # seconds a call may take, in all

T = TypeVar("T")


class _Call(threading.Thread):
    """Something that may hang, in a thread that the program does not wait for when it ends."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self.error: SourceError | None = None
        self.start()

    def run(self) -> None:
        try:
            self._function()
        except SourceError as error:
            self.error = error
        except Exception as error:  # a fault of ours: shown to the user by whoever waits for this call
            self.error = SourceError(f"internal error: {error!r}")


def _bounded(function: Callable[[], T]) -> T:
    """What *function* returns. Raises TimeoutError when it takes longer than the patience, else what it raises if
    that is a SourceError."""
    results: list[T] = []
    call = _Call(lambda: results.append(function()))
    call.join(PATIENCE)
    if call.error is not None:
        raise call.error
    if not results:
        raise TimeoutError
    return results[0]


class _GpuReadings:
    """Two readings of one GPU, in a thread of its own: one that hangs holds up none of the others."""

    def __init__(self, source: Source, slot: int) -> None:
        self.slot = slot
        self._source = source
        self.reading: Reading | None = None
        self.first = threading.Event()
        self.complete = False
        self.call = _Call(self._read)

    def _read(self) -> None:
        try:
            started = time.monotonic()
            self.reading = self._source.read(self.slot)
            self.first.set()
            self._source.read_slow(self.slot)
            time.sleep(max(0.0, APART - (time.monotonic() - started)))
            self._source.read_medium(self.slot)
            self.reading = self._source.read(self.slot)
            self.complete = True
        finally:
            self.first.set()

    def result(self) -> Reading:
        """The newest reading there is."""
        if self.complete and self.reading is not None:
            return self.reading
        error = f"the driver did not answer for this GPU within {PATIENCE:g} s"
        if self.reading is None:
            gpu = Gpu(self.slot, f"slot:{self.slot}", f"GPU {self.slot}", time.time(), late=True, error=error)
            return Reading(gpu)
        return Reading(replace(self.reading.gpu, late=True, error=self.reading.gpu.error or error), ())


def sample(source: Source, reader: HostReader, meanwhile: Callable[[], T]) -> tuple[Snapshot, T]:
    """Open *source* and take a snapshot of everything. A GPU for which the driver does not answer in time is ``late``
    in it, with the cause; the source must not be closed then. *meanwhile* is called between the two readings, and what
    it returned is given back too.

    Raises SourceError when no GPU can be read at all, and what *meanwhile* raises.
    """
    started = time.monotonic()
    try:
        driver = _bounded(source.open)
        slots = _bounded(source.count)
    except TimeoutError:
        raise SourceError(
            f"The NVIDIA driver did not answer within {PATIENCE:g} s. Is another tool stuck too (nvidia-smi)? "
            "See dmesg for NVRM messages."
        ) from None
    gpus = [_GpuReadings(source, slot) for slot in range(slots)]
    deadline = time.monotonic() + PATIENCE
    problems: list[str] = []
    host = _HostSide(reader)
    for gpu in gpus:
        gpu.first.wait(max(0.0, deadline - time.monotonic()))
    host.read({process.pid for gpu in gpus if gpu.reading for process in gpu.reading.processes})
    host_read_at = time.monotonic()
    got_ready = meanwhile()
    for gpu in gpus:
        gpu.call.join(max(0.0, deadline - time.monotonic()))
        if gpu.call.error is not None:
            raise gpu.call.error
    readings = [gpu.result() for gpu in gpus]
    time.sleep(max(0.0, APART - (time.monotonic() - host_read_at)))
    host.read({process.pid for reading in readings for process in reading.processes})
    if host.problem:
        problems.append(host.problem)
    problems += [f"GPU {reading.gpu.index}: {reading.gpu.error}" for reading in readings if reading.gpu.late]
    snapshot = assemble(
        time.time(),
        readings,
        host.facts,
        host.exists,
        host=host.machine,
        driver=driver,
        problems=tuple(problems),
        took=time.monotonic() - started,
        source=source.name,
    )
    return snapshot, got_ready


class _HostSide:
    """What /proc says, unless that hangs (a process in the kernel's hands can hold up its readers)."""

    def __init__(self, reader: HostReader) -> None:
        self._reader = reader
        self.facts: dict[int, HostFacts] = {}
        self.exists: dict[int, bool | None] = {}
        self.machine: Host | None = None
        self.problem: str | None = None

    def read(self, pids: set[int]) -> None:
        if self.problem is None:
            try:
                self.facts, self.exists, self.machine = _bounded(lambda: self._read(pids))
            except TimeoutError:
                self.problem = f"the host's processes could not be read within {PATIENCE:g} s"
            except SourceError as error:
                self.problem = f"the host's processes could not be read: {error}"

    def _read(self, pids: set[int]) -> tuple[dict[int, HostFacts], dict[int, bool | None], Host]:
        facts = dict(self._reader.read(pids))
        exists = {pid: self._reader.exists(pid) for pid in pids if pid not in facts}
        return facts, exists, self._reader.machine()
