"""Check what gputop needs (driver, devices, processes, terminal, settings) and say what is wrong and how to fix it.
The output names no user, no machine and no path under the home directory, so it can be pasted into an issue."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.commands.shared.output import is_terminal, print_out

if TYPE_CHECKING:
    from gputop.doctor import Check

#: The distributions gputop runs on, as pyproject.toml names them.
NEEDED = ("nvidia-ml-py", "textual", "plotext", "psutil", "platformdirs", "tomlkit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exit status: 0, or 1 if something that gputop needs fails."
    parser.add_argument("--json", action="store_true", help="write one JSON object")
    parser.add_argument("--config", metavar="PATH", type=Path, help="settings file to use")


def run(options: argparse.Namespace) -> int:
    from gputop.doctor import FAIL, text

    findings = examine(options.config)
    if options.json:
        print_out(text.as_json(findings, indent=2 if is_terminal(sys.stdout) else None) + "\n")
    else:
        print_out(_text(findings))
    return 1 if text.worst(findings) == FAIL else 0


def examine(config: Path | None = None) -> list[Check]:
    """Everything, the parts that the others stand on first."""
    from gputop.doctor import driver, host, scrub, terminal

    return scrub(
        [
            *driver.packages(NEEDED),
            *driver.look(),
            *host.devices(),
            *host.processes(),
            *host.slow_lookups(),
            *host.container(),
            *terminal.terminal(),
            *terminal.settings(config),
        ]
    )


def _text(findings: list[Check]) -> str:
    from gputop.doctor import text
    from gputop.text import unicode_works

    terminal = is_terminal(sys.stdout)
    return text.as_text(
        findings,
        width=shutil.get_terminal_size().columns if terminal else None,
        color=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb"),
        ascii_only=not unicode_works(sys.stdout),
    )
