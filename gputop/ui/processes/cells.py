"""What the cells of the process table say and how they look, and what rows are sorted by, column by column.

A column without an entry in :data:`CELLS` or :data:`SORT_KEYS` shows its fact as it is and sorts by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from gputop import units
from gputop.model import HostFacts
from gputop.model.columns import COLUMNS, Column
from gputop.settings import Thresholds
from gputop.ui.processes.listing.row import ProcessRow, device_order
from gputop.ui.processes.mark import Mark
from gputop.ui.toolkit.palette import gpu_role
from gputop.ui.toolkit.view import View

Cell = tuple[str, str]
"""Text and its role."""


class CellContext(NamedTuple):
    """What the cells of all rows are made with."""

    view: View
    at: float  # when the snapshot was taken
    uid: int = -1  # whose gputop it is
    mark: Mark | None = None  # memory is told as the change since then


_UNKNOWN: Final[Cell] = (units.UNKNOWN, "dim")
_BLANK: Final[Cell] = ("", "dim")


# ---------------------------------------------------------------------- the cells


def gpu_label(row: ProcessRow) -> str:
    """The GPU: ``3``, ``3:1:0`` (MIG: GPU instance, compute instance), ``×4`` for a sum over four."""
    process = row.process
    if row.parts:
        places = {(part.gpu_uuid, part.gpu_instance_id) for part in row.parts}
        if len(places) > 1:
            return f"×{len(places)}"
        process = row.parts[0]
    return process.gpu_label


def _gpu(row: ProcessRow, _: CellContext) -> Cell:
    text = gpu_label(row)
    if row.dead:
        return f"†{text:>2}", "dead"
    if row.gone:
        return text, "dim"
    return text, "text" if text.startswith("×") else gpu_role(row.process.gpu_index)


def _pid(row: ProcessRow, _: CellContext) -> Cell:
    if row.is_group:
        return _BLANK
    secondary = row.is_part or row.is_launcher or row.gone or row.process.exists is None
    role = "dim" if secondary else "dead" if row.dead else "text"
    return str(row.process.pid), role


def _user(row: ProcessRow, context: CellContext) -> Cell:
    facts = row.facts
    if row.is_part or row.is_launcher:
        return _BLANK
    if facts is None or facts.user is None:
        return (row.annotation.user, "dead") if row.annotation.user else _UNKNOWN
    return facts.user, "text" if facts.uid == context.uid else "dim"


def _memory(row: ProcessRow, context: CellContext) -> Cell:
    bytes_ = row.process.memory_bytes
    if bytes_ is None:
        return _UNKNOWN
    if context.mark is not None and not row.gone:
        return _change(row, context.mark, context.view)
    role = "dead" if row.dead else "dim" if row.is_part or row.gone else "title"
    return _size(bytes_, 8, context.view), role


def _change(row: ProcessRow, mark: Mark, view: View) -> Cell:
    change = mark.change(row)
    if change is None:
        return _UNKNOWN
    role = "dim" if not change.bytes else "warning" if change.bytes > 0 else "good"
    return change.text(view.settings.memory_unit), role


def _memory_share(row: ProcessRow, _: CellContext) -> Cell:
    share = _memory_share_of(row)
    return _UNKNOWN if share is None else (f"{share:.0f}", "dim" if row.is_part else "text")


def _memory_share_of(row: ProcessRow) -> float | None:
    return units.percent_of(row.process.memory_bytes, row.capacity_bytes)


def _load(value: float | None, thresholds: Thresholds | None = None) -> Cell:
    if value is None:
        return _UNKNOWN
    if thresholds is not None and value >= thresholds.warning:
        return f"{value:.0f}", "critical" if value >= thresholds.critical else "warning"
    return f"{value:.0f}", "dim" if value < 0.5 else "text"


def _live(row: ProcessRow) -> HostFacts | None:
    """What the host says now; of a dead process nothing is left but its name."""
    return None if row.dead or row.gone else row.facts


def _cpu(row: ProcessRow, _: CellContext) -> Cell:
    facts = _live(row)
    if row.is_part or row.is_launcher:
        return _BLANK
    if facts is None or facts.cpu_percent is None:
        return _UNKNOWN
    value = facts.cpu_percent
    return _load(value) if value < 9999.5 else (f"{value / 1000:.0f}k", "text")


def _host_memory(row: ProcessRow, context: CellContext) -> Cell:
    facts = _live(row)
    if row.is_part or row.is_launcher:
        return _BLANK
    if facts is None or facts.host_memory_bytes is None:
        return _UNKNOWN
    return _size(facts.host_memory_bytes, 6, context.view), "text"


def _size(bytes_: int, width: int, view: View) -> str:
    """In the user's unit, or in the largest one where that does not fit."""
    text = view.memory(bytes_)
    return text if len(text) <= width else units.size(bytes_)


