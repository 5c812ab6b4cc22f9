"""Pieces that GPU lines and GPU cards are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from gputop import units
from gputop.history.gpu_history import GpuHistory, Trend
from gputop.leaks.report import UnattributedMemory
from gputop.model import Gpu, MigInstance, Severity
from gputop.text import fit, width
from gputop.ui.gpus.badges import Badge
from gputop.ui.gpus.remarks import (
    STYLE_OF,
    MemoryParts,
    Remark,
    memory_remark,
    remarks,
    severity_of,
    temperature_severity,
)
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.glyphs import Glyphs, levels
from gputop.ui.toolkit.palette import GRADIENT_STEPS, gpu_role, load_role, soft_role
from gputop.ui.toolkit.view import View

_LEAST_SPAN_PERCENT: Final = 0.5  # of the total: what memory must move by to fill the height of its curve


@dataclass(frozen=True, slots=True)
class GpuDrawing:
    """Everything one GPU is drawn from."""

    gpu: Gpu
    parts: MemoryParts | None
    track: GpuHistory | None
    now: float
    selected: bool = False
    unattributed: UnattributedMemory | None = None  # where there was some for long enough to be explained
    held_by: str = ""  # who keeps the dead's memory: "50377 +3"
    state_badge: Badge = field(default_factory=Badge)
    memory_badge: Badge = field(default_factory=Badge)

    def state_remark(self, view: View) -> Remark | None:
        """The one thing to say of it beside its memory."""
        if self.gpu.error is not None and not self.gpu.late:
            return None
        said = remarks(self.gpu, view.settings, self.now, view.alarms.get(self.gpu.uuid, ()))
        return self.state_badge.remark(said, self.now)

    def memory_remark(self, view: View) -> Remark | None:
        """The one thing to say of its memory."""
        said = memory_remark(self.gpu, self.parts, self.trend, view.settings, self.unattributed, self.held_by)
        return self.memory_badge.remark([] if said is None else [said], self.now)

    @property
    def hue(self) -> str:
        return gpu_role(self.gpu.index)

    @property
    def trend(self) -> Trend | None:
        return None if self.track is None else self.track.trend

    @property
    def soft(self) -> str:
        return soft_role(self.gpu.index)


def short_name(name: str, cells: int = 99) -> str:
    """Without what all names have (``NVIDIA GeForce RTX 4090`` is ``RTX 4090``), and without the last words where the
    whole name takes more than *cells*."""
    for prefix in ("NVIDIA ", "GeForce ", "Tesla "):
        name = name.removeprefix(prefix)
    while width(name) > cells and " " in name:
        name = name.rpartition(" ")[0]
    return name


def memory_bar(drawing: GpuDrawing, cells: int, view: View) -> Line:
    """The stack: living processes (of it what PyTorch caches, where they tell), held by the dead, unattributed,
    reserved, free; with the peak's mark."""
    parts, glyphs = drawing.parts, view.glyphs
    if parts is None or cells <= 0:
        return ((_track(cells, view), "faint@track"),)
    ends = []
    total = 0
    for amount in (parts.live, parts.dead_pid, parts.unattributed, parts.reserved):
        total += amount
        ends.append(min(cells, total * cells / parts.total))
    live = min(round(ends[0]), cells - 1 if parts.dead_pid else cells)  # the dead have a cell in any case
    dead_pid = max(round(ends[1]), live + (1 if parts.dead_pid else 0))
    unattributed = round(ends[2])
    unattributed = max(dead_pid, unattributed)
    reserved = max(unattributed, round(ends[3]))
    text = glyphs.full * live
    cached = live - min(live, round((parts.live - parts.cached) * cells / parts.total))
    if cached:
        text = text[cached:] + glyphs.cached * cached
    elif dead_pid == live and unattributed == dead_pid:
        text = _eighths(ends[0], cells, glyphs)  # free follows: tell eighths of a cell
        reserved = max(reserved, len(text))
        dead_pid = unattributed = len(text)
    spans: list[Span] = [(text, f"{drawing.hue}@track")]
    if dead_pid > len(text):
        spans.append((glyphs.dead_pid * (dead_pid - len(text)), "dead+b@track"))
    if unattributed > dead_pid:
        spans.append((glyphs.unattributed * (unattributed - dead_pid), "unattributed@track"))
    if reserved > unattributed:
        spans.append((glyphs.reserved * (min(reserved, cells) - unattributed), "reserved@track"))
    taken = sum(len(span_text) for span_text, _ in spans)
    free = _track(cells - taken, view)
    peak = drawing.track.peak_bytes if drawing.track is not None else None
    if peak is not None and free:
        at = min(cells - 1, math.ceil(peak * cells / parts.total) - 1) - taken
        if 0 <= at < len(free):
            spans += [(free[:at], "faint@track"), (glyphs.peak, "dim@track"), (free[at + 1 :], "faint@track")]
            free = ""
    spans.append((free, "faint@track"))
    return tuple(span for span in spans if span[0])


def _eighths(value: float, cells: int, glyphs: Glyphs) -> str:
    eighths = min(cells * 8, round(value * 8)) or (1 if value > 0 else 0)
    full, part = divmod(eighths, 8)
    piece = glyphs.parts[part]
    return glyphs.full * full + (piece if piece != " " else "")


def _track(cells: int, view: View) -> str:
    return (" " if view.has_track else view.glyphs.track) * max(0, cells)


def sparkline(values: tuple[float, ...], cells: int, style: str, glyphs: Glyphs) -> Span:
    """One row of the newest *cells* buckets."""
    return fit(levels(values[-cells:] if len(values) > cells else values, glyphs), cells, right=True), style


