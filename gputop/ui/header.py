"""The first line: which machine, which GPUs, which driver, how it is doing, how often it is looked at."""

from __future__ import annotations

from collections import Counter
from typing import Final

from gputop import units
from gputop.model import Host, Snapshot
from gputop.text import fit, width
from gputop.ui.gpus.parts import short_name
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.line_widget import LineWidget
from gputop.ui.toolkit.view import View

_MOST_MODELS: Final = 2  # that are named; more are counted


class Header(LineWidget):
    """One line; the fields it has no room for are left out, least important first."""

    def show_snapshot(self, snapshot: Snapshot, view: View, *, asked: float, badge: str = "") -> None:
        """*asked* is the refresh interval asked for, in seconds; *badge* says which time is shown, where not now."""
        self.show([header_line(snapshot, view, self.cells, asked, badge)])


def header_line(snapshot: Snapshot, view: View, cells: int, asked: float, badge: str = "") -> Line:
    dot = f" {view.glyphs.bullet} "
    left: list[Span] = [(" gputop ", "accent+b@bar")]
    if snapshot.source == "simulated":
        left += [(" SIMULATED ", "warning+br@bar"), (" ", "text@bar")]
    if badge:
        left += [(f" {badge} ", "accent+br@bar"), (" ", "text@bar")]
    right = _right(snapshot, cells, asked, dot)
    room = cells - width("".join(text for text, _ in left)) - width(right[0])
    said = ""
    for lengths in _facts(snapshot, cells):
        longer = [f"{said}{dot}{words}" if said else words for words in lengths]
        said = next((words for words in longer if width(words) <= room - 1), said)
    left.append((fit(f" {said}", room), "text@bar"))
    return (*left, right)


def _facts(snapshot: Snapshot, cells: int) -> list[tuple[str, ...]]:
    """What can be said of the machine, most important first: each in full, and shorter."""
    facts: list[tuple[str, ...]] = []
    if snapshot.host.name:
        facts.append((fit(snapshot.host.name, min(width(snapshot.host.name), 20)),))
    if snapshot.gpus:
        facts.append(_gpus(snapshot)[cells < 100 :])
    driver = snapshot.driver
    if driver.version:
        short = f"driver {driver.version.rpartition('.')[0] or driver.version}"
        facts.append((f"driver {driver.version}", short) if cells >= 120 else (short,))
    if driver.cuda_version:
        facts.append((f"CUDA {driver.cuda_version}",))
    return facts


def _gpus(snapshot: Snapshot) -> tuple[str, ...]:
    """All GPUs by model, and how many of them are lost: ``8 × NVIDIA H200, 1 lost``."""
    lost = sum(gpu.error is not None and not gpu.late for gpu in snapshot.gpus)
    but = f", {lost} lost" if lost else ""
    count = units.plural(len(snapshot.gpus), "GPU") + but
    names = [gpu.name for gpu in snapshot.gpus if gpu.name]
    if not names or len(set(names)) > _MOST_MODELS:
        return (count,)
    shorter: list[str] = []
    for name_of, sign in ((str, " × "), (short_name, " × "), (short_name, "×")):
        models = Counter(name_of(name) for name in names)
        if len(models) == 1:
            models[next(iter(models))] = len(snapshot.gpus)  # a lost one may never have told its name
        shorter.append(", ".join(f"{number}{sign}{name}" for name, number in models.most_common()) + but)
    return (*shorter, count)


def _right(snapshot: Snapshot, cells: int, asked: float, dot: str) -> Span:
    interval = units.interval(asked)
    style = "dim@bar"
    if snapshot.interval > asked * 1.05:
        interval += f" → {units.interval(round(snapshot.interval, 2))}" + (": slow driver" if cells >= 80 else "")
        style = "warning@bar"
    parts = [interval]
    if cells >= 120:
        parts.append(f"sweep {max(0.1, snapshot.took * 1000):5.1f} ms")
    parts.append(units.clock(snapshot.taken_at, seconds=cells >= 100))
    return f" {dot.join(parts)} ", style


class HostLine(LineWidget):
    """One line about the host: CPU, memory, load; and what is wrong with the whole machine."""

    _shown: tuple[Host, View, int] | None = None

    def show_snapshot(self, snapshot: Snapshot, view: View) -> None:
        shown = snapshot.host, view, self.cells
        if shown != self._shown:
            self._shown = shown
            self.show([host_line(snapshot, view, self.cells)])


def host_line(snapshot: Snapshot, view: View, cells: int) -> Line:
    host = snapshot.host
    dot = f" {view.glyphs.bullet} "
    cpu = f"host CPU {units.percent(host.cpu_percent):>4}"
    if host.cpu_count:
        cpu += f" of {host.cpu_count} cores"
    parts = [cpu, f"RAM {view.memory(host.memory_used_bytes):>6} / {view.memory(host.memory_total_bytes)}"]
    if host.load is not None:
        parts.append("load " + " ".join(f"{value:.1f}" for value in host.load))
    parts += [f"{view.glyphs.warning} no answer yet: {word}" for word in host.slow[:1]]
    if host.pids_are_host is False:
        parts.append("in a PID namespace of its own: processes outside it are not seen")
    return ((fit(f" {dot.join(parts)}", cells), "dim"),)


def problem_line(problems: tuple[str, ...], view: View, cells: int) -> Line:
    """The first problem in words, and how many more there are."""
    more = f" (+{len(problems) - 1} more)" if len(problems) > 1 else ""
    return ((fit(f" {view.glyphs.warning} {problems[0]}{more}", cells), "critical+b@bar"),)
