"""Who gets which lines of the screen. Pure arithmetic: the property tests run over all sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gputop.model import Snapshot
from gputop.settings import Settings

LEAST_WIDTH: Final = 60
LEAST_HEIGHT: Final = 12
CARD_WIDTH: Final = 56  # of a card with all its words
CARD_LEAST_WIDTH: Final = 48  # where that makes all rows of cards equally long
CARD_LINES: Final = 8
TALL_CARD_LINES: Final = 13
CHART_LEAST: Final = 9
CHART_MOST: Final = 18
HOST_SCREEN: Final = 22  # lines a screen needs before the host gets one
HOST_SPARE: Final = 8  # lines that must be left to the others then
CHART_SCREEN: Final = 30  # lines a screen needs before a chart takes some


@dataclass(frozen=True, slots=True)
class ScreenLayout:
    """Heights in lines; they, the header, the footer and the banner add up to the screen's."""

    mode: str  # "line", "pair", "card" or "none": how GPUs are drawn
    cards_abreast: int
    card_lines: int
    host: int  # of the host line
    gpus: int  # of the GPU area; less than it wants to draw: it scrolls
    chart: int
    table: int


def plan_for(snapshot: Snapshot, settings: Settings, width: int, height: int) -> ScreenLayout:
    """The plan for what is to be shown."""
    mig = [len(gpu.mig) for gpu in snapshot.gpus]
    return plan(
        width,
        height,
        len(mig),
        mig=sum(mig),
        most_mig=max(mig, default=0),
        banner=bool(snapshot.problems),
        show_host=settings.show_host,
        show_gpus=settings.show_gpus,
        show_sparklines=settings.show_sparklines,
        show_chart=settings.show_chart,
        show_table=settings.show_processes,
    )


def plan(
    width: int,
    height: int,
    gpus: int,
    *,
    mig: int = 0,
    most_mig: int = 0,
    banner: bool = False,
    show_host: bool = True,
    show_gpus: bool = True,
    show_sparklines: bool = True,
    show_chart: bool = True,
    show_table: bool = True,
) -> ScreenLayout:
    """Share *height* among *gpus* GPUs with *mig* MIG instances (at most *most_mig* on one), a chart and the table."""
    host = int(show_host and height >= HOST_SCREEN)
    room = max(0, height - 2 - banner - host)
    least_table = 0 if not show_table else 6 if height >= 20 else 4 if height >= 16 else 3
    mode, abreast, card_lines, wanted = "none", 1, CARD_LINES, 0
    if show_gpus and gpus:
        mode, abreast, card_lines, wanted = _gpu_mode(
            width, room, gpus, mig, most_mig, show_table or show_chart, show_sparklines
        )
    if host and room - wanted < HOST_SPARE:
        host, room = 0, room + 1  # the GPUs need it more
    area = min(wanted, max(0, room - least_table))
    left = room - area
    chart = 0
    if show_chart and (height >= CHART_SCREEN or not show_table):
        spare = left - (max(least_table, 8) if show_table else 0)
        if spare >= CHART_LEAST:
            chart = min(CHART_MOST if show_table else spare, max(CHART_LEAST, left * 2 // 5), spare)
    table = left - chart if show_table else 0
    if not show_table and not chart:
        area = room
    elif not show_table:
        chart = left
    return ScreenLayout(mode, abreast, card_lines, host, area, chart, table)


def _gpu_mode(
    width: int, room: int, gpus: int, mig: int, most_mig: int, others: bool, curves: bool
) -> tuple[str, int, int, int]:
    """(mode, cards abreast, lines a card, lines wanted): the roomiest that leaves enough to the others. Tall cards are
    tall for their *curves*."""
    abreast = _abreast(width, gpus)
    rows = -(-gpus // abreast)
    share = 0.45 if others else 1.0
    for lines in (TALL_CARD_LINES, CARD_LINES) if curves else (CARD_LINES,):
        wanted = rows * (lines + most_mig)
        limit = room * (share if lines == CARD_LINES else share * 0.65)
        if wanted <= limit:
            return "card", abreast, lines + most_mig, wanted
    if 2 * gpus + mig <= room * (0.7 if others else 1.0) and room - 2 * gpus - mig >= 6:
        return "pair", 1, CARD_LINES, 2 * gpus + mig
    return "line", 1, CARD_LINES, gpus + mig


def _abreast(width: int, gpus: int) -> int:
    """Cards in a row: the most that are wide enough, or a few more where no row stays shorter than the others then."""
    roomy = max(1, min(gpus, width // CARD_WIDTH))
    tight = max(1, min(gpus, width // CARD_LEAST_WIDTH))
    for abreast in range(tight, roomy, -1):
        if gpus % abreast == 0:
            return abreast
    rows = -(-gpus // roomy)
    return -(-gpus // rows)  # as even as can be
