"""From a snapshot to the rows of the process table, in order. Pure logic; nothing here knows a widget."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gputop.model import GpuProcess, HostFacts, Snapshot
from gputop.ui.process_columns import COLUMNS
from gputop.ui.process_filter import Filter, text_of
from gputop.ui.process_row import Row, added, summed

#: Seconds between two sortings. Values change at every tick; rows that swap as often cannot be read, or hit.
SORT_EVERY: Final = 2.0
_BRANCH_MOST: Final = 24  # cells


class Order(NamedTuple):
    """How rows are ordered: the settings sort, sort_reverse and tree."""

    column: str = "gpu_mem"
    reverse: bool = False
    tree: bool = False

    @property
    def descending(self) -> bool:
        return COLUMNS[self.column].descending is not self.reverse

    @property
    def by_gpu(self) -> bool:
        """Whether a process on several GPUs is several rows, each among those of its GPU."""
        return self.column == "gpu" and not self.tree


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """Rows in order, with what they were chosen from. Made anew when anything may be different."""

    rows: tuple[Row, ...] = ()
    processes: tuple[GpuProcess, ...] = ()  # of the snapshot: before the filter
    total: int = 0  # pids, before the filter
    shown: Mapping[int, Row] = field(default_factory=dict)  # by pid: its sum line, or only line, also if folded away
    known: Mapping[int, HostFacts | None] = field(default_factory=dict)  # by pid: facts, before the filter

    def on_gpu(self, uuid: str) -> tuple[int, int | None]:
        """Processes on a GPU, filtered or not, and the memory they hold (None: unknown)."""
        there = [process for process in self.processes if process.gpu_uuid == uuid]
        return len({process.pid for process in there}), added(process.memory_bytes for process in there)

    def of_pid(self, pid: int) -> list[GpuProcess]:
        """A process on all its GPUs, filtered or not."""
        return [process for process in self.processes if process.pid == pid]


class _Node:
    """A process on the GPUs that pass the filter, kept from snapshot to snapshot to give the same rows again."""

    __slots__ = ("capacities", "drawn", "facts", "part_rows", "parts", "pid", "row", "text")

    def __init__(self, parts: list[GpuProcess], facts: HostFacts | None, capacities: Mapping[Any, int | None]) -> None:
        self.parts = parts
        self.pid = parts[0].pid
        self.facts = facts
        self.capacities = capacities
        self.text: str | None = None  # made when a filter looks for words
        self.drawn: dict[int, Row] | None = None  # by the id of a row of this node
        self.part_rows: tuple[Row, ...] = ()
        if len(parts) == 1:
            self.row = Row(parts[0], facts, _capacity(capacities, parts[0]))
        else:
            parts_in_order = tuple(sorted(parts, key=_place))
            sizes = [_capacity(capacities, part) for part in parts_in_order]
            self.part_rows = tuple(
                Row(part, facts, size, is_part=True) for part, size in zip(parts_in_order, sizes, strict=True)
            )
            self.row = Row(summed(parts_in_order), facts, added(sizes), parts_in_order)

    def same(self, parts: list[GpuProcess], facts: HostFacts | None, capacities: Mapping[Any, int | None]) -> bool:
        mine = self.parts
        if mine[0] is not parts[0] or len(mine) != len(parts):
            return False
        if self.facts is not facts or self.capacities is not capacities:
            return False
        return len(parts) == 1 or all(map(operator.is_, mine, parts))

    def words(self, before: _Node | None) -> str:
        """What a filter looks for words in; taken from the node before where the host says the same."""
        if self.text is None:
            old, new = (before.facts if before is not None else None), self.facts
            if before is None or before.text is None or old is None or new is None:
                self.text = text_of(self.pid, new)
            elif old.command is new.command and old.name is new.name and old.user is new.user:
                self.text = before.text
            else:
                self.text = text_of(self.pid, new)
        return self.text

    def draw(self, row: Row, is_part: bool, branch: str = "", folded: bool | None = None, hidden: int = 0) -> Row:
        """*row*, one of the node's own, as it is shown; the same object as the last time where that is the same."""
        if not branch and folded is None and row.is_part is is_part:
            return row
        if self.drawn is None:
            self.drawn = {}
        old = self.drawn.get(id(row))
        if old is None or old[4:] != (is_part, branch, folded, hidden):
            process, facts, capacity, parts = row[:4]
            self.drawn[id(row)] = old = Row(process, facts, capacity, parts, is_part, branch, folded, hidden)
        return old


