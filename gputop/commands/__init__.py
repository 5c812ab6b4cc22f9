"""The subcommands, a module each, imported when asked for.

A module ``gputop.commands.NAME`` has

* ``add_arguments(parser)``: its options (completions and the man page are made from the same parser);
* ``run(options) -> int``: does it and returns the exit status; raises Refusal or SourceError in words;
* ``prepare(arguments)``, where it has one: its arguments as argparse understands them.
"""

from __future__ import annotations

from typing import Final

#: The subcommands by what they are about: name, and what it is for in one line.
GROUPS: Final[dict[str, dict[str, str]]] = {
    "this machine": {
        "why": "why a GPU is full or slow, on one page, and what to do next",
        "leaks": "memory nobody uses any more: who holds it, what frees it",
        "doctor": "what is wrong here, and how to fix it",
    },
    "many hosts": {
        "fleet": "which GPUs are free, who holds idle ones, what is broken",
    },
    "scripts and services": {
        "query": "values for scripts, as nvidia-smi --query-gpu",
        "watch": "alarms without a screen: command, webhook, log, exit status",
        "serve": "a Prometheus exporter",
    },
    "recordings": {
        "record": "record GPUs and processes to a file",
        "replay": "the dashboard on a recording",
    },
    "PyTorch": {
        "torch-snapshot": "what a memory snapshot holds, and by which line",
        "torch-trace": "which op of a profiler trace took the memory, and the time",
    },
    "setup": {
        "completion": "completion for bash, zsh or fish",
        "man": "the manual page",
    },
}
COMMANDS: Final[dict[str, str]] = {name: words for group in GROUPS.values() for name, words in group.items()}
