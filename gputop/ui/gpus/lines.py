"""A GPU on one line or two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gputop import units
from gputop.text import fit, width
from gputop.ui.gpus.parts import (
    GpuDrawing,
    figure,
    memory_bar,
    memory_curve,
    mig_line,
    pcie_text,
    percent_span,
    power_span,
    short_name,
    size_pair,
    temperature_span,
)
from gputop.ui.gpus.remarks import Remark
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.glyphs import gauge
from gputop.ui.toolkit.palette import load_role
from gputop.ui.toolkit.view import View


@dataclass(frozen=True, slots=True)
class Shape:
    """What all GPU lines of a screen have in common, so that their columns stand under each other."""

    cells: int
    name: int  # cells of the longest short name
    gpm: bool  # any GPU tells SM activity
    fans: bool
    hbm: bool
    nvlink: bool
    temperature: int  # cells

    @classmethod
    def of(cls, drawings: list[GpuDrawing], cells: int, view: View) -> Shape:
        gpus = [drawing.gpu for drawing in drawings]
        most = 12 if cells < 100 else 18 if cells < 160 else 26
        return cls(
            cells=cells,
            name=min(most, max((width(short_name(gpu.name, most)) for gpu in gpus), default=4)),
            gpm=any(gpu.sm_active_percent is not None or gpu.facts.gpm for gpu in gpus),
            fans=any(gpu.fans_percent for gpu in gpus),
            hbm=any(gpu.temperature_memory_celsius is not None for gpu in gpus),
            nvlink=any(gpu.nvlink_rx_bytes_per_second is not None for gpu in gpus),
            temperature=7 if view.settings.temperature_unit == "F" else 6,
        )


@dataclass(frozen=True, slots=True)
class _Columns:
    """Which fields there is room for, and how wide the flexible ones are."""

    bar: int
    spark: int
    status: int
    optional: frozenset[str]


#: Optional fields of the upper line, in the order they get room: (name, cells, what must be known).
_OPTIONAL = (
    *(("sm", 6, "gpm"), ("tc", 6, "gpm"), ("bw", 6, "gpm"), ("mbw", 8, "no gpm")),
    *(("pcie", 14, ""), ("hbm", 9, "hbm"), ("fan", 9, "fans"), ("clock", 13, "")),
    *(("nvlink", 17, "nvlink"), ("memclock", 14, "")),
)


@lru_cache(64)
def _columns(shape: Shape, memory: int) -> _Columns:
    """Shares the width of a pair of lines."""
    left = 3 + shape.name + 1 + 4
    fixed = 5 + shape.temperature + 10  # percent, temperature, power
    have = {"gpm": shape.gpm, "no gpm": not shape.gpm, "hbm": shape.hbm, "fans": shape.fans, "nvlink": shape.nvlink}
    least_bar, status = 12, 11
    room = shape.cells - left - fixed - least_bar - status
    optional = set()
    for name, cells, needs in _OPTIONAL:
        if have.get(needs, True) and room >= cells:
            optional.add(name)
            room -= cells
    bar_cells = least_bar + min(room * 2 // 3, 28)
    room -= bar_cells - least_bar
    status += min(room, 20)
    below = shape.cells - left - bar_cells - memory - 1
    spark = max(0, min(120, below - 28))
    return _Columns(bar_cells, spark, status, frozenset(optional))


def _left(drawing: GpuDrawing, shape: Shape, label: str) -> tuple[Span, ...]:
    gpu = drawing.gpu
    mark = "▸" if drawing.selected else " "
    return (
        (f"{mark}{gpu.index:>2} ", f"{drawing.hue}+b"),
        (fit(short_name(gpu.name, shape.name), shape.name), "title" if not drawing.selected else "title+b"),
        (f" {label}" if label else "", "dim"),
    )


def _unreadable(drawing: GpuDrawing, shape: Shape, view: View, lines: int) -> list[Line]:
    """A GPU with an error, or asleep: the cause in words instead of figures."""
    gpu = drawing.gpu
    if gpu.asleep:
        words, style = "asleep to save power; gputop does not wake it", "dim"
    else:
        words, style = f"{view.glyphs.warning} {gpu.error}", "critical+b"
    room = shape.cells - 4 - shape.name - 1
    first, rest = words, ""
    if width(words) > room and lines > 1:
        cut = words.rfind(" ", 0, room)
        first, rest = (words[:cut], words[cut + 1 :]) if cut > 0 else (words, "")
    result: list[Line] = [(*_left(drawing, shape, "")[:2], (" ", "text"), (fit(first, room), style))]
    if lines > 1:
        result.append(((" " * (shape.cells - room), "text"), (fit(rest, room), style)))
    return result


def pair(drawing: GpuDrawing, shape: Shape, view: View) -> list[Line]:
    """Two lines: utilization and what goes with it above, memory below; then MIG instances, a line each."""
    gpu, glyphs = drawing.gpu, view.glyphs
    if (gpu.error is not None and not gpu.late) or gpu.asleep:
        return _unreadable(drawing, shape, view, 2) + [
            mig_line(instance, drawing, shape.cells, view) for instance in gpu.mig
        ]
    memory_text = f" {size_pair(drawing.parts, gpu, view)}"
    memory_cells = 14 if view.settings.memory_unit == "GiB" else 17
    columns = _columns(shape, memory_cells)
    has = columns.optional
    utilization = gpu.utilization_gpu_percent
    said = drawing.state_remark(view)
    upper: list[Span] = [
        *_left(drawing, shape, "GPU "),
        *gauge(utilization, columns.bar, load_role(utilization), glyphs),
    ]
    upper.append(percent_span(utilization))
    for name, label, value in (
        ("sm", "SM", gpu.sm_active_percent),
        ("tc", "TC", gpu.tensor_active_percent),
        ("bw", "BW", gpu.dram_bandwidth_percent),
        ("mbw", "MBW ", gpu.utilization_memory_percent),
    ):
        if name in has:
            upper += figure(label, value)
    upper += [temperature_span(gpu, view, shape.temperature), power_span(gpu, view, 10)]
    if "hbm" in has:
        upper.append((fit(f" mem{view.temperature(gpu.temperature_memory_celsius)}", 9), "dim"))
    if "fan" in has:
        upper.append((fit(f" fan {units.percent(gpu.fan_percent)}", 9), "dim"))
    if "clock" in has:
        upper.append((fit(f" SM{_mhz(gpu.clock_sm_mhz)}", 13), "dim"))
    if "memclock" in has:
        upper.append((fit(f" mem{_mhz(gpu.clock_memory_mhz)}", 14), "dim"))
    if "pcie" in has:
        upper.append((f" {pcie_text(gpu, view)}", "dim"))
    if "nvlink" in has:
        rx, tx = units.rate(gpu.nvlink_rx_bytes_per_second), units.rate(gpu.nvlink_tx_bytes_per_second)
        upper.append((fit(f" NVL {glyphs.down}{rx:>5}{glyphs.up}{tx:>5}", 17), "dim"))
    taken = sum(width(text) for text, _ in upper)
    upper.append(_status(said, shape.cells - taken))

    lower: list[Span] = [(" " * (4 + shape.name), "text"), (" MEM ", "dim"), *memory_bar(drawing, columns.bar, view)]
    lower.append((fit(memory_text, memory_cells), "text"))
    if columns.spark and view.settings.show_sparklines and drawing.track is not None:
        lower += memory_curve(drawing, columns.spark, view)
    taken = sum(width(text) for text, _ in lower)
    remark = drawing.memory_remark(view)
    lower.append(_status(remark, shape.cells - taken))
    return [tuple(upper), tuple(lower), *(mig_line(instance, drawing, shape.cells, view) for instance in gpu.mig)]


def single(drawing: GpuDrawing, shape: Shape, view: View) -> list[Line]:
    """Everything that matters on one line; then MIG instances, a line each."""
    gpu, glyphs = drawing.gpu, view.glyphs
    mig = [mig_line(instance, drawing, shape.cells, view) for instance in gpu.mig]
    if (gpu.error is not None and not gpu.late) or gpu.asleep:
        return _unreadable(drawing, shape, view, 1) + mig
    memory_cells = 13 if view.settings.memory_unit == "GiB" else 16
    room = shape.cells - (4 + shape.name + 1) - 5 - 1 - memory_cells - shape.temperature - 10
    status = 0 if room < 20 else min(28, max(12, room - 36))
    bars = max(4, room - status)
    first = max(2, min(30, bars * 2 // 5))
    second = max(2, min(44, bars - first))
    spark = max(0, bars - first - second - 1)
    utilization = gpu.utilization_gpu_percent
    spans: list[Span] = [*_left(drawing, shape, ""), (" ", "text")]
    spans += gauge(utilization, first, load_role(utilization), glyphs)
    spans += [percent_span(utilization), (" ", "text"), *memory_bar(drawing, second, view)]
    spans.append((fit(f" {size_pair(drawing.parts, gpu, view)}", memory_cells), "text"))
    if spark > 8 and view.settings.show_sparklines and drawing.track is not None:
        spans += memory_curve(drawing, spark, view)
    spans += [temperature_span(gpu, view, shape.temperature), power_span(gpu, view, 10)]
    taken = sum(width(text) for text, _ in spans)
    memory = drawing.memory_remark(view)
    said = drawing.state_remark(view)
    worst = max([one for one in (said, memory) if one is not None], key=lambda remark: remark.severity, default=None)
    spans.append(_status(worst, shape.cells - taken))
    return [tuple(spans), *mig]


def _status(remark: Remark | None, cells: int) -> Span:
    if remark is None or cells < 2:
        return " " * cells, "dim"
    return fit(f" {remark.text(cells - 1)}", cells), remark.style


def _mhz(value: int | None) -> str:
    return f"{units.UNKNOWN if value is None else value:>5} MHz"