_Tie = tuple[Any, ...]
_NO_RANK: Final[tuple[Any, _Tie]] = (None, ())


class ProcessRows:
    """Orders the processes of one snapshot after another, remembering what keeps rows steady between them."""

    def __init__(self) -> None:
        self.folded: set[int] = set()  # pids
        self._listing = Listing()
        self._made_of: tuple[Any, ...] = ()
        self._known: dict[int, HostFacts | None] = {}
        self._nodes: dict[int, _Node] = {}
        self._ranks: dict[Any, tuple[Any, _Tie]] = {}  # by row: the value it ranked by when last sorted, and the ties'
        self._ranked_by = ""
        self._ranked_at = 0.0
        self._capacities: Mapping[Any, int | None] = {}

    def arrange(self, snapshot: Snapshot, filter_: Filter, order: Order) -> Listing:
        """The rows of *snapshot*. Gives the last listing again where nothing it is made of changed."""
        capacities = _capacities(snapshot)
        if capacities != self._capacities:
            self._capacities = capacities
        made_of = (self._capacities, filter_, order, frozenset(self.folded))
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
        nodes = self._filtered(groups, filter_)
        self._age_ranks(order, snapshot.taken_at)
        rows = self._in_tree(nodes, order) if order.tree else self._flat(nodes, order)
        self._listing = Listing(
            tuple(rows),
            snapshot.processes,
            len(groups),
            {node.pid: node.row for node in nodes},
            self._known,
        )
        return self._listing

    def _learn(self, groups: Mapping[int, list[GpuProcess]]) -> None:
        """Remember what the host said of a process for as long as the driver lists it: it may outlive it."""
        before, now = self._known, {}
        for pid, group in groups.items():
            process = group[0]
            now[pid] = process.host if process.host is not None or process.exists is not False else before.get(pid)
        self._known = now

    def _filtered(self, groups: Mapping[int, list[GpuProcess]], filter_: Filter) -> list[_Node]:
        before, known, capacities = self._nodes, self._known, self._capacities
        some_parts, some = bool(filter_.part_tests), bool(filter_.process_tests)
        nodes: list[_Node] = []
        now: dict[int, _Node] = {}
        for pid, parts in groups.items():
            if some_parts:
                parts = [part for part in parts if filter_.keeps_part(part)]
                if not parts:
                    continue
            facts = known[pid]
            old = node = before.get(pid)
            if node is None or not node.same(parts, facts, capacities):
                node = _Node(parts, facts, capacities)
            now[pid] = node
            if some and not filter_.keeps(node.row.process, facts, node.words(old)):
                continue
            nodes.append(node)
        self._nodes = now
        return nodes

    def _flat(self, nodes: Iterable[_Node], order: Order) -> list[Row]:
        if order.by_gpu:
            plain = [(node, node.draw(row, False)) for node in nodes for row in node.part_rows or (node.row,)]
            return [row for _, row in self._sorted(plain, order)]
        rows: list[Row] = []
        for node, row in self._sorted([(node, node.row) for node in nodes], order):
            if not node.part_rows:
                rows.append(row)
                continue
            folded = node.pid in self.folded
            rows.append(node.draw(row, False, folded=folded))
            if not folded:
                rows += _drawn_parts(node, "", last=True)
        return rows

    def _in_tree(self, nodes: list[_Node], order: Order) -> list[Row]:
        ordered = [node for node, _ in self._sorted([(node, node.row) for node in nodes], order)]
        by_pid = {node.pid: node for node in ordered}
        children: dict[int, list[_Node]] = {}
        roots: list[_Node] = []
        for node in ordered:
            parent = _parent(node, by_pid)
            if parent is None:
                roots.append(node)
            else:
                children.setdefault(parent, []).append(node)
        rows: list[Row] = []
        seen: set[int] = set()
        for root in roots:
            self._branch(root, children, seen, rows)
        if len(seen) < len(ordered):  # facts read at different times made a ring of parents: no root leads there
            for node in ordered:
                self._branch(node, children, seen, rows)
        return rows

    def _branch(self, root: _Node, children: Mapping[int, list[_Node]], seen: set[int], rows: list[Row]) -> None:
        """Append the rows of *root* and all below it that were not *seen* yet."""
        stack = [(root, "", "")]
        while stack:
            node, branch, below = stack.pop()
            pid = node.pid
            if pid in seen:
                continue
            seen.add(pid)
            mine = children.get(pid)
            if mine is None and not node.part_rows:
                rows.append(node.draw(node.row, False, branch))
                continue
            mine = [child for child in mine or () if child.pid not in seen]
            foldable = bool(mine or node.part_rows)
            folded = foldable and pid in self.folded
            hidden = _mark_all(mine, children, seen) if folded else 0
            rows.append(node.draw(node.row, False, branch, folded if foldable else None, hidden))
            if folded:
                continue
            if node.part_rows:
                rows += _drawn_parts(node, below, last=not mine)
            below = below[-_BRANCH_MOST:]
            for n, child in enumerate(reversed(mine)):
                stack.append((child, below + ("└ " if n == 0 else "├ "), below + ("  " if n == 0 else "│ ")))

    # ----------------------------------------------------------------- sorting

    def _age_ranks(self, order: Order, now: float) -> None:
        """Forget how rows ranked when it is time to sort again."""
        if order.column != self._ranked_by or not 0 <= now - self._ranked_at < SORT_EVERY:
            self._ranks = {}
            self._ranked_by = order.column
            self._ranked_at = now

    def _sorted(self, rows: list[tuple[_Node, Row]], order: Order) -> list[tuple[_Node, Row]]:
        """By the column, ties by memory (largest first), GPU and pid, rows of which the value is unknown last."""
        key = COLUMNS[order.column].key
        ranks = self._ranks
        known: list[tuple[Any, _Tie, tuple[_Node, Row]]] = []
        unknown: list[tuple[Any, _Tie, tuple[_Node, Row]]] = []
        for entry in rows:
            row = entry[1]
            process = row.process
            place = (process.pid, process.gpu_uuid, process.gpu_instance_id, process.compute_instance_id)
            value, tie = ranks.get(place, _NO_RANK)
            if value is None:
                value = key(row)
                tie = (-(process.memory_bytes or 0), _place(process), process.pid)
                ranks[place] = value, tie
            (unknown if value is None else known).append((value, tie, entry))
        unknown.sort(key=_tie_of)
        known.sort(key=_tie_of)
        known.sort(key=_value_of, reverse=order.descending)
        return [ranked[2] for ranked in known] + [ranked[2] for ranked in unknown]


