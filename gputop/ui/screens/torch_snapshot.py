"""The viewer of memory snapshots: reads the files, shows one view at a time, knows the keys they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.timer import Timer

from gputop.memory.snapshot_groups import TERMS
from gputop.memory.torch_snapshot import Snapshot, UnreadableFile, open_snapshot
from gputop.memory.words import size
from gputop.model import clean_text
from gputop.ui.background import in_background
from gputop.ui.board import Board
from gputop.ui.cells import Line, Span, fit, width
from gputop.ui.exact_output import install
from gputop.ui.torch_allocations import AllocationsPane
from gputop.ui.torch_lists import DiffPane, LeaksPane, OomPane, SegmentsPane
from gputop.ui.torch_overview import OverviewPane
from gputop.ui.torch_pane import Pane
from gputop.ui.torch_state import TorchState
from gputop.ui.torch_timeline import TimelinePane
from gputop.ui.view import View
from gputop.ui.widgets.entry import Entry
from gputop.ui.widgets.frame import Hint, clip, hint_line, shown
from gputop.ui.wrap import wrap

_PANES: Final = (OverviewPane, TimelinePane, AllocationsPane, LeaksPane, SegmentsPane, OomPane, DiffPane)
_IDLE: Final = 0.12  # seconds without a key after which what takes longer is computed
_LEAST: Final = (40, 8)


class TorchSnapshotScreen(Screen[None]):
    """Views of the snapshots in *paths*. q closes it (the application, where it is all there is), so does Esc where
    there is a screen to go back to: a torn escape sequence begins with it, and must not end the program."""

    DEFAULT_CSS: ClassVar[str] = """
    TorchSnapshotScreen { overflow: hidden; }
    TorchSnapshotScreen > Board { height: 1fr; }
    """
    ALLOW_SELECT: ClassVar[bool] = False
    AUTO_FOCUS: ClassVar[str | None] = ""

    def __init__(self, paths: Sequence[Path], view: View, device: int | None = None, filter_text: str = "") -> None:
        super().__init__()
        install(self)
        self.view = view
        self.board = Board()
        self.state: TorchState | None = None  # once the files are read
        self.problems: list[str] = []
        self._paths, self._device, self._filter = list(paths), device, filter_text
        self._reading = ("reading", 0.0)
        self._panes: list[Pane] = []
        self._at = 0
        self._tabs: list[tuple[int, int]] = []
        self._prompt: Entry | None = None
        self._complaint: str | None = None
        self._help = False
        self._settling: Timer | None = None

    @property
    def pane(self) -> Pane:
        return self._panes[self._at]

    # -- reading

    def compose(self) -> ComposeResult:
        yield self.board

    def on_mount(self) -> None:
        self.draw()
        in_background(self, self._read, self._was_read)

    def _read(self) -> tuple[list[Snapshot], list[str]]:
        """In a thread: the files are read in children of their own, one after the other."""
        found: list[Snapshot] = []
        problems: list[str] = []
        for n, path in enumerate(self._paths):
            try:
                found.append(open_snapshot(path, lambda what, share, n=n: self._progress(n, what, share)))  # type: ignore[misc]
            except UnreadableFile as error:
                problems.append(f"{clean_text(str(path), 500)}: {error}")
        for snapshot in found:
            for device in snapshot.devices:
                _ = device.peak
        return found, problems

    def _progress(self, n: int, what: str, share: float) -> None:
        if not self.is_running:
            raise UnreadableFile("given up")  # the screen was closed: the child ends
        parts = {"reading": (0.0, 0.5), "sorting": (0.5, 0.25), "replaying": (0.75, 0.25)}
        start, length = parts.get(what, (0.0, 1.0))
        self._reading = (
            f"{what} {clean_text(self._paths[n].name, 80)}",
            (n + start + length * share) / len(self._paths),
        )
        self.call_later(self.draw)

    def _was_read(self, result: tuple[list[Snapshot], list[str]]) -> None:
        found, self.problems = result
        if found:
            self.state = state = TorchState(found, self.view)
            if self._device is not None:
                state.next_device(self._device)
            state.set_filter(self._filter)
            if len(found) > 1:
                state.file = len(found) - 1  # the newer one; the first is what it is compared with
            self._panes = [make(state) for make in _PANES]
        self.draw()

    # -- drawing

    def on_resize(self, event: events.Resize) -> None:
        self.draw()

    def draw(self) -> None:
        cells, rows = self.app.size
        if not self.is_mounted or cells < 4 or rows < 2:
            return
        if cells < _LEAST[0] or rows < _LEAST[1]:
            lines: list[Line] = [((fit(f"too small: needs {_LEAST[0]}×{_LEAST[1]}", cells), "warning+b"),)]
        elif self.state is None:
            lines = self._waiting(cells, rows)
        else:
            lines = self._looking(self.state, cells, rows)
        self.board.show(shown(lines, self.view.glyphs))
        if self.state is not None and self.state.device is not None and self.pane.pending():
            if self._settling is not None:
                self._settling.stop()
            self._settling = self.set_timer(_IDLE, self._settle)

    def _settle(self) -> None:
        self._settling = None
        if self.state is not None and self.state.device is not None:
            self.pane.settle()
            self.draw()

    def _waiting(self, cells: int, rows: int) -> list[Line]:
        """The progress bar; or what is wrong with every file."""
        lines: list[Line] = [((fit(" gputop torch-snapshot", cells), "title+b@bar"),), ()]
        if self.problems:
            for problem in self.problems:
                sign = f" {self.view.glyphs.warning} "
                parts = wrap(problem, cells - 4)
                lines += [((sign if not n else "   ", "critical+b"), (part, "text")) for n, part in enumerate(parts)]
        else:
            what, share = self._reading
            room = max(10, min(60, cells - 4))
            done = round(room * share)
            words = f"{what}  {100 * share:.0f} %"
            bar: Line = (
                (" ", "text"),
                (self.view.glyphs.full * done, "g0@track"),
                (self._track(room - done), "faint@track"),
            )
            lines += [((f" {fit(words, cells - 2)}", "text"),), bar]
        lines += [()] * (rows - len(lines) - 1)
        return [*lines[: rows - 1], hint_line((self._close_hint,), cells, "bar")]

    def _track(self, cells: int) -> str:
        return (" " if self.view.has_track else self.view.glyphs.track) * cells

    def _looking(self, state: TorchState, cells: int, rows: int) -> list[Line]:
        lines: list[Line] = [self._title(state, cells), self._tab_line(cells)]
        room = rows - 3 - len(self.problems)
        for problem in self.problems:
            lines.append(((fit(f" {self.view.glyphs.warning} {problem}", cells), "critical+b@bar"),))
        if self._help:
            body: Sequence[Line] = self._help_lines(cells - 2)
        elif state.device is None:
            words = "The file holds no segments and no trace: CUDA was not used, or another allocator was."
            body = [(), ((words, "dim"),)]
        else:
            body = self.pane.lines(cells - 2, room)
        lines += [((" ", "text"), *clip(line, cells - 2)) for line in list(body)[:room]]
        lines += [()] * (rows - 1 - len(lines))
        return [*lines, self._bottom(state, cells)]

    def _title(self, state: TorchState, cells: int) -> Line:
        snapshot = state.snapshot
        dot = f" {self.view.glyphs.bullet} "
        left = f" {clean_text(snapshot.name, 200)}"
        if len(state.snapshots) > 1:
            left += f" ({state.file + 1} of {len(state.snapshots)})"
        facts = [size(snapshot.file_bytes), f"{snapshot.entries:,} trace entries"]
        device = state.device
        label = device.label if device is not None else "no device"
        if len(snapshot.devices) > 1:
            label += f" of {len(snapshot.devices)}"
        right: list[Span] = [(f" {label} ", "g0+br")]
        if state.filter:
            right.insert(0, (f" filter: {clean_text(state.filter.text, 60)} ", "warning+br"))
        taken = sum(width(text) for text, _ in right)
        return ((fit(dot.join((left, *facts)), max(0, cells - taken)), "title+b@bar"), *right)

    def _tab_line(self, cells: int) -> Line:
        spans: list[Span] = []
        self._tabs = []
        x = 0
        for n, pane in enumerate(self._panes):
            on = n == self._at
            words = f" {pane.name} "
            spans += [
                (f" {pane.key}", "key+b" if not on else "key+b@cursor"),
                (words, "title+b@cursor" if on else "dim"),
            ]
            self._tabs.append((x, x + 2 + len(words)))
            x += 2 + len(words)
        if x > cells:  # letters and the chosen one
            spans = []
            for n, pane in enumerate(self._panes):
                words = f" {pane.key} {pane.name} " if n == self._at else f" {pane.key}"
                spans.append((words, "title+b@cursor" if n == self._at else "key+b"))
        return clip(tuple(spans), cells)

    def _bottom(self, state: TorchState, cells: int) -> Line:
        if self._prompt is not None:
            label = " Filter: " if self._complaint is None else f" {self._complaint} "
            style = "key+b@bar" if self._complaint is None else "warning+b@bar"
            label = fit(label, min(width(label), cells // 2))
            return ((label, style), *self._prompt.line(cells - width(label)))
        hints: list[Hint] = [self._close_hint, ("?", "help"), ("Tab", "view"), ("/", "filter")]
        if len(state.snapshot.devices) > 1:
            hints.append(("g", "device"))
        if len(state.snapshots) > 1:
            hints.append(("r", "file"))
        own = self.pane.hints() if state.device is not None else ()
        return hint_line((*hints[:2], *own, *hints[2:]), cells, "bar")

    def _help_lines(self, cells: int) -> list[Line]:
        keys = (
            ("Tab Shift+Tab", "the next and the previous view; or its letter"),
            ("o t a l s m d", "overview, timeline, allocations, leaks, segments, OOM, diff"),
            ("/ F3", "filter allocations, in every view:"),
            *((f"    {term}", words) for term, words in TERMS),
            ("g", "the next device"),
            ("r", "the next file"),
            ("w", "allocations: now, at the peak, at the timeline's cursor; diff: dumps, peaks"),
            ("v", "allocations as table, tree, flame graph"),
            ("f", "only the user's frames, or torch's and C++ ones too"),
            ("← → , .", "timeline: move the cursor by a column, by an entry"),
            ("↑ ↓ + - z", "timeline: zoom in, out, the whole"),
            ("p n", "timeline: to the peak, to the next OOM"),
            ("q F10", "close; Esc clears the filter, and goes back where there is a dashboard"),
        )
        lines: list[Line] = [()]
        lines += [((fit(key, 18), "key+b"), (words, "text")) for key, words in keys]
        words = (
            "Bytes are what the program asked for, as a trace records them (memory_stats: requested_bytes), unless a "
            "column says otherwise; reserved is what torch took from the driver. M and G are binary."
        )
        return [*lines, (), *[((part, "dim"),) for part in wrap(words, cells)]]

    # -- keys

    def on_key(self, event: events.Key) -> None:
        if self._take(event):
            event.stop()
            event.prevent_default()
            if self.is_current:
                self.draw()

    def _take(self, event: events.Key) -> bool:
        key, state = event.key, self.state
        if self._prompt is not None and state is not None:
            return self._type(event, state, self._prompt)
        if self._help and key in ("escape", "q", "f1", "question_mark"):
            self._help = False
            return True
        if key in ("q", "f10"):
            self.close()
            return True
        if key == "escape":
            if state is not None and state.filter:
                state.set_filter("")
            elif not self._is_all_there_is:
                self.close()
            return True
        if state is None:
            return False
        if state.device is not None and not self._help and self.pane.pressed(key, self.app.size.height - 6):
            return True
        return self._common(key, state)

    def _common(self, key: str, state: TorchState) -> bool:
        """A key that every view has."""
        if key == "enter" and isinstance(self.pane, OomPane) and state.device is not None and state.device.ooms:
            key = TimelinePane.key
        for n, pane in enumerate(self._panes):
            if key == pane.key:
                self._at, self._help = n, False
                return True
        match key:
            case "tab" | "shift+tab":
                self._at = (self._at + (1 if key == "tab" else -1)) % len(self._panes)
                self._help = False
            case "slash" | "f3" | "f4":
                self._prompt, self._complaint = Entry(state.filter.text), None
            case "g":
                state.next_device()
            case "r":
                state.next_file()
            case "f1" | "question_mark":
                self._help = True
            case "ctrl+l":
                self.board.redraw()
            case _:
                return False
        return True

    def _type(self, event: events.Key, state: TorchState, prompt: Entry) -> bool:
        if event.key == "escape":
            state.set_filter("")
            self._prompt = None
        elif event.key == "enter":
            self._prompt = None
        elif prompt.key(event):
            self._complaint = state.set_filter(prompt.text)
        else:
            return False
        return True

    @property
    def _is_all_there_is(self) -> bool:
        return self.app.screen_stack[0] is self

    @property
    def _close_hint(self) -> Hint:
        return ("q", "quit") if self._is_all_there_is else ("Esc q", "back")

    def close(self) -> None:
        if self._is_all_there_is:
            self.app.exit(return_code=1 if self.state is None and self.problems else 0)
        else:
            self.dismiss()

    def on_click(self, event: events.Click) -> None:
        if self.state is None or self.state.device is None:
            return
        if event.y == 1:
            for n, (start, end) in enumerate(self._tabs):
                if start <= event.x < end:
                    self._at = n
        else:
            self.pane.clicked(event.y - 2 - len(self.problems), event.x - 1)
        self.draw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._scroll("down")

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._scroll("up")

    def _scroll(self, key: str) -> None:
        if self.state is not None and self.state.device is not None:
            if isinstance(self.pane, TimelinePane):
                key = "minus" if key == "down" else "plus"
            for _ in range(1 if isinstance(self.pane, TimelinePane) else 3):
                self.pane.pressed(key, 1)
            self.draw()