@lru_cache(256)
def stretched(values: tuple[float, ...]) -> tuple[float, ...]:
    """*values*, percent, from their least to their most as 0 to 100; what hardly moves stays low."""
    known = [value for value in values if value == value]
    low = min(known, default=0.0)
    span = max(max(known, default=0.0) - low, _LEAST_SPAN_PERCENT)
    return tuple([(value - low) * 100 / span for value in values])


def memory_range(values: tuple[float, ...], total: int | None, view: View) -> tuple[str, str] | None:
    """The least and the most of *values*, percent of *total*, as bytes; None where nothing is known."""
    known = [value for value in values if value == value]
    if not known or not total:
        return None
    return view.memory(min(known) * total / 100), view.memory(max(known) * total / 100)


def memory_curve(drawing: GpuDrawing, cells: int, view: View) -> Line:
    """The memory of the last minutes between its own minimum and maximum, which are written at its ends:
    ``82.1 ▁▂▃▄▅▆▇█ 84.0G``. What hardly moves is a low line: it is not made to look as if it did."""
    total = drawing.gpu.memory_total_bytes
    labels = 14 if view.settings.memory_unit == "GiB" else 18
    if drawing.track is None or not total or cells < 4:
        return ((" " * cells, "text"),)
    room = cells - labels if cells >= labels + 6 else cells
    values = drawing.track.memory.last(room)
    ends = memory_range(values, total, view)
    if ends is None:
        return ((" " * cells, "text"),)
    curve = sparkline(stretched(values), room, drawing.soft, view.glyphs)
    if room == cells:
        return (curve,)
    return (
        (fit(ends[0], labels // 2 - 1, right=True) + " ", "dim"),
        curve,
        (" " + fit(ends[1], labels // 2 - 1), "dim"),
    )


def tall_sparkline(values: tuple[float, ...], cells: int, rows: int, family: str, glyphs: Glyphs) -> list[Span]:
    """*rows* rows, the top one first, that together tell *rows* times as many levels; in the colours of a chart's
    area."""
    values = values[-cells:]
    steps = len(glyphs.levels) - 1
    result = []
    for row in range(rows - 1, -1, -1):
        marks = []
        for value in values:
            if value != value:
                marks.append(" ")
                continue
            level = max(1, math.ceil(min(100.0, value) * steps * rows / 100)) - row * steps
            marks.append(glyphs.levels[min(steps, level)] if level > 0 else " ")
        shade = round(row * (GRADIENT_STEPS - 1) / max(1, rows - 1))
        result.append((fit("".join(marks), cells, right=True), f"{family}{shade}"))
    return result


def size_pair(parts: MemoryParts | None, gpu: Gpu, view: View) -> str:
    """``88.1/140.4G``: used and total in one unit."""
    used = parts.used if parts is not None else gpu.memory_used_bytes
    return units.used_of_total(used, gpu.memory_total_bytes, view.settings.memory_unit)


def percent_span(value: float | None, cells: int = 5) -> Span:
    """A percentage in its load's colour."""
    return fit(units.percent(value), cells, right=True), load_role(value)


def figure(label: str, value: float | None, digits: int = 3) -> tuple[Span, Span]:
    """``SM  92``: a dim label and a percentage without its sign."""
    return (f" {label}", "dim"), (fit(units.number(value), digits, right=True), "text" if value is not None else "dim")


def temperature_span(gpu: Gpu, view: View, cells: int) -> Span:
    severity = temperature_severity(gpu, view.settings)
    text = view.temperature(gpu.temperature_celsius)
    if severity >= Severity.WARNING:
        text = f"{view.glyphs.warning}{text}"
    return fit(text, cells, right=True), STYLE_OF[severity] if severity else "text"


def power_span(gpu: Gpu, view: View, cells: int) -> Span:
    share = None
    if gpu.power_watts is not None and gpu.power_limit_watts:
        share = 100 * gpu.power_watts / gpu.power_limit_watts
    severity = severity_of(share, view.settings.threshold_power)
    text = units.power(gpu.power_watts, gpu.power_limit_watts)
    if width(text) >= cells:  # 1000 W and more: the limit gives way to a blank
        text = f"{text.partition('/')[0]}W"
    return fit(text, cells, right=True), STYLE_OF[severity] if severity else "text"


def pcie_text(gpu: Gpu, view: View) -> str:
    """``↓ 76M ↑ 16M``: to and from the GPU, bytes a second, in constant cells."""
    down, up = view.glyphs.down, view.glyphs.up
    return f"{down}{units.rate(gpu.pcie_rx_bytes_per_second):>5} {up}{units.rate(gpu.pcie_tx_bytes_per_second):>5}"


def mig_line(instance: MigInstance, drawing: GpuDrawing, cells: int, view: View) -> Line:
    """One MIG instance: its profile, memory bar and figures."""
    label = fit(f"  {instance.gpu_instance_id}.{instance.compute_instance_id} {instance.name}", 16)
    if instance.error is not None:
        return ((label, "dim"), (fit(f"{view.glyphs.warning} {instance.error}", cells - 16), "critical"))
    used, total = instance.memory_used_bytes, instance.memory_total_bytes
    parts = None
    if used is not None and total:
        parts = MemoryParts(total, used, 0, 0, instance.memory_reserved_bytes or 0)
    text = f"{view.memory(used)}/{view.memory(total)}"
    sm = "" if instance.sm_active_percent is None else f" SM {instance.sm_active_percent:.0f}%"
    room = max(6, min(44, cells - 16 - 24))
    bar = memory_bar(GpuDrawing(drawing.gpu, parts, None, drawing.now), room, view)
    return ((label, "dim"), *bar, (fit(f" {text}{sm}", cells - 16 - room), "text"))
