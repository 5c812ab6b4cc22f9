"""The page of the settings screen, as lines: titles, options with their values, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from gputop.locations import short
from gputop.settings import Settings
from gputop.text import fit, width, wrap
from gputop.ui.settings.options import Choice, Level, Option, ResetAll
from gputop.ui.settings.sections import SettingsSection
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.frame import clip, on
from gputop.ui.toolkit.glyphs import Glyphs
from gputop.ui.toolkit.text_entry import Entry

_LABEL: Final = 16  # cells
_LONG_LABEL: Final = 23


class SettingsRow(NamedTuple):
    """A line of the page; ``option`` is None for titles and words. ``zones``: x, x after, which choice."""

    line: Line
    option: Option | None = None
    zones: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SettingsPage:
    """What is drawn: *option* is the one at the cursor, *entry* what is being typed for it, *wrong* what is wrong with
    that; *asking*: whether all is to be reset."""

    settings: Settings
    sections: Sequence[SettingsSection]
    option: Option
    entry: Entry | None
    wrong: str
    asking: bool
    path: Path | None
    problems: Sequence[str]
    glyphs: Glyphs

    def rows(self, cells: int) -> list[SettingsRow]:
        """All of it, *cells* wide."""
        rows: list[SettingsRow] = []
        for section in self.sections:
            if rows:
                rows.append(SettingsRow(()))
            rule = self.glyphs.rule * (cells - width(section.title) - 1)
            rows.append(SettingsRow(((section.title, "accent+b"), (f" {rule}", "faint"))))
            if section.message:
                rows.append(SettingsRow((("  " + section.message, "dim"),)))
            if section.title == "File":
                rows += [SettingsRow(line) for line in self._file(cells)]
            for option in section.options:
                rows.append(self._row(option, cells))
                if option is self.option and self.wrong:
                    rows += [SettingsRow((("    " + part, "warning"),)) for part in wrap(self.wrong, cells - 6)]
                if option.name == "theme":
                    rows.append(SettingsRow(self._swatches()))
        return rows

    def _row(self, option: Option, cells: int) -> SettingsRow:
        here = option is self.option
        settings = self.settings
        mark = self.glyphs.folded if here else " "
        ticked = option.checked(settings)
        spans: list[Span] = [(f"{mark} ", "accent+b")]
        zones: list[tuple[int, int, int]] = []
        style = "title+b" if here else "text"
        if ticked is not None:
            spans += [("[", "dim"), ("x" if ticked else " ", "accent+b"), ("] ", "dim")]
        label = option.label if not isinstance(option, ResetAll) else self._reset_words()
        describes = ticked is not None and option.shown(settings) not in ("on", "off")
        room = cells - sum(width(text) for text, _ in spans)
        if isinstance(option, ResetAll):
            spans.append((fit(label, room), "warning+b" if self.asking else style))
        elif option.name == "chart_metrics" or (ticked is not None and not describes):
            spans.append((fit(label, room), style))
        else:
            at = 9 if describes else _LONG_LABEL if isinstance(option, Level) else _LABEL
            spans.append((fit(label, at), style))
            room -= at
            if here and self.entry is not None:
                spans += self.entry.line(min(room, 18))
            elif isinstance(option, Choice):
                x = sum(width(text) for text, _ in spans)
                values, found = self._values(option, room, here)
                zones = [(a + x, b + x, n) for a, b, n in found]
                spans += values
            elif describes:
                spans.append((fit(option.shown(settings), room), "dim"))
            else:
                spans += [("‹ ", "dim"), (option.shown(settings), "accent+b"), (" ›", "dim")]
        line = tuple(spans)
        return SettingsRow(
            on(clip(line, cells), "cursor") if here and self.entry is None else line, option, tuple(zones)
        )

    def _values(self, option: Choice, room: int, here: bool) -> tuple[list[Span], list[tuple[int, int, int]]]:
        """All choices side by side where they fit, else the chosen one between arrows."""
        choices, at = option.choices(self.settings), option.position(self.settings)
        if sum(width(words) + 2 for words in choices) <= room:
            spans: list[Span] = []
            zones = []
            x = 0
            for n, words in enumerate(choices):
                spans.append((f"[{words}]", "accent+b") if n == at else (f" {words} ", "text" if here else "dim"))
                zones.append((x, x + width(words) + 2, n))
                x += width(words) + 2
            return spans, zones
        count = f"  {at + 1} of {len(choices)}" if at >= 0 else "  not there"
        text = fit(option.shown(self.settings), max(1, min(room - 4, 20))).rstrip()
        return [("‹ ", "dim"), (text, "accent+b"), (" ›", "dim"), (count, "dim")], []

    def _swatches(self) -> Line:
        """The colours of the theme."""
        spans: list[Span] = [(" " * (2 + _LABEL), "text")]
        spans += [(f"{n}", f"g{n}+b") for n in range(8)]
        levels = self.glyphs.levels
        spans += [(" ", "text"), *((levels[2 * n + 2], f"l{n}") for n in range(4))]
        spans += [(" good", "good"), (" warning", "warning"), (" critical", "critical")]
        return tuple(spans)

    def _file(self, cells: int) -> list[Line]:
        lines: list[Line] = [(("  Changes are saved in ", "dim"), (short(self.path), "text"))]
        for problem in self.problems:
            parts = wrap(problem, cells - 6)
            lines += [((f"  {self.glyphs.warning} " if not n else "    ", "warning+b"), (part, "warning"))
                      for n, part in enumerate(parts)]  # fmt: skip
        return lines

    def _reset_words(self) -> str:
        if self.asking:
            return "Reset all settings? y: yes, any other key: no"
        return "Reset all settings to their defaults…"
