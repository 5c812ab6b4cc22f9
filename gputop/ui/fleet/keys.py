"""The keys of ``gputop fleet``, once: footer and help are made of this. What the dashboard has is on the same keys."""

from __future__ import annotations

from typing import Final

from gputop.ui.keys import Key

KEYS: Final = (
    Key("help", ("f1", "question_mark"), "F1 ?", "keys, signs and colours", "Help", "F1", "?"),
    Key("filter", ("f3", "f4", "slash"), "F3 F4 /", "filter: free>=4 model:h100 user:ml job:88123 state:down", "Filter",
        "F3", "/"),
    Key("group", ("f5", "b"), "F5 b", "group by model, user, job, namespace, a label", "Group", "F5", "b"),
    Key("sort", ("f6",), "F6", "choose what to sort by", "Sort", "F6", ""),
    Key("chart", ("f7", "c"), "F7 c", "history of the fleet, of the host at the cursor, both, none", "Chart",
        "F7", "c"),
    Key("there", ("o",), "o", "open gputop on the host at the cursor, by ssh", "Open there", "o", ""),
    Key("quit", ("f10", "q"), "F10 q ^C", "quit", "Quit", "F10", "q"),
    Key("page", ("enter",), "Enter", "the host at the cursor as a page; the hosts of the group"),
    Key("invert", ("I",), "I", "reverse the order"),
    Key("back", ("escape",), "Esc", "clear the filter, then the groups"),
)  # fmt: skip

ACTIONS: Final = {key: entry.action for entry in KEYS for key in entry.keys}
