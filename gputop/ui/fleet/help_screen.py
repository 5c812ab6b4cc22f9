"""F1: the keys, and what signs and colours mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gputop.text import fit, wrap
from gputop.ui.fleet.keys import KEYS
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.scrolling_page import Part, ScrollingPage
from gputop.ui.toolkit.view import View

_KEY_CELLS = 10


class FleetHelp(ScrollingPage[None]):
    """Over the list of hosts."""

    closing_keys: ClassVar[tuple[str, ...]] = ("escape", "q", "f1", "f10", "question_mark")

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view

    @property
    def view(self) -> View:
        return self._view

    def heading(self) -> tuple[str, str]:
        return "gputop fleet: help", ""

    def parts(self, cells: int) -> Sequence[Part]:
        glyphs = self.view.glyphs
        signs = (
            (glyphs.dagger, "critical+b", "the host does not answer; its GPUs are remembered"),
            (glyphs.warning, "critical+b", "a GPU is broken: it does no work until it is reset or replaced"),
            ("~", "warning+b", "the reading is old: the figures are those of then"),
            (glyphs.rail_rest, "good+b", "a GPU that is free: nobody has its memory"),
            (
                glyphs.levels[6],
                "warning",
                "held but idle: somebody has its memory and has not used it for 10 minutes",
            ),
            (glyphs.levels[6], "l2", "busy: as high as its memory is full, in the colour of its utilization"),
        )
        keys = [line for key in KEYS for line in _entry(key.shown, "key+b", key.words, cells)]
        filters = (
            ("free>=4", "hosts with four free GPUs or more; also gpus, idle, broken, util, mem, power, temp, age"),
            ("model:h100", "any part of the model's name"),
            ("user:ml", "also job:, namespace:, pod:, host:, and each label of the hosts, like rack:r12"),
            ("state:down", "up, stale, down; a GPU that is free, busy, idle or broken"),
            ("!word", "what must not be there"),
        )
        return (
            Part("Keys", keys),
            Part("Signs", [line for sign, style, text in signs for line in _entry(sign, style, text, cells)]),
            Part("Filter", [line for text, about in filters for line in _entry(text, "accent", about, cells)]),
        )


def _entry(key: str, style: str, text: str, cells: int) -> list[Line]:
    return [
        ((fit("" if n else key, _KEY_CELLS) + " ", style), (part, "text"))
        for n, part in enumerate(wrap(text, max(10, cells - _KEY_CELLS - 1)))
    ]
