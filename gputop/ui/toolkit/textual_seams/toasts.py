"""Toasts say a thing once, belong to the screen they came up on, and cover no line of keys (see gputop.tcss)."""

from __future__ import annotations

import time
from typing import Final

from textual.events import Mount
from textual.notifications import Notify
from textual.widgets._toast import ToastHolder

from gputop.ui.toolkit.textual_seams.typeahead import ReturnT, TypeaheadApp

_YOUNG_SECONDS: Final = 0.5  # what a screen says with its last word is about what it leaves behind


class TidyToastApp(TypeaheadApp[ReturnT]):
    """Drops a toast that is there already, and old ones when the screen changes."""

    def _on_mount(self, event: Mount) -> None:
        self.screen_change_signal.subscribe(self, lambda _: self._drop_old_toasts(), immediate=True)

    def _on_notify(self, event: Notify) -> None:
        new = event.notification
        if any((old.message, old.title) == (new.message, new.title) for old in self._notifications):
            event.prevent_default()

    def _drop_old_toasts(self) -> None:
        now = time.time()
        for toast in [toast for toast in self._notifications if now - toast.raised_at > _YOUNG_SECONDS]:
            del self._notifications[toast]
        for screen in self.screen_stack[:-1]:  # a screen that shines through shows none of its own
            screen.query(ToastHolder).remove()
        self._refresh_notifications()
