"""What the doctor found, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from gputop.doctor import FAIL, OK, WARN, Check
from gputop.text import fit, to_ascii, width, wrap
from gputop.units import plural

_COLORS: Final = {OK: "32", WARN: "33", FAIL: "1;31"}


def worst(findings: Sequence[Check]) -> str:
    statuses = {finding.status for finding in findings}
    return next((status for status in (FAIL, WARN) if status in statuses), OK)


def as_json(findings: Sequence[Check], indent: int | None = None) -> str:
    """``status`` of everything, and ``findings`` with topic, status, words and fix."""
    entries = [{"topic": f.topic, "status": f.status, "words": f.message, "fix": f.fix or None} for f in findings]
    return json.dumps({"status": worst(findings), "findings": entries}, indent=indent)


def as_text(findings: Sequence[Check], width: int | None = None, color: bool = False, ascii_only: bool = False) -> str:
    """A line a finding and, where there is something to be done, a line about that; wrapped at *width* cells."""
    text = "\n".join(_lines(findings, width, color)) + "\n"
    return to_ascii(text) if ascii_only else text


def _lines(findings: Sequence[Check], columns: int | None, color: bool) -> Iterator[str]:
    topics = max((width(finding.topic) for finding in findings), default=0)
    indent = 4 + 2 + topics + 2
    room = None if columns is None else max(20, columns - indent)
    for finding in findings:
        status = f"{finding.status:<4}"
        if color:
            status = f"\x1b[{_COLORS[finding.status]}m{status}\x1b[0m"
        for number, line in enumerate(_wrapped(finding.message, room)):
            head = f"{status}  {fit(finding.topic, topics)}  " if number == 0 else " " * indent
            yield head + line
        if finding.fix:
            for number, line in enumerate(_wrapped(finding.fix, None if room is None else room - 2)):
                yield " " * indent + ("→ " if number == 0 else "  ") + line
    count = {status: sum(finding.status == status for finding in findings) for status in (WARN, FAIL)}
    yield ""
    said = f"{plural(count[FAIL], 'failure')}, {plural(count[WARN], 'warning')}"
    yield said if any(count.values()) else "No problems found."


def _wrapped(text: str, room: int | None) -> list[str]:
    return [text] if room is None else wrap(text, room)
