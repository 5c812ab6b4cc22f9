"""Rows under the lines of what they belong to: a user, a job, a container or a GPU, with subtotals."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gputop.model import ProcessKey, replace
from gputop.model.columns import COLUMNS
from gputop.ui.processes.annotations import Annotation
from gputop.ui.processes.cells import SORT_KEYS
from gputop.ui.processes.listing.node import ProcessNode
from gputop.ui.processes.listing.order import Order
from gputop.ui.processes.listing.row import LAUNCHER, ProcessRow, added, summed

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
        self, ordered: Sequence[ProcessNode], order: Order, folded: Collection[int], remarks: Mapping[ProcessKey, str]
    ) -> list[ProcessRow]:
        """The rows of *ordered* (in that order) under their groups; *remarks*: who stands out among its peers."""
        members: dict[str, list[tuple[ProcessNode, ProcessRow]]] = {}
        for node in ordered:
            if order.group == "gpu":
                for row in node.part_rows or (node.row,):
                    members.setdefault(f"GPU {row.process.gpu_index}", []).append((node, row))
            else:
                members.setdefault(_name(node, order.group), []).append((node, node.row))
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
            for n, (node, row) in enumerate(here, 1):
                rows.append(node.draw(row, False, "└ " if n == len(here) else "├ "))
        self._lines = {head.process.pid: head for head, _ in heads}
        return rows

    def _line(
        self, kind: str, name: str, members: Sequence[tuple[ProcessNode, ProcessRow]], remarks: Mapping[ProcessKey, str]
    ) -> ProcessRow:
        number = self._numbers.setdefault((kind, name), -next(self._next))
        parts = tuple(part for node, row in members for part in (node.parts if row is node.row else (row.process,)))
        remark = next((f"{node.pid}: {words}" for node, _ in members if (words := _remark(node, remarks))), "")
        about = Annotation(group=name, remark=remark)
        old = self._lines.get(number)
        same = old is not None and old.about == about and len(old.parts) == len(parts)
        if same and old is not None and all(map(operator.is_, old.parts, parts)):
            return old
        process = replace(summed(parts), pid=number, kind=LAUNCHER, exists=True, host=None)
        gpus = {part.gpu_uuid: row.capacity_bytes for node, row in members for part in node.parts if not row.parts}
        capacity = added(gpus.values()) if kind == "gpu" else None
        return ProcessRow(process, None, capacity, parts, about, folded=False)


def _remark(node: ProcessNode, remarks: Mapping[ProcessKey, str]) -> str:
    return remarks.get(node.facts.key, "") if node.facts is not None else ""


def _name(node: ProcessNode, group: str) -> str:
    facts, about = node.facts, node.about
    if group == "user":
        return (facts.user if facts is not None else None) or about.user or "user unknown"
    return (about.job or "no job") if group == "job" else (about.container or "no container")
