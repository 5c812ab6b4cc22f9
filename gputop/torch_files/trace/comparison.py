"""Two traces beside each other: which op takes more, and by how much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gputop.model import clean_text
from gputop.text import fit, shorten
from gputop.torch_files.trace.op_columns import CALLS, OpColumn, columns_of
from gputop.torch_files.trace.op_table import OpRow
from gputop.torch_files.trace.profiler_trace import ProfilerTrace
from gputop.units.fine import duration, signed, size

_NAME_CELLS: Final = 24  # at least
_CELLS: Final = 11  # of a figure


class RowChange(NamedTuple):
    """One op (by name, kind, shape and stack) in both; None: it is not in that one."""

    before: OpRow | None
    after: OpRow | None

    @property
    def row(self) -> OpRow:
        """The one that there is, for its name."""
        found = self.after or self.before
        assert found is not None
        return found

    def change(self, field: str) -> float:
        return _value(self.after, field) - _value(self.before, field)


class PeakChange(NamedTuple):
    """The most allocated on a device of this name, bytes; None: not in that trace."""

    device: str
    before: int | None
    after: int | None


def compare(before: Iterable[OpRow], after: Iterable[OpRow], column: str) -> list[RowChange]:
    """The largest change of *column* first (by name, where that is it)."""
    sides = [{(row.name, row.kind, row.shape, row.stack): row for row in rows} for rows in (before, after)]
    found = [RowChange(sides[0].get(key), sides[1].get(key)) for key in dict.fromkeys((*sides[0], *sides[1]))]
    if column == "name":
        return sorted(found, key=lambda one: one.row.name)
    return sorted(found, key=lambda one: -abs(one.change(column)))


def peaks(before: ProfilerTrace, after: ProfilerTrace) -> list[PeakChange]:
    sides = [{curve.device: curve.peak.allocated for curve in trace.curves} for trace in (before, after)]
    return [PeakChange(name, sides[0].get(name), sides[1].get(name)) for name in dict.fromkeys((*sides[0], *sides[1]))]


def comparison_page(
    before: ProfilerTrace, after: ProfilerTrace, changes: Sequence[RowChange], count: int, column: str, width: int
) -> str:
    """*changes* of *count* are listed."""
    names = [clean_text(trace.path.name, 200) + (f" ({trace.rank})" if trace.rank else "") for trace in (after, before)]
    lines = [shorten(f"{names[0]} compared with {names[1]}", width)]
    lines += [f"note: {clean_text(t.path.name, 200)}: {note}" for t in (before, after) for note in t.events.notes]
    for peak in peaks(before, after):
        change = "" if peak.before is None or peak.after is None else f" ({signed(peak.after - peak.before)})"
        lines.append(f"{peak.device}: peak {size(peak.before)}, then {size(peak.after)}{change}")
    field = "self_cpu_time" if column == "name" else column
    lines += ["", f"by change of {field.replace('_', ' ')}, {len(changes):,} of {count:,} rows"]
    others = _others((before, after), field, width)
    room = width - (_CELLS + 1) * (3 + len(others))
    heads = [
        title.rjust(_CELLS) for title in ("before", "after", "change", *(f"+/- {one.title.lower()}" for one in others))
    ]
    lines.append(" ".join((fit("op", room), *heads)))
    for one in changes:
        name = clean_text(one.row.name, 300)
        name += f" {clean_text(one.row.shape, 300)}" if one.row.shape else ""
        figures = [_figure(one.before, field), _figure(one.after, field), _signed(one.change(field), field)]
        figures += [_signed(one.change(other.field), other.field) for other in others]
        lines.append(" ".join((fit(name, room), *(text.rjust(_CELLS) for text in figures))))
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _others(traces: tuple[ProfilerTrace, ProfilerTrace], field: str, width: int) -> list[OpColumn]:
    """The columns of changes that there is room for."""
    columns = dict.fromkeys((CALLS, *(one for trace in traces for one in columns_of(trace) if one.sortable)))
    room = (width - _NAME_CELLS) // (_CELLS + 1) - 3
    return [one for one in columns if one.field != field][: max(0, room)]


def _value(row: OpRow | None, field: str) -> float:
    value: float = 0 if row is None else getattr(row, field)
    return value


def _figure(row: OpRow | None, field: str) -> str:
    if row is None:
        return "—"
    value = getattr(row, field)
    return f"{value:,}" if field == "calls" else duration(value) if field.endswith("_time") else size(value)


def _signed(value: float, field: str) -> str:
    if field == "calls":
        return f"{value:+,.0f}" if value else "0"
    if field.endswith("_time"):
        return f"{'-' if value < 0 else '+'}{duration(abs(value))}" if value else duration(0)
    return signed(int(value))
