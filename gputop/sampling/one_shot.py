"""One snapshot for those who want no more than one: two sweeps, so that what is a difference (CPU, PCIe, per-process
utilization) is known."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from gputop.model import Driver, Snapshot, replace, steady_time
from gputop.procfs.host_reader import HostReader
from gputop.sampling.host_side import HostSide
from gputop.sampling.sweeper import Sweeper, pids_of
from gputop.sources.source import Reading, Source, SourceError, asked_once

APART_SECONDS: Final = 0.105  # between the two sweeps: NVML's GPM needs 100 ms between two samples
TIMEOUT_SECONDS: Final = 3.0  # a call may take, in all
SECOND_SWEEP_SECONDS: Final = 0.5  # for the others where a GPU took all of the timeout

LOOKUP_SECONDS: Final = 1.5  # names of users and command lines that are slow to come may take, in all

T = TypeVar("T")


def sample(source: Source, reader: HostReader, meanwhile: Callable[[], T]) -> tuple[Snapshot, T]:
    """Open *source* and take a snapshot of everything. A GPU for which the driver does not answer in time is ``late``
    in it, with the cause; the source must not be closed then. *meanwhile* is called between the two sweeps, and what
    it returned is given back too.

    Raises SourceError when no GPU can be read at all, and what *meanwhile* raises.
    """
    started = time.monotonic()
    driver, slots = _open(source)
    host = HostSide(reader, period=0.0, torch=False)
    host.start()
    sweeper = Sweeper(source, driver, slots, host, apart=True)
    first_at = time.monotonic()
    until = first_at + TIMEOUT_SECONDS
    sweeper.sweep(until)

    def read_again(slot: int) -> Reading:
        source.read_slow(slot)
        time.sleep(max(0.0, first_at + APART_SECONDS - time.monotonic()))
        source.read_medium(slot)
        return source.read(slot)

    sweeper.threads.start(read_again)
    pids = pids_of(sweeper.threads.readings.values())
    host_answers = host.read(pids, None, TIMEOUT_SECONDS)
    host_read_at = time.monotonic()
    got_ready = meanwhile()
    late = sweeper.wait(max(until, time.monotonic() + SECOND_SWEEP_SECONDS))
    readings = [_explained(reading) for reading in sweeper.readings(late, time.time())]
    if host_answers:
        time.sleep(max(0.0, host_read_at + APART_SECONDS - time.monotonic()))
        host_answers = host.read(pids_of(readings), None, TIMEOUT_SECONDS)
        until = first_at + LOOKUP_SECONDS
        while host_answers and time.monotonic() < until and any(facts.waits_for for facts in host.facts.values()):
            time.sleep(APART_SECONDS)
            host_answers = host.read(pids_of(readings), None, TIMEOUT_SECONDS)
    problems = [f"GPU {reading.gpu.index}: {reading.gpu.error}" for reading in readings if reading.gpu.late]
    if not host_answers:
        problems.insert(0, f"the host's processes could not be read within {TIMEOUT_SECONDS:g} s")
    elif host.problem:
        problems.insert(0, host.problem)
    took = time.monotonic() - started
    return sweeper.snapshot(readings, time.time(), tuple(problems), took, 1.0, steady_time()), got_ready


def _open(source: Source) -> tuple[Driver, int]:
    """What *source* says of the driver, and how many GPUs there are; in a thread that the program does not wait for
    when it ends. Raises SourceError, also where that takes too long."""
    opened: list[tuple[Driver, int]] = []
    failures: list[SourceError] = []

    def open_and_count() -> None:
        try:
            opened.append((source.open(), source.count()))
        except SourceError as error:
            failures.append(error)
        except Exception as error:  # a fault of ours: shown to the user
            failures.append(SourceError(f"internal error: {error!r}"))

    thread = threading.Thread(target=open_and_count, daemon=True)
    thread.start()
    thread.join(TIMEOUT_SECONDS)
    if failures:
        raise failures[0]
    if not opened:
        raise SourceError(
            f"The NVIDIA driver did not answer within {TIMEOUT_SECONDS:g} s. Is another tool stuck too (nvidia-smi)? "
            "See dmesg for NVRM messages."
        )
    return opened[0]


def _explained(reading: Reading) -> Reading:
    """A late GPU says why; its processes are not told, as nobody knows whether they are still there."""
    if not reading.gpu.late:
        error = reading.gpu.error
        return reading if error is None else replace(reading, gpu=replace(reading.gpu, error=asked_once(error)))
    error = f"the driver did not answer for this GPU within {TIMEOUT_SECONDS:g} s"
    return Reading(replace(reading.gpu, error=error))
