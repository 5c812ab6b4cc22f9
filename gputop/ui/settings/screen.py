"""F2: everything that can be set, on one page; every change applies at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events

from gputop import settings_file
from gputop.locations import short
from gputop.monitor import Monitor
from gputop.sampling.messages import SettingsChanged
from gputop.settings import DEFAULTS, Settings
from gputop.text import fit, width
from gputop.ui.monitor_screen import MonitorScreen
from gputop.ui.settings.options import ColumnOrder, Option, ResetAll
from gputop.ui.settings.page import SettingsPage, SettingsRow
from gputop.ui.settings.sections import SettingsSection, sections
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.frame import Hint, clip, hint_line, thumb
from gputop.ui.toolkit.full_screen import FullScreen
from gputop.ui.toolkit.text_entry import Entry


class SettingsScreen(MonitorScreen, FullScreen[None]):
    """Shows the settings and changes them: the sections at the left are a table of contents of the page at the right.

    The cursor begins at the refresh interval, so that 500 ms is one key press away.
    """

    least_size: ClassVar[tuple[int, int]] = (20, 6)
    shows = (SettingsChanged,)

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._gpus = monitor.latest.gpus if monitor.latest is not None else ()
        self._themes = sorted(self.app.available_themes)
        self._order = ColumnOrder(monitor.settings)
        self._sections: list[SettingsSection] = []
        self._options: list[Option] = []
        self._build()
        self._at = 0
        self._first = 0  # of the page's lines
        self._rows: list[SettingsRow] = []
        self._entry: Entry | None = None
        self._asking = False  # whether all is to be reset
        self._said: tuple[str, str] = ("", "dim")  # the line of words at the bottom
        self._wrong = ""  # with what is being typed
        self._typed_anything = False
        self._to_top = False  # a section was gone to: its title goes to the top

    def _build(self) -> None:
        self._sections = sections(self._gpus, self._themes, self._order)
        self._options = [option for section in self._sections for option in section.options]

    def look(self) -> None:
        self.draw()

    @property
    def settings(self) -> Settings:
        return self.monitor.settings

    @property
    def option(self) -> Option:
        """The one at the cursor."""
        return self._options[self._at]

    # ------------------------------------------------------------------ changes

    def change(self, make: Callable[[], Settings]) -> bool:
        """Apply what *make* gives; whether it could be done. Says why where not."""
        try:
            settings = make()
        except ValueError as error:
            self._said = (_without_name(str(error), self.option.name), "warning")
            return False
        if settings == self.settings:
            self._said = ("", "dim")
            return True
        try:
            saved = self.monitor.change(settings)
        except settings_file.SettingsError as error:
            self._said = (str(error), "warning")
        else:
            self._said = ("", "dim")
            self.notify(saved, timeout=2, markup=False)
        self._follow_columns()
        return True

    def _follow_columns(self) -> None:
        """Columns were moved: so do their lines, and the cursor with them."""
        self._order.follow(self.settings)
        here = self.option
        self._build()
        same = (getattr(here, "id", None), here.name, here.label)
        self._at = next(
            (n for n, o in enumerate(self._options) if (getattr(o, "id", None), o.name, o.label) == same), self._at
        )

    # --------------------------------------------------------------------- keys

    def take(self, event: events.Key) -> bool:
        if self._asking:
            self._answer(event.key)
        elif self._entry is not None:
            self._key_in_entry(event, self._entry)
        else:
            return self._key_in_page(event.key)
        return True

    def _key_in_page(self, key: str) -> bool:
        settings, option = self.settings, self.option
        match key:
            case "escape" | "q" | "f2" | "f10":
                self.dismiss()
            case "up" | "down":
                self._go(self._at + (1 if key == "down" else -1))
            case "home" | "end":
                self._go(0 if key == "home" else len(self._options) - 1)
            case "pagedown" | "tab" | "pageup" | "shift+tab":
                self._go_section(1 if key in ("pagedown", "tab") else -1)
            case "left" | "right":
                self.change(lambda: option.step(settings, 1 if key == "right" else -1))
            case "enter" | "space":
                self._press(typing=key == "enter")
            case "d" | "delete" | "backspace":
                self.change(lambda: option.reset(settings))
            case _:
                return False
        return True

    def _press(self, typing: bool) -> None:
        settings, option = self.settings, self.option
        if isinstance(option, ResetAll):
            self._asking = True
        elif typing and (text := option.typing(settings)) is not None:
            self._entry, self._wrong = Entry(text), ""
            self._typed_anything = False
        else:
            self.change(lambda: option.press(settings) or settings)

    def _key_in_entry(self, event: events.Key, entry: Entry) -> None:
        settings, option = self.settings, self.option
        if event.key == "escape":
            self._entry, self._wrong = None, ""
        elif event.key == "enter":
            if self.change(lambda: option.typed(settings, entry.text)):
                self._entry, self._wrong = None, ""
            else:
                self._wrong, self._said = self._said[0], ("", "dim")
        else:
            if not self._typed_anything and event.is_printable:
                entry.text, entry.at = "", 0  # the first character takes the old value's place
            if entry.key(event):
                self._typed_anything, self._wrong = True, ""

    def on_paste(self, event: events.Paste) -> None:
        if self._entry is not None:
            self._entry.insert(event.text)
            self._typed_anything = True
            self.draw()

    def _answer(self, key: str) -> None:
        self._asking = False
        if key == "y":  # not Enter, which is pressed twice easily
            self.change(lambda: DEFAULTS)

    def _go(self, to: int) -> None:
        self._at = max(0, min(len(self._options) - 1, to))
        self._said = ("", "dim")

    def _section(self) -> int:
        """Which section the cursor is in."""
        passed = 0
        for n, section in enumerate(self._sections):
            passed += len(section.options)
            if self._at < passed:
                return n
        return len(self._sections) - 1

    def _go_section(self, by: int) -> None:
        self._go_to_section(max(0, min(len(self._sections) - 1, self._section() + by)), by)

    def _go_to_section(self, n: int, by: int = 1) -> None:
        while not self._sections[n].options and 0 < n < len(self._sections) - 1:
            n += by
        self._go(sum(len(section.options) for section in self._sections[:n]))
        self._to_top = True

    # -------------------------------------------------------------------- mouse

    def on_click(self, event: events.Click) -> None:
        contents = self._contents_cells()
        y, x = event.y - 2, event.x
        if self._entry is not None or self._asking or not 0 <= y < self._page_rows():
            return
        if x < contents:
            n = y + max(0, self._section() - self._page_rows() + 1)
            if n < len(self._sections):
                self._go_to_section(n)
        elif (n := y + self._first) < len(self._rows) and (option := self._rows[n].option) is not None:
            was_here = option is self.option
            self._go(self._options.index(option))
            picked = next((c for a, b, c in self._rows[n].zones if a <= x - contents < b), None)
            settings = self.settings
            if picked is not None:
                self.change(lambda: option.pick(settings, picked))
            elif was_here or option.checked(settings) is not None:
                self._press(typing=True)
        if self.is_current:
            self.draw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._go(self._at + 1)
        self.draw()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._go(self._at - 1)
        self.draw()

    # ------------------------------------------------------------------ drawing

    def _contents_cells(self) -> int:
        return 15 if self.app.size.width < 72 else 18

    def _page_rows(self) -> int:
        return max(1, self.app.size.height - 5)

    def picture(self, cells: int, rows: int) -> Sequence[Line]:
        screen_cells, contents, rows = cells, self._contents_cells(), self._page_rows()
        cells = min(screen_cells - contents - 2, 104)
        page = SettingsPage(
            self.settings,
            self._sections,
            self.option,
            self._entry,
            self._wrong,
            self._asking,
            self.monitor.settings_path,
            self.monitor.settings_problems,
            self.view.glyphs,
        )
        self._rows = page.rows(cells)
        at = next((n for n, row in enumerate(self._rows) if row.option is self.option), 0)
        above = 1 if self.option in [section.options[0] for section in self._sections if section.options] else 0
        below = 2 if self._wrong else 0
        self._first = at - above if self._to_top else max(0, min(self._first, at - above))
        self._first = max(self._first, at + below - rows + 1)
        self._to_top = False
        self._first = max(0, min(self._first, len(self._rows) - rows))
        seen = self._rows[self._first : self._first + rows]
        bar = thumb(self._first, rows, len(self._rows))
        listed = self._sections[max(0, self._section() - rows + 1) :]
        lines: list[Line] = [self._title(screen_cells), ()]
        here = self._sections[self._section()]
        for n in range(rows):
            title: Line = ((" " * contents, "text"),)
            if n < len(listed):
                mark, style = (self.view.glyphs.folded, "title+b") if listed[n] is here else (" ", "dim")
                title = ((f" {mark} ", "accent+b"), (fit(listed[n].title, contents - 3), style))
            line = clip(seen[n].line if n < len(seen) else (), cells)
            edge = ((" ", "text"), (self.view.glyphs.full if n in bar else " ", "faint"))
            lines.append((*title, *line, *(edge if bar else ())))
        lines += [(), self._words(screen_cells), hint_line(self._hints(), screen_cells, "bar")]
        return lines

    def _title(self, cells: int) -> Line:
        path = f"{short(self.monitor.settings_path)} "
        left = " Settings"
        room = cells - len(left)
        return ((left, "title+b@bar"), (fit(path, room, right=True) if width(path) < room else " " * room, "dim@bar"))

    def _words(self, cells: int) -> Line:
        """What the option at the cursor means, or what went wrong."""
        said, style = self._said
        option = self.option
        if said:
            return ((fit(f" {self.view.glyphs.warning} {said}", cells), style),)
        default = "" if option.is_default(self.settings) else f"Default: {option.default()} · "
        return ((fit(f" {default}{option.note}", cells), "dim"),)

    def _hints(self) -> Sequence[Hint]:
        if self._asking:
            return (("y", "reset all"), ("any other key", "no"))
        if self._entry is not None:
            return (("Enter", "take it"), ("Esc", "leave it as it was"))
        return (*self.option.keys, ("↑↓", "move"), ("Tab", "section"), ("d", "default"), ("Esc", "back"))


def _without_name(words: str, name: str) -> str:
    return words.removeprefix(f"{name}: ")