def _state(row: ProcessRow, _: CellContext) -> Cell:
    facts = _live(row)
    if row.is_part or row.is_launcher:
        return _BLANK
    if facts is None or facts.state is None:
        return _UNKNOWN
    return facts.state, {"D": "warning", "Z": "warning", "T": "warning", "R": "text"}.get(facts.state, "dim")


def _age(row: ProcessRow, context: CellContext) -> Cell:
    facts = row.facts
    if row.is_part or row.is_launcher:
        return _BLANK
    if facts is None or facts.start_time is None:
        return _UNKNOWN
    return _BLANK if row.gone else (units.duration(context.at - facts.start_time), "dim")


def _where(row: ProcessRow, _: CellContext) -> Cell:
    if row.is_part or row.is_launcher:
        return _BLANK
    return (row.annotation.where, "dead" if row.dead else "dim") if row.annotation.where else _UNKNOWN


def _command(row: ProcessRow, _: CellContext) -> Cell:
    """As plain text; the table draws it in more than one style (command.py)."""
    facts = row.facts
    return (facts.command or facts.name or units.UNKNOWN, "text") if facts is not None else _UNKNOWN


def _engine(column: Column) -> CellMaker:
    of = column.of_process
    assert of is not None
    return lambda row, context: _load(of(row.process), context.view.settings.threshold_utilization)


def _plain(column: Column) -> CellMaker:
    """The fact as it is."""
    of_process, of_host = column.of_process, column.of_host

    def cell(row: ProcessRow, _: CellContext) -> Cell:
        if of_process is not None:
            value, role = of_process(row.process), "dim"
        elif row.is_part or row.is_launcher:
            return _BLANK
        else:
            facts, role = _live(row), "text"
            value = None if facts is None or of_host is None else of_host(facts)
        return _UNKNOWN if value is None else (str(value), role)

    return cell


CellMaker = Callable[[ProcessRow, CellContext], Cell]
_SPECIAL_CELLS: Final[dict[str, CellMaker]] = {
    "gpu": _gpu,
    "pid": _pid,
    "user": _user,
    "gpu_mem": _memory,
    "gpu_mem_percent": _memory_share,
    **{id_: _engine(COLUMNS[id_]) for id_ in ("sm", "mem_bw", "enc", "dec")},
    "cpu": _cpu,
    "host_mem": _host_memory,
    "state": _state,
    "age": _age,
    "where": _where,
    "command": _command,
}
CELLS: Final[Mapping[str, CellMaker]] = {
    id_: _SPECIAL_CELLS.get(id_) or _plain(column) for id_, column in COLUMNS.items()
}


# ------------------------------------------------------------------ the sort keys


def _text_key(column: Column) -> SortKey:
    """Names, in any case; of a dead process the last known ones."""
    of_host = column.of_host
    assert of_host is not None

    def key(row: ProcessRow) -> Any:
        text = None if row.facts is None else of_host(row.facts)
        return None if text is None else text.casefold()

    return key


def _age_key(row: ProcessRow) -> Any:
    start = None if row.facts is None else row.facts.start_time
    return None if start is None else -start


def _fact_key(column: Column) -> SortKey:
    of_process, of_host = column.of_process, column.of_host
    if of_process is not None:
        return lambda row: of_process(row.process)
    assert of_host is not None
    return lambda row: None if row.facts is None or row.dead else of_host(row.facts)


SortKey = Callable[[ProcessRow], Any]
_SPECIAL_SORT_KEYS: Final[dict[str, SortKey]] = {
    "gpu": lambda row: device_order(row.process),
    "user": _text_key(COLUMNS["user"]),
    "gpu_mem_percent": _memory_share_of,
    "age": _age_key,
    "where": lambda row: row.annotation.where.casefold() or None,
    "command": _text_key(COLUMNS["command"]),
}
#: What rows are sorted by; None where that is not known: such rows are always last.
SORT_KEYS: Final[Mapping[str, SortKey]] = {
    id_: _SPECIAL_SORT_KEYS.get(id_) or _fact_key(column) for id_, column in COLUMNS.items()
}
