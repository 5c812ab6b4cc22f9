"""Rows under the lines of what they belong to: a user, a job, a container or a GPU, with subtotals."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gputop.model import ProcessKey, replace, sum_or_none
from gputop.model.columns import COLUMNS
from gputop.ui.processes.annotations import ProcessAnnotation
from gputop.ui.processes.cells import SORT_KEYS
from gputop.ui.processes.listing.entry import ProcessEntry
from gputop.ui.processes.listing.order import Order
from gputop.ui.processes.listing.row import LAUNCHER, ProcessRow, aggregate

#: Columns that a group's line has: figures of the GPU.
_SUMMED: Final = {id_ for id_, column in COLUMNS.items() if column.of_process is not None and column.descending}


class Groups:
    """Gives each group a line of its own, the same object as long as nothing in it changed. A group is known by a
    number below zero, which is what ``folded`` has and what no pid ever is."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._next = itertools.count(2)
        self._lines: dict[int, ProcessRow] = {}

    def rows(
        self, ordered: Sequence[ProcessEntry], order: Order, folded: Collection[int], remarks: Mapping[ProcessKey, str]
    ) -> list[ProcessRow]:
        """The rows of *ordered* (in that order) under their groups; *remarks*: who stands out among its peers."""
        members: dict[str, list[tuple[ProcessEntry, ProcessRow]]] = {}
        for entry in ordered:
            if order.group == "gpu":
                for row in entry.part_rows or (entry.row,):
                    members.setdefault(f"GPU {row.process.gpu_index}", []).append((entry, row))
            else:
                members.setdefault(_name(entry, order.group), []).append((entry, entry.row))
        heads = [(self._line(order.group, name, here, remarks), here) for name, here in members.items()]
        if order.column in _SUMMED:
            key = SORT_KEYS[order.column]
            heads.sort(key=lambda head: (key(head[0]) is not None, key(head[0]) or 0), reverse=order.descending)
        elif order.group == "gpu":
            heads.sort(key=lambda head: head[1][0][1].process.gpu_index)
        rows: list[ProcessRow] = []
        for head, here in heads:
            if head.process.pid in folded:
                rows.append(head._replace(folded=True, hidden=len(head.pids)))
                continue
            rows.append(head)
            for n, (entry, row) in enumerate(here, 1):
                rows.append(entry.shown_as(row, False, "└ " if n == len(here) else "├ "))
        self._lines = {head.process.pid: head for head, _ in heads}
        return rows

    def _line(
        self,
        kind: str,
        name: str,
        members: Sequence[tuple[ProcessEntry, ProcessRow]],
        remarks: Mapping[ProcessKey, str],
    ) -> ProcessRow:
        number = self._numbers.setdefault((kind, name), -next(self._next))
        parts = tuple(part for entry, row in members for part in (entry.parts if row is entry.row else (row.process,)))
        remark = next((f"{entry.pid}: {words}" for entry, _ in members if (words := _remark(entry, remarks))), "")
        annotation = ProcessAnnotation(group=name, remark=remark)
        old = self._lines.get(number)
        same = old is not None and old.annotation == annotation and len(old.parts) == len(parts)
        if same and old is not None and all(map(operator.is_, old.parts, parts)):
            return old
        process = replace(aggregate(parts), pid=number, kind=LAUNCHER, exists=True, host=None)
        gpus = {part.gpu_uuid: row.capacity_bytes for entry, row in members for part in entry.parts if not row.parts}
        capacity = sum_or_none(gpus.values()) if kind == "gpu" else None
        return ProcessRow(process, None, capacity, parts, annotation, folded=False)


def _remark(entry: ProcessEntry, remarks: Mapping[ProcessKey, str]) -> str:
    return remarks.get(entry.facts.key, "") if entry.facts is not None else ""


def _name(entry: ProcessEntry, group: str) -> str:
    facts, annotation = entry.facts, entry.annotation
    if group == "user":
        return (facts.user if facts is not None else None) or annotation.user or "user unknown"
    return (annotation.job or "no job") if group == "job" else (annotation.container or "no container")
