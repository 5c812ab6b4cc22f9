"""The characters things are drawn with, and an ASCII set for consoles and locales without the others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gputop.ui.toolkit.cells import Span


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One character set."""

    full: str
    parts: str  # of a cell, from empty to nearly full
    rail: str  # of a gauge: filled, half filled, empty
    rail_half: str
    rail_rest: str
    track: str  # the empty part of a bar where the background cannot tell it
    dead_pid: str
    unattributed: str
    cached: str
    reserved: str
    levels: str  # of a sparkline, from empty to full; the first one is a gap
    peak: str
    down: str
    up: str
    arrow_down: str
    arrow_up: str
    rule: str
    bullet: str
    dagger: str
    warning: str
    held_by: str
    folded: str
    unfolded: str
    corners: str  # top left, top right, bottom left, bottom right
    side: str
    unknown: str
    degree: str


UNICODE: Final = Glyphs(
    full="█",
    parts=" ▏▎▍▌▋▊▉",
    rail="━",
    rail_half="╸",
    rail_rest="─",
    track="·",
    dead_pid="†",
    unattributed="▒",
    cached="▓",
    reserved="░",
    levels=" ▁▂▃▄▅▆▇█",
    peak="│",
    down="↓",
    up="↑",
    arrow_down="▾",
    arrow_up="▴",
    rule="─",
    bullet="·",
    dagger="†",
    warning="▲",
    held_by="←",
    folded="▸",
    unfolded="▾",
    corners="╭╮╰╯",
    side="│",
    unknown="—",
    degree="°",
)
ASCII: Final = Glyphs(
    full="#",
    parts="        ",
    rail="=",
    rail_half="-",
    rail_rest=" ",
    track=".",
    dead_pid="x",
    unattributed="%",
    cached="=",
    reserved=":",
    levels=" _.-~=oO#",
    peak="|",
    down="v",
    up="^",
    arrow_down="\\",
    arrow_up="/",
    rule="-",
    bullet="-",
    dagger="x",
    warning="!",
    held_by="<",
    folded=">",
    unfolded="v",
    corners="++++",
    side="|",
    unknown="-",
    degree="",
)


def gauge(percent: float | None, cells: int, style: str, glyphs: Glyphs) -> tuple[Span, Span]:
    """A thin bar of *cells* cells filled to *percent*, in halves of a cell; unknown is an empty rail."""
    halves = 0 if percent is None else max(0, min(cells * 2, round(percent * cells * 2 / 100)))
    if percent and halves == 0 and cells:
        halves = 1  # something is not nothing
    filled = glyphs.rail * (halves // 2) + (glyphs.rail_half if halves % 2 else "")
    return (filled, style), (glyphs.rail_rest * (cells - len(filled)), "faint")


@lru_cache(256)
def levels(values: tuple[float, ...], glyphs: Glyphs, top: float = 100.0) -> str:
    """A sparkline row: one character a value between 0 and *top*; NaN is a gap."""
    steps = len(glyphs.levels) - 1
    marks = glyphs.levels
    return "".join(
        [
            marks[0] if value != value else marks[1 + max(0, min(steps - 1, int(value * steps / top)))]
            for value in values
        ]
    )
