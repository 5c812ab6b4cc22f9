"""What is said when a command cannot do what it was asked for, and its exit statuses."""

from __future__ import annotations

from typing import Final

USAGE: Final = 2  # 3 to 8: see gputop.sources.SourceError
NO_ANSWER: Final = 8
CANNOT_WRITE: Final = 74  # EX_IOERR: stdout could not be written, so no verdict of leaks or watch --once

TRY_ONCE: Final = "`gputop --once` prints one table, `gputop --once --json` one JSON object."


class Refusal(Exception):
    """What was asked for cannot be done. ``str()`` says why and what to do."""

    def __init__(self, message: str, exit_status: int = USAGE) -> None:
        super().__init__(message)
        self.exit_status = exit_status
