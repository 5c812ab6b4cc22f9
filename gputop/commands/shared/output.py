"""Output that may fail, or be read by a spreadsheet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from gputop.commands.shared.refusal import CANNOT_WRITE, Refusal

_ROWS_AT_ONCE: Final = 4096


def is_terminal(stream: Any) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def print_out(text: str) -> int:
    """Write to stdout, now. Raises Refusal where that fails, BrokenPipeError where nobody reads any more."""
    if sys.stdout is None:
        return 0
    try:
        sys.stdout.write(text.encode(sys.stdout.encoding or "ascii", "replace").decode(sys.stdout.encoding or "ascii"))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise Refusal(f"stdout cannot be written: {error.strerror or error}", CANNOT_WRITE) from None
    return 0


def print_csv(fields: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print a CSV file with a header, some thousand rows at a time; None is an empty cell. Raises as print_out()."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(fields)
    remaining = iter(rows)
    while part := list(islice(remaining, _ROWS_AT_ONCE)):
        writer.writerows([spreadsheet_text(value) for value in row] for row in part)
        print_out(out.getvalue())
        out.seek(0)
        out.truncate()
    print_out(out.getvalue())


def spreadsheet_text(value: Any) -> Any:
    """A cell of a CSV file: text is cleaned, and such that a spreadsheet takes it for text. The names are anybody's."""
    if not isinstance(value, str):
        return value
    from gputop.model import clean_text

    text = clean_text(value, len(value))
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
