"""``gputop --once``: one table, or one JSON object, without the dashboard."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from gputop.commands.shared.machine import machine_of, only_asked
from gputop.commands.shared.output import is_terminal, print_out
from gputop.commands.shared.refusal import NO_ANSWER
from gputop.commands.shared.settings import settings_of

if TYPE_CHECKING:
    from gputop.model import Snapshot
    from gputop.settings import Settings


def run(options: argparse.Namespace) -> int:
    """One table, or one JSON object, from two readings 100 ms apart."""
    from gputop.model import replace
    from gputop.sampling.one_shot import sample

    def get_ready() -> tuple[Settings, tuple[str, ...]]:
        from gputop.outputs import json_lines, table  # noqa: F401  (while there is nothing to do but wait)

        settings, _, problems = settings_of(options)
        return settings, problems

    machine = machine_of(options)
    everything, (settings, problems) = sample(machine.source, machine.host, get_ready)
    stuck = any(gpu.late for gpu in everything.gpus)
    if not stuck:
        machine.source.close()
    snapshot = only_asked(everything, options, settings)
    snapshot = replace(snapshot, problems=(*snapshot.problems, *problems))
    if options.json:
        from gputop.outputs.json_lines import as_json

        print_out(as_json(snapshot, indent=2 if is_terminal(sys.stdout) else None) + "\n")
    else:
        print_out(as_table(snapshot, settings))
    failed = stuck or any(gpu.error is not None for gpu in snapshot.gpus)
    return NO_ANSWER if failed else 0


def as_table(snapshot: Snapshot, settings: Settings) -> str:
    import shutil

    from gputop.outputs import table
    from gputop.text import unicode_works

    terminal = is_terminal(sys.stdout)
    fixed = terminal or os.environ.get("COLUMNS", "").isdecimal()
    ascii_only = not unicode_works(sys.stdout) if settings.ascii is None else settings.ascii
    return table.render(
        snapshot,
        settings,
        width=shutil.get_terminal_size().columns if fixed else None,  # a pipe gets command lines whole
        color=terminal and settings.color and os.environ.get("TERM", "") not in ("", "dumb"),
        ascii_only=ascii_only,
    )
