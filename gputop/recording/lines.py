"""Snapshots as lines of JSON: whole ones now and then, what changed in between, and exactly the same ones back.

GPUs and processes are tables with a column a field, so that a line names a field once, not once a row. A line is
``{"taken_at": …}`` with what differs from the line before; one with ``"whole": true`` differs from nothing. Of a table
it has ``splice`` (rows taken out and put in, where they are others now) and the columns that changed: a list of all
rows' values, or ``{"rows": […], "values": […]}``. A new row's cells are the defaults of :mod:`gputop.model`.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

from gputop.model import Gpu, GpuFacts, GpuProcess, HostFacts, Snapshot
from gputop.model.json_key import json_key

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode

_NO_VALUES: Final = ("taken_at", "steady", "gpus", "processes")
#: Fields of a snapshot that are no tables; its time is in every line.
_VALUES: Final = tuple(field.name for field in dataclasses.fields(Snapshot) if field.name not in _NO_VALUES)


class BadLine(ValueError):
    """A line is none of a recording's, or does not follow the one before it."""


# --------------------------------------------------------------------------- cells


def _plain(value: Any) -> Any:
    """*value* as JSON has it. Of a dataclass only what is not the default."""
    if value is None or isinstance(value, str | float):
        return value
    if isinstance(value, int):
        return int(value) if isinstance(value, enum.Enum) else value
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return {
        json_key(field): _plain(cell)
        for field in dataclasses.fields(value)
        if field.compare and ((cell := getattr(value, field.name)) is None or cell != _default(field))
    }


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


Reader = Callable[[Any], Any]


def _as_it_is(value: Any) -> Any:
    return value


