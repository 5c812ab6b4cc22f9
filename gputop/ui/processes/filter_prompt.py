"""The line in which a filter is typed; the table follows every key."""

from __future__ import annotations

from collections.abc import Callable

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input

from gputop.text import fit
from gputop.ui.toolkit.line_widget import LineWidget

_LABEL_CELLS = 10


class FilterPrompt(Horizontal):
    """Stands over the footer. Enter keeps the filter, Escape clears it; both take the prompt away.

    It is hidden then, not removed: whoever handles the key would wait for the removal, and the removal for them.
    """

    DEFAULT_CSS = f"""
    FilterPrompt {{ dock: bottom; height: 1; width: 100%; background: $panel; }}
    FilterPrompt LineWidget {{ width: {_LABEL_CELLS}; }}
    FilterPrompt Input, FilterPrompt Input:focus {{
        border: none; height: 1; width: 1fr; padding: 0; background: $panel;
    }}
    """

    def __init__(self, change: Callable[[str], str | None], done: Callable[[], None]) -> None:
        """*change* applies a filter and returns what is wrong with it, in words."""
        super().__init__()
        self._change, self._done = change, done
        self._problem: str | None = None

    def compose(self) -> ComposeResult:
        self._label = LineWidget()
        yield self._label
        self.input = _Text(placeholder="text  user:NAME  gpu:0  pid:123  type:C  mem>10G  !not", select_on_focus=False)
        self.input.cursor_blink = False  # blinking costs 3.6 KB/s
        yield self.input

    def open(self, text: str) -> None:
        """Ask, beginning with *text*."""
        self._problem = None
        self.input.value = text
        self.input.cursor_position = len(text)
        self.display = True
        self._say()

    def _say(self) -> None:
        label, style = (" Filter: ", "key+b@bar") if self._problem is None else (" Filter? ", "warning+b@bar")
        self._label.show([((fit(label, _LABEL_CELLS), style),)])

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        if not self.display:
            return  # late: Enter or Escape was quicker
        self._problem = self._change(event.value)
        self._say()

    def submit(self) -> None:
        self._problem = self._change(self.input.value)
        if self._problem is not None:
            self.notify(self._problem, severity="warning", markup=False)
        self._close()

    def key_escape(self) -> None:
        self._change("")
        self._close()

    def _close(self) -> None:
        self.display = False
        self._done()


class _Text(Input):
    """Enter acts at once and not by a message: the next key may be waiting, and is not for the prompt any more."""

    async def action_submit(self) -> None:
        assert isinstance(self.parent, FilterPrompt)
        self.parent.submit()
