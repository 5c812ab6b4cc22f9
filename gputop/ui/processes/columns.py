"""The columns of the process table: what each says, how wide it is and how it sorts.

Widths do not depend on values, so that a tick redraws digits and not lines (facts/drawing.md 3). What does not fit the
screen's width is left out by importance, and the table says which (:func:`lay_out`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gputop import settings, units
from gputop.model import HostFacts
from gputop.settings import Thresholds
from gputop.ui.processes.listing.row import ProcessRow, place_of
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


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``key`` gives what rows are sorted by, None where that is not known: such rows are always last."""

    id: str
    heading: str
    help: str
    width: int  # cells; of the command, the least it should have
    cell: Callable[[ProcessRow, CellContext], Cell]
    key: Callable[[ProcessRow], Any]
    right: bool = True
    descending: bool = True  # the natural direction: large numbers first, names and numbers of things ascending
    from_host: bool = False  # said by the host, which is asked about visible rows only unless more is wanted


_UNKNOWN: Final[Cell] = (units.UNKNOWN, "dim")
_BLANK: Final[Cell] = ("", "dim")


# ---------------------------------------------------------------------- the cells


def place(row: ProcessRow) -> str:
    """The GPU: ``3``, ``3:1:0`` (MIG: GPU instance, compute instance), ``×4`` for a sum over four."""
    process = row.process
    if row.parts:
        places = {(part.gpu_uuid, part.gpu_instance_id) for part in row.parts}
        if len(places) > 1:
            return f"×{len(places)}"
        process = row.parts[0]
    if process.gpu_instance_id is None:
        return str(process.gpu_index)
    compute = "" if process.compute_instance_id is None else f":{process.compute_instance_id}"
    return f"{process.gpu_index}:{process.gpu_instance_id}{compute}"


def _gpu(row: ProcessRow, _: CellContext) -> Cell:
    text = place(row)
    if row.dead:
        return f"†{text:>2}", "ghost"
    if row.gone:
        return text, "dim"
    return text, "text" if text.startswith("×") else gpu_role(row.process.gpu_index)


def _pid(row: ProcessRow, _: CellContext) -> Cell:
    if row.is_group:
        return _BLANK
    secondary = row.is_part or row.is_launcher or row.gone or row.process.exists is None
    role = "dim" if secondary else "ghost" if row.dead else "text"
    return str(row.process.pid), role


def _user(row: ProcessRow, moment: CellContext) -> Cell:
    facts = row.facts
    if row.is_part or row.is_launcher:
        return _BLANK
    if facts is None or facts.user is None:
        return (row.about.user, "ghost") if row.about.user else _UNKNOWN
    return facts.user, "text" if facts.uid == moment.uid else "dim"


def _kind(row: ProcessRow, _: CellContext) -> Cell:
    return row.process.kind, "dim"


def _memory(row: ProcessRow, moment: CellContext) -> Cell:
    bytes_ = row.process.memory_bytes
    if bytes_ is None:
        return _UNKNOWN
    if moment.mark is not None and not row.gone:
        return _change(row, moment.mark, moment.view)
    role = "ghost" if row.dead else "dim" if row.is_part or row.gone else "title"
    return _size(bytes_, 8, moment.view), role


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
    bytes_, capacity = row.process.memory_bytes, row.capacity_bytes
    return None if bytes_ is None or not capacity else bytes_ * 100 / capacity


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


def _host_memory(row: ProcessRow, moment: CellContext) -> Cell:
    facts = _live(row)
    if row.is_part or row.is_launcher:
        return _BLANK
    if facts is None or facts.host_memory_bytes is None:
        return _UNKNOWN
    return _size(facts.host_memory_bytes, 6, moment.view), "text"


def _size(bytes_: int, width: int, view: View) -> str:
    """In the user's unit, or in the largest one where that does not fit."""
    text = view.memory(bytes_)
    return text if len(text) <= width else units.size(bytes_)


