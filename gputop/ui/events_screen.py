"""e: what happened while nobody looked, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from gputop import units
from gputop.history.journal import EventKind
from gputop.model import Severity
from gputop.sampling.messages import EventsNoted
from gputop.text import wrap
from gputop.ui.monitor_screen import MonitorScreen
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.frame import Hint
from gputop.ui.toolkit.scrolling_page import Part, ScrollingPage

_STYLES: Final = {
    Severity.NORMAL: "text",
    Severity.INFO: "text",
    Severity.WARNING: "warning",
    Severity.CRITICAL: "critical",
}
#: What kinds look like; the word tells, the colour helps.
_KIND_STYLES: Final = {
    **dict.fromkeys((EventKind.START, EventKind.FREED, EventKind.BACK), "good"),
    **dict.fromkeys((EventKind.LEAK, EventKind.XID, EventKind.LOST, EventKind.FULL), "critical+b"),
    **dict.fromkeys((EventKind.THROTTLE, EventKind.THRESHOLD, EventKind.ALARM), "warning"),
    EventKind.EXIT: "dim",
    EventKind.DEAD: "dead",
    EventKind.JUMP: "g0",
    EventKind.SIGNAL: "accent+b",
    EventKind.MARK: "title+b",
}
_OF_GPUS: Final = frozenset(
    (
        *(EventKind.XID, EventKind.THROTTLE, EventKind.LOST, EventKind.BACK),
        *(EventKind.THRESHOLD, EventKind.FULL, EventKind.ALARM),
    )
)
_SHOWN: Final[tuple[tuple[str, frozenset[EventKind]], ...]] = (
    ("everything", frozenset(EventKind)),
    ("processes", frozenset(EventKind) - _OF_GPUS),
    ("GPUs", _OF_GPUS | {EventKind.MARK}),
)


class EventsScreen(MonitorScreen, ScrollingPage[None]):
    """Live: what happens while it is open comes in at the top."""

    closing_keys: ClassVar[tuple[str, ...]] = ("escape", "q", "f10", "e")
    shows = (EventsNoted,)
    _which = 0

    def look(self) -> None:
        self.draw()

    def pressed(self, key: str) -> bool:
        if key != "y":
            return False
        self._which = (self._which + 1) % len(_SHOWN)
        return True

    def heading(self) -> tuple[str, str]:
        return "Events", f"{_SHOWN[self._which][0]}, newest first"

    def hints(self) -> Sequence[Hint]:
        return (("Esc q e", "back"), ("y", "processes, GPUs, everything"))

    def parts(self, cells: int) -> Sequence[Part]:
        return ()

    def before(self, cells: int) -> Sequence[Line]:
        kinds = _SHOWN[self._which][1]
        lines: list[Line] = []
        for event in sorted(self.monitor.journal.events, key=lambda event: event.at, reverse=True):
            if event.kind not in kinds:
                continue
            when = f"{units.clock_or_day(event.at):<12} "
            style = _STYLES[event.severity]
            for n, part in enumerate(wrap(event.message, max(10, cells - 24))):
                head = (
                    ((when, "dim"), (f"{event.kind.value:<9} ", _KIND_STYLES[event.kind]))
                    if not n
                    else ((" " * 23, "text"),)
                )
                lines.append((*head, (part, style)))
        return lines or [(("Nothing has happened yet.", "dim"),)]
