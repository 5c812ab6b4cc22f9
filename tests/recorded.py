"""Snapshots of the simulated machines at times a test chooses, and recordings of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gputop.model import HostFacts, Snapshot
from gputop.outputs.recorder import Recorder
from gputop.sampling.snapshot_builder import SnapshotBuilder, assemble
from gputop.sources.simulated import simulated_machine

EPOCH = 1_800_000_000.0
HANGS = {"slow": 2, "hang": 2}  # the slot that keeps its reader


def life(name: str, count: int, interval: float = 0.5, joined: float = 0.0) -> Iterator[Snapshot]:
    """*count* snapshots of the machine called *name*, as a poller would take them from *joined* seconds on."""
    now = EPOCH
    machine = simulated_machine(name, 1, lambda: now, started_before=joined)
    driver, slots = machine.source.open(), machine.source.count()
    assembler = SnapshotBuilder()
    facts: dict[int, HostFacts] = {}
    exists: dict[int, bool | None] = {}
    for n in range(count):
        now = EPOCH + n * interval
        readings = [machine.source.read(slot) for slot in range(slots) if slot != HANGS.get(name)]
        if n % 2 == 0:
            pids = {process.pid for reading in readings for process in reading.processes}
            facts = dict(machine.host.read(pids))
            exists = {pid: machine.host.exists(pid) for pid in pids if pid not in facts}
        yield assemble(
            now, readings, facts, exists, assembler=assembler, host=machine.host.machine(), driver=driver,
            problems=("one\n\x1b[31mtwo",) if n == 3 else (), took=0.001 * n, interval=interval, source="simulated",
        )  # fmt: skip


def record(path: Path, snapshots: list[Snapshot], **more: object) -> Recorder:
    recorder = Recorder(path, **more)  # type: ignore[arg-type]
    for snapshot in snapshots:
        recorder.write(snapshot)
    recorder.close()
    return recorder
