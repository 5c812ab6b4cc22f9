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
BESIDE_WIDTH: Final = 62  # of cards that stand beside the charts
BESIDE_MOST_GPUS: Final = 2
BESIDE_SCREEN_WIDTH: Final = 84  # cells that each of them would be stretched over else
CHART_LEAST: Final = 5
TABLE_LEAST: Final = 8  # lines the table keeps for itself where it has so many rows…
TABLE_SHARE: Final = 0.55  # … or this part of what it shares with the charts
TABLE_AIR: Final = 3  # lines: its heading, its last line, and a blank one
HOST_SCREEN: Final = 22  # lines a screen needs before the host gets one
HOST_SPARE: Final = 8  # lines that must be left to the others then


@dataclass(frozen=True, slots=True)
class ScreenLayout:
    """Heights in lines; they, the header, the footer and the banner add up to the screen's, where the GPUs stand above
    the chart. Where they stand *beside* it they have *gpu_cells*, and as many lines as it."""

    mode: str  # "line", "pair", "card" or "none": how GPUs are drawn
    cards_abreast: int
    card_lines: int
    host: int  # of the host line
    gpus: int  # of the GPU area; less than it wants to draw: it scrolls
    chart: int
    table: int
    gpu_cells: int  # its width
    beside: bool = False

    @property
    def upper(self) -> int:
        """Lines of GPUs and chart together."""
        return self.chart if self.beside else self.gpus + self.chart


class TableRows:
    """How many rows the table is given room for. It grows at once and shrinks late: a process that comes or goes must
    not move the whole screen."""

    HOLD_SECONDS: Final = 30.0

    def __init__(self) -> None:
        self.rows = 0
        self._needed_at = 0.0  # when so many were needed last

    def take(self, rows: int, now: float) -> int:
        """*rows* are there *now* (any clock that runs): how many there is to be room for."""
        if rows > self.rows or now < self._needed_at:
            self.rows, self._needed_at = rows, now
        elif rows >= self.rows - 1:
            self._needed_at = now
        elif now - self._needed_at > self.HOLD_SECONDS:
            self.rows, self._needed_at = rows, now
        return self.rows


def plan_for(snapshot: Snapshot, settings: Settings, width: int, height: int, rows: int) -> ScreenLayout:
    """The plan for what is to be shown, the table having *rows*."""
    mig = [len(gpu.mig) for gpu in snapshot.gpus]
    return plan(
        width,
        height,
        len(mig),
        rows=rows,
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
    rows: int = 8,
    mig: int = 0,
    most_mig: int = 0,
    banner: bool = False,
    show_host: bool = True,
    show_gpus: bool = True,
    show_sparklines: bool = True,
    show_chart: bool = True,
    show_table: bool = True,
) -> ScreenLayout:
    """Share *height* among *gpus* GPUs with *mig* MIG instances (at most *most_mig* on one), the charts and the table.

    The table takes its *rows* and a little air, where there are many of them a good half; all else goes to the charts.
    """
    host = int(show_host and height >= HOST_SCREEN)
    room = max(0, height - 2 - banner - host)
    least_table = 0 if not show_table else 6 if height >= 20 else 4 if height >= 16 else 3
    if show_gpus and show_chart:
        beside = _beside(width, room, gpus, most_mig, rows if show_table else None)
        if beside:
            lines = beside // gpus
            table = room - beside if show_table else 0
            return ScreenLayout("card", 1, lines, host, beside, beside, table, BESIDE_WIDTH, beside=True)
    mode, abreast, card_lines, wanted = "none", 1, CARD_LINES, 0
    if show_gpus and gpus:
        tall = show_sparklines and not show_chart
        mode, abreast, card_lines, wanted = _gpu_mode(width, room, gpus, mig, most_mig, show_table or show_chart, tall)
    if host and room - wanted < HOST_SPARE:
        host, room = 0, room + 1  # the GPUs need it more
    area = min(wanted, max(0, room - least_table))
    left = room - area
    chart = 0
    if show_chart:
        chart = left - (max(least_table, _table_lines(rows, left, TABLE_SHARE)) if show_table else 0)
        if chart < CHART_LEAST:
            chart = 0
    table = left - chart if show_table else 0
    if not show_table and not chart:
        area = room
    return ScreenLayout(mode, abreast, card_lines, host, area, chart, table, width)


def _table_lines(rows: int, left: int, share: float) -> int:
    """Lines that the table takes of *left* that it shares with the charts."""
    return min(max(rows, 1) + TABLE_AIR, max(TABLE_LEAST, int(left * share)))


def _beside(width: int, room: int, gpus: int, most_mig: int, rows: int | None) -> int:
    """Lines of one or two cards that stand beside the charts, which saves them from being stretched over a wide screen;
    0 where it is not wide, or not high. *rows* None: there is no table."""
    if not 0 < gpus <= BESIDE_MOST_GPUS or width < max(BESIDE_SCREEN_WIDTH * gpus, BESIDE_WIDTH + 50):
        return 0
    lines = room if rows is None else room - _table_lines(rows, room, 0.4)
    return lines if lines >= gpus * (CARD_LINES + most_mig) else 0


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