def _reader(hint: Any) -> Reader:
    """What makes a value of type *hint* of its JSON. Raises TypeError for a type no recording can hold (yet)."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (inner,) = (_reader(part) for part in typing.get_args(hint) if part is not type(None))
        return _or_none(inner)
    if typing.get_origin(hint) is tuple:
        parts = typing.get_args(hint)
        if parts[-1] is Ellipsis:
            entry = _reader(parts[0])
            return tuple if entry is _as_it_is else lambda value: tuple([entry(one) for one in value])
        readers = [_reader(part) for part in parts]
        return lambda value: tuple([read(one) for read, one in zip(readers, value, strict=True)])
    if hint in (int, float, str, bool):
        return _as_it_is
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint
    if isinstance(hint, type) and issubclass(hint, tuple):  # a NamedTuple
        return lambda value: hint(*value)
    if dataclasses.is_dataclass(hint):
        return _dataclass_reader(hint)
    raise TypeError(f"{hint} cannot be recorded")


def _or_none(read: Reader) -> Reader:
    return _as_it_is if read is _as_it_is else lambda value: None if value is None else read(value)


def _dataclass_reader(class_: Any) -> Reader:
    hints = typing.get_type_hints(class_)
    readers = {json_key(field): (field.name, _reader(hints[field.name])) for field in dataclasses.fields(class_)}

    def read(value: dict[str, Any]) -> Any:
        # A field this gputop does not know was added by a later one: it can be left out.
        known = [(*readers[key], cell) for key, cell in value.items() if key in readers]
        return class_(**{name: read_cell(cell) for name, read_cell, cell in known})

    return read


# -------------------------------------------------------------------------- tables


class _Layout:
    """The columns of a table: the fields of *class_*, but those in *without*."""

    def __init__(self, class_: Any, without: frozenset[str] = frozenset()) -> None:
        hints = typing.get_type_hints(class_)
        fields = [field for field in dataclasses.fields(class_) if field.name not in without]
        self.class_ = class_
        self.names = tuple(field.name for field in fields)
        self.defaults = tuple(_default(field) for field in fields)
        # None in every column: of a row that has nothing at its side, cells that are never None otherwise are too.
        self.readers = {field.name: _or_none(_reader(hints[field.name])) for field in fields}
        self.get: Callable[[Any], tuple[Any, ...]] = attrgetter(*self.names)


_GPUS: Final = _Layout(Gpu, frozenset({"facts", "steady"}))
_FACTS: Final = _Layout(GpuFacts)
_PROCESSES: Final = _Layout(GpuProcess, frozenset({"host"}))
_HOSTS: Final = _Layout(HostFacts)  # the host's side of the process in the same row; key null: there is none

_gpu_identity: Final[Callable[[Any], Any]] = attrgetter("uuid")
_process_identity: Final[Callable[[Any], Any]] = attrgetter("pid", "gpu_uuid", "gpu_instance_id", "compute_instance_id")


_Changed = list[tuple[int, Any, Any]]  # row, object before (None: a row of defaults), object now


def _splice(before: list[Any], after: list[Any]) -> tuple[int, int, int]:
    """(first row, rows taken out, rows put in) that makes the identities *before* those *after*."""
    least = min(len(before), len(after))
    head = next((n for n in range(least) if before[n] != after[n]), least)
    tail = next((n for n in range(least - head) if before[-1 - n] != after[-1 - n]), least - head)
    return head, len(before) - head - tail, len(after) - head - tail


def _changes(layout: _Layout, changed: _Changed, count: int) -> dict[str, Any]:
    """The columns in which *changed* rows, of *count* in all, differ."""
    if not changed:
        return {}
    defaults, get = layout.defaults, layout.get
    # Transposed, so that columns in which nothing changed (most of them) are passed over by one comparison each.
    was = zip(*[defaults if before is None else get(before) for _, before, _ in changed], strict=True)
    now = zip(*[defaults if after is None else get(after) for _, _, after in changed], strict=True)
    columns: dict[str, Any] = {}
    for name, befores, afters in zip(layout.names, was, now, strict=True):
        if befores != afters:
            places = [n for n, (a, b) in enumerate(zip(befores, afters, strict=True)) if a is not b and a != b]
            values = [_plain(afters[n]) for n in places]
            whole = len(values) == count
            columns[name] = values if whole else {"rows": [changed[n][0] for n in places], "values": values}
    return columns


class LineWriter:
    """Makes lines of snapshots. One that follows another must be read after it."""

    def __init__(self) -> None:
        self._before: Snapshot | None = None

    def line(self, snapshot: Snapshot, whole: bool = False) -> bytes:
        """The line of *snapshot* in ASCII, with its line feed; *whole*: one that needs none before it."""
        before = None if whole else self._before
        self._before = snapshot
        content: dict[str, Any] = {"taken_at": snapshot.taken_at}
        if before is None:
            content["whole"] = True
            before = _NOTHING
        for name in _VALUES:
            old, new = getattr(before, name), getattr(snapshot, name)
            if old is not new and (old != new or before is _NOTHING):
                content[name] = _plain(new)
        self._table(content, "gpus", before.gpus, snapshot.gpus, _GPUS, _gpu_identity, "facts", _FACTS)
        self._table(
            content, "processes", before.processes, snapshot.processes, _PROCESSES, _process_identity, "host", _HOSTS
        )
        return _encode(content).encode("ascii") + b"\n"

    @staticmethod
    def _table(
        content: dict[str, Any],
        name: str,
        old: Sequence[Any],
        new: Sequence[Any],
        layout: _Layout,
        identity: Callable[[Any], Any],
        side: str,
        side_layout: _Layout,
    ) -> None:
        """The table *name*, and what its rows have at their *side* (facts of a GPU, host of a process)."""
        if old is new:
            return
        table: dict[str, Any] = {}
        changed = [(row, a, b) for row, (a, b) in enumerate(zip(old, new, strict=False)) if a is not b]
        if len(old) != len(new) or any(identity(a) != identity(b) for _, a, b in changed):
            head, out, in_ = table["splice"] = _splice([*map(identity, old)], [*map(identity, new)])
            old = [*old[:head], *[None] * in_, *old[head + out :]]
            changed = [(row, a, b) for row, (a, b) in enumerate(zip(old, new, strict=True)) if a is not b]
        table |= _changes(layout, changed, len(new))
        get = attrgetter(side)
        sides = [(row, None if a is None else get(a), get(b)) for row, a, b in changed]
        beside = _changes(side_layout, [one for one in sides if one[1] is not one[2]], len(new))
        if beside:
            table[side] = beside
        if table:
            content[name] = table


_NOTHING: Final = Snapshot(taken_at=0.0)


# ------------------------------------------------------------------------- reading


class _RebuiltTable:
    """The cells of a table as the lines so far left them, and its rows as objects, made when they are asked for."""

    def __init__(self, layout: _Layout, side: str, side_layout: _Layout) -> None:
        self._layout, self._side, self._side_layout = layout, side, side_layout
        self._side_at = [field.name for field in dataclasses.fields(layout.class_)].index(side)
        self._cells: dict[str, list[Any]] = {name: [] for name in layout.names}
        self._beside: dict[str, list[Any]] = {name: [] for name in side_layout.names}
        self._made: list[Any] = []
        self._made_beside: list[Any] = []
        self._stale: set[int] = set()  # rows to be made anew
        self._stale_beside: set[int] = set()
        self._rows: tuple[Any, ...] | None = ()

    def apply(self, table: dict[str, Any]) -> None:
        if "splice" in table:
            self._splice(*table["splice"])
        self._put(self._layout, self._cells, table, self._stale)
        self._put(self._side_layout, self._beside, table.get(self._side, {}), self._stale_beside)

    def _splice(self, head: int, out: int, in_: int) -> None:
        for made in (self._made, self._made_beside):
            made[head : head + out] = [None] * in_
        for layout, cells in ((self._layout, self._cells), (self._side_layout, self._beside)):
            for name, default in zip(layout.names, layout.defaults, strict=True):
                cells[name][head : head + out] = [default] * in_
        for stale in (self._stale, self._stale_beside):
            moved = {n if n < head else n - out + in_ for n in stale if not head <= n < head + out}
            stale.clear()
            stale.update(moved, range(head, head + in_))
        self._rows = None

    def _put(self, layout: _Layout, cells: dict[str, list[Any]], changes: dict[str, Any], stale: set[int]) -> None:
        count = len(self._made)
        for name, change in changes.items():
            read = layout.readers.get(name)
            if read is None:  # splice, the side, or a field of a later gputop
                continue
            column = cells[name]
            rows, values = (range(count), change) if isinstance(change, list) else (change["rows"], change["values"])
            if read is not _as_it_is:
                values = [read(value) for value in values]
            if len(rows) != len(values):
                raise BadLine(f"{name}: {len(values)} values for {len(rows)} rows")
            for row, value in zip(rows, values, strict=True):
                column[row] = value
            stale.update(rows)

    def rows(self) -> tuple[Any, ...]:
        """The rows as they are now. A row in which nothing changed is the object it was."""
        if self._rows is None or self._stale or self._stale_beside:
            class_, beside = self._side_layout.class_, self._beside.values()
            may_lack = self._side_layout.names[0] == "key"  # a process may have no host side
            for n in self._stale_beside:
                values = [cell[n] for cell in beside]
                self._made_beside[n] = None if values[0] is None and may_lack else class_(*values)
            class_, cells, at = self._layout.class_, self._cells.values(), self._side_at
            for n in self._stale | self._stale_beside:
                values = [cell[n] for cell in cells]
                values.insert(at, self._made_beside[n])
                self._made[n] = class_(*values)
            self._stale.clear()
            self._stale_beside.clear()
            self._rows = tuple(self._made)
        return self._rows


class LineReader:
    """Reads lines in their order; :meth:`snapshot` is what the last one said."""

    def __init__(self) -> None:
        self.taken_at: float | None = None  # of the last line read
        self._clear()

    def _clear(self) -> None:
        self._gpus = _RebuiltTable(_GPUS, "facts", _FACTS)
        self._processes = _RebuiltTable(_PROCESSES, "host", _HOSTS)
        self._values: dict[str, Any] = {}

    def read(self, line: bytes, gpus_only: bool = False) -> None:
        """Take *line*. With *gpus_only* the processes are passed over (then :meth:`snapshot` has none that count).
        Raises BadLine; what was read before is lost then."""
        try:
            content = json.loads(line)
            if content.get("whole"):
                self._clear()
            elif self.taken_at is None:
                raise BadLine("the first line is not a whole snapshot")
            taken_at = content["taken_at"] + 0.0
            for name, read in _VALUE_READERS.items():
                if name in content:
                    self._values[name] = read(content[name])
            if "gpus" in content:
                self._gpus.apply(content["gpus"])
            if "processes" in content and not gpus_only:
                self._processes.apply(content["processes"])
            self.taken_at = taken_at
        except BadLine:
            self.taken_at = None
            raise
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
            self.taken_at = None
            raise BadLine(f"not a line of a recording: {error!r}"[:200]) from None

    def snapshot(self) -> Snapshot:
        if self.taken_at is None:
            raise BadLine("nothing was read yet")
        try:
            return Snapshot(
                taken_at=self.taken_at, gpus=self._gpus.rows(), processes=self._processes.rows(), **self._values
            )
        except (TypeError, AttributeError) as error:
            raise BadLine(f"not a snapshot: {error}"[:200]) from None


_SNAPSHOT_HINTS: Final = typing.get_type_hints(Snapshot)
_VALUE_READERS: Final = {name: _reader(_SNAPSHOT_HINTS[name]) for name in _VALUES}
