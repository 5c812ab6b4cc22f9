"""The gputop of a host, by the system's ssh, as the user's keys and configuration have it."""

from __future__ import annotations

import re
import subprocess
from typing import Final

#: What a host may be called: an exporter or a label says it, so it is somebody else's text. No option begins so, no
#: shell or ``ProxyCommand %h`` finds anything to expand in it.
_NAME: Final = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_NOT_FOUND: Final = 127  # a shell's status
_SSH_FAILED: Final = 255


class RefusedName(ValueError):
    """A name that is not handed to ssh; the message says why."""


def ssh_command(host: str) -> list[str]:
    """The argument list that shows gputop on *host*. An exporter's port is left out. Raises RefusedName."""
    name = re.sub(r":\d{1,5}\Z", "", host)
    if not _NAME.fullmatch(name):
        raise RefusedName(f"{host!r} is not a name that is given to ssh: letters, digits, dots, - and _ only")
    return ["ssh", "-t", "--", name, "gputop"]


def run_there(command: list[str]) -> str | None:
    """Wait until it ends; what went wrong, in words. The terminal is its own meanwhile."""
    host = command[-2]
    try:
        ended = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    except OSError as error:
        return f"ssh cannot be started: {error.strerror or error}"
    said = [line.strip() for line in ended.stderr.decode(errors="replace").splitlines() if line.strip()]
    if ended.returncode == _NOT_FOUND:
        return f"{host}: there is no gputop in the PATH of a login by ssh"
    if ended.returncode == _SSH_FAILED:
        last = "".join(character for character in said[-1] if character.isprintable()) if said else "no reason given"
        return f"{host}: ssh failed: {last}"
    return None if ended.returncode == 0 else f"{host}: gputop ended there with status {ended.returncode}"
