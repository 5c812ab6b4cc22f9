"""The signals of this kernel, for people: their real numbers, names and what they do to a process that handles none."""

from __future__ import annotations

import signal
from typing import Final, NamedTuple


class SignalEntry(NamedTuple):
    number: int
    name: str  # "SIGTERM"
    meaning: str


_MEANINGS: Final = {
    "SIGTERM": "ends it; it may save and clean up first",
    "SIGKILL": "ends it at once; it cannot clean up",
    "SIGINT": "as Ctrl+C; Python raises KeyboardInterrupt",
    "SIGHUP": "its terminal hung up; daemons reload their settings",
    "SIGQUIT": "as Ctrl+\\; ends it with a core dump",
    "SIGILL": "illegal instruction; core dump",
    "SIGTRAP": "breakpoint; core dump",
    "SIGABRT": "abort(); core dump",
    "SIGBUS": "bad memory access; core dump",
    "SIGFPE": "arithmetic fault; core dump",
    "SIGUSR1": "the program's own meaning; ends it otherwise",
    "SIGSEGV": "invalid memory reference; core dump",
    "SIGUSR2": "the program's own meaning; ends it otherwise",
    "SIGPIPE": "nobody reads its pipe; ends it",
    "SIGALRM": "a timer ran out; ends it",
    "SIGSTKFLT": "unused; ends it",
    "SIGCHLD": "a child changed state; ignored",
    "SIGCONT": "continues it where it was stopped",
    "SIGSTOP": "stops it until SIGCONT; its GPU memory stays",
    "SIGTSTP": "as Ctrl+Z; stops it, its GPU memory stays",
    "SIGTTIN": "reads the terminal from the background; stops it",
    "SIGTTOU": "writes to the terminal from the background; stops it",
    "SIGURG": "urgent data on a socket; ignored",
    "SIGXCPU": "CPU time limit; core dump. Slurm warns with it",
    "SIGXFSZ": "file size limit; core dump",
    "SIGVTALRM": "a timer of its CPU time ran out; ends it",
    "SIGPROF": "a profiler's timer ran out; ends it",
    "SIGWINCH": "its terminal was resized; ignored",
    "SIGIO": "input is ready; ends it",
    "SIGPWR": "power failure; ends it",
    "SIGSYS": "bad system call; core dump",
    "SIGRTMIN": "first real-time signal, the program's own meaning; ends it otherwise",
    "SIGRTMAX": "last real-time signal, the program's own meaning; ends it otherwise",
}
_FIRST: Final = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT)

#: SIGTERM, SIGKILL and SIGINT, then all others by number.
SIGNALS: Final = tuple(
    SignalEntry(int(number), number.name, _MEANINGS.get(number.name, ""))
    for number in (*_FIRST, *sorted(set(signal.Signals) - set(_FIRST)))
)


def signal_name(number: int) -> str:
    """``SIGTERM``, ``SIGRTMIN+3``, or ``signal 99`` for what this kernel does not have."""
    try:
        return signal.Signals(number).name
    except ValueError:
        if signal.SIGRTMIN < number < signal.SIGRTMAX:
            return f"SIGRTMIN+{number - signal.SIGRTMIN}"
        return f"signal {number}"


def parse_signal(text: str) -> int:
    """The number of ``15``, ``TERM``, ``sigterm`` or ``RTMIN+3``. Raises ValueError in words."""
    wanted = text.strip().upper().removeprefix("SIG")
    number = 0
    if wanted.isascii() and wanted.isdigit():
        number = int(wanted)
    elif wanted.startswith("RTMIN+") and wanted[6:].isascii() and wanted[6:].isdigit():
        number = signal.SIGRTMIN + int(wanted[6:])
    elif f"SIG{wanted}" in signal.Signals.__members__:
        number = signal.Signals[f"SIG{wanted}"].value
    if number not in signal.valid_signals():
        raise ValueError(f"{text.strip()!r} is not a signal such as TERM, SIGINT or 9")
    return int(number)
