"""F1: the keys, and what the bars, figures and words mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from gputop import __version__
from gputop.history.journal import EventKind
from gputop.model import EVENT_REASONS, Severity
from gputop.model.columns import COLUMNS
from gputop.monitor import Monitor
from gputop.text import fit, wrap
from gputop.ui.chart.events import LETTERS
from gputop.ui.keys import KEYS, Key, everyday_and_others
from gputop.ui.monitor_screen import MonitorScreen
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.scrolling_page import Part, ScrollingPage

_FIGURES: Final = (
    ("GPU %", "Share of the last moment in which at least one kernel ran (utilization.gpu). "
     "A single busy SM makes it 100 %."),
    ("SM TC BW", "Share of the SMs that were active, of the tensor cores' and of the memory's bandwidth in use "
     "(GPM, Hopper and later): how busy it really was."),
    ("used", "As nvidia-smi has it: without what the driver keeps for itself, which is shown as reserved. "
     "Old drivers cannot tell the two apart."),
    ("of total", "G and M are binary, as in every GPU tool: 1G is 1024M. Throughput is decimal, as links are sold."),
    ("CPU %", "100 is one core. A process with eight busy threads has 800."),
    ("HOST", "Resident memory on the host; shared pages count for each process."),
    ("AGE", "42s, 7m05, 3h12, 2d04."),
    ("—", "The driver or the host does not say. Never zero."),
    ("stale 3 s", "A driver call for this GPU takes too long; its last good values are shown. The other GPUs go on."),
    ("full in", "When memory is full if it goes on growing as in the last 3 minutes."),
    ("charts", "Tab to them: the arrows move a cursor in time, and the titles show the values of then. An area is as "
     "high as the mean, lighter up to the highest value; lines have the highest."),
)  # fmt: skip
_FILTER: Final = (
    ("train llama", "both words, in command, user, name or pid"),
    ("user:ml", "of this user"),
    ("gpu:0,1", "on one of these GPUs: indices or the beginning of a UUID"),
    ("pid:41832", "this process"),
    ("type:C", "C compute, G graphics, M through MPS"),
    ("mem>10G", "or memory > 10 GiB, mem>20%; also sm bw enc dec cpu host, with > >= < <="),
    ("command:train", "in the command line only"),
    ("!jupyter", "not this one; before any term"),
)
_EVENTS: Final = {
    EventKind.START: "a process started on a GPU",
    EventKind.EXIT: "a process exited: its peak, its life span, and how full its GPU was then",
    EventKind.DEAD: "a process died and the driver still lists its memory",
    EventKind.LEAK: "memory that nobody uses any more was found: F8 says who keeps it",
    EventKind.FREED: "a dead pid's memory came back",
    EventKind.JUMP: "a process's memory jumped by 1 GiB or more",
    EventKind.XID: "an Xid error of the driver",
    EventKind.THROTTLE: "the clocks were held down by heat or hardware",
    EventKind.LOST: "a GPU was lost",
    EventKind.BACK: "a GPU is back",
    EventKind.FULL: "a GPU's memory is full",
    EventKind.THRESHOLD: "a threshold of the settings was crossed",
    EventKind.ALARM: "an alarm of the settings was raised, or cleared",
    EventKind.SIGNAL: "a signal was sent from here, and what became of it",
    EventKind.MARK: "marked with m",
}
_VERDICTS: Final = (
    ("LEAK", "Nobody who could use the memory is left: its process is dead, or its job is over. F8 says who keeps it."),
    ("STUCK", "A dead first thread whose siblings live on, or a minute in the kernel: no signal helps, or only some."),
    ("SUSPECT", "An orphan whose terminal is gone, or a stopped one: it may be a leak. F8 says what speaks for it."),
    ("IDLE", "Holds memory and has done nothing for long. Never called a leak: servers and notebooks do this."),
)
_SEVERITY: Final = {
    Severity.CRITICAL: ("critical", "critical"),
    Severity.WARNING: ("warning", "warning"),
    Severity.INFO: ("normal at full load", "text"),
    Severity.NORMAL: ("normal", "dim"),
}
_REASONS: Final = {
    0x08: "clocks at half or less: temperature, power brake or power supply",
    0x40: "the hardware protects itself from heat",
    0x80: "the power supply or the chassis asked for less power",
    0x20: "the driver lowers clocks to keep the temperature",
    0x200: "a limit of the board",
    0x400: "voltage could not go higher without harm",
    0x04: "the power limit holds the clocks down",
    0x10: "as slow as the slowest GPU of its sync boost group",
    0x100: "set for a display",
    0x02: "set by nvidia-smi -ac or -lgc",
    0x01: "nothing to do",
}


class HelpScreen(MonitorScreen, ScrollingPage[None]):
    """Everything on one page that scrolls."""

    closing_keys: ClassVar[tuple[str, ...]] = ("escape", "q", "f10", "f1", "question_mark")

    def __init__(self, monitor: Monitor, keys: tuple[Key, ...] = KEYS) -> None:
        super().__init__(monitor)
        self._keys = keys

    def heading(self) -> tuple[str, str]:
        return "Help", f"gputop {__version__}"

    def hints(self) -> Sequence[tuple[str, str]]:
        return (("Esc q F1", "back"),)

    def parts(self, cells: int) -> Sequence[Part]:
        glyphs = self.view.glyphs
        bar = (
            (glyphs.full, "text", "held by living processes that the driver lists"),
            (glyphs.dead_pid, "dead+b", "held by dead pids: other processes inherited it. Those are to be ended"),
            (glyphs.unattributed, "unattributed", "used, but by no listed process"),
            (glyphs.reserved, "reserved", "kept by the driver for itself"),
            (glyphs.track, "faint", "free"),
            (glyphs.peak, "text", "the most that was used while gputop ran"),
        )
        bars = [line for glyph, style, words in bar for line in _entry(glyph, words, cells, 4, style)]
        everyday, others = (
            [line for key in some for line in _entry(key.shown, key.words, cells, 12, "key+b")]
            for some in everyday_and_others(self._keys)
        )
        reasons = [
            line
            for reason in EVENT_REASONS
            for line in _entry(reason.label, f"{_REASONS[reason.bit]} ({_SEVERITY[reason.severity][0]})", cells, 16,
                               _SEVERITY[reason.severity][1])
        ]  # fmt: skip
        letters = [
            line for kind, letter in LETTERS.items() for line in _entry(letter, _EVENTS[kind], cells, 4, "accent")
        ]
        return (
            Part("Every day", everyday),
            Part("All other keys", others),
            Part("The memory bar", bars),
            Part("Letters on the chart's axis, and what `e` lists", letters),
            Part("Verdicts", _entries(_VERDICTS, cells, 9)),
            Part("Figures", _entries(_FIGURES, cells, 11)),
            Part("Filter", _entries(_FILTER, cells, 14)),
            Part("Columns of the processes", _entries([(c.heading, c.help) for c in COLUMNS.values()], cells, 10)),
            Part("Why the clocks are what they are", reasons),
        )


def _entries(entries: Sequence[tuple[str, str]], cells: int, at: int) -> list[Line]:
    return [line for term, words in entries for line in _entry(term, words, cells, at)]


def _entry(term: str, words: str, cells: int, at: int, style: str = "title") -> list[Line]:
    parts = wrap(words, max(8, cells - at - 1))
    return [((" ", "text"), (fit(term if not n else "", at), style), (part, "text")) for n, part in enumerate(parts)]