def _threads(row: ProcessRow, _: CellContext) -> Cell:
    facts = _live(row)
    if row.is_part or row.is_launcher:
        return _BLANK
    return _UNKNOWN if facts is None or facts.threads is None else (str(facts.threads), "text")


def _state(row: ProcessRow, _: CellContext) -> Cell:
    facts = _live(row)
    if row.is_part or row.is_launcher:
        return _BLANK
    if facts is None or facts.state is None:
        return _UNKNOWN
    return facts.state, {"D": "warning", "Z": "warning", "T": "warning", "R": "text"}.get(facts.state, "dim")


def _age(row: ProcessRow, moment: CellContext) -> Cell:
    facts = row.facts
    if row.is_part or row.is_launcher:
        return _BLANK
    if facts is None or facts.start_time is None:
        return _UNKNOWN
    return _BLANK if row.gone else (units.duration(moment.at - facts.start_time), "dim")


def _where(row: ProcessRow, _: CellContext) -> Cell:
    if row.is_part or row.is_launcher:
        return _BLANK
    return (row.about.where, "ghost" if row.dead else "dim") if row.about.where else _UNKNOWN


def _command(row: ProcessRow, _: CellContext) -> Cell:
    """As plain text; the table draws it in more than one style (process_command.py)."""
    facts = row.facts
    return (facts.command or facts.name or units.UNKNOWN, "text") if facts is not None else _UNKNOWN


def _of_host(name: str) -> Callable[[ProcessRow], Any]:
    def key(row: ProcessRow) -> Any:
        facts = row.facts
        return None if facts is None or row.dead else getattr(facts, name)

    return key


def _text_of_host(name: str) -> Callable[[ProcessRow], Any]:
    def key(row: ProcessRow) -> Any:
        text = None if row.facts is None else getattr(row.facts, name)
        return None if text is None else text.casefold()

    return key


def _place_key(row: ProcessRow) -> Any:
    return place_of(row.process)


def _age_key(row: ProcessRow) -> Any:
    start = None if row.facts is None else row.facts.start_time
    return None if start is None else -start


def _engine(of: Callable[[ProcessRow], int | None]) -> Callable[[ProcessRow, CellContext], Cell]:
    return lambda row, moment: _load(of(row), moment.view.settings.threshold_utilization)


def _sm_of(row: ProcessRow) -> int | None:
    return row.process.sm_percent


def _bandwidth_of(row: ProcessRow) -> int | None:
    return row.process.memory_bandwidth_percent


def _encoder_of(row: ProcessRow) -> int | None:
    return row.process.encoder_percent


def _decoder_of(row: ProcessRow) -> int | None:
    return row.process.decoder_percent


# -------------------------------------------------------------------- the columns

