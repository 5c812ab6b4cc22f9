"""A listed process between two snapshots: what the rows of the table are taken from."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from gputop.model import GpuProcess, HostFacts, ProcessKey, Snapshot
from gputop.ui.processes.annotations import NOTHING, Annotation
from gputop.ui.processes.listing.filter import text_of
from gputop.ui.processes.listing.row import ProcessRow, added, place_of, summed

Capacities = Mapping[Any, int | None]
"""Memory of GPUs by UUID, and of MIG instances by (UUID, GPU instance), in bytes."""


class ProcessNode:
    """A process on the GPUs that pass the filter, kept from snapshot to snapshot to give the same rows again."""

    __slots__ = ("about", "capacities", "drawn", "facts", "part_rows", "parts", "pid", "row", "text")

    def __init__(
        self, parts: list[GpuProcess], facts: HostFacts | None, capacities: Capacities, about: Annotation = NOTHING
    ) -> None:
        self.parts = parts
        self.about = about
        self.pid = parts[0].pid
        self.facts = facts
        self.capacities = capacities
        self.text: str | None = None  # made when a filter looks for words
        self.drawn: dict[int, ProcessRow] | None = None  # by the id of a row of this node
        self.part_rows: tuple[ProcessRow, ...] = ()
        if len(parts) == 1:
            self.row = ProcessRow(parts[0], facts, capacity(capacities, parts[0]), about=about)
        else:
            parts_in_order = tuple(sorted(parts, key=place_of))
            sizes = [capacity(capacities, part) for part in parts_in_order]
            self.part_rows = tuple(
                ProcessRow(part, facts, size, about=about, is_part=True)
                for part, size in zip(parts_in_order, sizes, strict=True)
            )
            self.row = ProcessRow(summed(parts_in_order), facts, added(sizes), parts_in_order, about)

    def same(
        self, parts: list[GpuProcess], facts: HostFacts | None, capacities: Capacities, about: Annotation = NOTHING
    ) -> bool:
        mine = self.parts
        if mine[0] is not parts[0] or len(mine) != len(parts):
            return False
        if self.facts is not facts or self.capacities is not capacities or self.about != about:
            return False
        return len(parts) == 1 or all(map(operator.is_, mine, parts))

    @property
    def known(self) -> HostFacts | None:
        """What the host says of it; of a dead pid what was found out, as its row shows it."""
        about = self.about
        if self.facts is not None or not (about.user or about.command):
            return self.facts
        return HostFacts(ProcessKey(self.pid, None), 0.0, user=about.user or None, command=about.command or None)

    def search_text(self, before: ProcessNode | None) -> str:
        """What a filter looks for words in; taken from the node before where the host says the same."""
        if self.text is None:
            old, new = (before.facts if before is not None else None), self.known
            if before is None or before.text is None or old is None or new is None:
                self.text = text_of(self.pid, new)
            elif old.command is new.command and old.name is new.name and old.user is new.user:
                self.text = before.text
            else:
                self.text = text_of(self.pid, new)
        return self.text

    def draw(
        self, row: ProcessRow, is_part: bool, branch: str = "", folded: bool | None = None, hidden: int = 0
    ) -> ProcessRow:
        """*row*, one of the node's own, as it is shown; the same object as the last time where that is the same."""
        if not branch and folded is None and row.is_part is is_part:
            return row
        if self.drawn is None:
            self.drawn = {}
        old = self.drawn.get(id(row))
        if old is None or old[5:] != (is_part, branch, folded, hidden):
            process, facts, capacity, parts, about = row[:5]
            self.drawn[id(row)] = old = ProcessRow(
                process, facts, capacity, parts, about, is_part, branch, folded, hidden
            )
        return old


def capacities_of(snapshot: Snapshot) -> Capacities:
    found: dict[Any, int | None] = {}
    for gpu in snapshot.gpus:
        found[gpu.uuid] = gpu.memory_total_bytes
        for instance in gpu.mig:
            found[gpu.uuid, instance.gpu_instance_id] = instance.memory_total_bytes
    return found


def capacity(capacities: Capacities, part: GpuProcess) -> int | None:
    """Bytes of the GPU that *part* is on, or of its MIG instance."""
    if part.gpu_instance_id is None:
        return capacities.get(part.gpu_uuid)
    return capacities.get((part.gpu_uuid, part.gpu_instance_id))
