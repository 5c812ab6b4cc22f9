"""The log of alarms: CSV or JSON Lines, a row an event."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

from gputop.alarms.facts import FACTS


class EventLog:
    """Appends events to a file: CSV, or JSON Lines where its name ends in .jsonl, .ndjson or .json.

    It is opened anew for each event, so that it may be rotated. Raises OSError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._json = path.suffix.lower() in (".jsonl", ".ndjson", ".json")
        self._append("")  # so that a wrong path is known at once

    def put(self, known: dict[str, Any]) -> None:
        self._append(json.dumps(known) + "\n" if self._json else _row([_cell(known[name]) for name in FACTS]))

    def _append(self, text: str) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not self._json and os.fstat(descriptor).st_size == 0:
                text = _row(FACTS) + text
            if text:
                _write_whole(descriptor, text.encode())
        finally:
            os.close(descriptor)


def _write_whole(descriptor: int, row: bytes) -> None:
    """One write, so that rows of several writers do not mix. Where a full disk takes only the beginning of a row, that
    is cut off again, or the next row would join it. Raises OSError."""
    written = 0
    try:
        while written < len(row):
            written += os.write(descriptor, row[written:])
    except OSError:
        size = os.fstat(descriptor).st_size
        if written and size and size == os.lseek(descriptor, 0, os.SEEK_CUR):  # no other writer came after it
            os.ftruncate(descriptor, size - written)
        raise


def _row(cells: Any) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A spreadsheet takes text that begins so for a formula, and command lines are anybody's."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value
