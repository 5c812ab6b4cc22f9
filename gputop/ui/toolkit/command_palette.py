"""Textual's command palette in a window that has no room for its list.

It leans on private parts of it (``CommandPalette._action_command_list``, ``OptionList._index_to_line``): paging through
a list that was never laid out is a KeyError there.
"""

from __future__ import annotations

from textual.command import CommandList, CommandPalette


class SteadyPalette(CommandPalette):
    """Pages by one line where its list has no rows."""

    def _action_command_list(self, action: str) -> None:
        commands = self.query_one(CommandList)
        if action in ("page_up", "page_down") and (commands.highlighted or 0) not in commands._index_to_line:
            action = "cursor_up" if action == "page_up" else "cursor_down"
        super()._action_command_list(action)
