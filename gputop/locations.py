"""Where gputop keeps its files (the XDG base directories, by platformdirs)."""

from __future__ import annotations

from pathlib import Path


def settings_file() -> Path:
    """``$XDG_CONFIG_HOME/gputop/config.toml``; it need not exist."""
    from platformdirs import user_config_path  # late: --version and --config need none of it

    return user_config_path("gputop") / "config.toml"


def state_directory() -> Path:
    """``$XDG_STATE_HOME/gputop``, for logs and recordings; it need not exist."""
    from platformdirs import user_state_path

    return user_state_path("gputop")


def short(path: Path) -> str:
    """*path* as people write it, with ``~`` for the home directory."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):  # elsewhere, or nobody knows the home directory
        return str(path)
