"""What one line of the process table is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from gputop.model import GpuProcess, HostFacts, ProcessKey, RowKey, sum_or_none
from gputop.ui.processes.annotations import NO_ANNOTATION, ProcessAnnotation

#: The GPU "UUID" of the line that sums a process over several GPUs.
ALL_GPUS: Final = ""
#: The "kind" of a process that is on no GPU and only stands above those it started.
LAUNCHER: Final = ""


#: Fields of a process that are shares of a GPU's time.
_PERCENTAGES: Final = tuple(field.name for field in dataclasses.fields(GpuProcess) if field.name.endswith("_percent"))


class ProcessRow(NamedTuple):
    """A process on a GPU; or a process over several GPUs (a sum line, with ``parts``); or one of these parts; or the
    parent on no GPU of several processes (``parts`` are theirs); or the line of a group; or a process that is gone.

    Rows are compared by identity: the same object means that nothing on the line but the age can have changed.
    """

    process: GpuProcess
    facts: HostFacts | None = None  # of a dead process: the last known
    capacity_bytes: int | None = None  # memory of the GPU, MIG instance, or GPUs of a sum line
    parts: tuple[GpuProcess, ...] = ()
    annotation: ProcessAnnotation = NO_ANNOTATION
    is_part: bool = False
    branch: str = ""  # what the tree draws before the command
    folded: bool | None = None  # None: nothing to fold
    hidden: int = 0  # processes folded away under this one

    @property
    def process_key(self) -> ProcessKey:
        return self.facts.key if self.facts is not None else ProcessKey(self.process.pid, None)

    @property
    def key(self) -> RowKey:
        process = self.process
        return RowKey(self.process_key, process.gpu_uuid, process.gpu_instance_id, process.compute_instance_id)

    @property
    def is_launcher(self) -> bool:
        return self.process.kind == LAUNCHER

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes on GPUs that this row is about: one, or those under a launcher."""
        return tuple(dict.fromkeys(part.pid for part in self.parts)) if self.is_launcher else (self.process.pid,)

    @property
    def dead(self) -> bool:
        """The driver lists the pid, the host does not have it."""
        return self.process.exists is False and not self.annotation.exited

    @property
    def is_group(self) -> bool:
        return bool(self.annotation.group)

    @property
    def gone(self) -> bool:
        """It exited, nothing is left of it but this line."""
        return bool(self.annotation.exited)


def device_order(process: GpuProcess) -> tuple[int, int, int]:
    """GPU, GPU instance, compute instance, to sort by."""
    instance, compute = process.gpu_instance_id, process.compute_instance_id
    return process.gpu_index, -1 if instance is None else instance, -1 if compute is None else compute


def same_process(a: ProcessKey, b: ProcessKey) -> bool:
    """Whether both are one process as far as is known: the start time of either may not have been read."""
    return a.pid == b.pid and (a.start_ticks == b.start_ticks or a.start_ticks is None or b.start_ticks is None)


def find_row(rows: Sequence[ProcessRow], key: RowKey) -> int | None:
    """Where the row called *key* is; else the first row of its process."""
    of_process = None
    process, uuid, gpu_instance, compute_instance = key
    for n, row in enumerate(rows):
        found = row.process
        if found.pid == process.pid and same_process(row.process_key, process):
            if found.gpu_uuid == uuid and (found.gpu_instance_id, found.compute_instance_id) == (
                gpu_instance,
                compute_instance,
            ):
                return n
            if of_process is None:
                of_process = n
    return of_process


def max_or_none(values: Iterable[int | None]) -> int | None:
    """The largest of the known ones."""
    return max((value for value in values if value is not None), default=None)


def aggregate(parts: Sequence[GpuProcess]) -> GpuProcess:
    """One process over all its GPUs: memory added up, of activity the busiest GPU's."""
    first = parts[0]
    kinds = {kind for part in parts for kind in part.kind.split("+")}
    busiest: dict[str, Any] = {name: max_or_none(getattr(part, name) for part in parts) for name in _PERCENTAGES}
    return GpuProcess(
        pid=first.pid,
        gpu_uuid=ALL_GPUS,
        kind="+".join(sorted(kinds)),
        gpu_index=min(part.gpu_index for part in parts),
        memory_bytes=sum_or_none(part.memory_bytes for part in parts),
        exists=first.exists,
        host=first.host,
        **busiest,
    )
