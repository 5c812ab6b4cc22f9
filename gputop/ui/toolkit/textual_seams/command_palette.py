"""Textual's command palette, in a window that has no room for its list, and under a hand that presses Enter twice.

It leans on private parts of it (``CommandPalette._action_command_list``, ``OptionList._index_to_line``): paging through
a list that was never laid out is a KeyError there, and a second Enter before it has closed pops a screen too many.
"""

from __future__ import annotations

from textual.await_complete import AwaitComplete
from textual.command import CommandList, CommandPalette
from textual.message import Message
from textual.widgets import Button, Input, OptionList


class SteadyPalette(CommandPalette):
    """Pages by one line where its list has no rows; runs one command, once."""

    _closes = False

    def _action_command_list(self, action: str) -> None:
        commands = self.query_one(CommandList)
        if action in ("page_up", "page_down") and (commands.highlighted or 0) not in commands._index_to_line:
            action = "cursor_up" if action == "page_up" else "cursor_down"
        super()._action_command_list(action)

    def dismiss(self, result: None = None) -> AwaitComplete:
        if self._closes:
            return AwaitComplete()
        self._closes = True
        return super().dismiss(result)

    async def _dispatch_message(self, message: Message) -> None:
        if not (self._closes and isinstance(message, Input.Submitted | Button.Pressed | OptionList.OptionSelected)):
            await super()._dispatch_message(message)
