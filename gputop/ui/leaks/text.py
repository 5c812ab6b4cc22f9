"""What speaks for a verdict and against it, who keeps a dead pid's memory, and what may use memory of nobody's."""

from __future__ import annotations

from gputop import units
from gputop.leaks.report import DeadPid, LeakReport, UnattributedMemory
from gputop.model import LeakVerdict, Verdict
from gputop.text import wrap
from gputop.ui.processes.lines import VERDICT_ROLES
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.view import View


def about_verdict(verdict: LeakVerdict, report: LeakReport, view: View, cells: int) -> list[Line]:
    """The rules that hold with their evidence, what would make them wrong, and whom to end."""
    lines: list[Line] = []
    role = VERDICT_ROLES[verdict.verdict]
    dead_pid = report.dead_pid(verdict.process.pid) if verdict.process.start_ticks is None else None
    for finding in verdict.findings:
        if finding.rule == "R2" and dead_pid is not None and dead_pid.holders:
            continue  # told of each holder below
        lines += hanging(finding.rule, f"{finding.evidence}", cells, role)
    for doubt in verdict.doubts:
        lines += hanging("unless", doubt, cells, "dim")
    if dead_pid is not None:
        lines += about_holders(dead_pid, report, view, cells)
    owner = report.owners.get(verdict.process)
    if owner is not None:
        if owner.where:
            lines += hanging("where", owner.where, cells, "text")
        if owner.stop_with is not None:
            lines += hanging("stop with", owner.stop_with, cells, "accent")
    return lines


def about_holders(dead_pid: DeadPid, report: LeakReport, view: View, cells: int) -> list[Line]:
    """Who keeps the memory of a dead pid, the likeliest first."""
    lines: list[Line] = []
    for found in dead_pid.holders:
        facts = found.holder.facts
        sure = "" if found.certain else " (probably, not proven)"
        called = f"{facts.key.pid} {facts.command or facts.name or ''} ({facts.user or facts.uid})"
        words = f"{called} holds {found.device.path} ({found.device.open_as}): {found.how}{sure}"
        lines += hanging("R2 held by", words, cells, "text")
    if dead_pid.holders:
        lines += hanging(
            "to do", f"kill {', '.join(str(key.pid) for key in dead_pid.targets)}: press F9", cells, "accent"
        )
    elif dead_pid.scanned and report.scan is not None:
        lines += hanging("held by", f"none found: {report.scan.summary()}", cells, "warning")
    else:
        lines += hanging("held by", "not looked for yet", cells, "dim")
    return lines


def about_unattributed(found: UnattributedMemory, index: str, view: View, cells: int) -> list[Line]:
    """The card of memory that no listed process accounts for: causes, the likeliest first, and what to do."""
    since = units.clock_or_day(found.since)
    if found.bytes:
        head = f"{view.memory(found.bytes)} on GPU {index}, in use since {since}, belong to no listed process."
    else:
        head = f"GPU {index} has been busy since {since}, but the driver lists no process."
    lines: list[Line] = [((part, "unattributed"),) for part in wrap(head, cells)]
    likely = {3: "here", 2: "likely", 1: "possible"}
    for cause in found.causes:
        lines += hanging(likely.get(cause.weight, "possible"), f"{cause.name}: {cause.evidence}", cells, "text")
        lines += hanging("", f"→ {cause.advice}", cells, "accent")
    for holder in found.holders:
        facts = holder.facts
        called = f"{facts.key.pid} {facts.command or facts.name or ''} ({facts.user or facts.uid})"
        devices = ", ".join(device.path for device in holder.devices if device.minor is not None)
        words = f"{called} holds {devices}" + (f": {holder.benign}" if holder.benign is not None else "")
        lines += hanging("held by", words, cells, "text" if holder.benign is None else "dim")
    if pids := [str(holder.key.pid) for holder in found.holders if holder.benign is None]:
        lines += hanging("to do", f"kill {', '.join(pids)}, if nobody needs them: press F9", cells, "accent")
    return lines


def hanging(label: str, words: str, cells: int, role: str, label_cells: int = 11) -> list[Line]:
    """*words* wrapped beside a label."""
    parts = wrap(words, max(8, cells - label_cells))
    return [((f"{label if not n else '':<{label_cells}}", f"{role}"), (part, "text")) for n, part in enumerate(parts)]


def leaked_label(report: LeakReport) -> str:
    """What leaks hold, in few cells: ``▲38G``; empty where there are none."""
    leaks = report.those(Verdict.LEAK)
    held = sum(verdict.memory_bytes or 0 for verdict in leaks)
    if not leaks:
        return ""
    return f"▲{held / units.GIB:.0f}G" if held >= 10 * units.GIB else f"▲{units.size(held).strip()}"
