"""The line in which a time to go to is typed."""

from __future__ import annotations

from collections.abc import Callable

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input

from gputop.recording.when import HELP
from gputop.text import fit
from gputop.ui.toolkit.line_widget import LineWidget

_LABEL = 9


class TimePrompt(Horizontal):
    """Stands over the footer. Enter goes there, and stays open where that is no time; Escape takes it away."""

    DEFAULT_CSS = f"""
    TimePrompt {{ dock: bottom; height: 1; width: 100%; background: $panel; }}
    TimePrompt LineWidget {{ width: {_LABEL}; }}
    TimePrompt Input, TimePrompt Input:focus {{
        border: none; height: 1; width: 1fr; padding: 0; background: $panel;
    }}
    """

    def __init__(self, go: Callable[[str], str | None], done: Callable[[], None]) -> None:
        """*go* goes to a time as typed, or says in words what is wrong with it."""
        super().__init__()
        self._go, self._done = go, done
        self._label = LineWidget()
        self.input = Input(placeholder=HELP, select_on_focus=False)
        self.input.cursor_blink = False  # blinking costs 3.6 KB/s

    def compose(self) -> ComposeResult:
        yield self._label
        yield self.input

    def on_mount(self) -> None:
        self._say(" Go to: ", "key+b@bar")

    def _say(self, words: str, style: str) -> None:
        self._label.show([((fit(words, _LABEL), style),)])

    @on(Input.Changed)
    def _changed(self) -> None:
        self._say(" Go to: ", "key+b@bar")

    @on(Input.Submitted)
    async def _submitted(self, event: Input.Submitted) -> None:
        problem = self._go(event.value)
        if problem is not None:
            self._say(" Go to? ", "warning+b@bar")
            self.notify(problem, severity="warning", markup=False)
            return
        await self._close()

    async def key_escape(self) -> None:
        await self._close()

    async def _close(self) -> None:
        await self.remove()
        self._done()
