"""What a GPU's figures mean in words: the parts of its memory, and what deserves saying, worst first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from gputop import units
from gputop.history.gpu_history import Trend
from gputop.leaks.report import UnattributedMemory
from gputop.leaks.thresholds import UNATTRIBUTED_SHOWN_BYTES
from gputop.model import Gpu, GpuProcess, Severity, memory_breakdown
from gputop.settings import Settings, Thresholds
from gputop.text import width
from gputop.torch_monitor.process_memory import torch_memory

RELEASABLE_SHOWN_BYTES: Final = 512 * units.MIB
XID_SHOWN_SECONDS: Final = 600.0
#: Beginnings of notes that a GPU's facts say too, and of those about how it is set up.
_NOTES_OF_FACTS: Final = ("the driver asks to", "remapping memory rows", "memory rows are")
_HARMLESS_NOTES: Final = ("persistence", "GPU memory is a NUMA node")
STYLE_OF: Final = {
    Severity.NORMAL: "dim",
    Severity.INFO: "dim",
    Severity.WARNING: "warning",
    Severity.CRITICAL: "critical+b",
}


class Remark(NamedTuple):
    """Something to say about a GPU, in full and in few cells."""

    severity: Severity
    message: str
    short: str = ""
    kind: str = ""  # the same for a remark whose figures go on counting; empty: the message
    lasting: bool = True  # may stand for some seconds after it was true last

    def text(self, cells: int) -> str:
        """In at most *cells* cells where that can be; with a sign where it is a warning, so that it is never told by
        colour alone."""
        sign = "▲ " if self.severity >= Severity.WARNING else ""
        long = sign + self.message
        return long if width(long) <= cells or not self.short else sign + self.short

    @property
    def style(self) -> str:
        return STYLE_OF[self.severity]

    @property
    def subject(self) -> str:
        """The same for the same remark with other figures."""
        return self.kind or self.message


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """The memory bar's parts, bytes. ``live`` is all that is used where it cannot be told apart."""

    total: int
    live: int
    dead_pid: int
    unattributed: int
    reserved: int
    dead_pids: tuple[int, ...] = ()  # dead pids that hold memory, the largest first
    cached: int = 0  # of live: PyTorch's caches, as far as processes tell of them (gputop.torch_monitor)
    releasable: int = 0  # of cached: what empty_cache() could give back, at most

    @property
    def used(self) -> int:
        return self.live + self.dead_pid + self.unattributed


def memory_parts(gpu: Gpu, processes: Iterable[GpuProcess], now: float = 0.0) -> MemoryParts | None:
    """None where total or used is not known. *now*: what processes told long before it is not believed."""
    total, used = gpu.memory_total_bytes, gpu.memory_used_bytes
    if not total or used is None:
        return None
    processes = list(processes)
    by_dead_pid = [(pid, bytes_) for pid, bytes_ in memory_breakdown(gpu, processes).by_dead_pid if bytes_]
    dead_pid = min(used, sum(bytes_ for _, bytes_ in by_dead_pid))
    unattributed = min(gpu.memory_unattributed_bytes or 0, used - dead_pid)
    live = used - dead_pid - unattributed
    told = [split for process in processes if process.torch and (split := torch_memory(process, gpu, now))]
    cached = min(live, sum(split.cached for split in told if split.fresh))
    releasable = min(cached, sum(split.releasable for split in told if split.fresh))
    reserved = gpu.memory_reserved_bytes or 0
    dead_pids = tuple(pid for pid, _ in by_dead_pid)
    return MemoryParts(total, live, dead_pid, unattributed, reserved, dead_pids, cached, releasable)


def severity_of(value: float | None, thresholds: Thresholds | None) -> Severity:
    """How bad *value* is."""
    if value is None or thresholds is None or value < thresholds.warning:
        return Severity.NORMAL
    return Severity.CRITICAL if value >= thresholds.critical else Severity.WARNING


def temperature_severity(gpu: Gpu, settings: Settings) -> Severity:
    """By the driver's own limits where it tells them, else by the settings'."""
    if gpu.temperature_celsius is None:
        return Severity.NORMAL
    if gpu.temperature_margin_celsius is not None:
        margin = gpu.temperature_margin_celsius
        return Severity.CRITICAL if margin <= 0 else Severity.WARNING if margin <= 5 else Severity.NORMAL
    slowdown = gpu.facts.temperature_slowdown_celsius
    if slowdown is not None:
        return severity_of(gpu.temperature_celsius, Thresholds(slowdown - 5, slowdown))
    return severity_of(gpu.temperature_celsius, settings.threshold_temperature)


