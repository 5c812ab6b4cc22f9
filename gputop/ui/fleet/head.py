"""The sums over all hosts: counts of GPUs, memory, power, utilization, models."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from gputop import units
from gputop.fleet.model import FleetSnapshot, Totals
from gputop.text import fit, width, wrap
from gputop.ui.gpus.parts import short_name
from gputop.ui.toolkit.cells import Line, Span, line_width
from gputop.ui.toolkit.frame import clip
from gputop.ui.toolkit.glyphs import gauge
from gputop.ui.toolkit.palette import load_role
from gputop.ui.toolkit.view import View

_LATE_SECONDS: Final = 2.0


def kilowatts(watts: float | None) -> str:
    """``812 W``, ``5.2 kW``, ``612 kW``."""
    if watts is None or watts < 1000:
        return units.watts(watts)
    return f"{watts / 1000:.1f} kW" if watts < 100_000 else f"{watts / 1000:,.0f} kW"


def header_line(source: str, totals: Totals | None, age: str, late: bool, cells: int, view: View) -> Line:
    """The first line: where from, how many hosts, how old the figures are."""
    dot = f" {view.glyphs.bullet} "
    simulated = source == "simulated"
    left: list[Span] = [(" gputop fleet ", "accent+b@bar")]
    left += [(" SIMULATED ", "warning+br@bar"), (" ", "text@bar")] if simulated else []
    parts = [] if simulated else [source]
    if totals is not None:
        parts.append(units.plural(totals.hosts, "host"))
        parts += [f"{totals.hosts_stale} stale"] if totals.hosts_stale else []
        parts += [f"{totals.hosts_unreachable} unreachable"] if totals.hosts_unreachable else []
    right = (f" {age} ", "warning+b@bar" if late else "dim@bar")
    room = max(0, cells - line_width(tuple(left)) - width(right[0]))
    return clip((*left, (fit(dot.join(parts), room), "text@bar"), right), cells)


def age_of(snapshot: FleetSnapshot | None, waited: float, patience: float) -> tuple[str, bool]:
    """When the figures were read, and whether that is longer ago than *patience* in seconds or an answer is late."""
    if snapshot is None or snapshot.totals is None:
        return units.clock(time.time()), False
    age = time.time() - snapshot.taken_at
    asking = f"asking for {waited:.0f} s, " if waited >= _LATE_SECONDS else ""
    if age > patience or asking:
        return f"{asking}figures {units.rough_duration(max(0.0, age))} old", True
    return units.clock(snapshot.taken_at), False


def no_figures(source: str, snapshot: FleetSnapshot | None, waited: float, cells: int, view: View) -> list[Line]:
    """Before anything was read: why, or how long it has been asked for."""
    if snapshot is not None and snapshot.problems:
        sign = f" {view.glyphs.warning} "
        return [
            ((sign if not n else "   ", "critical+b"), (part, "text"))
            for problem in snapshot.problems
            for n, part in enumerate(wrap(problem, cells - 4))
        ]
    seconds = f" {waited:.0f} s" if waited >= 1 else ""
    return [(), ((fit(f" asking {source}…{seconds}", cells), "dim"),)]


def sum_lines(totals: Totals, cells: int, view: View) -> list[Line]:
    """How many GPUs are what, and how much they have and take."""
    counts: list[Span] = [(f" {totals.gpus:,} GPUs", "title+b")]
    words = "held but idle" if cells >= 76 else "idle"
    for count, what, role in (
        (totals.gpus_free, "free", "good+b"),
        (totals.gpus_busy, "busy", "l2"),
        (totals.gpus_idle_held, words, "warning"),
        (totals.gpus_broken, "broken", "critical+b"),
        (totals.gpus_unreachable, "unreachable", "dim"),
    ):
        if count or what == "free":
            counts += [("  ", "text"), (f"{count:,} {what}", role)]
    return [clip(tuple(counts), cells), _amounts(totals, cells, view)]


def _amounts(totals: Totals, cells: int, view: View) -> Line:
    share = units.percent_of(totals.memory_used_bytes, totals.memory_total_bytes)
    rail = max(4, min(24, cells // 10))
    busy, glyphs = totals.utilization_percent, view.glyphs
    memory = f"{view.memory(totals.memory_used_bytes)} / {view.memory(totals.memory_total_bytes)}"
    return clip(
        (
            (" util ", "dim"),
            *gauge(busy, rail, load_role(busy), glyphs),
            (f" {units.percent(busy):>4}", load_role(busy)),
            ("   mem ", "dim"),
            *gauge(share, rail, "m6", glyphs),
            (f" {units.percent(share):>4} {memory}", "text"),
            ("   power ", "dim"),
            (kilowatts(totals.power_watts), "text"),
        ),
        cells,
    )


def model_lines(by_model: Mapping[str, Totals], cells: int, lines: int) -> list[Line]:
    """The models, most frequent first: a line each where there are *lines* for them, else all in one."""
    if lines < 2:
        spans: list[Span] = [(" ", "text")]
        for name, one in by_model.items():
            piece: Line = (
                (f"{one.gpus:,} {short_name(name).partition('-')[0].partition(' ')[0]} ", "dim"),
                (f"{one.gpus_free} free", "good" if one.gpus_free else "dim"),
                ("   ", "text"),
            )
            if line_width((*spans, *piece)) > cells:
                break
            spans += piece
        return [clip(tuple(spans), cells)]
    names = {name: short_name(name) for name in by_model}
    most = min(30, max(map(width, names.values()), default=0))
    result: list[Line] = []
    for name, one in list(by_model.items())[:lines]:
        result.append(
            clip(
                (
                    (f" {one.gpus:>7,} × ", "dim"),
                    (fit(names[name], most), "text"),
                    (f" {one.gpus_free:>6,} free", "good" if one.gpus_free else "dim"),
                    (f" {one.gpus_idle_held:>6,} held but idle", "warning" if one.gpus_idle_held else "dim"),
                    (f" {one.gpus_broken:>4,} broken", "critical" if one.gpus_broken else "dim"),
                    (f"  {units.percent(one.utilization_percent):>4}", load_role(one.utilization_percent)),
                    (f"  {kilowatts(one.power_watts):>8}", "text"),
                ),
                cells,
            )
        )
    return result


def problem_lines(snapshot: FleetSnapshot, cells: int, view: View) -> list[Line]:
    """What the source has to say, the first of it, and how much more there is."""
    if not snapshot.problems:
        return []
    more = f" (+{len(snapshot.problems) - 1} more)" if len(snapshot.problems) > 1 else ""
    return [((fit(f" {view.glyphs.warning} {snapshot.problems[0]}{more}", cells), "critical+b@bar"),)]
