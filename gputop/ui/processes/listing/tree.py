"""Rows as a tree of parents and children."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gputop.model import replace, sum_or_none
from gputop.ui.processes.listing.entry import ProcessEntry
from gputop.ui.processes.listing.row import LAUNCHER, ProcessRow, aggregate

_BRANCH_MAX_CELLS: Final = 24  # cells


class Tree:
    """Puts listed processes under their listed parents; processes that share a parent that is on no GPU, such as the
    ranks of one torchrun, under a line for that parent."""

    def __init__(self) -> None:
        self._launchers: dict[int, ProcessRow] = {}  # by pid, of the last snapshot

    def rows(self, ordered: Sequence[ProcessEntry], folded: Collection[int]) -> list[ProcessRow]:
        """The rows of *ordered*, siblings in that order. What hangs under *folded* pids is left out."""
        by_pid = {entry.pid: entry for entry in ordered}
        children: dict[int, list[ProcessEntry]] = {}
        launched: dict[int, list[ProcessEntry]] = {}
        roots: list[ProcessEntry] = []
        for entry in ordered:
            parent = _parent(entry, by_pid)
            if parent is not None:
                children.setdefault(parent, []).append(entry)
                continue
            roots.append(entry)
            if entry.facts is not None and (entry.facts.parent_pid or 0) > 1 and entry.facts.parent_pid not in by_pid:
                launched.setdefault(entry.facts.parent_pid or 0, []).append(entry)
        walk = _Walk(children, folded)
        launchers: dict[int, ProcessRow] = {}
        for root in roots:
            pid = root.facts.parent_pid if root.facts is not None else None
            together = launched.get(pid, ()) if pid is not None else ()
            if pid is None or len(together) < 2:
                walk.down(root)
            elif pid not in launchers:
                launchers[pid] = self._launcher(pid, together)
                walk.launcher(launchers[pid], together)
        if len(walk.seen) < len(ordered):  # facts read at different times made a ring of parents: no root leads there
            for entry in ordered:
                walk.down(entry)
        self._launchers = launchers
        return walk.rows

    def _launcher(self, pid: int, entries: Sequence[ProcessEntry]) -> ProcessRow:
        """The line of a parent on no GPU; the same object as the last time where its children are the same."""
        parts = tuple(part for entry in entries for part in entry.parts)
        old = self._launchers.get(pid)
        if old is not None and len(old.parts) == len(parts) and all(map(operator.is_, old.parts, parts)):
            return old
        process = replace(aggregate(parts), pid=pid, kind=LAUNCHER, exists=True, host=None)
        return ProcessRow(
            process, None, sum_or_none(entry.row.capacity_bytes for entry in entries), parts, folded=False
        )


class _Walk:
    """Down the tree, once."""

    def __init__(self, children: Mapping[int, list[ProcessEntry]], folded: Collection[int]) -> None:
        self.children = children
        self.folded = folded
        self.seen: set[int] = set()
        self.rows: list[ProcessRow] = []

    def launcher(self, row: ProcessRow, entries: Sequence[ProcessEntry]) -> None:
        """Append the line of *entries*' parent, and them under it."""
        if row.process.pid in self.folded:
            self.rows.append(row._replace(folded=True, hidden=self._fold(entries)))
            return
        self.rows.append(row)
        for n, entry in enumerate(entries, 1):
            self.down(entry, *(("└ ", "  ") if n == len(entries) else ("├ ", "│ ")))

    def down(self, root: ProcessEntry, branch: str = "", below: str = "") -> None:
        """Append the rows of *root* and all below it that were not seen yet."""
        seen, rows = self.seen, self.rows
        stack = [(root, branch, below)]
        while stack:
            entry, branch, below = stack.pop()
            pid = entry.pid
            if pid in seen:
                continue
            seen.add(pid)
            mine = self.children.get(pid)
            if mine is None and not entry.part_rows:
                rows.append(entry.shown_as(entry.row, False, branch))
                continue
            mine = [child for child in mine or () if child.pid not in seen]
            if not mine and not entry.part_rows:
                rows.append(entry.shown_as(entry.row, False, branch))
                continue
            folded = pid in self.folded
            hidden = self._fold(mine) if folded else 0
            rows.append(entry.shown_as(entry.row, False, branch, folded, hidden))
            if folded:
                continue
            rows += part_lines(entry, below, last=not mine)
            below = below[-_BRANCH_MAX_CELLS:]
            for n, child in enumerate(reversed(mine)):
                stack.append((child, below + ("└ " if n == 0 else "├ "), below + ("  " if n == 0 else "│ ")))

    def _fold(self, entries: Sequence[ProcessEntry]) -> int:
        """Mark *entries* and all below them as seen; how many that are."""
        stack, count = list(entries), 0
        while stack:
            pid = stack.pop().pid
            if pid not in self.seen:
                self.seen.add(pid)
                count += 1
                stack += self.children.get(pid, ())
        return count


def part_lines(entry: ProcessEntry, below: str = "", last: bool = True) -> list[ProcessRow]:
    """The lines under a sum line, if it is one; *last*: nothing else follows under it."""
    end = len(entry.part_rows) - 1
    return [
        entry.shown_as(row, True, below + ("└ " if last and n == end else "├ "))
        for n, row in enumerate(entry.part_rows)
    ]


def _parent(entry: ProcessEntry, by_pid: Mapping[int, ProcessEntry]) -> int | None:
    """The parent's pid where it is listed too, and is not a later bearer of that pid."""
    facts = entry.facts
    if facts is None or facts.parent_pid is None or facts.parent_pid == entry.pid:
        return None
    parent = by_pid.get(facts.parent_pid)
    if parent is None:
        return None
    mine, its = facts.key.start_ticks, parent.facts.key.start_ticks if parent.facts is not None else None
    return None if mine is not None and its is not None and its > mine else facts.parent_pid
