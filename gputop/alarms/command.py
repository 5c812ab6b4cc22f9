"""The command of an alarm, run by the shell.

Text from outside (names, command lines) reaches it through its environment only, never through the shell that reads the
command.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any, Final

from gputop.text import shorten

COMMAND_SECONDS: Final = 60.0  # a command that takes longer is ended


def run_command(command: str, known: dict[str, Any], seconds: float = COMMAND_SECONDS) -> str | None:
    """Have ``/bin/sh`` run *command* with *known* as GPUTOP_… in its environment. Its output goes to our stderr.

    Returns why it failed, in words. One that takes longer than *seconds* is killed with all it started.
    """
    told = {f"GPUTOP_{name.upper()}": str(value) for name, value in known.items() if value is not None}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUTOP_")} | told
    what = f"--run: {shorten(command, 60)}"
    try:
        child = subprocess.Popen(
            ["/bin/sh", "-c", command], env=environment, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True
        )
    except OSError as error:
        return f"{what}: cannot be started: {error.strerror or error}"
    try:
        status = child.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return f"{what}: killed, it took longer than {seconds:g} s"
    if status == 0:
        return None
    return f"{what}: exit status {status}" if status > 0 else f"{what}: ended by {signal.Signals(-status).name}"
