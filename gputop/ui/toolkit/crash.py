"""A fault of ours: a sentence for the user, the traceback in a file for whoever mends it."""

from __future__ import annotations

import sys
import traceback
from typing import ClassVar

from rich.text import Text

from gputop import __version__, locations
from gputop.model import clean_text
from gputop.ui.toolkit.typeahead import ReturnT, TypeaheadApp


class ReportingApp(TypeaheadApp[ReturnT]):
    """Ends on an unhandled exception with one sentence, and the traceback in ``crash.log``."""

    CALLED: ClassVar[str] = "dashboard"  # in that sentence

    def _handle_exception(self, error: Exception) -> None:
        """One that comes up while the screens are taken down is kept too, but does not change why it ends."""
        if self._exit:
            crash_report(self.CALLED)
        else:
            super()._handle_exception(error)

    def _fatal_error(self) -> None:
        self._exit_renderables.append(crash_report(self.CALLED))
        self._close_messages_no_wait()


def crash_report(what: str) -> Text:
    """What to say of the exception being handled, which ended *what*; its traceback goes to ``crash.log``."""
    words = f"gputop: an internal error ended the {what}: {sys.exc_info()[1]!r}"
    try:
        path = locations.state_directory() / "crash.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"gputop {__version__}\n{traceback.format_exc()}")
        words += f". Please report it with {locations.short(path)}"
    except OSError as error:
        words += f" (the details could not be written: {error})"
    return Text(clean_text(words, 2000))
