"""The command palette: every action of the dashboard, those of every day on top, and the themes and intervals.

A command's key stands at the right of its line. What the actions are is said once, in keys.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from gputop import units
from gputop.settings import REFRESH_PRESETS
from gputop.text import fit, width
from gputop.ui.dashboard import Dashboard
from gputop.ui.keys import everyday_and_others

_MARGIN_CELLS: Final = 6  # around the palette's list, and for its scroll bar


class _Command(NamedTuple):
    words: str
    key: str
    run: Callable[[], Awaitable[Any] | None]


class DashboardCommands(Provider):
    """What the palette offers, in the order it is listed where nothing is typed."""

    @property
    def _dashboard(self) -> Dashboard:
        screen = self.app.screen_stack[0]
        assert isinstance(screen, Dashboard)
        return screen

    async def discover(self) -> Hits:
        for command in self._commands():
            yield DiscoveryHit(self._line(Content(command.words), command), command.run, text=command.words)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in self._commands():
            score = max(matcher.match(command.words), float(command.key.casefold() == query.casefold()))
            if score > 0:
                shown = self._line(matcher.highlight(command.words), command)
                yield Hit(score, shown, command.run, text=command.words)

    def _line(self, words: Content, command: _Command) -> Content:
        room = self.app.size.width - _MARGIN_CELLS - width(command.key)
        if width(command.words) > room - 1:
            words = Content(fit(command.words, room - 1))
        return Content.assemble(words, " " * (room - words.cell_length), (command.key, "bold"))

    def _commands(self) -> list[_Command]:
        everyday, others = everyday_and_others(self._dashboard.keys)
        found = [
            _Command(key.words[0].upper() + key.words[1:], key.shown, partial(self._do, key.action))
            for key in (*everyday, *others)
            if key.action != "suspend"
        ]
        if any(key.action == "interval" for key in self._dashboard.keys):
            found += [
                _Command(f"Refresh interval: {units.interval(seconds)}", "", partial(self._change, refresh=seconds))
                for seconds in REFRESH_PRESETS
            ]
        found += [
            _Command(f"Theme: {name}", "", partial(self._change, theme=name))
            for name in sorted(self.app.available_themes)
        ]
        return found

    async def _do(self, action: str) -> None:
        await self.app.run_action(f"screen.{action}", self._dashboard)

    def _change(self, **changes: Any) -> None:
        self._dashboard.monitor.change_for_now(**changes)