_tie_of = operator.itemgetter(1)
_value_of = operator.itemgetter(0)


def _capacities(snapshot: Snapshot) -> Mapping[Any, int | None]:
    """Memory of GPUs by UUID, and of MIG instances by (UUID, GPU instance)."""
    found: dict[Any, int | None] = {}
    for gpu in snapshot.gpus:
        found[gpu.uuid] = gpu.memory_total_bytes
        for instance in gpu.mig:
            found[gpu.uuid, instance.gpu_instance_id] = instance.memory_total_bytes
    return found


def _capacity(capacities: Mapping[Any, int | None], part: GpuProcess) -> int | None:
    if part.gpu_instance_id is None:
        return capacities.get(part.gpu_uuid)
    return capacities.get((part.gpu_uuid, part.gpu_instance_id))


def _place(process: GpuProcess) -> tuple[int, int, int]:
    instance, compute = process.gpu_instance_id, process.compute_instance_id
    return process.gpu_index, -1 if instance is None else instance, -1 if compute is None else compute


def _parent(node: _Node, by_pid: Mapping[int, _Node]) -> int | None:
    """The parent's pid where it is listed too, and is not a later bearer of that pid."""
    facts = node.facts
    if facts is None or facts.parent_pid is None or facts.parent_pid == node.pid:
        return None
    parent = by_pid.get(facts.parent_pid)
    if parent is None:
        return None
    mine, its = facts.key.start_ticks, parent.facts.key.start_ticks if parent.facts is not None else None
    return None if mine is not None and its is not None and its > mine else facts.parent_pid


def _drawn_parts(node: _Node, below: str, last: bool) -> list[Row]:
    """The lines under a sum line; *last*: nothing else follows under it."""
    end = len(node.part_rows) - 1
    return [node.draw(row, True, below + ("└ " if last and n == end else "├ ")) for n, row in enumerate(node.part_rows)]


def _mark_all(nodes: list[_Node], children: Mapping[int, list[_Node]], seen: set[int]) -> int:
    """Mark *nodes* and all below them as seen; how many that are."""
    stack, count = list(nodes), 0
    while stack:
        pid = stack.pop().pid
        if pid not in seen:
            seen.add(pid)
            count += 1
            stack += children.get(pid, ())
    return count
