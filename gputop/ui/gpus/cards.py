"""A GPU as a card: a bordered panel with gauges, the memory's curve and everything that goes with it."""

from __future__ import annotations

from gputop import units
from gputop.model import Gpu, Severity
from gputop.text import fit, width, wrap
from gputop.ui.gpus.parts import (
    GpuDrawing,
    memory_bar,
    memory_curve,
    memory_range,
    mig_line,
    pcie_text,
    stretched,
    tall_sparkline,
)
from gputop.ui.gpus.remarks import STYLE_OF, severity_of, temperature_severity
from gputop.ui.layout import CARD_LINES
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.glyphs import gauge
from gputop.ui.toolkit.palette import load_role
from gputop.ui.toolkit.view import View


def card(drawing: GpuDrawing, cells: int, lines: int, view: View) -> list[Line]:
    """*lines* lines of exactly *cells* cells."""
    inner = cells - 4
    gpu = drawing.gpu
    if (gpu.error is not None and not gpu.late) or gpu.asleep:
        body = _unreadable(drawing, inner, view)
    else:
        body = _body(drawing, inner, max(0, lines - len(gpu.mig) - CARD_LINES), view)
    body += [mig_line(instance, drawing, inner, view) for instance in gpu.mig]
    body = body[: lines - 2]
    body += [((" " * inner, "text"),)] * (lines - 2 - len(body))
    edge = "accent" if drawing.selected else "faint"
    side = view.glyphs.side
    framed: list[Line] = [_top(drawing, cells, edge, view)]
    framed += [((f"{side} ", edge), *row, (f" {side}", edge)) for row in body]
    corners = view.glyphs.corners
    framed.append(((corners[2] + view.glyphs.rule * (cells - 2) + corners[3], edge),))
    return framed


def _top(drawing: GpuDrawing, cells: int, edge: str, view: View) -> Line:
    """``╭ 0 · NVIDIA H200 · P0 ──── power cap ╮``"""
    gpu, glyphs = drawing.gpu, view.glyphs
    state = "" if gpu.performance_state is None or gpu.error else f" {glyphs.bullet} P{gpu.performance_state}"
    said = drawing.state_remark(view)
    room = cells - 6 - width(f"{gpu.index} {glyphs.bullet} ") - width(state)
    status = said.text(room - 16) if said else ""
    status = fit(status, min(width(status), max(0, room - 12)))
    name = fit(gpu.name, min(width(gpu.name), room - (width(status) + 3 if status else 0)))
    spans: list[Span] = [
        (f"{glyphs.corners[0]} ", edge),
        (f"{gpu.index}", f"{drawing.hue}+b"),
        (f" {glyphs.bullet} ", "faint"),
        (name, "title+b"),
        (state, "dim"),
        (" ", edge),
    ]
    end: list[Span] = [(f" {glyphs.corners[1]}", edge)] if said else [(glyphs.corners[1], edge)]
    if said is not None:
        end.insert(0, (f" {status}", said.style))
    taken = sum(width(text) for text, _ in spans) + sum(width(text) for text, _ in end)
    spans.append((glyphs.rule * (cells - taken), edge))
    return tuple(spans + end)


def _unreadable(drawing: GpuDrawing, inner: int, view: View) -> list[Line]:
    gpu = drawing.gpu
    if gpu.asleep:
        words, style = "Asleep to save power; gputop does not wake it.", "dim"
    else:
        words, style = f"{view.glyphs.warning} {gpu.error}", "critical+b"
    lines: list[Line] = [((" " * inner, "text"),)]
    for row in wrap(words, inner):
        lines.append(((fit(row, inner), style),))
        style = style.removesuffix("+b")
    return lines


def _body(drawing: GpuDrawing, inner: int, extra: int, view: View) -> list[Line]:
    """*extra* lines are filled with curves."""
    gpu, glyphs = drawing.gpu, view.glyphs
    text = 29 if inner >= 53 else 20  # cells right of the bars
    bar = inner - 5 - text
    utilization = gpu.utilization_gpu_percent
    track = drawing.track
    rows: list[Line] = []

    figures = _activity(gpu, text - 5)
    rows.append(
        (
            ("GPU  ", "dim"),
            *gauge(utilization, bar, load_role(utilization), glyphs),
            (fit(units.percent(utilization), 5, right=True), f"{load_role(utilization)}+b"),
            (fit(figures, text - 5), "dim"),
        )
    )
    upper, lower = extra - extra // 2, extra // 2
    if upper > 1 and track is not None:
        rows += _curve(track.utilization.last(inner - 5), upper, "u", inner, view)

    remark = drawing.memory_remark(view)
    rows.append((("MEM  ", "dim"), *memory_bar(drawing, bar, view), (fit(f" {_sizes(drawing, view)}", text), "text")))
    said: Span = (fit(f" {remark.text(text - 1)}" if remark else "", text), remark.style if remark else "dim")
    spark: Line = ((" " * bar, "text"),)
    if track is not None and view.settings.show_sparklines:
        spark = memory_curve(drawing, bar, view)
    if lower > 1 and track is not None:  # a larger curve is below: its range
        ends = memory_range(track.memory.last(inner - 5), gpu.memory_total_bytes, view)
        spark = ((fit("" if ends is None else f"{ends[0].strip()} to {ends[1].strip()}:", bar), "dim"),)
    rows.append((("     ", "dim"), *spark, said))
    if lower > 1 and track is not None:
        rows += _curve(stretched(track.memory.last(inner - 5)), lower, "m", inner, view)
    rows += [_temperature(drawing, bar, text, view), _power(drawing, bar, text, view), _links(drawing, inner, view)]
    return rows


