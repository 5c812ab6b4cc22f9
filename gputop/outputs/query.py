"""Answers to a query as CSV (as nvidia-smi writes it), as JSON, or as a table for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from gputop.sources.query_fields import MIB, NOT_APPLICABLE, WATTS, Answer, Field, Unanswered
from gputop.text import fit, width
from gputop.units import MIB as BYTES
from gputop.units import UNKNOWN

Rows = Iterable[Sequence[Answer]]

_CAPITAL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


# ------------------------------------------------------------------------------ CSV


def csv_header(fields: Sequence[Field]) -> str:
    """The headings, canonical names with their units, which stay even where values come without."""
    return ", ".join(map(_heading, fields)) + "\n"


def csv(fields: Sequence[Field], rows: Rows, units: bool = True) -> str:
    """A line a row, comma and space between; nothing is quoted."""
    return "".join(
        ", ".join(_cell(field, value, units) for field, value in zip(fields, row, strict=True)) + "\n" for row in rows
    )


def _heading(field: Field) -> str:
    return f"{field.name} [{field.unit.sign}]" if field.unit.sign else field.name


def _cell(field: Field, value: Answer, units: bool) -> str:
    if isinstance(value, Unanswered):
        bare = field.bare and value.message == NOT_APPLICABLE
        return value.message if bare else f"[{value.message}]"
    text = _plain(field, value)
    return f"{text} {field.unit.sign}" if units and field.unit.sign else text


def _plain(field: Field, value: int | float | str | bool) -> str:
    """Without its unit. Each MiB begun counts, so that used and free may add up to more than the total."""
    if field.unit.labels is not None:
        return field.unit.labels[bool(value)]
    if isinstance(value, str):
        return value
    if field.unit is MIB:
        return str(-(-int(value) // BYTES))
    return f"{value:.2f}" if field.unit is WATTS else str(value)


# ----------------------------------------------------------------------------- JSON


def as_objects(fields: Sequence[Field], rows: Rows) -> list[dict[str, Any]]:
    """An object a row. Keys carry the unit (``memory_used_bytes``); what there is no answer to is None."""
    keys = [_key(field) for field in fields]
    return [
        {key: None if isinstance(value, Unanswered) else value for key, value in zip(keys, row, strict=True)}
        for row in rows
    ]


def json_array(fields: Sequence[Field], rows: Rows, indent: int | None = None) -> str:
    import json  # late: CSV needs none of it

    return json.dumps(as_objects(fields, rows), indent=indent, allow_nan=False) + "\n"


def json_lines(fields: Sequence[Field], rows: Rows) -> str:
    """An object a line, for what goes on."""
    import json

    return "".join(json.dumps(entry, allow_nan=False) + "\n" for entry in as_objects(fields, rows))


def _key(field: Field) -> str:
    name = _CAPITAL.sub("_", field.name).replace(".", "_").lower()
    return f"{name}_{field.unit.suffix}" if field.unit.suffix else name


# ---------------------------------------------------------------------------- table


def table(fields: Sequence[Field], rows: Rows, header: bool = True) -> str:
    """Columns with room between them, numbers to the right; not known is a dash, a failure its words."""
    lines = [[_shown(field, value) for field, value in zip(fields, row, strict=True)] for row in rows]
    rows_and_head = [*lines, *([[_heading(field) for field in fields]] if header else [])]
    widths = [max((width(line[column]) for line in rows_and_head), default=0) for column in range(len(fields))]
    to_the_right = [
        any(isinstance(value, str) and _is_number(value) for value in column) for column in zip(*lines, strict=True)
    ] or [False] * len(fields)

    def joined(line: Sequence[str]) -> str:
        parts = zip(line, widths, to_the_right, strict=True)
        return "  ".join(fit(text, cells, right=number) for text, cells, number in parts).rstrip() + "\n"

    return "".join(map(joined, [rows_and_head[-1], *lines] if header else lines))


def _shown(field: Field, value: Answer) -> str:
    if isinstance(value, Unanswered):
        return UNKNOWN if value.message == NOT_APPLICABLE else value.message
    return _plain(field, value)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal() and text.count(".") < 2


# ----------------------------------------------------------------------------- help


def list_of_fields(title: str, fields: Sequence[Field]) -> str:
    """What can be asked for: a line a field, with its other names, its unit and what it is."""
    lines = []
    for field in fields:
        names = " or ".join((field.name, *field.aliases))
        words = "; ".join(filter(None, (f"[{field.unit.sign}]" if field.unit.sign else "", field.note)))
        lines.append(f"  {names}  {words}".rstrip())
    return f"{title}\n" + "\n".join(lines) + "\n"
