"""The diagnosis of one GPU as one page of plain text, to read or to paste into a chat."""

from __future__ import annotations

import time

from gputop.model import Gpu, Snapshot
from gputop.text import to_ascii, width, wrap
from gputop.why.diagnosis import Section, headline


def render(
    sections: tuple[Section, ...], snapshot: Snapshot, gpu: Gpu, width: int | None = None, ascii_only: bool = False
) -> str:
    """At most *width* cells a line (None: lines as long as they are); commands are never broken."""
    lines = [headline(snapshot, gpu), time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(snapshot.taken_at))]
    for n, section in enumerate(sections, 1):
        lines += ["", f"{n}. {section.title}"]
        for line in section.lines:
            lines += broken(line, width)
    text = "".join(f"{line.rstrip()}\n" for line in lines)
    return to_ascii(text) if ascii_only else text


def broken(line: str, columns: int | None) -> list[str]:
    """*line* indented, in lines of *columns* cells; commands and code are left whole."""
    if line.startswith(("$ ", "> ")):
        return [f"     {line[2:]}" if line.startswith("> ") else f"     {line}"]
    indent = " " * (3 + len(line) - len(line.lstrip()))
    if columns is None or width(f"{indent}{line.lstrip()}") <= columns:  # as it is: figures stay under each other
        return [f"{indent}{line.lstrip()}"]
    first, *others = wrap(line, max(20, columns - len(indent) - 2))
    return [f"{indent}{first}", *(f"{indent}  {other}" for other in others)]
