"""Tagged processes, and what a signal would be sent to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gputop.model import ProcessKey, sum_or_none
from gputop.signals.protocol import Target
from gputop.ui.kill.targets import ChosenTargets
from gputop.ui.processes.listing.row import ProcessRow
from gputop.ui.processes.listing.rows import TableRows


class Tags:
    """Tags stick to (pid, start time). One that was set before the start time was known takes it when it is. That of a
    dead pid, which F9 takes for those who keep its memory, ends when the pid is not listed any more, or lives again."""

    def __init__(self) -> None:
        self._start_ticks: dict[int, int | None] = {}
        self._dead: set[int] = set()  # of these: dead pids of which the host never said when they started

    def __bool__(self) -> bool:
        return bool(self._start_ticks)

    def __iter__(self) -> Iterator[ProcessKey]:
        return (ProcessKey(pid, ticks) for pid, ticks in self._start_ticks.items())

    def holds(self, row: ProcessRow) -> bool:
        pid = row.process.pid
        if pid not in self._start_ticks:
            return False
        mine = self._start_ticks[pid]
        return mine is None or row.facts is None or row.facts.key.start_ticks == mine

    def toggle(self, row: ProcessRow) -> None:
        """Tag or untag the process of *row*."""
        pid = row.process.pid
        self._dead.discard(pid)
        if self.holds(row):
            del self._start_ticks[pid]
        else:
            self._start_ticks[pid] = row.process_key.start_ticks
            if row.dead and row.facts is None:
                self._dead.add(pid)

    def toggle_all(self, rows: Iterable[ProcessRow]) -> None:
        """Tag those of *rows* that are not, or untag them all where all are."""
        rows = tuple(rows)
        missing = [row for row in rows if not self.holds(row)]
        for row in missing or rows:
            self.toggle(row)

    def clear(self) -> None:
        self._start_ticks.clear()
        self._dead.clear()

    def update(self, listing: TableRows) -> None:
        """Drop the tags of processes whose pid is another's by now, or may be; take start times that were read."""
        alive = {process.pid for process in listing.processes if process.exists is not False}
        still_dead = {process.pid for process in listing.processes if process.exists is False}
        for pid, mine in list(self._start_ticks.items()):
            facts = listing.known.get(pid)
            if pid in self._dead:
                if pid not in still_dead or pid in alive:
                    del self._start_ticks[pid]
                    self._dead.discard(pid)
            elif mine is None and pid not in alive:
                del self._start_ticks[pid]
            elif facts is not None and mine is None:
                self._start_ticks[pid] = facts.key.start_ticks
            elif facts is not None and mine != facts.key.start_ticks:
                del self._start_ticks[pid]

    def listed(self, listing: TableRows) -> list[int]:
        """Pids that are tagged and that the driver lists, whether or not a filter hides them."""
        return [pid for pid in self._start_ticks if pid in listing.known] if self._start_ticks else []


def targets(listing: TableRows, tags: Tags, cursor: ProcessRow | None) -> ChosenTargets:
    """The tagged processes, else the one at the cursor. Where a filter hides all that are tagged, none: the one at the
    cursor is not what was asked for."""
    tagged = tags.listed(listing)
    if not tagged and cursor is not None and cursor.gone:
        gone = Target(cursor.process_key)
        return ChosenTargets(refused=((gone, f"exited {cursor.annotation.exited}: there is nothing left to signal"),))
    if not tagged and cursor is not None and cursor.is_group:
        group = Target(ProcessKey(len(cursor.pids), None))
        return ChosenTargets(refused=((group, f"processes in {cursor.annotation.group}: Space tags them"),))
    if not tagged and cursor is not None and cursor.is_launcher:
        launcher = Target(ProcessKey(cursor.process.pid, None))
        return ChosenTargets(refused=((launcher, "uses no GPU itself: Space tags the processes under it"),))
    if not tagged:
        pids, hidden = ([] if cursor is None else [cursor.process.pid]), []
    else:
        place = {row.process.pid: n for n, row in enumerate(listing.rows)}
        pids = sorted((pid for pid in tagged if pid in listing.shown), key=lambda pid: place.get(pid, len(place)))
        hidden = [pid for pid in tagged if pid not in listing.shown]
    chosen: list[Target] = []
    refused: list[tuple[Target, str]] = []
    for pid in pids:
        target, why_not = _target(listing, pid)
        if why_not:
            refused.append((target, why_not))
        else:
            chosen.append(target)
    return ChosenTargets(tuple(chosen), tuple(_target(listing, pid)[0] for pid in hidden), tuple(refused))


def _target(listing: TableRows, pid: int) -> tuple[Target, str]:
    """The target *pid* is, over all its GPUs; and why it can be none, if so."""
    facts = listing.known.get(pid)
    parts = listing.of_pid(pid)
    target = Target(
        key=facts.key if facts is not None else ProcessKey(pid, None),
        user=facts.user if facts is not None else None,
        command=(facts.command or facts.name) if facts is not None else None,
        memory_bytes=sum_or_none(part.memory_bytes for part in parts),
        gpu_uuids=tuple(dict.fromkeys(part.gpu_uuid for part in parts)),
    )
    exists = parts[0].exists if parts else False
    if exists is False:
        return target, "dead: there is nothing left to signal; other processes keep its memory"
    if exists is None:
        return target, "in another PID namespace: it cannot be signalled from here"
    return target, ""