def _curve(values: tuple[float, ...], lines: int, family: str, inner: int, view: View) -> list[Line]:
    """Percentages of the last minutes, as high as there is room."""
    return [(("     ", "dim"), row) for row in tall_sparkline(values, inner - 5, lines, family, view.glyphs)]


def _sizes(drawing: GpuDrawing, view: View) -> str:
    gpu, parts = drawing.gpu, drawing.parts
    used = parts.used if parts is not None else gpu.memory_used_bytes
    total, unit = gpu.memory_total_bytes, view.settings.memory_unit
    memory = units.used_of_total_in_words(used, total, unit)
    memory = memory.rjust(width(units.used_of_total_in_words(total, total, unit)))  # the figures stand still
    shared = " shared" if gpu.memory_is_shared else ""
    return f"{memory}{shared}"


def _activity(gpu: Gpu, cells: int) -> str:
    """What the busy time is spent on, as much as there is room for: SM, tensor cores and memory bandwidth where the
    GPU tells them, else the memory controller; video engines where one of them is busy."""
    said = ""
    for label, value in (
        ("SM", gpu.sm_active_percent),
        ("TC", gpu.tensor_active_percent),
        ("BW", gpu.dram_bandwidth_percent),
        ("MBW", gpu.utilization_memory_percent if gpu.sm_active_percent is None else None),
        ("ENC", gpu.utilization_encoder_percent or None),
        ("DEC", gpu.utilization_decoder_percent or None),
        ("JPG", gpu.utilization_jpeg_percent or None),
        ("OFA", gpu.utilization_ofa_percent or None),
    ):
        piece = "" if value is None else f" {label}{value:>4.0f}"
        if width(said + piece) <= cells:
            said += piece
    return said


def _temperature(drawing: GpuDrawing, bar: int, text: int, view: View) -> Line:
    gpu = drawing.gpu
    severity = temperature_severity(gpu, view.settings)
    value = gpu.temperature_celsius
    limit = gpu.facts.temperature_slowdown_celsius or gpu.facts.temperature_max_celsius
    if limit is None and value is not None and gpu.temperature_margin_celsius is not None:
        limit = value + gpu.temperature_margin_celsius
    share = None if value is None else 100 * value / (limit or 100)
    style = STYLE_OF[severity].removesuffix("+b") if severity else load_role(None if share is None else share * 0.8)
    rest = ""
    if value is not None and limit is not None:
        to_limit = units.temperature_difference(limit - value, view.settings.temperature_unit)
        rest = f" {to_limit} to limit"
    dot = f" {view.glyphs.bullet}" if rest else ""
    for piece in (
        f"{dot} mem {view.temperature(gpu.temperature_memory_celsius)[:-1]}" if gpu.temperature_memory_celsius else "",
        f"{dot} fan {gpu.fan_percent}%" if gpu.fan_percent is not None else "",
    ):
        if piece and width(rest + piece) <= text - 6:
            rest += piece
    reading = view.temperature(value)
    if severity >= Severity.WARNING:
        reading = f"{view.glyphs.warning}{reading}"
    return (
        ("TEMP ", "dim"),
        *gauge(share, bar, style, view.glyphs),
        (fit(reading, 6, right=True), STYLE_OF[severity] if severity else "text"),
        (fit(rest, text - 6), "dim"),
    )


def _power(drawing: GpuDrawing, bar: int, text: int, view: View) -> Line:
    gpu = drawing.gpu
    share = None
    if gpu.power_watts is not None and (gpu.power_limit_watts or gpu.facts.power_limit_max_watts):
        share = 100 * gpu.power_watts / (gpu.power_limit_watts or gpu.facts.power_limit_max_watts or 1)
    severity = severity_of(share, view.settings.threshold_power)
    style = STYLE_OF[severity].removesuffix("+b") if severity else load_role(share)
    watts = units.watts(gpu.power_watts)
    of = "" if gpu.power_limit_watts is None else f" / {units.watts(gpu.power_limit_watts)}"
    return (
        ("PWR  ", "dim"),
        *gauge(share, bar, style, view.glyphs),
        (fit(watts, 6, right=True), STYLE_OF[severity] if severity else "text"),
        (fit(of, text - 6), "dim"),
    )


def _links(drawing: GpuDrawing, inner: int, view: View) -> Line:
    """PCIe, NVLink and clocks, as many as there is room for, in constant cells."""
    gpu, glyphs = drawing.gpu, view.glyphs
    down, up = glyphs.down, glyphs.up
    spans: list[Span] = [("PCIe ", "dim"), (pcie_text(gpu, view), "text")]
    room = inner - 18
    clocks = f"{units.number(gpu.clock_sm_mhz):>4}/{units.number(gpu.clock_memory_mhz):<5}MHz"
    if gpu.nvlink_rx_bytes_per_second is not None and room >= 18 + 18:
        rx, tx = units.rate(gpu.nvlink_rx_bytes_per_second), units.rate(gpu.nvlink_tx_bytes_per_second)
        spans += [(" NVL ", "dim"), (f"{down}{rx:>5} {up}{tx:>5}", "text")]
        room -= 18
    if room >= 18:
        spans += [(fit(f"SM/mem {clocks}" if room >= 20 else clocks, room, right=True), "dim")]
        room = 0
    spans.append((" " * room, "text"))
    return tuple(spans)
