"""What the viewers of files have in common: a file is read behind a progress bar, then one view of it fills the screen,
with tabs above, hints below, a filter, and keys that every view has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, Generic, TypeVar

from textual import events
from textual.timer import Timer

from gputop.text import fit, width, wrap
from gputop.ui.toolkit.background import in_background
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.frame import Hint, clip, hint_line
from gputop.ui.toolkit.full_screen import FullScreen
from gputop.ui.toolkit.text_entry import Entry
from gputop.ui.toolkit.view import View
from gputop.ui.torch_viewers.curve_pane import CurvePane
from gputop.ui.torch_viewers.pane import Pane, TextPane

_IDLE_SECONDS: Final = 0.12  # seconds without a key after which what takes longer is computed
_KEY_CELLS: Final = 18  # cells of the keys in the help

Found = TypeVar("Found")


class HelpPane(TextPane):
    """Keys and what they do; then what the figures are."""

    def __init__(self, view: View, keys: Sequence[tuple[str, str]], about: str) -> None:
        super().__init__(view)
        self._keys, self._about = keys, about

    def text(self, cells: int) -> list[Line]:
        lines: list[Line] = [()]
        for key, words in self._keys:
            for n, part in enumerate(wrap(words, max(10, cells - _KEY_CELLS))):
                lines.append(((fit("" if n else key, _KEY_CELLS), "key+b"), (part, "text")))
        return [*lines, (), *[((part, "dim"),) for part in wrap(self._about, cells)]]


class ViewerScreen(FullScreen[None], Generic[Found]):
    """Shows what ``read`` finds, as the panes that ``take_in`` makes of it.

    q closes it (the application, where it is all there is), so does Esc where there is a screen to go back to: a torn
    escape sequence begins with it, and must not end the program.
    """

    least_size: ClassVar[tuple[int, int]] = (40, 8)
    PROGRAM: ClassVar[str]

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view
        self.problems: list[str] = []
        self.panes: list[Pane] = []
        self.at = 0
        self.filters = True  # whether there is something to filter
        self._reading = ("reading", 0.0)
        self._tabs: list[tuple[int, int]] = []
        self._prompt: Entry | None = None
        self._complaint: str | None = None
        self._help: HelpPane | None = None
        self._settling: Timer | None = None

    @property
    def pane(self) -> Pane:
        return self.panes[self.at]

    @property
    def view(self) -> View:
        return self._view

    # -- what a viewer is of

    def read(self) -> tuple[Found | None, list[str]]:
        """In a thread: what the files hold, None where none could be read; and what is wrong with each, in words."""
        raise NotImplementedError

    def take_in(self, found: Found) -> Sequence[Pane]:
        """The views of it."""
        raise NotImplementedError

    def heading(self, cells: int) -> Line:
        raise NotImplementedError

    def nothing(self) -> str | None:
        """Why there is nothing to look at in what was read."""
        return None

    def keys(self) -> Sequence[tuple[str, str]]:
        """For the help: keys, and what they do."""
        return ()

    def about(self) -> str:
        """For the help: what the figures are."""
        return ""

    def hints(self) -> Sequence[Hint]:
        """Of keys that all its views have."""
        return ()

    def key_pressed(self, key: str) -> bool:
        """A key that all its views have; whether it is one."""
        return False

    @property
    def filter_text(self) -> str:
        return ""

    def set_filter(self, text: str) -> str | None:
        """Returns what is wrong with *text*, in words."""
        raise NotImplementedError

    # -- reading

    def on_mount(self) -> None:
        super().on_mount()
        in_background(self, self.read, self._was_read)

    def progress(self, words: str, share: float) -> None:
        """From the thread that reads."""
        self._reading = words, share
        self.call_later(self.draw)

    def _was_read(self, result: tuple[Found | None, list[str]]) -> None:
        found, self.problems = result
        if found is not None:
            self.panes = list(self.take_in(found))
        self.draw()

    # -- drawing

    @property
    def _looks(self) -> bool:
        """Whether a view is shown."""
        return bool(self.panes) and self.nothing() is None

    def draw(self) -> None:
        super().draw()
        if self._looks and self.pane.pending():
            if self._settling is not None:
                self._settling.stop()
            self._settling = self.set_timer(_IDLE_SECONDS, self._settle)

    def picture(self, cells: int, rows: int) -> list[Line]:
        return self._looking(cells, rows) if self.panes else self._waiting(cells, rows)

    def _settle(self) -> None:
        self._settling = None
        if self._looks:
            self.pane.settle()
            self.draw()

    def _waiting(self, cells: int, rows: int) -> list[Line]:
        """The progress bar; or what is wrong with every file."""
        lines: list[Line] = [((fit(f" {self.PROGRAM}", cells), "title+b@bar"),), ()]
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

    def _looking(self, cells: int, rows: int) -> list[Line]:
        lines: list[Line] = [self.heading(cells), self._tab_line(cells)]
        room = rows - 3 - len(self.problems)
        for problem in self.problems:
            lines.append(((fit(f" {self.view.glyphs.warning} {problem}", cells), "critical+b@bar"),))
        nothing = self.nothing()
        if self._help is not None:
            body: Sequence[Line] = self._help.lines(cells - 2, room)
        elif nothing is not None:
            body = [(), ((nothing, "dim"),)]
        else:
            body = self.pane.lines(cells - 2, room)
        lines += [((" ", "text"), *clip(line, cells - 2)) for line in list(body)[:room]]
        lines += [()] * (rows - 1 - len(lines))
        return [*lines, self._bottom(cells)]

    def _tab_line(self, cells: int) -> Line:
        spans = []
        self._tabs = []
        x = 0
        for n, pane in enumerate(self.panes):
            on = n == self.at
            words = f" {pane.name} "
            spans += [
                (f" {pane.key}", "key+b" if not on else "key+b@cursor"),
                (words, "title+b@cursor" if on else "dim"),
            ]
            self._tabs.append((x, x + 2 + len(words)))
            x += 2 + len(words)
        if x > cells:  # letters and the chosen one
            spans = []
            for n, pane in enumerate(self.panes):
                words = f" {pane.key} {pane.name} " if n == self.at else f" {pane.key}"
                spans.append((words, "title+b@cursor" if n == self.at else "key+b"))
        return clip(tuple(spans), cells)

    def _bottom(self, cells: int) -> Line:
        if self._prompt is not None:
            label = " Filter: " if self._complaint is None else f" {self._complaint} "
            style = "key+b@bar" if self._complaint is None else "warning+b@bar"
            label = fit(label, min(width(label), cells // 2))
            return ((label, style), *self._prompt.line(cells - width(label)))
        hints: list[Hint] = [self._close_hint, ("?", "help")]
        own = self.pane.hints() if self._looks else ()
        views: tuple[Hint, ...] = (("Tab", "view"),) if len(self.panes) > 1 else ()
        filters: tuple[Hint, ...] = (("/", "filter"),) if self.filters else ()
        return hint_line((*hints, *own, *views, *filters, *self.hints()), cells, "bar")

    def _help_keys(self) -> list[tuple[str, str]]:
        views = [("Tab Shift+Tab", "next and previous view; or press its letter")] if len(self.panes) > 1 else []
        last = ("q F10", "close; Esc clears the filter, then goes back to the dashboard if there is one")
        return [*views, *self.keys(), last]

    # -- keys

    def take(self, event: events.Key) -> bool:
        key = event.key
        if self._prompt is not None and self.panes:
            return self._type(event, self._prompt)
        if self._help is not None:
            if key in ("escape", "q", "f1", "question_mark"):
                self._help = None
                return True
            if self._help.pressed(key, self.app.size.height - 6):
                return True
        if key in ("q", "f10"):
            self.close()
            return True
        if key == "escape":
            if self.panes and self.filter_text:
                self.set_filter("")
            elif not self._is_all_there_is:
                self.close()
            return True
        if not self.panes:
            return False
        if self._looks and self._help is None and self.pane.pressed(key, self.app.size.height - 6):
            return True
        return self._common(key)

    def _common(self, key: str) -> bool:
        """A key that every view has."""
        for pane in self.panes:
            if key == pane.key:
                self.show_pane(pane)
                return True
        match key:
            case "tab" | "shift+tab":
                self.at = (self.at + (1 if key == "tab" else -1)) % len(self.panes)
                self._help = None
            case "slash" | "f3" | "f4" if self.filters:
                self._prompt, self._complaint = Entry(self.filter_text), None
            case "f1" | "question_mark":
                self._help = HelpPane(self.view, self._help_keys(), self.about())
            case "ctrl+l":
                self.board.redraw()
            case _:
                return self.key_pressed(key)
        return True

    def show_pane(self, pane: Pane) -> None:
        self.at, self._help = self.panes.index(pane), None

    def _type(self, event: events.Key, prompt: Entry) -> bool:
        if event.key == "escape":
            self.set_filter("")
            self._prompt = None
        elif event.key == "enter":
            if self._complaint is None:
                self._prompt = None
        elif prompt.key(event):
            self._complaint = self.set_filter(prompt.text)
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
            self.app.exit(return_code=1 if not self.panes and self.problems else 0)
        else:
            self.dismiss()

    # -- the mouse

    def on_click(self, event: events.Click) -> None:
        if not self._looks:
            return
        if event.y == 1:
            for n, (start, end) in enumerate(self._tabs):
                if start <= event.x < end:
                    self.at = n
        else:
            self.pane.clicked(event.y - 2 - len(self.problems), event.x - 1)
        self.draw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._scroll("down")

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._scroll("up")

    def _scroll(self, key: str) -> None:
        if not self._looks:
            return
        pane = self._help or self.pane
        if isinstance(pane, CurvePane):
            pane.pressed("minus" if key == "down" else "plus", 1)
        else:
            for _ in range(3):
                pane.pressed(key, 1)
        self.draw()
