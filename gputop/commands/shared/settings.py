"""The settings a command runs with."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputop.settings import Settings


def settings_of(options: argparse.Namespace) -> tuple[Settings, Path | None, tuple[str, ...]]:
    """The command line over the file over the defaults; the file, None where it has no place; what is wrong with it."""
    from gputop import locations, settings_file

    config: Path | None = getattr(options, "config", None)
    path: Path | None
    try:
        path = config or locations.settings_file()
    except locations.NoHome:  # nothing was set, so nothing is missed; F2 and doctor say so
        path = None
    settings, problems = settings_file.load(path)
    if config is not None and not config.exists():
        problems = (*problems, f"{config}: does not exist yet; it is created when you change a setting")
    asked = {name: getattr(options, name, None) for name in ("refresh", "gpus", "ascii")}
    changes = {name: value for name, value in asked.items() if value is not None}
    if getattr(options, "no_color", False) or os.environ.get("NO_COLOR"):
        changes["color"] = False
    if getattr(options, "no_mouse", False):
        changes["mouse"] = False
    return settings.changed(**changes), path, problems
