"""From a snapshot to the rows of the process table, in order. Pure logic; nothing here knows a widget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gputop.model import GpuProcess, HostFacts, Snapshot, sum_or_none
from gputop.ui.processes.annotations import ProcessAnnotations
from gputop.ui.processes.listing.entry import Capacities, ProcessEntry, memory_capacities
from gputop.ui.processes.listing.filter import ProcessFilter, text_of
from gputop.ui.processes.listing.groups import Groups
from gputop.ui.processes.listing.order import Order, ThrottledSort
from gputop.ui.processes.listing.row import ProcessRow
from gputop.ui.processes.listing.tree import Tree, part_lines


@dataclass(frozen=True, slots=True, eq=False)
class TableRows:
    """Rows in order, with what they were chosen from. Made anew when anything may be different."""

    rows: tuple[ProcessRow, ...] = ()
    processes: tuple[GpuProcess, ...] = ()  # of the snapshot: before the filter
    total: int = 0  # pids, before the filter
    shown: Mapping[int, ProcessRow] = field(
        default_factory=dict
    )  # by pid: its sum line, or only line, also if folded away
    known: Mapping[int, HostFacts | None] = field(default_factory=dict)  # by pid: facts, before the filter

    def on_gpu(self, uuid: str) -> tuple[int, int | None]:
        """Processes on a GPU, filtered or not, and the memory they hold (None: unknown)."""
        there = [process for process in self.processes if process.gpu_uuid == uuid]
        return len({process.pid for process in there}), sum_or_none(process.memory_bytes for process in there)

    def of_pid(self, pid: int) -> list[GpuProcess]:
        """A process on all its GPUs, filtered or not."""
        return [process for process in self.processes if process.pid == pid]


class ProcessRows:
    """Orders the processes of one snapshot after another, remembering what keeps rows steady between them."""

    def __init__(self) -> None:
        self.folded: set[int] = set()  # pids, and numbers of groups
        self.annotations = ProcessAnnotations()
        self.exited: tuple[ProcessRow, ...] = ()  # what exited lately: shown after all others
        self._listing = TableRows()
        self._made_of: tuple[Any, ...] = ()
        self._known: dict[int, HostFacts | None] = {}
        self._entries: dict[int, ProcessEntry] = {}
        self._sort = ThrottledSort()
        self._tree = Tree()
        self._groups = Groups()
        self._capacities: Capacities = {}

    def arrange(self, snapshot: Snapshot, filter_: ProcessFilter, order: Order) -> TableRows:
        """The rows of *snapshot*. Gives the last listing again where nothing it is made of changed."""
        capacities = memory_capacities(snapshot)
        if capacities != self._capacities:
            self._capacities = capacities
        made_of = (self._capacities, filter_, order, frozenset(self.folded), id(self.annotations), self.exited)
        if made_of == self._made_of and self._listing.processes is snapshot.processes:
            return self._listing
        self._made_of = made_of
        groups: dict[int, list[GpuProcess]] = {}
        for process in snapshot.processes:
            group = groups.get(process.pid)
            if group is None:
                groups[process.pid] = [process]
            else:
                group.append(process)
        self._learn(groups)
        entries = self._filtered(groups, filter_)
        self._sort.begin(order, snapshot.taken_at)
        if order.group:
            ordered = self._sort.sort([(entry, entry.row) for entry in entries], order)
            rows = self._groups.rows([entry for entry, _ in ordered], order, self.folded, self.annotations.stragglers)
        elif order.tree:
            ordered = self._sort.sort([(entry, entry.row) for entry in entries], order)
            rows = self._tree.rows([entry for entry, _ in ordered], self.folded)
        else:
            rows = self._flat(entries, order)
        self._listing = TableRows(
            (*rows, *self._exited(filter_)),
            snapshot.processes,
            len(groups),
            {entry.pid: entry.row for entry in entries},
            self._known,
        )
        return self._listing

    def _exited(self, filter_: ProcessFilter) -> list[ProcessRow]:
        if not filter_:
            return list(self.exited)
        return [
            row
            for row in self.exited
            if filter_.keeps_part(row.process)
            and filter_.keeps(row.process, row.facts, row.capacity_bytes, text_of(row.process.pid, row.facts))
        ]

    def _learn(self, groups: Mapping[int, list[GpuProcess]]) -> None:
        """Remember what the host said of a process for as long as the driver lists it: it may outlive it."""
        before, now = self._known, {}
        for pid, group in groups.items():
            process = group[0]
            now[pid] = process.host if process.host is not None or process.exists is not False else before.get(pid)
        self._known = now

    def _filtered(self, groups: Mapping[int, list[GpuProcess]], filter_: ProcessFilter) -> list[ProcessEntry]:
        before, known, capacities, of = self._entries, self._known, self._capacities, self.annotations.of
        some_parts, words = bool(filter_.part_tests), bool(filter_.word_tests)
        some = words or bool(filter_.process_tests)
        entries: list[ProcessEntry] = []
        now: dict[int, ProcessEntry] = {}
        for pid, parts in groups.items():
            if some_parts:
                parts = [part for part in parts if filter_.keeps_part(part)]
                if not parts:
                    continue
            facts = known[pid]
            old = entry = before.get(pid)
            annotation = of(parts[0].key if facts is None else facts.key, parts[0].exists is False)
            if entry is None or not entry.is_made_of(parts, facts, capacities, annotation):
                entry = ProcessEntry(parts, facts, capacities, annotation)
            now[pid] = entry
            text = entry.search_text(old) if words else ""
            if some and not filter_.keeps(entry.row.process, entry.known, entry.row.capacity_bytes, text):
                continue
            entries.append(entry)
        self._entries = now
        return entries

    def _flat(self, entries: Iterable[ProcessEntry], order: Order) -> list[ProcessRow]:
        if order.by_gpu:
            plain = [
                (entry, entry.shown_as(row, False)) for entry in entries for row in entry.part_rows or (entry.row,)
            ]
            return [row for _, row in self._sort.sort(plain, order)]
        rows: list[ProcessRow] = []
        for entry, row in self._sort.sort([(entry, entry.row) for entry in entries], order):
            if not entry.part_rows:
                rows.append(row)
                continue
            folded = entry.pid in self.folded
            rows.append(entry.shown_as(row, False, folded=folded))
            if not folded:
                rows += part_lines(entry)
        return rows
