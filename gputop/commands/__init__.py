"""The subcommands, a module each, imported when asked for.

A module ``gputop.commands.NAME`` has

* ``add_arguments(parser)``: its options (completions and the man page are made from the same parser);
* ``run(options) -> int``: does it and returns the exit status; raises Refusal or SourceError in words;
* ``prepare(arguments)``, where it has one: its arguments as argparse understands them.
"""

from __future__ import annotations

from typing import Final

#: Name and what it is for, in one line.
COMMANDS: Final[dict[str, str]] = {
    "leaks": "memory that nobody uses any more: who holds it, why, what frees it",
    "why": "why a GPU is full or slow, on one page, with what to do next",
    "query": "values for scripts, as nvidia-smi --query-gpu",
    "doctor": "what is wrong here, and what to do about it",
    "watch": "alarms without a screen",
    "serve": "a Prometheus exporter",
    "record": "record GPUs and processes to a file",
    "replay": "the dashboard on a recording",
    "fleet": "GPUs of many hosts: what is free, who holds idle ones, what is broken",
    "torch-trace": "which op of a PyTorch Profiler trace took the memory, and the time",
    "torch-snapshot": "what a PyTorch memory snapshot holds, and by which line",
    "completion": "completion for bash, zsh or fish",
    "man": "the manual page",
}