def remarks(gpu: Gpu, settings: Settings, now: float, alarms: Iterable[str] = ()) -> list[Remark]:
    """What is to be said of the GPU beside its memory, worst first. *alarms*: the user's conditions that hold."""
    found = [Remark(Severity.WARNING, f"alarm: {condition}", "alarm") for condition in alarms]
    if gpu.late:
        found.append(
            Remark(
                Severity.WARNING,
                f"stale {units.duration(now - gpu.steady_at)}: the driver is late",
                f"stale {units.duration(now - gpu.steady_at)}",
                "stale",
                lasting=False,
            )
        )
    for xid in reversed(gpu.xids):
        if now - xid.steady_at < XID_SHOWN_SECONDS:
            found.append(
                Remark(
                    xid.severity,
                    f"Xid {xid.code} {units.duration(now - xid.steady_at)} ago: {xid.message}",
                    f"Xid {xid.code}",
                    f"Xid at {xid.at}",
                )
            )
            break
    facts = gpu.facts
    if facts.rows_remap_failed:
        found.append(Remark(Severity.CRITICAL, "row remapping failed: replace the board", "bad rows"))
    if facts.recovery_action is not None:
        found.append(Remark(Severity.CRITICAL, facts.recovery_action, "act now"))
    elif facts.rows_remap_pending:
        found.append(Remark(Severity.WARNING, "row remap pending: reset needed", "reset due"))
    if facts.ecc_uncorrected:
        found.append(Remark(Severity.WARNING, f"{facts.ecc_uncorrected} uncorrected ECC", "ECC"))
    heat = temperature_severity(gpu, settings)
    if heat >= Severity.WARNING:
        found.append(Remark(heat, "at its temperature limit" if heat is Severity.CRITICAL else "hot", "hot"))
    found += [Remark(reason.severity, reason.label, reason.label) for reason in gpu.event_reasons or ()]
    found += [_note(note, gpu) for note in gpu.notes if not note.startswith(_NOTES_OF_FACTS)]
    return sorted(found, key=lambda remark: -remark.severity)


def _note(note: str, gpu: Gpu) -> Remark:
    if note == gpu.processes_error:
        return Remark(Severity.WARNING, note, "no list")
    return Remark(Severity.NORMAL if note.startswith(_HARMLESS_NOTES) else Severity.WARNING, note, "note")


def memory_remark(
    gpu: Gpu,
    parts: MemoryParts | None,
    trend: Trend | None,
    settings: Settings,
    explained: UnattributedMemory | None = None,
    held_by: str = "",
) -> Remark | None:
    """The one thing to say about its memory. *explained*: its unattributed memory with the likely causes;
    *held_by*: who keeps the memory of its dead pids."""
    if parts is None:
        return None
    usable = max(1, parts.total - parts.reserved)
    share = 100 * parts.used / usable
    severity = severity_of(share, settings.threshold_memory)
    if parts.dead_pids:
        more = f" +{len(parts.dead_pids) - 1}" if len(parts.dead_pids) > 1 else ""
        size = units.size(parts.dead_pid, settings.memory_unit)
        keep = f" ← {held_by}" if held_by else ""
        return Remark(
            Severity.WARNING,
            f"{size} held by dead {parts.dead_pids[0]}{more}{keep}",
            f"{size} dead",
            "dead",
            lasting=False,
        )
    if trend is not None and trend.bytes_per_second:
        growing = trend.bytes_per_second > 0
        per_minute = trend.bytes_per_second * 60
        message = f"{'+' if growing else '-'}{units.size(abs(per_minute), settings.memory_unit)}/min"
        if growing and trend.seconds_to_full is not None and trend.seconds_to_full < 2 * 86400:
            soon = Severity.CRITICAL if trend.seconds_to_full < 120 else Severity.WARNING
            until = units.rough_duration(trend.seconds_to_full)
            return Remark(
                max(severity, soon), f"{message} full in {until}", f"full {until.replace(' min', 'm').replace(' ', '')}"
            )
        return Remark(severity, message, message)
    full = f"{share:.0f}% full" if severity >= Severity.WARNING else ""
    if parts.releasable >= max(RELEASABLE_SHOWN_BYTES, parts.total // 20):
        size = units.size(parts.releasable, settings.memory_unit)
        message = f"{full}, {size} cached, could be released" if full else f"{size} cached, could be released"
        return Remark(severity, message, full or f"{size} cached")
    if parts.unattributed >= UNATTRIBUTED_SHOWN_BYTES:
        size = units.size(parts.unattributed, settings.memory_unit)
        if full:
            return Remark(severity, f"{full}, {size} unattributed", full)
        cause = f": {explained.causes[0].name}?" if explained is not None and explained.causes else ""
        return Remark(Severity.INFO, f"{size} unattributed{cause}", f"{size} unattributed")
    if explained is not None and explained.busy:
        return Remark(Severity.WARNING, "busy, and no process is listed", "busy, unlisted")
    return Remark(severity, full, f"{share:.0f}%") if full else None
