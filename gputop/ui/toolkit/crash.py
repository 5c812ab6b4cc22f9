"""What our applications have in common: they draw on the terminal as it is, and a fault of ours is a sentence."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.driver import Driver
from textual.events import Mount

from gputop.crash import crash_message, exit_status
from gputop.ui.toolkit.line_widget import redraw_all
from gputop.ui.toolkit.textual_seams.terminal_driver import TerminalDriver
from gputop.ui.toolkit.textual_seams.toasts import TidyToastApp
from gputop.ui.toolkit.textual_seams.typeahead import ReturnT


class ReportingApp(TidyToastApp[ReturnT]):
    """Ends on an unhandled exception with one sentence, and the traceback in ``crash.log``."""

    CALLED: ClassVar[str] = "dashboard"  # in that sentence

    def get_driver_class(self) -> type[Driver]:
        return TerminalDriver

    def _on_mount(self, event: Mount) -> None:
        self.app_resume_signal.subscribe(self, lambda _: redraw_all(self))  # the shell wrote in between

    def _handle_exception(self, error: Exception) -> None:
        """One that comes up while the screens are taken down is kept too, but does not change why it ends."""
        if self._exit:
            crash_message(self.CALLED, error)
        else:
            super()._handle_exception(error)
            self._return_code = exit_status(error)

    def _fatal_error(self) -> None:
        assert self._exception is not None
        self._exit_renderables.append(Text(f"gputop: {crash_message(self.CALLED, self._exception)}"))
        self._close_messages_no_wait()
