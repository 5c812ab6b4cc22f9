"""Which tmux window a process is in, asked of the tmux server of one's own user: "2:serve"."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable
from functools import partial
from typing import Final

from gputop.model import clean_text
from gputop.procfs.lookups import Lookups

FRESH_SECONDS: Final = 30.0
PATIENCE: Final = 1.0
MAX_SOCKETS: Final = 64


class TmuxWindows:
    """Windows by the pid of a pane's first process. One thread owns it."""

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups
        self._known: dict[str, tuple[float, dict[int, str]]] = {}  # by socket

    def window(self, socket: str, pids: Iterable[int]) -> str | None:
        """The window among whose panes one of *pids* (a process and its ancestors) is. None where there is none, or the
        server is another user's: nothing of another user's is ever talked to."""
        read_at, windows = self._known.get(socket, (0.0, {}))
        if not read_at or time.monotonic() - read_at > FRESH_SECONDS:
            answer = self._lookups.one(("tmux", socket), partial(_windows, socket), None, PATIENCE / 2)
            if answer is not None:
                windows = answer
                while len(self._known) >= MAX_SOCKETS:
                    self._known.pop(next(iter(self._known)))
                self._known[socket] = time.monotonic(), windows
        return next((windows[pid] for pid in pids if pid in windows), None)


def _windows(socket: str) -> dict[int, str]:
    try:
        if os.stat(socket).st_uid != os.geteuid():
            return {}
    except OSError:
        return {}
    command = ["tmux", "-S", socket, "list-panes", "-a", "-F", "#{pane_pid} #{window_index}:#{window_name}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found = {}
    for line in done.stdout.splitlines():
        pid, _, window = line.partition(b" ")
        if pid.isdigit():
            found[int(pid)] = clean_text(window, 40)
    return found
