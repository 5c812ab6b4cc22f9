"""A fault of ours: a sentence for the user, the traceback in ``crash.log`` for whoever mends it.

Its exit statuses are nobody's verdict: 1 is "a leak" of ``leaks`` and "it holds" of ``watch --once``, 2 is "not known".
"""

from __future__ import annotations

import errno
import traceback
from typing import Final

from gputop import __version__, locations
from gputop.model.hostile_text import clean_text

CRASHED: Final = 70  # EX_SOFTWARE
NO_RESOURCES: Final = 71  # EX_OSERR: no thread, process or memory to be had

_EXHAUSTED: Final = {
    errno.EAGAIN: "no more processes or threads may be started",
    errno.ENOMEM: "out of memory",
    errno.EMFILE: "too many open files",
    errno.ENFILE: "too many open files on this machine",
}
_LIMITS: Final = "See `ulimit -a`, and the limits of the container or of systemd (pids.max, TasksMax, memory.max)."


def out_of_resources(error: BaseException) -> str | None:
    """What the system refused, where *error* says that it refused something; else None."""
    if isinstance(error, MemoryError):
        reason = _EXHAUSTED[errno.ENOMEM]
    elif isinstance(error, RuntimeError) and "can't start new thread" in str(error):  # all that CPython says
        reason = "no more threads may be started"
    elif isinstance(error, OSError) and error.errno in _EXHAUSTED:
        reason = _EXHAUSTED[error.errno]
    else:
        return None
    return f"{reason}. {_LIMITS}"


def exit_status(error: BaseException) -> int:
    """The exit status of a program that *error* ended."""
    return CRASHED if out_of_resources(error) is None else NO_RESOURCES


def crash_message(what: str, error: BaseException) -> str:
    """What to say of *error*, which ended *what*; the traceback of a fault of ours goes to ``crash.log``."""
    refused = out_of_resources(error)
    if refused is not None:
        return refused
    message = f"an internal error ended the {what}: {error!r}"
    try:
        path = locations.state_directory() / "crash.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"gputop {__version__}\n{''.join(traceback.format_exception(error))}", errors="backslashreplace"
        )
        message += f". Please report it with {locations.short(path)}"
    except OSError as failure:
        message += f" (the details could not be written: {failure.strerror or failure})"
    return clean_text(message, 2000)
