"""The signals of this kernel, for people: their real numbers, names and what they do to a process that handles none."""

from __future__ import annotations

import signal
from typing import Final, NamedTuple


class SignalEntry(NamedTuple):
    number: int
    name: str  # "SIGTERM"
    meaning: str


_MEANINGS: Final = {
    "SIGTERM": "asks it to exit; it can save and clean up",
    "SIGKILL": "kills it now; it cannot clean up",
    "SIGINT": "like Ctrl+C; Python raises KeyboardInterrupt",
    "SIGHUP": "terminal hangup; daemons reload their configuration",
    "SIGQUIT": "like Ctrl+\\; quits with a core dump",
    "SIGILL": "illegal instruction; core dump",
    "SIGTRAP": "breakpoint; core dump",
    "SIGABRT": "abort(); core dump",
    "SIGBUS": "bad memory access; core dump",
    "SIGFPE": "arithmetic fault; core dump",
    "SIGUSR1": "the program's own meaning; terminates it otherwise",
    "SIGSEGV": "invalid memory reference; core dump",
    "SIGUSR2": "the program's own meaning; terminates it otherwise",
    "SIGPIPE": "nothing reads its pipe; terminates it",
    "SIGALRM": "a timer ran out; terminates it",
    "SIGSTKFLT": "unused; terminates it",
    "SIGCHLD": "a child changed state; ignored",
    "SIGCONT": "resumes it if stopped",
    "SIGSTOP": "stops it until SIGCONT; its GPU memory stays allocated",
    "SIGTSTP": "like Ctrl+Z; stops it, its GPU memory stays allocated",
    "SIGTTIN": "reads the terminal from the background; stops it",
    "SIGTTOU": "writes to the terminal from the background; stops it",
    "SIGURG": "urgent data on a socket; ignored",
    "SIGXCPU": "CPU time limit; core dump. Slurm warns with it",
    "SIGXFSZ": "file size limit; core dump",
    "SIGVTALRM": "a timer of its CPU time ran out; terminates it",
    "SIGPROF": "a profiler's timer ran out; terminates it",
    "SIGWINCH": "its terminal was resized; ignored",
    "SIGIO": "input is ready; terminates it",
    "SIGPWR": "power failure; terminates it",
    "SIGSYS": "bad system call; core dump",
    "SIGRTMIN": "first real-time signal, the program's own meaning; terminates it otherwise",
    "SIGRTMAX": "last real-time signal, the program's own meaning; terminates it otherwise",
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
