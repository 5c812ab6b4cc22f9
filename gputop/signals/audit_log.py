"""A line for every signal that was sent or refused, and for what became of it: ``$XDG_STATE_HOME/gputop/actions.log``.

Nobody but its owner reads the file (0600). It is only ever appended to, and never through a symbolic link.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class ActionLog:
    """Appends to *path*; None: there is nowhere to write it, and *problem* says why. ``problem`` says in words why the
    last line could not be written; None: it was."""

    def __init__(self, path: Path | None, problem: str | None = None) -> None:
        self.path, self.problem = path, problem

    def write(self, action: str, **facts: Any) -> None:
        """One line of JSON: time, who acted, *action*, and *facts* that are known. May block; never raises."""
        if self.path is None:
            return
        line: dict[str, Any] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "by": os.environ.get("SUDO_USER") or os.environ.get("USER") or str(os.getuid()),
            "uid": os.getuid(),
            "action": action,
        }
        line |= {name: value for name, value in facts.items() if value is not None}
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self.path, flags, 0o600)
            try:
                os.fchmod(descriptor, 0o600)
                os.write(descriptor, (json.dumps(line, ensure_ascii=False) + "\n").encode())
            finally:
                os.close(descriptor)
            self.problem = None
        except OSError as error:
            self.problem = f"{self.path}: not written: {error.strerror or error}"
