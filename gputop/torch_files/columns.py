"""Columns of numbers in a file: written by the process that read a pickle, mapped by the one that shows it.

The file is a JSON header of plain values, then the columns one after the other, eight-byte aligned, in the machine's
own byte order (both processes are this machine's). A mapped column is a memoryview: indexing, slicing, ``max`` and
``bisect`` work on it as on an array, and it takes no memory until it is looked at.
"""

from __future__ import annotations

import json
import mmap
from array import array
from collections.abc import Mapping
from typing import Any, BinaryIO, Final

Column = memoryview
_MAGIC: Final = b"gputop columns 1"
_ALIGN: Final = 8


def write(out: BinaryIO, header: Mapping[str, Any], columns: Mapping[str, array[Any] | bytearray | bytes]) -> None:
    """Write *header* (JSON) and *columns* (arrays, or bytes for one byte a value)."""
    places = {}
    at = 0
    for name, column in columns.items():
        view = memoryview(column)
        places[name] = (view.format, at, view.nbytes)
        at += -(-view.nbytes // _ALIGN) * _ALIGN
    text = json.dumps({"header": header, "columns": places}, ensure_ascii=True).encode()
    out.write(_MAGIC + len(text).to_bytes(8, "little") + text)
    out.write(bytes(-(len(_MAGIC) + 8 + len(text)) % _ALIGN))
    for column in columns.values():
        view = memoryview(column)
        out.write(view)
        out.write(bytes(-view.nbytes % _ALIGN))


def read(file: BinaryIO) -> tuple[dict[str, Any], dict[str, Column]]:
    """The header and the columns of a file written by :func:`write`, mapped; *file* may be closed afterwards."""
    view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    start = len(_MAGIC) + 8
    if bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise ValueError("not a file of columns")
    length = int.from_bytes(view[len(_MAGIC) : start], "little")
    contents = json.loads(bytes(view[start : start + length]))
    base = -(-(start + length) // _ALIGN) * _ALIGN
    columns = {
        name: view[base + at : base + at + size].cast(kind) if kind != "B" else view[base + at : base + at + size]
        for name, (kind, at, size) in contents["columns"].items()
    }
    return contents["header"], columns
