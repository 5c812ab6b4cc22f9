"""Where the panes of the charts are, and the line above each: its metric, its span, the GPUs with their values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gputop import units
from gputop.model import Gpu
from gputop.model.chart_metrics import CHART_METRICS
from gputop.ui.toolkit.cells import Line, Span, line_width
from gputop.ui.toolkit.palette import gpu_role
from gputop.ui.toolkit.view import View

LEAST_PANE_WIDTH: Final = 49  # of panes side by side: two on 100 columns
LEAST_PANE_HEIGHT: Final = 6  # of panes below each other
ROOMY_PANE_HEIGHT: Final = 12  # of more panes than one row has, or two below each other
MOST_PANES: Final = 4
GAP: Final = 2  # cells between two panes
_VALUE_CELLS: Final = {"B": 6, "%": 4, "W": 5, "°C": 5, "B/s": 5, "MHz": 7}


@dataclass(frozen=True, slots=True)
class PanePosition:
    """Where the pane of a metric is, in cells of the widget."""

    metric: str
    x: int
    y: int
    width: int
    height: int


def arrange(metrics: Sequence[str], width: int, height: int) -> tuple[PanePosition, ...]:
    """Panes side by side as far as they are wide enough, then below each other; what does not fit is left out, but
    never the first."""
    if width < 8 or height < 4 or not metrics:
        return ()
    abreast = max(1, min(len(metrics), MOST_PANES, (width + GAP) // (LEAST_PANE_WIDTH + GAP)))
    rows = max(1, height // ROOMY_PANE_HEIGHT)
    if abreast == 1:
        rows = max(rows, min(2, height // LEAST_PANE_HEIGHT))
    count = min(len(metrics), MOST_PANES, abreast * rows)
    rows = -(-count // abreast)
    abreast = -(-count // rows)
    places: list[PanePosition] = []
    for row in range(rows):
        line = metrics[row * abreast : min(count, (row + 1) * abreast)]
        y, bottom = row * height // rows, (row + 1) * height // rows
        free = width - GAP * (len(line) - 1)
        for n, metric in enumerate(line):
            x, right = n * free // len(line), (n + 1) * free // len(line)
            places.append(PanePosition(metric, x + n * GAP, y, right - x, bottom - y))
    return tuple(places)


def side_by_side(places: tuple[PanePosition, ...], blocks: list[tuple[Line, ...]]) -> tuple[Line, ...]:
    lines: list[Line] = []
    for place, block in zip(places, blocks, strict=True):
        if place.x == 0:
            lines += block
        else:
            for n, line in enumerate(block):
                lines[place.y + n] = (*lines[place.y + n], (" " * GAP, "faint"), *line)
    return tuple(lines)


def top_line(
    place: PanePosition,
    gpus: tuple[Gpu, ...],
    values: list[float | None],
    view: View,
    border: str,
    remark: Span,
    values_first: bool = False,
) -> Line:
    """``╭ memory used · 10 min ─────── ■ 0 88.1G  ■ 1 118.3G ╮``, exactly as wide as its pane. *remark* is what stands
    behind the metric; *values_first*: rather values without marks than marks without values."""
    glyphs = view.glyphs
    room = place.width - 4  # the corners, and a rule before the right one and after the left one
    title = CHART_METRICS[place.metric].label
    legends = list(_legends(place.metric, gpus, values, view, values_first))
    behind = f" {glyphs.bullet} {remark[0]}"
    legend: tuple[Span, ...] = ()
    for candidate, its_remark in [(candidate, text) for candidate in legends for text in (behind, "")]:
        if line_width(candidate) + len(title) + len(its_remark) + 6 <= room:
            legend, behind = candidate, its_remark
            break
    if legend:
        legend = ((" ", border), *legend, (" ", border))
    title = title[: max(0, room - 1)]
    behind = behind if len(title) + len(behind) + 1 <= room else ""
    left = f"{glyphs.corners[0]} "
    rules = place.width - len(left) - len(title) - len(behind) - 1 - line_width(legend) - 2
    return (
        (left, border),
        (title, "title"),
        (behind, remark[1]),
        (" " + glyphs.rule * rules, border),
        *legend,
        (glyphs.rule + glyphs.corners[1], border),
    )


def _legends(
    metric: str, gpus: tuple[Gpu, ...], values: list[float | None], view: View, values_first: bool
) -> Iterator[tuple[Span, ...]]:
    """From the fullest to the shortest: marks with values, marks alone. One GPU has no mark: the area is its own."""
    mark = "#" if view.glyphs.full.isascii() else "■"
    if len(gpus) == 1:
        yield ((_value(metric, values[0], view), "text+b"),)
        return
    for with_values in (True, False):
        spans: list[Span] = []
        for gpu, value in zip(gpus, values, strict=True):
            if spans:
                spans.append(("  " if with_values else " ", "faint"))
            spans.append((f"{mark}{' ' if with_values else ''}{gpu.index}", gpu_role(gpu.index)))
            if with_values:
                spans.append((" " + _value(metric, value, view), "text"))
        yield tuple(spans)
        if values_first:
            yield tuple((f" {_short_value(metric, value, view)}", gpu_role(gpu.index))
                        for gpu, value in zip(gpus, values, strict=True))  # fmt: skip


def _short_value(metric: str, value: float | None, view: View) -> str:
    """*value* in as few cells as tell it, in colours that say whose it is."""
    if value is None or CHART_METRICS[metric].unit != "B":
        return _value(metric, value, view).strip()
    return f"{value / units.GIB:.0f}G" if value >= units.GIB else f"{value / units.MIB:.0f}M"


def _value(metric: str, value: float | None, view: View) -> str:
    """*value* in a fixed number of cells."""
    kind = CHART_METRICS[metric].unit
    if value is None:
        text = view.glyphs.unknown
    elif kind == "B":
        text = view.memory(value)
    elif kind == "°C":
        text = view.temperature(value).replace("°", view.glyphs.degree)
    elif kind == "B/s":
        text = units.rate(value)
    else:
        text = f"{value:.0f}{kind}"
    return text.rjust(_VALUE_CELLS[kind] + (kind == "B" and view.settings.memory_unit == "MiB"))
