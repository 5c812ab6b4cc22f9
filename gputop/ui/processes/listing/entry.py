"""A process in the table, kept from snapshot to snapshot: the rows are taken from it."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from gputop.model import GpuProcess, HostFacts, ProcessKey, Snapshot, sum_or_none
from gputop.ui.processes.annotations import NO_ANNOTATION, ProcessAnnotation
from gputop.ui.processes.listing.filter import text_of
from gputop.ui.processes.listing.row import ProcessRow, aggregate, device_order

Capacities = Mapping[Any, int | None]
"""Memory of GPUs by UUID, and of MIG instances by (UUID, GPU instance), in bytes."""


class ProcessEntry:
    """A process on the GPUs that pass the filter, kept from snapshot to snapshot to give the same rows again."""

    __slots__ = ("annotation", "capacities", "facts", "part_rows", "parts", "pid", "row", "shown", "text")

    def __init__(
        self,
        parts: list[GpuProcess],
        facts: HostFacts | None,
        capacities: Capacities,
        annotation: ProcessAnnotation = NO_ANNOTATION,
    ) -> None:
        self.parts = parts
        self.annotation = annotation
        self.pid = parts[0].pid
        self.facts = facts
        self.capacities = capacities
        self.text: str | None = None  # made when a filter looks for words
        self.shown: dict[int, ProcessRow] | None = None  # by the id of a row of this entry
        self.part_rows: tuple[ProcessRow, ...] = ()
        if len(parts) == 1:
            self.row = ProcessRow(parts[0], facts, memory_capacity(capacities, parts[0]), annotation=annotation)
        else:
            parts_in_order = tuple(sorted(parts, key=device_order))
            sizes = [memory_capacity(capacities, part) for part in parts_in_order]
            self.part_rows = tuple(
                ProcessRow(part, facts, size, annotation=annotation, is_part=True)
                for part, size in zip(parts_in_order, sizes, strict=True)
            )
            self.row = ProcessRow(aggregate(parts_in_order), facts, sum_or_none(sizes), parts_in_order, annotation)

    def is_made_of(
        self,
        parts: list[GpuProcess],
        facts: HostFacts | None,
        capacities: Capacities,
        annotation: ProcessAnnotation = NO_ANNOTATION,
    ) -> bool:
        mine = self.parts
        if mine[0] is not parts[0] or len(mine) != len(parts):
            return False
        if self.facts is not facts or self.capacities is not capacities or self.annotation != annotation:
            return False
        return len(parts) == 1 or all(map(operator.is_, mine, parts))

    @property
    def known(self) -> HostFacts | None:
        """What the host says of it; of a dead pid what was found out, as its row shows it."""
        annotation = self.annotation
        if self.facts is not None or not (annotation.user or annotation.command):
            return self.facts
        return HostFacts(
            ProcessKey(self.pid, None), 0.0, user=annotation.user or None, command=annotation.command or None
        )

    def search_text(self, before: ProcessEntry | None) -> str:
        """What a filter looks for words in; taken from the entry before where the host says the same."""
        if self.text is None:
            old, new = (before.facts if before is not None else None), self.known
            if before is None or before.text is None or old is None or new is None:
                self.text = text_of(self.pid, new)
            elif old.command is new.command and old.name is new.name and old.user is new.user:
                self.text = before.text
            else:
                self.text = text_of(self.pid, new)
        return self.text

    def shown_as(
        self, row: ProcessRow, is_part: bool, branch: str = "", folded: bool | None = None, hidden: int = 0
    ) -> ProcessRow:
        """*row*, one of the entry's own, as it is shown; the same object as the last time where that is the same."""
        if not branch and folded is None and row.is_part is is_part:
            return row
        if self.shown is None:
            self.shown = {}
        old = self.shown.get(id(row))
        if old is None or old[5:] != (is_part, branch, folded, hidden):
            process, facts, capacity, parts, annotation = row[:5]
            self.shown[id(row)] = old = ProcessRow(
                process, facts, capacity, parts, annotation, is_part, branch, folded, hidden
            )
        return old


def memory_capacities(snapshot: Snapshot) -> Capacities:
    found: dict[Any, int | None] = {}
    for gpu in snapshot.gpus:
        found[gpu.uuid] = gpu.memory_total_bytes
        for instance in gpu.mig:
            found[gpu.uuid, instance.gpu_instance_id] = instance.memory_total_bytes
    return found


def memory_capacity(capacities: Capacities, part: GpuProcess) -> int | None:
    """Bytes of the GPU that *part* is on, or of its MIG instance."""
    if part.gpu_instance_id is None:
        return capacities.get(part.gpu_uuid)
    return capacities.get((part.gpu_uuid, part.gpu_instance_id))
