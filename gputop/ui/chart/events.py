"""Events as letters on the time axis of a chart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gputop.history.journal import EventKind, JournalEvent
from gputop.model import Severity
from gputop.ui.chart.picture import PanePicture
from gputop.ui.toolkit.cells import Line

LETTERS: Final = {
    EventKind.START: "s",
    EventKind.EXIT: "x",
    EventKind.DEAD: "d",
    EventKind.LEAK: "L",
    EventKind.FREED: "f",
    EventKind.JUMP: "j",
    EventKind.XID: "X",
    EventKind.THROTTLE: "t",
    EventKind.LOST: "!",
    EventKind.BACK: "b",
    EventKind.FULL: "F",
    EventKind.THRESHOLD: "l",
    EventKind.ALARM: "a",
    EventKind.SIGNAL: "k",
    EventKind.MARK: "m",
}
_STYLES: Final = {
    Severity.NORMAL: "accent",
    Severity.INFO: "accent",
    Severity.WARNING: "warning+b",
    Severity.CRITICAL: "critical+b",
}


def with_events(picture: PanePicture, events: Iterable[JournalEvent]) -> tuple[Line, ...]:
    """The lines of *picture* with a letter on the time axis for each of *events*; where several are in one cell, the
    worst one's."""
    axis, lines = picture.axis, picture.lines
    if axis is None:
        return lines
    worst: dict[int, JournalEvent] = {}
    for event in events:
        cell = axis.cell_at(event.at)
        if cell is not None and (cell not in worst or event.severity >= worst[cell].severity):
            worst[cell] = event
    if not worst:
        return lines
    letters = {picture.left + cell: (LETTERS[event.kind], _STYLES[event.severity]) for cell, event in worst.items()}
    return (*lines[:-1], _lettered(lines[-1], letters))


def _lettered(line: Line, letters: dict[int, tuple[str, str]]) -> Line:
    """*line* with *letters* by cell. One that would stand in a label stands beside it, where that cell is free."""
    text = "".join(part for part, _ in line)
    labels = {x for part, start in _starts(line) if part[1] == "dim" for x in range(start, start + len(part[0]))}
    placed: dict[int, tuple[str, str]] = {}
    for cell, letter in letters.items():
        left = right = cell
        while left in labels:
            left -= 1
        while right in labels:
            right += 1
        nearest = left if cell - left <= right - cell else right
        if nearest == cell or nearest not in letters:
            placed[nearest] = letter
    spans: list[tuple[str, str]] = []
    for part, start in _starts(line):  # a picture has characters of one cell only
        begin = start
        for x in range(start, start + len(part[0])):
            if x in placed:
                spans += [(text[begin:x], part[1]), placed[x]]
                begin = x + 1
        spans.append((text[begin : start + len(part[0])], part[1]))
    return tuple(span for span in spans if span[0])


def _starts(line: Line) -> list[tuple[tuple[str, str], int]]:
    """The spans of *line* and the cells they begin at."""
    found, x = [], 0
    for span in line:
        found.append((span, x))
        x += len(span[0])
    return found
