"""The first line: which machine, which GPUs, which driver, how it is doing, how often it is looked at."""

from __future__ import annotations

from collections import Counter

from gputop import units
from gputop.model import Host, Snapshot
from gputop.text import fit, width
from gputop.ui.gpus.parts import short_name
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.line_widget import LineWidget
from gputop.ui.toolkit.view import View


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
    for words in _facts(snapshot, cells):
        longer = f"{said}{dot}{words}" if said else words
        if width(longer) <= room - 1:
            said = longer
    left.append((fit(f" {said}", room), "text@bar"))
    return (*left, right)


def _facts(snapshot: Snapshot, cells: int) -> list[str]:
    """What can be said of the machine, most important first."""
    facts = [fit(snapshot.host.name, min(width(snapshot.host.name), 20))] if snapshot.host.name else []
    names = Counter(short_name(gpu.name) if cells < 100 else gpu.name for gpu in snapshot.gpus if not gpu.error)
    facts += [f"{count} × {name}" if cells >= 100 else f"{count}×{name}" for name, count in names.most_common(3)]
    driver = snapshot.driver
    if driver.version:
        facts.append(
            f"driver {driver.version}"
            if cells >= 120
            else f"driver {driver.version.rpartition('.')[0] or driver.version}"
        )
    if driver.cuda_version:
        facts.append(f"CUDA {driver.cuda_version}")
    return facts


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
    if host.pids_are_host is False:
        parts.append("in a PID namespace of its own: processes outside it are not seen")
    return ((fit(f" {dot.join(parts)}", cells), "dim"),)


def problem_line(problems: tuple[str, ...], view: View, cells: int) -> Line:
    """The first problem in words, and how many more there are."""
    more = f" (+{len(problems) - 1} more)" if len(problems) > 1 else ""
    return ((fit(f" {view.glyphs.warning} {problems[0]}{more}", cells), "critical+b@bar"),)
