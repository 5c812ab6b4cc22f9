"""Events as letters on the time axis of a chart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gputop.model import Severity
from gputop.sampling.journal import EventKind, JournalEvent
from gputop.text import width
from gputop.ui.chart.picture import ChartStyle
from gputop.ui.chart.scale import TimeAxis
from gputop.ui.toolkit.cells import Line, line_width

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


def with_events(
    lines: tuple[Line, ...], look: ChartStyle, now: float, events: Iterable[JournalEvent]
) -> tuple[Line, ...]:
    """*lines* of a picture whose axis ends at *now*, with a letter on the axis for each of *events*; where several are
    in one cell, the worst one's."""
    if len(lines) < 3 or len(lines[0]) < 2:
        return lines
    left = width(lines[0][0][0]) + 1  # the labels and the axis
    columns = line_width(lines[0]) - left
    if columns < 1:
        return lines
    axis = TimeAxis.of(columns, look.window, now, look.newest_right)
    worst: dict[int, JournalEvent] = {}
    for event in events:
        cell = axis.cell(int(event.at / axis.seconds))
        if 0 <= cell < columns and (cell not in worst or event.severity >= worst[cell].severity):
            worst[cell] = event
    if not worst:
        return lines
    letters = {left + cell: (LETTERS[event.kind], _STYLES[event.severity]) for cell, event in worst.items()}
    return (*lines[:-2], _lettered(lines[-2], letters), lines[-1])


def _lettered(line: Line, letters: dict[int, tuple[str, str]]) -> Line:
    spans = []
    x = 0
    for text, style in line:
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
