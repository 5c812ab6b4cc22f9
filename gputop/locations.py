"""Where gputop keeps its files (the XDG base directories, by platformdirs)."""

from __future__ import annotations

import errno
import os
import pwd
from collections.abc import Callable
from pathlib import Path


class NoHome(OSError):
    """There is no home directory to keep files in; ``strerror`` says why, and what to set."""

    def __init__(self, variable: str) -> None:
        reason = f"HOME is not set, and uid {os.getuid()} has no entry in the password database"
        super().__init__(errno.ENOENT, f"no home directory ({reason}): set HOME or {variable}")


def settings_file() -> Path:
    """``$XDG_CONFIG_HOME/gputop/config.toml``; it need not exist. Raises NoHome."""
    from platformdirs import user_config_path  # late: --version and --config need none of it

    return _found("XDG_CONFIG_HOME", user_config_path) / "config.toml"


def state_directory() -> Path:
    """``$XDG_STATE_HOME/gputop``, for logs and recordings; it need not exist. Raises NoHome."""
    from platformdirs import user_state_path

    return _found("XDG_STATE_HOME", user_state_path)


def home() -> Path | None:
    """The user's home directory; None where nobody knows it, as in containers that run under any uid."""
    told = os.environ.get("HOME")
    if told:
        return Path(told)
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return None


def short(path: Path | None) -> str:
    """*path* as people write it, with ``~`` for the home directory; None is a settings file that has no place."""
    if path is None:
        return "the settings file (there is no home directory)"
    own = home()
    return f"~/{path.relative_to(own)}" if own is not None and path.is_relative_to(own) else str(path)


def _found(variable: str, find: Callable[[str], Path]) -> Path:
    """gputop's directory of a kind, which *variable* says, else what *find* says."""
    if not os.environ.get(variable, "").strip():
        if home() is None:
            raise NoHome(variable)
        if not os.environ.get("HOME"):
            os.environ.pop("HOME", None)  # empty, it would be taken for the root directory
    return find("gputop")
