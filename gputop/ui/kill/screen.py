"""F9: what will be hit, the choice of a signal with Cancel first, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from textual import events

from gputop.history.journal import EventKind
from gputop.leaks.report import DeadPid
from gputop.model import HostFacts, ProcessKey
from gputop.monitor import Monitor
from gputop.sampling.messages import LeaksReported, SnapshotTaken
from gputop.signals.graceful_termination import GracefulTermination, with_related
from gputop.signals.names import signal_name
from gputop.signals.protocol import Target
from gputop.signals.scope import RelatedProcesses, SignalScope
from gputop.signals.termination_state import ProcessTermination, TerminationState
from gputop.signals.terminations import Terminations
from gputop.text import fit, width
from gputop.ui.kill.choices import SCOPES, SignalChoice, TypedSignal, choice_lines, choices
from gputop.ui.kill.targets import KillRequest, with_holders
from gputop.ui.kill.text import KillText
from gputop.ui.monitor_screen import MonitorScreen
from gputop.ui.toolkit.background import in_background
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.dialog import Dialog
from gputop.ui.toolkit.frame import Hint

_TICK_SECONDS: Final = 0.1  # of the countdown, and between looks whether they have exited: nothing tells of that
_LEAST_CELLS: Final = 50  # of the lines: who it is with the begin of the command, and a signal with what it does
_TYPED_ROWS: Final = 5  # of the list where a signal is typed


class KillScreen(MonitorScreen, Dialog[None]):
    """Sends a signal to the targets of *request*. When it is closed, what became of them stays as a toast.

    Left and Right take in the targets' descendants, groups and sessions. No single letter sends anything: letters go to
    a line, Enter sends what the line says.
    """

    most_cells: ClassVar[int] = 108
    shows = (SnapshotTaken, LeaksReported)

    def __init__(self, monitor: Monitor, request: KillRequest) -> None:
        """Raises ValueError where *monitor* can send no signals."""
        super().__init__(monitor)
        if monitor.signals is None:
            raise ValueError("read-only: there is nothing to send signals with")
        self._signals, self._request = monitor.signals, request
        self._snapshot = monitor.latest
        self.scope = request.scope
        self._related: RelatedProcesses | None = None  # None: not looked up yet
        self._graceful: GracefulTermination | None = None
        self._scanned = False
        self.terminations = self._terminations(request.targets, request.facts)
        self._at = 0  # the line of the list: Cancel
        self._first = 0  # of the lines about the targets
        self._about_rows = self._about_total = 0
        self._list_row = 0  # where the list begins, for the mouse
        self._busy = True  # opening processes, or sending
        self._leaving = False
        self._noted: set[tuple[ProcessKey, float]] = set()  # signals that are in the list of events
        self._chosen_other: SignalChoice | None = None
        self._typed: TypedSignal | None = None  # another signal is being typed

    def on_mount(self) -> None:
        self._in_background(self._take)
        self.set_interval(_TICK_SECONDS, self._tick)

    def _terminations(self, targets: Sequence[Target], facts: Mapping[ProcessKey, HostFacts]) -> Terminations:
        return Terminations(targets, self._snapshot, facts=facts, held=self._request.held, log=self.monitor.log)

    def _take(self) -> None:
        self.terminations.open_handles(self._signals)
        if self._related is None:
            self._related = self._signals.related([target.key for target in self._request.targets])

    def _in_background(self, work: Callable[[], None]) -> None:
        self._busy = True
        in_background(self, work, lambda _: self._done())

    def _done(self) -> None:
        self._busy = False
        self._note_sent()
        if self._leaving:
            self.terminations.close()
        self.draw()

    def _note_sent(self) -> None:
        """Put what was sent into the list of events, when it was sent."""
        by_number: dict[int, list[ProcessTermination]] = {}
        for one in self.terminations.all:
            if one.number is not None and (one.target.key, one.sent_wall) not in self._noted:
                self._noted.add((one.target.key, one.sent_wall))
                by_number.setdefault(one.number, []).append(one)
        for number, to in by_number.items():
            names = ", ".join(f"{one.target.key.pid} {(one.target.command or '')[:40]}".strip() for one in to[:2])
            more = f" and {len(to) - 2} more" if len(to) > 2 else ""
            self.monitor.note(EventKind.SIGNAL, f"{signal_name(number)} sent to {names}{more}", to[0].sent_wall)

    # --------------------------------------------------------------- the scope

    def scopes(self) -> list[SignalScope]:
        """What the signal can be made to reach: each takes in somebody whom those before it do not."""
        found = [self._request.scope]
        seen = {target.key for target in self._request.targets}
        for scope in SCOPES:
            members = {facts.key for facts in self._related.of(scope)} if self._related is not None else set()
            if members - seen:
                found.append(scope)
                seen |= members
        return found

    def _reach(self, step: int) -> None:
        """Take in more, or fewer."""
        scopes = self.scopes()
        if self._busy or self.terminations.sent or len(scopes) == 1 or self._related is None:
            return
        self.scope = scopes[(scopes.index(self.scope) + step) % len(scopes)]
        self.terminations.close()
        targets, facts = with_related(self._request.targets, self._related.of(self.scope))
        self.terminations = self._terminations(targets, {**facts, **self._request.facts})
        self._at = self._first = 0
        self._in_background(self._take)

    def stop_commands(self) -> list[str]:
        """How those who look after the targets end them: ``docker stop ID``."""
        owners = self.monitor.report.owners
        found = (owners[e.target.key].stop_with for e in self.terminations.all if e.target.key in owners)
        return list(dict.fromkeys(command for command in found if command))

    def _copy(self) -> None:
        commands = self.stop_commands()
        if commands:
            self.app.copy_to_clipboard("\n".join(commands))
            self.notify(f"copied: {'; '.join(commands)}", timeout=3, markup=False)

    def _holders(self) -> list[DeadPid]:
        """Dead pids whose memory is still held, with those who hold it, as far as they are known by now."""
        kept = self.terminations.kept
        if kept and not self._scanned:
            self._scanned = True
            self.monitor.scan_now()
        ended = {termination.target.key for termination in self.terminations.all}
        dead_pids = (self.monitor.report.dead_pid(pid) for pid in kept)
        return [dead_pid for dead_pid in dead_pids if dead_pid is not None and not ended.issuperset(dead_pid.targets)]

    def _tick(self) -> None:
        if self._busy:
            return
        if self._graceful is not None and self._graceful.due:
            graceful, newest = self._graceful, self.monitor.latest
            self._in_background(lambda: graceful.act(newest))
            return
        self.terminations.watch()
        self.look()

    def look(self) -> None:
        """See whether memory has come back, and who keeps it."""
        newest = self.monitor.latest
        if self._busy:
            return
        if newest is not None and newest is not self._snapshot:
            self._snapshot = newest
            self.terminations.look(newest)
        self.draw()

    # ------------------------------------------------------------- the choices

    def choices(self) -> list[SignalChoice]:
        """What can be chosen now. The first line never does anything."""
        grace = self.view.settings.kill_grace
        dead_pids = self._holders() if self.terminations.sent else ()
        return choices(self.terminations, self._graceful, dead_pids, self.scope, grace, self._chosen_other)

    def on_key(self, event: events.Key) -> None:
        event.stop()
        if self._typed is not None:
            self._key_in_typed(event, self._typed)
        else:
            self._key_in_list(event)
        if self.is_current:
            self.draw()

    def on_paste(self, event: events.Paste) -> None:
        if self._typed is not None:
            self._typed.insert(event.text)
            self.draw()

    def _key_in_list(self, event: events.Key) -> None:
        choices = self.choices()
        self._at = min(self._at, len(choices) - 1)
        match event.key:
            case "escape" | "q" | "f10":
                self._close()
            case "down" | "tab":
                self._at = (self._at + 1) % len(choices)
            case "up" | "shift+tab":
                self._at = (self._at - 1) % len(choices)
            case "home":
                self._at = 0
            case "end":
                self._at = len(choices) - 1
            case "left" | "right":
                self._reach(1 if event.key == "right" else -1)
            case "c":
                self._copy()
            case "pagedown" | "pageup":
                self._scroll(1 if event.key == "pagedown" else -1)
            case "enter":
                self._choose(choices[self._at])
            case letter if letter.isalpha():
                self._at = next((n for n, choice in enumerate(choices) if choice.letter == letter), self._at)

    def _key_in_typed(self, event: events.Key, typed: TypedSignal) -> None:
        match event.key:
            case "escape":
                self._typed = None
            case "enter":
                self._take_typed(typed.chosen())
            case _:
                typed.key(event)

    def _take_typed(self, chosen: SignalChoice | None) -> None:
        """Put the signal into the list, at the cursor; Enter there sends it."""
        if chosen is None:
            return
        self._typed = None
        offered = next((n for n, choice in enumerate(self.choices()) if choice.number == chosen.number), None)
        if offered is None:
            self._chosen_other = chosen
            offered = len(self.choices()) - 2  # right before the line it was typed at
        self._at = offered

    def _choose(self, choice: SignalChoice) -> None:
        if choice.other:
            self._typed = TypedSignal()
        elif choice.holders:
            self._go_on()
        elif choice.whole:
            if not self._busy:
                self._graceful = GracefulTermination(
                    self.terminations, self._signals, self.scope, self.view.settings.kill_grace
                )
                self._at = 0
        elif choice.number is None:
            self._close()
        elif not self._busy:
            to = self.terminations.survivors if choice.only_survivors else None
            number, snapshot = choice.number, self.monitor.latest
            self._at = 0
            if self._graceful is not None:
                self._graceful.stop()
                to = self.terminations.those(TerminationState.RUNNING, TerminationState.READY)
            self._in_background(lambda: self.terminations.send(number, to, snapshot))

    def _go_on(self) -> None:
        """Close, and ask about those that keep the memory."""
        screen = KillScreen(self.monitor, with_holders((), self._holders()))
        app = self.app
        self._close()
        app.push_screen(screen)

    def _close(self) -> None:
        self._leaving = True
        if self._graceful is not None:
            self._graceful.stop()
        if not self._busy:
            self.terminations.close()
        if self.terminations.sent:
            bad = self.terminations.those(TerminationState.RUNNING, TerminationState.KEPT, TerminationState.REFUSED)
            unit, log = self.view.settings.memory_unit, self.monitor.log
            kept = [self.terminations.held_message(one, unit) for one in self._request.held if not one.released]
            words = "; ".join((self.terminations.summary(unit), *kept, *self.terminations.reclaim_messages(unit)))
            self.monitor.note(EventKind.SIGNAL, words)
            if log is not None and log.problem is not None:
                words += f". {log.problem}"
            self.app.notify(words, severity="warning" if bad else "information", timeout=10, markup=False)
        self.dismiss()

    def _scroll(self, pages: int) -> None:
        most = max(0, self._about_total - self._about_rows)
        self._first = max(0, min(most, self._first + pages * max(1, self._about_rows - 1)))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._first = min(max(0, self._about_total - self._about_rows), self._first + 1)
        self.draw()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._first = max(0, self._first - 1)
        self.draw()

    def clicked(self, row: int, column: int) -> None:
        """A click goes to a line; a click on the line that the cursor is on chooses it."""
        choices = self.choices()
        n = row - self._list_row
        if self._typed is None and 0 <= n < len(choices):
            if n == self._at:
                self._choose(choices[n])
            else:
                self._at = n
            if self.is_current:
                self.draw()

    # -------------------------------------------------------------- the drawing

    def heading(self) -> str:
        terminations = self.terminations
        if terminations.sent:
            return self._outcome()
        count = len(terminations.all)
        return "Send a signal" if count == 1 else f"Send a signal to {count} processes"

    def _outcome(self) -> str:
        """What was sent, and in the end how it ended."""
        terminations = self.terminations
        numbers = [one.number for one in terminations.all if one.number is not None]
        if terminations.pending:
            return f"{signal_name(numbers[-1])} sent"
        if terminations.kept:
            return "Ended, but the memory is still held"
        if not terminations.those(TerminationState.RELEASED):
            return "Not ended"
        freed = sum(terminations.freed_by_gpu(terminations.those(TerminationState.RELEASED)).values())
        return f"Done: {self.view.memory(freed).strip()} back" if freed else "Done"

    def hints(self) -> Sequence[Hint]:
        if self._typed is not None:
            return (("↑↓", "choose"), ("Enter", "take it"), ("Esc", "back"))
        scroll: tuple[Hint, ...] = (("PgUp PgDn", "scroll"),) if self._about_total > self._about_rows else ()
        if len(self.choices()) == 1:
            return (("Enter", "close"), *scroll)
        reach: tuple[Hint, ...] = (("←→", "scope"),) if not self.terminations.sent and len(self.scopes()) > 1 else ()
        copy: tuple[Hint, ...] = (("c", "copy the command"),) if self.stop_commands() else ()
        close = "close" if self.terminations.sent else "cancel"
        return (("↑↓", "choose"), ("Enter", "do it"), ("Esc", close), *reach, *copy, *scroll)

    def needs(self) -> tuple[int, int]:
        """Every choice, and a line of those whom it hits."""
        listed = len(self.choices()) if self._typed is None else _TYPED_ROWS
        return _LEAST_CELLS, listed + 1 + (self._graceful is not None)

    def content(self, cells: int, rows: int) -> Sequence[Line]:
        roomy = rows >= 16
        typed = self._typed
        below = self._list(cells) if typed is None else typed.lines(cells, 8 if roomy else _TYPED_ROWS, self.view)
        now = self._snapshot.taken_at if self._snapshot is not None else 0.0
        text = KillText(self.terminations, self.view, now, self.monitor.report.owners)
        total = text.total(cells)[: rows - len(below) - 1 - (self._graceful is not None)]
        about = [line for termination in self.terminations.all for line in text.about(termination, cells)]
        about += text.left_out(self._request.hidden, cells)
        scope, header = self._scope_line(cells), [text.header(cells)]
        if rows - len(below) - len(total) - len(scope) - 1 < len(about) and self._graceful is None:
            header = []  # whom it is about goes before what the columns are, and before the wider scopes
            if rows - len(below) - len(total) - len(scope) < len(about):
                scope = []
        spare = rows - len(below) - len(total) - len(header) - len(scope)
        gaps = 3 if roomy and spare > 6 else 0
        self._about_rows, self._about_total = max(1, spare - gaps), len(about)
        self._first = max(0, min(self._first, self._about_total - self._about_rows))
        seen = about[self._first : self._first + self._about_rows]
        if (more := self._about_total - self._about_rows - self._first) > 0 and len(seen) > 1:
            seen[-1] = ((f"  … {more + 1} more lines", "dim"),)
        gap: list[Line] = [()] if gaps else []
        lines = [*gap, *scope, *header, *seen, *total, *gap, *below, *gap]
        self._list_row = len(lines) - len(gap) - len(below)
        return lines

    def _scope_line(self, cells: int) -> list[Line]:
        """What is reached, and the countdown where there is one."""
        graceful = self._graceful
        if graceful is not None and (left := graceful.seconds_left) is not None:
            joined = f"; {graceful.joined} more appeared meanwhile" if graceful.joined else ""
            words = f"SIGKILL to those left in {left:.0f} s{joined}"
            return [((fit(words, cells), "warning+b"),)]
        scopes = self.scopes()
        if self._request.scope is SignalScope.PROCESS and len(scopes) == 1:
            return []
        related = self._related or RelatedProcesses()
        others = [
            f"{scope.value}: {len(related.of(scope)) + len(self._request.targets)}"
            for scope in scopes
            if scope is not self.scope and scope is not self._request.scope
        ]
        more = f"   {'  '.join(others)}" if others and not self.terminations.sent else ""
        spans: Line = (
            ("Scope ", "dim"), (f"{self.scope.value} ({len(self.terminations.all)})", "accent+b"),
            (more if width(more) < cells - 40 else "", "dim"),
        )  # fmt: skip
        return [spans]

    def _list(self, cells: int) -> list[Line]:
        choices = self.choices()
        self._at = min(self._at, len(choices) - 1)
        return choice_lines(choices, self._at, self._busy, cells, self.view)
