"""The columns of the table of ops, as the viewer and the printed page have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gputop.torch_files.trace.events import DEVICE
from gputop.torch_files.trace.op_table import OpRow
from gputop.torch_files.trace.profiler_trace import ProfilerTrace
from gputop.units.fine import duration, percent, size


class OpColumn(NamedTuple):
    """A column of figures: a field of a row, or a share or average of one."""

    field: str
    title: str
    width: int = 9
    sortable: bool = True


_LEAST_NAME_CELLS: Final = 24
CALLS: Final = OpColumn("calls", "CALLS", 8)
_TIMES: Final = (
    OpColumn("self_cpu_time", "SELF CPU"),
    OpColumn("self_cpu_share", "%", 7, False),
    OpColumn("cpu_time", "CPU"),
    OpColumn("cpu_share", "%", 7, False),
    OpColumn("cpu_time_per_call", "PER CALL", 9, False),
)
_DEVICE_TIMES: Final = (
    OpColumn("self_device_time", "SELF DEV"),
    OpColumn("self_device_share", "%", 7, False),
    OpColumn("device_time", "DEVICE"),
    OpColumn("device_time_per_call", "PER CALL", 9, False),
)
_DEVICE: Final = (
    OpColumn("self_device_memory", "SELF MEM"),
    OpColumn("device_memory", "MEM"),
    OpColumn("self_thread_memory", "THREAD"),
)
_HOST: Final = (OpColumn("self_cpu_memory", "SELF HOST", 10), OpColumn("cpu_memory", "HOST"))


def columns_of(trace: ProfilerTrace) -> tuple[OpColumn, ...]:
    """Those that *trace* has figures for, the first ones the last to give way: memory only where it was recorded."""
    times = (*(_DEVICE_TIMES if trace.has_kernels else ()), *_TIMES)
    memory, less = (_DEVICE, _HOST) if trace.has_device_memory else ((*_HOST, _DEVICE[2]), ())
    everything = (*memory, *times, *less) if trace.curves else times
    return (everything[0], CALLS, *everything[1:])


def shown_columns(columns: Sequence[OpColumn], sorted_by: str, cells: int) -> list[OpColumn]:
    """As many as leave room for the names, the one that is sorted by among them."""
    room = cells - max(_LEAST_NAME_CELLS, cells * 2 // 5)
    kept = {column for column in columns if column.field == sorted_by}
    room -= sum(column.width + 1 for column in kept)
    for column in columns:
        if column not in kept:
            room -= column.width + 1
            if room < 0:
                break
            kept.add(column)
    return [column for column in columns if column in kept]


class OpTotals(NamedTuple):
    """What shares are of: µs of all rows of a table, as torch sums them."""

    self_cpu_time: float
    self_device_time: float

    @classmethod
    def of(cls, rows: Iterable[OpRow]) -> OpTotals:
        rows = list(rows)
        return cls(
            sum(row.self_cpu_time for row in rows), sum(row.self_device_time for row in rows if row.kind == DEVICE)
        )


def figure(row: OpRow, field: str, totals: OpTotals) -> str:
    """What stands in a column."""
    match field:
        case "calls":
            return f"{row.calls:,}"
        case "self_cpu_share":
            return percent(row.self_cpu_time, totals.self_cpu_time)
        case "cpu_share":
            return percent(row.cpu_time, totals.self_cpu_time)
        case "self_device_share":
            return percent(row.self_device_time, totals.self_device_time)
        case "cpu_time_per_call":
            return duration(row.cpu_time / max(1, row.calls))
        case "device_time_per_call":
            return duration(row.device_time / max(1, row.calls))
    value = getattr(row, field)
    return duration(value) if field.endswith("_time") else size(value)
