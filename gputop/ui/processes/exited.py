"""Processes that exited lately, as grey lines of the table."""

from __future__ import annotations

from typing import Final

from gputop import units
from gputop.history.journal import ExitedProcess, Journal
from gputop.model import Snapshot
from gputop.settings import Settings
from gputop.ui.processes.annotations import ProcessAnnotation
from gputop.ui.processes.listing.row import ProcessRow

MOST_LINES: Final = 64


class ExitedLines:
    """Makes new lines only where there is something new."""

    def __init__(self) -> None:
        self._key: tuple[list[ExitedProcess], str] = [], ""
        self._lines: tuple[ProcessRow, ...] = ()

    def of(self, journal: Journal, snapshot: Snapshot, settings: Settings) -> tuple[ProcessRow, ...]:
        """Those that exited in the minutes before *snapshot*. The same object while they are the same."""
        minutes = settings.exited_minutes
        found = journal.exited_since(snapshot.taken_at - 60 * minutes) if minutes else []
        if found:
            # The journal may have read a later snapshot than the screen shows: until that is shown too, one that
            # exited is still listed there, as one that is on a GPU again is.
            gpus = {gpu.uuid for gpu in snapshot.gpus}
            listed = {process.key for process in snapshot.processes}
            found = [
                one
                for one in found
                if one.process.gpu_uuid in gpus and (one.facts is None or one.facts.key not in listed)
            ][:MOST_LINES]
        if self._key != (found, settings.memory_unit):
            self._key = found, settings.memory_unit
            self._lines = tuple(exited_row(one, settings.memory_unit) for one in found)
        return self._lines


def exited_row(one: ExitedProcess, unit: str) -> ProcessRow:
    """The line of a process that exited: ``exited 14:02:31 after 3h12``, with its peak as its memory."""
    at = units.clock(one.exited_at)
    lived = "" if one.lived is None else f" after {units.duration(one.lived)}"
    peak = f", peak {units.size(one.process.memory_bytes, unit)}" if one.process.memory_bytes is not None else ""
    return ProcessRow(one.process, one.facts, annotation=ProcessAnnotation(exited=f"{at}{lived}{peak}"))
