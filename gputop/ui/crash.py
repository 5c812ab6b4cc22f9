"""A fault of ours: a sentence for the user, the traceback in a file for whoever mends it."""

from __future__ import annotations

import sys
import traceback

from rich.text import Text

from gputop import __version__, locations
from gputop.model import clean_text


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