_NAME: Final[dict[str, Any]] = {"right": False, "descending": False}
_HOST: Final[dict[str, Any]] = {"from_host": True}
_ALL: Final = (
    Column("gpu", "GPU", "GPU, or GPU:instance:compute instance; ×4: sum over 4; †: dead, the driver still lists it", 3,
           _gpu, _place_key, descending=False),
    Column("pid", "PID", "process id, as the driver gives it", 7,
           _pid, lambda row: row.process.pid, descending=False),
    Column("user", "USER", "owner of the process", 8,
           _user, _text_of_host("user"), **_NAME, **_HOST),
    Column("type", "TYPE", "C compute, G graphics, C+G both, M an MPS client", 4,
           _kind, lambda row: row.process.kind, **_NAME),
    Column("gpu_mem", "GPU-MEM", "GPU memory the process holds", 8,
           _memory, lambda row: row.process.memory_bytes),
    Column("gpu_mem_percent", "MEM%", "GPU memory the process holds, of the GPU's", 4,
           _memory_share, _memory_share_of),
    Column("sm", "SM%", "time in which its kernels ran; over several GPUs: the busiest one's", 3,
           _engine(_sm_of), _sm_of),
    Column("mem_bw", "BW%", "time in which GPU memory was read or written for it", 3,
           _engine(_bandwidth_of), _bandwidth_of),
    Column("enc", "ENC", "use of the video encoder, percent", 3,
           _engine(_encoder_of), _encoder_of),
    Column("dec", "DEC", "use of the video decoder, percent", 3,
           _engine(_decoder_of), _decoder_of),
    Column("cpu", "CPU%", "use of the CPU; 100 is one core", 4,
           _cpu, _of_host("cpu_percent"), **_HOST),
    Column("host_mem", "HOST", "resident memory on the host", 6,
           _host_memory, _of_host("host_memory_bytes"), **_HOST),
    Column("threads", "THR", "threads", 5,
           _threads, _of_host("threads"), **_HOST),
    Column("state", "S", "R runs, S sleeps, D waits in the kernel, T stopped, Z zombie", 1,
           _state, _of_host("state"), **_NAME, **_HOST),
    Column("age", "AGE", "time since the process started", 5,
           _age, _age_key),
    Column("where", "WHERE", "whose it is: container, Slurm job, unit, tmux, terminal", 14,
           _where, lambda row: row.about.where.casefold() or None, **_NAME),
    Column("command", "COMMAND", "command line; Left and Right scroll it", 20,
           _command, _text_of_host("command"), **_NAME, **_HOST),
)  # fmt: skip
COLUMNS: Final[Mapping[str, Column]] = {column.id: column for column in _ALL}
assert tuple(COLUMNS) == settings.COLUMNS

#: What goes first where the screen is too narrow; the other columns stay.
_DISPENSABLE: Final = (
    "threads", "type", "dec", "enc", "state", "mem_bw", "gpu_mem_percent", "where", "host_mem", "age", "user", "cpu",
    "sm",
)  # fmt: skip
_WIDE: Final = 100  # cells from which on names get more room
_USER_WIDE: Final = 12


class PlacedColumn(NamedTuple):
    """A column and the cells it takes: *width* from *x* on, and one of a gap after them, which the sort arrow uses."""

    column: Column
    x: int
    width: int


class TableLayout(NamedTuple):
    """Where the columns are, left to right, after one cell for the tag; and those there is no room for."""

    placed: tuple[PlacedColumn, ...]
    left_out: tuple[Column, ...]
    cells: int

    def at(self, x: int) -> Column | None:
        """The column drawn at cell *x*."""
        return next((column for column, at, width in reversed(self.placed) if x >= at), None)

    @property
    def command_cells(self) -> int:
        return next((width for column, _, width in self.placed if column.id == "command"), 0)


def lay_out(names: Iterable[str], cells: int, sort: str, pid_digits: int = 0, place_cells: int = 0) -> TableLayout:
    """Place the columns *names* in *cells* cells; the sorted one stays in sight, the command takes what the others
    leave. *pid_digits* and *place_cells*: the most seen so far."""
    columns = [COLUMNS[name] for name in names]
    widths = {column.id: column.width for column in columns}
    if "pid" in widths:
        widths["pid"] = max(widths["pid"], pid_digits)
    if "gpu" in widths:
        widths["gpu"] = max(widths["gpu"], place_cells)
    if "user" in widths and cells >= _WIDE:
        widths["user"] = _USER_WIDE
    left_out = []
    for name in _DISPENSABLE:
        if 1 + sum(widths.values()) + len(widths) - 1 <= cells:
            break
        if name in widths and name != sort and len(widths) > 1:
            del widths[name]
            left_out.append(COLUMNS[name])
    columns = [column for column in columns if column.id in widths]
    if "command" in widths:
        taken = 1 + sum(widths.values()) + len(widths) - 1
        widths["command"] = max(1, widths["command"] + cells - taken)
    placed = []
    x = 1
    for column in columns:
        placed.append(PlacedColumn(column, x, widths[column.id]))
        x += widths[column.id] + 1
    return TableLayout(tuple(placed), tuple(left_out), cells)
