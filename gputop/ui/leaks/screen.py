"""F8: who holds memory that nobody uses, on all GPUs, worst first; why that is thought, and what speaks against it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar, Final

from textual import events

from gputop import units
from gputop.leaks.report import LeakReport, UnattributedMemory
from gputop.model import GpuProcess, LeakVerdict, ProcessKey, Snapshot, Verdict
from gputop.monitor import Monitor
from gputop.procfs.user_names import UserNames
from gputop.sampling.messages import LeaksReported
from gputop.text import fit, width, wrap
from gputop.ui.kill.start import kill_unlisted, kill_verdicts
from gputop.ui.leaks.text import about_unattributed, about_verdict
from gputop.ui.monitor_screen import MonitorScreen
from gputop.ui.processes.annotations import verdict_label
from gputop.ui.processes.lines import VERDICT_ROLES
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.frame import Hint, clip, hint_line, on
from gputop.ui.toolkit.full_screen import FullScreen

Entry = LeakVerdict | UnattributedMemory

_users: Final = UserNames()
_LEAST_DETAIL: Final = 8  # lines that the one at the cursor gets


class LeaksScreen(MonitorScreen, FullScreen[None]):
    """A list, and under it all that speaks for and against the one at the cursor. Tags are by process, as in the
    table."""

    least_size: ClassVar[tuple[int, int]] = (20, 6)
    shows = (LeaksReported,)

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._tags: set[ProcessKey] = set()
        self._at = 0
        self._key: object = None  # what the cursor is on, through changes of the list
        self._first = 0  # of the list
        self._scroll = 0  # of the detail
        self._list_rows = 1

    @property
    def report(self) -> LeakReport:
        return self.monitor.report

    @property
    def entries(self) -> list[Entry]:
        return [*self.report.verdicts, *self.report.unattributed]

    def look(self) -> None:
        """Keep the cursor on its entry."""
        entries = self.entries
        keys = [_key(entry) for entry in entries]
        if self._key in keys:
            self._at = keys.index(self._key)
        self._tags &= {verdict.process for verdict in self.report.verdicts}
        self.draw()

    # -- keys

    def take(self, event: events.Key) -> bool:
        count = len(self.entries)
        match event.key:
            case "escape" | "q" | "f8" | "f10" | "L":
                self.dismiss()
            case "down":
                self._go(self._at + 1)
            case "up":
                self._go(self._at - 1)
            case "home" | "end":
                self._go(0 if event.key == "home" else count - 1)
            case "pagedown" | "pageup":
                self._scroll = max(0, self._scroll + (5 if event.key == "pagedown" else -5))
            case "space":
                self._tag()
            case "a":
                self._tag_mine()
            case "U":
                self._tags.clear()
            case "r" | "f11":
                self.monitor.scan_now()
                self.notify("Looking for processes that hold GPU devices…", timeout=2, markup=False)
            case "f9" | "k":
                self._kill()
            case "w":
                self._why()
            case "enter":
                self._details()
            case _:
                return False
        return True

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._go(self._at + 1)
        self.draw()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._go(self._at - 1)
        self.draw()

    def on_click(self, event: events.Click) -> None:
        at = self._first + event.y - 2
        if 0 <= event.y - 2 < self._list_rows and at < len(self.entries):
            self._go(at)
            if event.chain == 2:
                self._details()
            if self.is_current:
                self.draw()

    def _go(self, to: int) -> None:
        entries = self.entries
        self._at = max(0, min(to, len(entries) - 1))
        self._key = _key(entries[self._at]) if entries else None
        self._scroll = 0

    def _here(self) -> Entry | None:
        entries = self.entries
        return entries[self._at] if self._at < len(entries) else None

    def _tag(self) -> None:
        entry = self._here()
        if isinstance(entry, LeakVerdict):
            self._tags ^= {entry.process}
            self._go(self._at + 1)

    def _tag_mine(self) -> None:
        me = own_name()
        mine = {one.process for one in self.report.those(Verdict.LEAK) if one.user == me}
        if not mine:
            self.notify(f"None of the LEAKs is of user {me}.", timeout=4, markup=False)
        self._tags |= mine

    def _chosen(self) -> list[LeakVerdict]:
        """The tagged, else the one at the cursor."""
        tagged = [verdict for verdict in self.report.verdicts if verdict.process in self._tags]
        here = self._here()
        return tagged or ([here] if isinstance(here, LeakVerdict) else [])

    def _kill(self) -> None:
        here, chosen = self._here(), self._chosen()
        if isinstance(here, UnattributedMemory) and not chosen:
            kill_unlisted(self, self.monitor, here)
        else:
            kill_verdicts(self, self.monitor, chosen)

    def _why(self) -> None:
        """Why the GPU of the one at the cursor is full, or busy."""
        here = self._here()
        if here is None or (isinstance(here, LeakVerdict) and not here.memory):
            return
        from gputop.ui.gpus.why_screen import WhyScreen

        uuid = here.gpu_uuid if isinstance(here, UnattributedMemory) else here.memory[0][0]
        self.app.push_screen(WhyScreen(self.monitor, uuid, None))

    def _details(self) -> None:
        entry, snapshot = self._here(), self.monitor.latest
        if snapshot is None or entry is None or isinstance(entry, UnattributedMemory):
            return
        process = _listed(snapshot, entry.process)
        if process is not None:
            from gputop.ui.processes.details_screen import ProcessScreen

            self.app.push_screen(ProcessScreen(self.monitor, process))

    # -- drawing

    def picture(self, cells: int, rows: int) -> Sequence[Line]:
        height, rows = rows, rows - 3
        entries = self.entries
        self._at = max(0, min(self._at, len(entries) - 1))
        self._key = _key(entries[self._at]) if entries else None
        detail = self._detail(cells - 2)
        self._list_rows = max(1, min(len(entries), max(rows // 3, rows - len(detail) - 1), rows - _LEAST_DETAIL))
        self._first = max(0, min(self._first, self._at, len(entries) - self._list_rows))
        self._first = max(self._first, self._at - self._list_rows + 1)
        lines: list[Line] = [self._title(cells), self._heading(cells)]
        seen = entries[self._first : self._first + self._list_rows]
        lines += [self._line(entry, n == self._at, cells) for n, entry in enumerate(seen, self._first)]
        room = height - 1 - len(lines)
        lines.append(((self.view.glyphs.rule * cells, "faint"),))
        room -= 1
        self._scroll = max(0, min(self._scroll, len(detail) - room))
        part = detail[self._scroll : self._scroll + room]
        if (more := len(detail) - self._scroll - room) > 0:
            part[-1] = ((f"… {more + 1} more lines: PgDn", "dim"),)
        lines += [((" ", "text"), *line) for line in part]
        lines += [()] * (height - 1 - len(lines))
        lines.append(hint_line(self._hints(), cells, "bar"))
        return [clip(line, cells) for line in lines]

    def _hints(self) -> Sequence[Hint]:
        kill: tuple[Hint, ...] = (("F9 k", "kill"),) if self.monitor.signals is not None else ()
        return (
            ("Esc q", "back"), *kill, ("Enter", "details"), ("w", "why"), ("Space", "tag"),
            ("a", "tag all LEAKs of mine"), ("r", "look again"),
        )  # fmt: skip

    def _title(self, cells: int) -> Line:
        said = []
        for verdict in sorted(Verdict, reverse=True):
            those = self.report.those(verdict)
            if those:
                held = sum(one.memory_bytes or 0 for one in those)
                said.append(f"{len(those)} {verdict.name} {self.view.memory(held)}")
        if self.report.scan is not None:
            scan = self.report.scan
            said.append(f"{scan.inspected} processes inspected in {scan.took:.1f} s")
        words = f" {self.view.glyphs.bullet} ".join(said)
        left = " Leaks "
        return ((left, "title+b@bar"), (fit(f"{words} ", cells - width(left), right=True), "dim@bar"))

    def _heading(self, cells: int) -> Line:
        text = f"  {'VERDICT':<12} {'FREES':>8} {'GPU':>5} {'PID':>7} {'USER':<9} COMMAND"
        return ((fit(text, cells), "dim"),)

    def _line(self, entry: Entry, here: bool, cells: int) -> Line:
        glyphs = self.view.glyphs
        cursor: Span = (glyphs.folded if here else " ", "accent+b")
        if isinstance(entry, UnattributedMemory):
            where = self._index(entry.gpu_uuid)
            cause = entry.causes[0].name if entry.causes else "unknown"
            name, size = ("UNATTRIBUTED", self.view.memory(entry.bytes)) if entry.bytes else ("BUSY", glyphs.unknown)
            text = f"{name:<12} {size:>8} {where:>5} {glyphs.unknown:>7} {'':<9} "
            line: Line = (
                cursor,
                (" ", "text"),
                (text, "unattributed"),
                (f"{'used by' if entry.bytes else 'busy with'} no listed process: {cause}?", "dim"),
            )
        else:
            tagged = entry.process in self._tags
            word = verdict_label(entry, self.report.taken_at)
            gpus = ",".join(self._index(uuid) for uuid, _ in entry.memory)
            line = (
                cursor,
                ("*" if tagged else " ", "accent+b"),
                (fit(word, 12), VERDICT_ROLES[entry.verdict]),
                (f" {self.view.memory(entry.memory_bytes):>8}", "title"),
                (f" {fit(gpus, 5, right=True)}", "text"),
                (f" {entry.process.pid:>7}", "dead" if entry.process.start_ticks is None else "text"),
                (f" {fit(entry.user or glyphs.unknown, 9)}", "text"),
                (f" {entry.command or glyphs.unknown}", "dim"),
            )
        line = clip(line, cells)
        return on(line, "cursor") if here else line

    def _index(self, uuid: str) -> str:
        snapshot = self.monitor.latest
        gpu = snapshot.gpu(uuid) if snapshot is not None else None
        return "?" if gpu is None else str(gpu.index)

    def _detail(self, cells: int) -> list[Line]:
        entry = self._here()
        if isinstance(entry, UnattributedMemory):
            lines = about_unattributed(entry, self._index(entry.gpu_uuid), self.view, cells)
        elif entry is not None:
            lines = about_verdict(entry, self.report, self.view, cells)
        else:
            when = units.clock(self.report.taken_at) if self.report.taken_at else ""
            words = f"No leak found ({when})." if when else "Not checked yet."
            sure = bool(when) and not self.report.unsure and not self.report.dead_pids
            lines = [((words, "good" if sure else "text"),)]
            for (
                dead_pid
            ) in self.report.dead_pids:  # not judged yet: the driver takes a moment to tear down what has ended
                about = f"{dead_pid.pid} is dead and still listed ({self.view.memory(dead_pid.memory_bytes).strip()})"
                lines += [
                    ((part, "dead"),) for part in wrap(f"{about}: judged when it has stayed so for some seconds", cells)
                ]
        scan = self.report.scan
        if scan is not None and not scan.complete and not any(scan.summary() in words for words in self.report.unsure):
            lines += [((part, "warning"),) for part in wrap(scan.summary(), cells)]
        for words in self.report.unsure:
            lines += [((part, "warning"),) for part in wrap(f"Not sure: {words}", cells)]
        return lines


def own_name() -> str:
    """The user on whose behalf gputop runs: who called sudo, where it was called. The number where that is not known
    at once."""
    return os.environ.get("SUDO_USER") or _users.name(os.geteuid()) or ""


def _key(entry: Entry) -> object:
    return entry.gpu_uuid if isinstance(entry, UnattributedMemory) else entry.process


def _listed(snapshot: Snapshot, key: ProcessKey) -> GpuProcess | None:
    """The process as it is listed; of a dead pid, that pid's row."""
    for process in snapshot.processes:
        if process.key == key or (key.start_ticks is None and process.pid == key.pid):
            return process
    return None
