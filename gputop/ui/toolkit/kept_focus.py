"""Keys always go somewhere: a part that is hidden for a while has them again when it is back."""

from __future__ import annotations

from textual.screen import Screen
from textual.widget import Widget


class KeptFocusScreen(Screen[None]):
    """Textual hands the focus on from what is hidden, and to nobody where all is."""

    _held: Widget | None = None

    def hold_focus(self) -> None:
        """All is about to be hidden: remember what has the focus."""
        self._held = self._held or self.focused

    def keep_focus(self, *otherwise: Widget) -> None:
        """Give it back; where nothing has it, to the first of *otherwise* that is seen."""
        held, self._held = self._held, None
        if held is None and self.focused is not None and self.focused.display:
            return
        for widget in (held, *otherwise):
            if widget is not None and widget.is_attached and widget.display and widget.can_focus:
                self.set_focus(widget)
                return
