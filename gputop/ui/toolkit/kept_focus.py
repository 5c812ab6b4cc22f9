"""Keys always go somewhere: a part that is hidden has them again when it is back, another one has them meanwhile."""

from __future__ import annotations

from textual import events
from textual.screen import Screen
from textual.widget import Widget


class KeptFocusScreen(Screen[None]):
    """Textual takes the focus from what is hidden, and gives it to nobody where all is."""

    _had_focus: Widget | None = None

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self._had_focus = event.widget

    def keep_focus(self, *otherwise: Widget) -> None:
        """Where nothing has the focus: give it to what had it last, else to the first of *otherwise* that is seen."""
        if self.focused is not None and self.focused.display:
            return
        for widget in (self._had_focus, *otherwise):
            if widget is not None and widget.is_attached and widget.display and widget.can_focus:
                self.set_focus(widget)
                return
