"""What can be chosen in the kill dialog, and the line a signal is typed in."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Final, NamedTuple

from textual import events

from gputop.leaks.report import DeadPid
from gputop.signals.graceful_termination import GracefulTermination, TerminationStep
from gputop.signals.names import SIGNALS, SignalEntry, parse_signal, signal_name
from gputop.signals.scope import SignalScope
from gputop.signals.termination_state import TerminationState
from gputop.signals.terminations import Terminations
from gputop.text import fit
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.frame import on
from gputop.ui.toolkit.text_entry import Entry
from gputop.ui.toolkit.view import View


class SignalChoice(NamedTuple):
    """A line of the list that can be chosen."""

    label: str
    meaning: str
    number: int | None = None  # the signal; None: close, or another signal
    letter: str = ""  # goes to the line, does nothing more: k is pressed twice easily
    only_survivors: bool = False
    other: bool = False
    whole: bool = False  # SIGTERM, and after the grace time SIGKILL
    holders: bool = False  # go on with those that keep the memory


OFFERED: Final = (
    SignalChoice("SIGTERM", "ask it to exit; it can save and clean up", signal.SIGTERM, "t"),
    SignalChoice("SIGKILL", "kill it now; it cannot clean up", signal.SIGKILL, "k"),
    SignalChoice("SIGINT", "like Ctrl+C; Python and torchrun exit cleanly", signal.SIGINT, "i"),
)
END: Final = "End"
SCOPES: Final = (SignalScope.DESCENDANTS, SignalScope.GROUP, SignalScope.SESSION)
OTHER: Final = SignalChoice("Other…", "any signal, by name or number", other=True)


def choices(
    terminations: Terminations,
    graceful: GracefulTermination | None,
    dead_pids: Sequence[DeadPid],
    scope: SignalScope,
    grace: int,
    typed: SignalChoice | None,
) -> list[SignalChoice]:
    """What can be chosen now; the first line never sends anything. *dead_pids*: whose memory is still held."""
    if terminations.sent or not terminations.those(TerminationState.READY, TerminationState.WAITING):
        if graceful is not None and graceful.step is not TerminationStep.DONE:
            now = SignalChoice("SIGKILL", "now, to those left", signal.SIGKILL, "k")
            return [SignalChoice("Close", "send nothing more"), now]
        found = [SignalChoice("Close", "")]
        if dead_pids:
            who = ", ".join(str(key.pid) for dead_pid in dead_pids for key in dead_pid.targets[:4])
            found.append(SignalChoice("Holders", f"kill those that hold the memory: {who}", holders=True, letter="h"))
        if survivors := terminations.survivors:
            who = f"the {len(survivors)} still running" if len(survivors) > 1 else "it, still running"
            found.append(SignalChoice("SIGKILL", f"to {who}", signal.SIGKILL, "k", only_survivors=True))
        return found
    first = ", to this process first" if scope in SCOPES else ""
    words = f"SIGTERM{first}; SIGKILL after {grace} s to those left"
    found = [SignalChoice("Cancel", "send nothing"), SignalChoice(END, words, letter="e", whole=True), *OFFERED]
    return [*found, typed, OTHER] if typed is not None else [*found, OTHER]


class TypedSignal:
    """A signal as it is typed, by name or number, with those it may mean."""

    def __init__(self) -> None:
        self.entry = Entry()
        self._match = 0

    def insert(self, text: str) -> None:
        self.entry.insert(text)
        self._match = 0

    def key(self, event: events.Key) -> None:
        """Up and Down go through what it may mean, other keys type."""
        count = len(self.matches())
        if event.key in ("down", "up"):
            self._match = (self._match + (1 if event.key == "down" else -1)) % count if count else 0
        elif self.entry.key(event):
            self._match = 0

    def matches(self) -> list[SignalEntry]:
        """Signals that what was typed may mean, best first."""
        typed = self.entry.text.strip().upper().removeprefix("SIG")
        if typed.isdecimal():
            found = [entry for entry in SIGNALS if str(entry.number).startswith(typed)]
            return sorted(found, key=lambda entry: str(entry.number) != typed)
        found = [entry for entry in SIGNALS if entry.name.startswith(f"SIG{typed}")]
        return sorted(found, key=lambda entry: entry.name != f"SIG{typed}")

    def chosen(self) -> SignalChoice | None:
        """What Enter takes over; None: it is no signal, and the lines say so."""
        matches = self.matches()
        if matches:
            chosen = matches[min(self._match, len(matches) - 1)]
            return SignalChoice(chosen.name, chosen.meaning, chosen.number)
        try:
            number = parse_signal(self.entry.text)
        except ValueError:
            return None
        return SignalChoice(signal_name(number), "", number)

    def lines(self, cells: int, rows: int, view: View) -> list[Line]:
        matches = self.matches()
        self._match = min(self._match, max(0, len(matches) - 1))
        lines: list[Line] = [(("   Signal ", "title+b"), *self.entry.line(min(24, cells - 12)))]
        if not matches:
            try:
                said, style = f"{signal_name(parse_signal(self.entry.text))}", "text"
            except ValueError as error:
                said, style = str(error), "warning"
            lines.append(((f"   {said}", style),))
        first = max(0, min(self._match - rows + 2, len(matches) - rows + 1))
        for n, signal_ in enumerate(matches[first : first + rows - 1], first):
            line: Line = (
                (f" {view.glyphs.folded} " if n == self._match else "   ", "accent+b"),
                (fit(signal_.name, 11), "title+b"),
                (f"{signal_.number:4}  ", "text"),
                (fit(signal_.meaning, max(0, cells - 20)), "dim" if n != self._match else "text"),
            )
            lines.append(on(line, "cursor") if n == self._match else line)
        return lines + [()] * (rows - len(lines))


def choice_lines(choices: list[SignalChoice], at: int, busy: bool, cells: int, view: View) -> list[Line]:
    """The list, with the cursor at number *at*; while handles are opened (*busy*) signals are dim."""
    lines: list[Line] = []
    for n, choice in enumerate(choices):
        here = n == at
        waiting = choice.number is not None and busy
        style = "dim" if waiting else "warning+b" if choice.number == signal.SIGKILL else "title+b"
        quiet = "text" if here else "dim"
        line: Line = (
            (f" {view.glyphs.folded} " if here else "   ", "accent+b"),
            (fit(choice.label, 11), style),
            (fit("" if choice.number is None else str(choice.number), 4, right=True), quiet),
            ("  ", "text"),
            (fit(choice.meaning, max(0, cells - 23)), quiet),
            (f" {choice.letter or ' '} ", "key"),
        )
        lines.append(on(line, "cursor") if here else line)
    return lines
