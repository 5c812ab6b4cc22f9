"""What a process that uses gputop.torch_monitor tells, as lines of its details."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gputop import units
from gputop.history.gpu_history import Buckets
from gputop.model import Gpu, GpuProcess
from gputop.text import fit
from gputop.torch_monitor.process_memory import TorchMemory, torch_memory
from gputop.ui.gpus.parts import tall_sparkline
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.palette import gpu_role, soft_role
from gputop.ui.toolkit.scrolling_page import field, spread
from gputop.ui.toolkit.view import View

_LABEL_CELLS: Final = 16


def split_bar(row: GpuProcess, gpu: Gpu, split: TorchMemory, cells: int, view: View) -> list[Line]:
    """The process's memory as a bar, and what its parts are: in tensors, cached, outside PyTorch."""
    glyphs = view.glyphs
    parts: list[tuple[str, int | None, str, str]] = [
        ("live", split.live, glyphs.full, gpu_role(gpu.index)),
        ("cached", split.cached, glyphs.cached, gpu_role(gpu.index)),
        ("outside torch", split.outside, glyphs.unattributed, "unattributed"),
    ]
    total = max(1, sum(bytes_ or 0 for _, bytes_, _, _ in parts))
    bar: list[Span] = []
    done = drawn = 0
    for _, bytes_, glyph, role in parts:
        done += bytes_ or 0
        wide = round(done * cells / total) - drawn
        drawn += wide
        bar.append((glyph * wide, f"{role}@track"))
    legend: list[Span] = []
    for name, bytes_, glyph, role in parts:
        legend += [(glyph, role), (f" {name} ", "dim"), (f"{view.memory(bytes_)}  ", "title")]
    return [tuple(span for span in bar if span[0]), tuple(legend)]


def about_torch(row: GpuProcess, gpu: Gpu | None, now: float, rings: Mapping[str, Buckets], view: View,
                cells: int) -> list[Line]:  # fmt: skip
    """Empty where the process tells nothing."""
    report = row.torch
    if report is None:
        return []
    split = torch_memory(row, gpu, now)
    if split is None or gpu is None:
        told = ", ".join(f"cuda:{device.index}" for device in report.devices) or "no device yet"
        return field("PyTorch", f"it reports {told}, but not this GPU", cells)
    device = split.device
    lines = split_bar(row, gpu, split, cells, view)
    if not split.fresh:
        words = f"reported {units.duration(split.age)} ago: a long step, or it hangs"
        lines += field("old", words, cells, "warning", _LABEL_CELLS)
    for name, style in (("allocated", "text"), ("cached", "dim")):
        ring = rings.get(name)
        if ring is not None:
            lines.append(_curve(name, ring, float(max(1, device.reserved_bytes)), gpu, cells, view, style))
    peak = f"{view.memory(device.peak_bytes)}, in the last step {view.memory(device.step_peak_bytes)}"
    lines += field("peak", peak, cells)
    released = f"up to {view.memory(split.releasable)} of the cache (torch.cuda.empty_cache())"
    lines += field("releasable", released, cells)
    retries = f"{device.retries}"
    if device.retries:
        retries += ": the cache was flushed to make room; an OOM may be near"
    lines += field("retries", retries, cells, "warning" if device.retries else "text")
    if device.ooms:
        lines += field("OOMs", str(device.ooms), cells, "critical")
    step = f"{report.steps}"
    if report.step_seconds is not None:
        step += f", {report.step_seconds:.2f} s each" if report.step_seconds >= 0.01 else ", under 10 ms each"
    step += "".join(f", {name} {text}" for name, text in report.labels)
    lines += field("steps", step, cells)
    for phase in device.phases:
        kept = f"{'+' if phase.kept_bytes >= 0 else '-'}{view.memory(abs(phase.kept_bytes))}"
        words = f"{view.memory(phase.peak_bytes)} peak, {kept} kept, {phase.seconds:.3f} s"
        lines += field(f"  {phase.name}"[: _LABEL_CELLS - 1], words, cells)
        ring = rings.get(f"phase {phase.name}")
        if ring is not None:
            lines.append(
                _curve("", ring, float(max(1, device.peak_bytes or device.reserved_bytes)), gpu, cells, view, "")
            )
    recording = "being recorded: a snapshot will show the lines of code" if report.recording else "not recorded"
    lines += field("history", recording, cells)
    backend = "" if report.backend in (None, "native") else f", allocator {report.backend}"
    lines += field("torch", f"{report.torch_version or units.UNKNOWN}, as cuda:{device.index}{backend}", cells)
    return lines


def _curve(name: str, ring: Buckets, top: float, gpu: Gpu, cells: int, view: View, style: str) -> Line:
    room = max(10, cells - _LABEL_CELLS - 8)
    values = ring.last(room)
    newest = next((value for value in reversed(values) if value == value), None)
    (span,) = tall_sparkline(tuple(100 * value / top for value in values), room, 1, soft_role(gpu.index), view.glyphs)
    text = "" if newest is None or not name else f" {view.memory(int(newest))}"
    return spread(name, [span, (fit(text, 8), style or "dim")], _LABEL_CELLS)
