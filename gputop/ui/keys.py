"""Every key of the dashboard, once: the bindings, the footer, the help and the command palette are made of this.

An escape sequence torn apart by a slow link leaves single letters behind (``O``, ``P`` to ``S``, ``[``, ``A`` to ``D``,
``F``, ``H``, digits, ``~``): none of these is bound to anything that changes something (a test looks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

TORN: Final = frozenset("O P Q R S [ A B C D F H ~ 0 1 2 3 4 5 6 7 8 9".split())


@dataclass(frozen=True, slots=True)
class Key:
    """One action and the keys that do it, in Textual's names."""

    action: str
    keys: tuple[str, ...]
    shown: str  # as the help writes them
    words: str
    footer: str = ""  # the F-key's label; empty: not in the footer
    fkey: str = ""
    letter: str = ""


KEYS: Final = (
    Key("help", ("f1", "question_mark"), "F1 ?", "what the keys and the figures mean", "Help", "F1", "?"),
    Key("settings", ("f2", "s"), "F2 s", "settings: refresh interval, columns, theme, charts…", "Settings", "F2", "s"),
    Key("filter", ("f3", "f4", "slash"), "F3 F4 /", "filter: text, user:, gpu:, pid:, mem>10G", "Filter", "F3", "/"),
    Key("tree", ("f5", "t"), "F5 t", "processes as a tree", "Tree", "F5", "t"),
    Key("sort", ("f6", "o"), "F6 o", "choose the column to sort by", "Sort", "F6", "o"),
    Key("chart", ("f7", "c"), "F7 c", "charts: several, one metric after the other, none", "Chart", "F7", "c"),
    Key("leaks", ("f8", "L"), "F8 L", "memory that nobody uses: who keeps it, why, what to do", "Leaks", "F8", "L"),
    Key(
        "kill",
        ("f9", "k"),
        "F9 k",
        "send a signal to the tagged processes, else to the one at the cursor",
        "Kill",
        "F9",
        "k",
    ),
    Key("quit", ("f10", "q", "ctrl+c"), "F10 q ^C", "quit", "Quit", "F10", "q"),
    Key("interval", ("i",), "i", "refresh interval: the next shorter one, after 100 ms the longest"),
    Key("details", ("enter",), "Enter", "details of the process or the GPU at the cursor"),
    Key("tag", ("space",), "Space", "tag the process"),
    Key("untag_all", ("U",), "U", "untag all"),
    Key("user", ("u",), "u", "only the processes of one user, and back"),
    Key("kind", ("y",), "y", "only compute, only graphics, all"),
    Key("invert", ("I",), "I", "invert the sort"),
    Key("unfold", ("plus",), "+", "unfold in the tree"),
    Key("fold", ("minus",), "-", "fold in the tree"),
    Key("group", ("b",), "b", "group by user, job, container, GPU, not at all"),
    Key("events", ("e",), "e", "what happened: starts, exits, jumps of memory, Xids, throttling, limits"),
    Key("mark", ("m",), "m", "mark this moment: show memory as the change since then; m again to stop"),
    Key("why", ("w",), "w", "why is this GPU full: one page, with what to do next"),
    Key("torch", ("T",), "T", "ask a process that uses gputop.torch_monitor for a memory snapshot, or to record"),
    Key("pause", ("p",), "p", "pause the screen, and go on"),
    Key("refresh", ("f11", "r"), "r", "sample now"),
    Key("back", ("comma",), ",", "look back: the reading before"),
    Key("forward", ("full_stop",), ".", "the next reading; behind the newest one it is live again"),
    Key("far_back", ("shift+left",), "Shift+Left", "look back: 10 s earlier"),
    Key("far_forward", ("shift+right",), "Shift+Right", "10 s later"),
    Key("live", ("end",), "End", "while looking back: live again"),
    Key("next_pane", ("tab",), "Tab", "between GPUs, chart and processes"),
    Key("previous_pane", ("shift+tab",), "Shift+Tab", "the other way round"),
    Key(
        "release", ("g",), "g", "let go of all GPU handles (for a driver reload, reset or MIG change), take them again"
    ),
    Key("repaint", ("ctrl+l",), "^L", "draw the screen anew"),
    Key("suspend", ("ctrl+z",), "^Z", "suspend to the shell"),
)

#: What is wanted every day, the most frequent first: on top of the help and of the command palette.
EVERYDAY: Final = ("details", "kill", "leaks", "filter", "sort", "why", "interval", "quit")

#: What is otherwise when a recording is looked at.
_REPLAY: Final = (
    Key("pause", ("p",), "p", "pause, and go on"),
    Key("back", ("comma",), ",", "the record before"),
    Key("forward", ("full_stop",), ".", "the next record"),
    Key("far_back", ("shift+left",), "Shift+Left", "10 s back"),
    Key("far_forward", ("shift+right",), "Shift+Right", "10 s on"),
    Key("slower", ("less_than_sign",), "<", "play slower, down to 0.1×"),
    Key("faster", ("greater_than_sign",), ">", "play faster, up to 100×"),
    Key("go_to", ("g",), "g", "go to a time: 12:03, 2026-11-30 12:03, +5m, -30s, 50%"),
)
#: What acts on processes, or asks this machine about them: a recording may be of another one.
_LIVE_ONLY: Final = frozenset({"kill", "leaks", "why", "torch", "events", "refresh", "interval", "release", "live"})
REPLAY_KEYS: Final = (
    *(key for key in KEYS if key.action not in _LIVE_ONLY | {key.action for key in _REPLAY}),
    *_REPLAY,
)


def everyday_and_others(keys: Sequence[Key]) -> tuple[list[Key], list[Key]]:
    """Those of every day, the most frequent first, and the others."""
    known = {key.action: key for key in keys}
    return [known[action] for action in EVERYDAY if action in known], [k for k in keys if k.action not in EVERYDAY]
