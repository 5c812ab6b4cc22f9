"""The lines of hosts and of groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gputop import units
from gputop.fleet.model import FleetGpu, FleetGroup, FleetHost, GpuState, HostState
from gputop.text import fit, width
from gputop.ui.fleet.head import kilowatts
from gputop.ui.gpus.parts import short_name
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.frame import clip, on
from gputop.ui.toolkit.palette import load_role
from gputop.ui.toolkit.view import View

_WIDE: Final = 110  # cells from which on sizes stand beside shares
_TWO_CELLS: Final = 150  # cells from which on a GPU takes two
_POWER: Final = 72  # cells from which on power and temperature have a column
_LEAST_NAME: Final = 8
_GROUP_CELLS: Final = 3 + 8 + 5 * 7 + 6 + 10 + 16  # of all but the name
_GPUS_MOST: Final = 16  # of a host that are drawn; more are counted


@dataclass(frozen=True, slots=True)
class HostColumns:
    """Where things stand in a host's line."""

    cells: int
    name: int
    model: int
    gpus: int  # drawn
    gpu_cells: int

    @classmethod
    def of(cls, hosts: Sequence[FleetHost], cells: int, least_name: int = _LEAST_NAME) -> HostColumns:
        """For the rows that are seen. *least_name*: how wide the names were before, so that scrolling moves nothing."""
        name = max([least_name, *(width(host.name) for host in hosts)])
        wide = cells >= _WIDE
        model = max([6, *(width(_models(host, wide)) for host in hosts)])
        gpus = min(_GPUS_MOST, max([4, *(len(host.gpus) for host in hosts)]))
        name = min(name, max(12, cells // (5 if cells >= _POWER else 3)))
        return cls(cells, name, min(model, 22 if wide else 10), gpus, 2 if cells >= _TWO_CELLS else 1)


def title_line(columns: HostColumns, view: View) -> Line:
    texts = [fit("HOST", columns.name), fit("GPUS", columns.model), " " * columns.gpus * columns.gpu_cells, "FREE"]
    texts += [" UTIL", f"{'MEMORY':>13}" if columns.cells >= _WIDE else "  MEM"]
    texts += ["  POWER"] if columns.cells >= _POWER else []
    texts += ["  HOT"] if columns.cells >= _POWER else []
    return ((fit(f"   {' '.join(texts)}  PROBLEM OR USER", columns.cells), "key+b@bar"),)


def host_line(host: FleetHost, columns: HostColumns, view: View, chosen: bool) -> Line:
    down = host.state is HostState.UNREACHABLE
    free = host.gpus_free
    share = units.percent_of(host.memory_used_bytes, host.memory_total_bytes)
    busy = host.utilization_percent
    unknown = "faint" if down else "text"
    wide = columns.cells >= _WIDE
    memory = (
        f"{units.used_of_total(host.memory_used_bytes, host.memory_total_bytes, view.settings.memory_unit):>13}"
        if wide else f"{units.percent(share):>5}"
    )  # fmt: skip
    spans: list[Span] = [
        *_sign(host, view),
        (fit(host.name, columns.name), "dim" if down else "title+b" if chosen else "text"),
        (" ", "text"),
        (fit(_models(host, wide), columns.model), "dim"),
        (" ", "text"),
        *gpu_cells(host.gpus, columns.gpus, columns.gpu_cells, view),
        (f" {units.UNKNOWN if down else free:>4}", "good+b" if free and not down else "dim"),
        (f" {units.percent(busy):>5}", load_role(busy) if busy is not None else unknown),
        (f" {memory}", unknown),
    ]
    if columns.cells >= _POWER:
        spans.append((f" {kilowatts(host.power_watts):>7}", unknown))
        spans.append((f" {view.temperature(host.temperature_celsius):>5}", unknown))
    spans += [("  ", "text"), _note(host, wide)]
    line = clip(tuple(spans), columns.cells)
    return on(line, "cursor") if chosen else line


def waiting_line(columns: HostColumns, view: View, chosen: bool) -> Line:
    """Of a host that was not read yet."""
    line = clip(((f"   {view.glyphs.bullet * 3}", "faint"),), columns.cells)
    return on(line, "cursor") if chosen else line


def _sign(host: FleetHost, view: View) -> Line:
    if host.state is HostState.UNREACHABLE:
        return ((f" {view.glyphs.dagger} ", "critical+b"),)
    if host.count(GpuState.BROKEN):
        return ((f" {view.glyphs.warning} ", "critical+b"),)
    if host.state is HostState.STALE:
        return ((" ~ ", "warning+b"),)
    return ((f" {view.glyphs.warning} ", "warning"),) if host.problem else (("   ", "text"),)


def _note(host: FleetHost, wide: bool) -> Span:
    problem = host.problem
    if host.state is HostState.UNREACHABLE:
        age = f", seen {units.rough_duration(host.age_seconds)} ago" if host.age_seconds is not None else ""
        reason = problem or "unreachable"
        return f"{reason}{age}" if wide else reason, "critical"
    if problem:
        return problem, "critical" if host.count(GpuState.BROKEN) else "warning"
    usage = host.top_usage
    idle = host.count(GpuState.IDLE_HELD)
    if idle:
        label = f"{usage.label}, " if usage is not None else ""
        return f"{label}{idle} held but idle" if wide else f"{idle} idle{', ' if label else ''}{label[:-2]}", "text"
    return (usage.label if usage is not None else ""), "dim"


def gpu_cells(gpus: Sequence[FleetGpu], count: int, each: int, view: View) -> Line:
    """A cell or two per GPU: as high as its memory is full, in the colour of its utilization."""
    spans = [_gpu_cell(gpu, each, view) for gpu in gpus[:count]]
    if len(gpus) > count:
        spans[-1] = ("+" * each, "dim")
    return (*spans, (" " * each * (count - len(spans)), "text"))


def _gpu_cell(gpu: FleetGpu, each: int, view: View) -> Span:
    glyphs = view.glyphs
    match gpu.state:
        case GpuState.BROKEN:
            return glyphs.warning * each, "critical+b"
        case GpuState.UNREACHABLE:
            return glyphs.track * each, "faint"
        case GpuState.FREE:
            return glyphs.rail_rest * each, "good+b"
    values = gpu.gpu
    share = units.percent_of(values.memory_used_bytes, values.memory_total_bytes)
    steps = len(glyphs.levels) - 2
    mark = "?" if share is None else glyphs.levels[1 + min(steps, int(share / 100 * (steps + 1)))]
    return mark * each, "warning" if gpu.state is GpuState.IDLE_HELD else load_role(values.utilization_gpu_percent)


def _models(host: FleetHost, wide: bool) -> str:
    models = host.models
    if not models:
        return units.UNKNOWN
    name, count = models[0]
    more = f" +{len(host.gpus) - count}" if len(models) > 1 else ""
    short = short_name(name, 19) if wide else short_name(name).partition("-")[0].partition(" ")[0]
    return f"{count}×{short}{more}"


def group_title(by: str, name: int, cells: int) -> Line:
    heading = fit(by.upper(), name)
    figures = f"{'GPUS':>7} {'FREE':>6} {'BUSY':>6} {'IDLE':>6} {'BROKEN':>6} {'HOSTS':>6} {'UTIL':>5} {'POWER':>9}"
    line = f"   {heading} {figures}"
    memory = f" {'MEMORY':>15}"
    return ((fit(line + memory if width(line + memory) <= cells else line, cells), "key+b@bar"),)


def group_line(group: FleetGroup, by: str, name: int, cells: int, view: View, chosen: bool) -> Line:
    totals = group.totals
    memory = view.memory(totals.memory_used_bytes)
    if totals.memory_total_bytes is not None:
        memory += f" / {view.memory(totals.memory_total_bytes)}"
    busy = totals.utilization_percent
    line = clip(
        (
            ("   ", "text"),
            (fit(group.label or f"no {by}", name), "text" if group.label else "dim"),
            (f" {totals.gpus:>7,}", "title+b"),
            (f" {totals.gpus_free:>6,}", "good+b" if totals.gpus_free else "dim"),
            (f" {totals.gpus_busy:>6,}", "l2" if totals.gpus_busy else "dim"),
            (f" {totals.gpus_idle_held:>6,}", "warning" if totals.gpus_idle_held else "dim"),
            (f" {totals.gpus_broken:>6,}", "critical+b" if totals.gpus_broken else "dim"),
            (f" {totals.hosts or units.UNKNOWN:>6}", "text"),  # an engine's groups may not tell
            (f" {units.percent(busy):>5}", load_role(busy)),
            (f" {kilowatts(totals.power_watts):>9}", "text"),
            *(((f" {memory:>15}", "text"),) if cells >= name + _GROUP_CELLS else ()),
        ),
        cells,
    )
    return on(line, "cursor") if chosen else line
