"""Events as letters on the time axis of a chart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gputop.model import Severity
from gputop.sampling.journal import EventKind, JournalEvent
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
AXIS: Final = "─"
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
    """*line* with *letters* by cell. A label that one of them would stand in gives way: half a time is none."""
    spans: list[tuple[str, str]] = []
    x = 0
    for text, style in line:
        if style == "dim" and any(x <= cell < x + len(text) for cell in letters):
            text, style = AXIS * len(text), "faint"
        run = ""
        for character in text:  # a picture has characters of one cell only
            if x in letters:
                spans += [(run, style), letters[x]]
                run = ""
            else:
                run += character
            x += 1
        spans.append((run, style))
    return tuple(span for span in spans if span[0])
