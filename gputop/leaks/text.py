"""A report on leaks as text for people and as JSON for scripts."""

from __future__ import annotations

import json
from typing import Any, Final

from gputop import units
from gputop.leaks.holders.holder import Holder
from gputop.leaks.report import LeakReport, UnattributedMemory
from gputop.model import LeakVerdict, ProcessKey, Snapshot, Verdict
from gputop.text import shorten, to_ascii, wrap

INDENT: Final = 12


def render(report: LeakReport, snapshot: Snapshot, width: int | None = None, ascii_only: bool = False) -> str:
    """Text of at most *width* cells a line (None: lines as long as they are)."""
    names = {gpu.uuid: f"GPU {gpu.index}" for gpu in snapshot.gpus}
    lines: list[str] = []
    for verdict in report.verdicts:
        lines += _verdict(verdict, report, names, width)
    for card in report.unattributed:
        lines += _unattributed(card, names, width)
    for straggler in report.stragglers:
        lines += _wrapped("note", f"{straggler.job}, {names.get(straggler.gpu_uuid, '')}: {straggler.message}", width)
    for words in report.unsure:
        lines += _wrapped("unsure", words, width)
    lines.append(summary(report))
    text = "".join(f"{line.rstrip()}\n" for line in lines)
    return to_ascii(text) if ascii_only else text


def summary(report: LeakReport) -> str:
    """``1 LEAK (38.0G), 2 IDLE (91.2G)``; ``no leak found``."""
    said = []
    for kind in (Verdict.LEAK, Verdict.STUCK, Verdict.SUSPECT, Verdict.IDLE):
        those = report.those(kind)
        if those:
            said.append(f"{len(those)} {kind.name} ({units.size(sum(one.memory_bytes or 0 for one in those))})")
    if report.those(Verdict.LEAK):
        return ", ".join(said)
    return ", ".join(["no leak found" if not report.unsure else "no leak found, but not everything is known", *said])


def _verdict(verdict: LeakVerdict, report: LeakReport, names: dict[str, str], width: int | None) -> list[str]:
    where = report.owners[verdict.process].where if verdict.process in report.owners else ""
    memory = ", ".join(f"{units.size(bytes_)} on {names.get(uuid, uuid)}" for uuid, bytes_ in verdict.memory)
    dead = verdict.process.start_ticks is None
    head = "  ".join(
        part
        for part in (
            f"pid {verdict.process.pid}{' (dead)' if dead else ''}",
            memory,
            verdict.user,
            where,
            verdict.command,
        )
        if part
    )
    head = f"{verdict.verdict.name:<{INDENT}}{head}"
    lines = [shorten(head, width) if width else head]
    for finding in verdict.findings:
        lines += _wrapped(f"  {finding.rule}", finding.evidence, width)
    if verdict.targets:
        lines += _wrapped("  frees it", _kill(verdict, report), width)
    lines += _wrapped("  unless", "; or ".join(verdict.doubts), width)
    return lines


def _kill(verdict: LeakVerdict, report: LeakReport) -> str:
    owner = report.owners.get(verdict.process)
    if owner is not None and owner.stop_with is not None:
        return owner.stop_with
    stopped = any(finding.rule == "R6" for finding in verdict.findings)
    return f"kill {'-KILL ' if stopped else ''}{' '.join(str(key.pid) for key in verdict.targets)}"


def _unattributed(card: UnattributedMemory, names: dict[str, str], width: int | None) -> list[str]:
    what = (
        f"{units.size(card.bytes)} unattributed: used by no listed process"
        if card.bytes
        else "busy, but no process is listed"
    )
    lines = _wrapped(names.get(card.gpu_uuid, card.gpu_uuid), what, width)
    for cause in card.causes:
        lines += _wrapped("  perhaps", f"{cause.name}: {cause.evidence}. {cause.advice}", width)
    return lines


def _wrapped(label: str, words: str, width: int | None) -> list[str]:
    first, *others = wrap(words, max(20, width - INDENT)) if width else [words]
    return [f"{label:<{INDENT}}{first}", *(" " * INDENT + line for line in others)]


# -------------------------------------------------------------------------------- JSON


def as_json(report: LeakReport, snapshot: Snapshot, indent: int | None = None) -> str:
    """One JSON object, in ASCII. Keys carry their units, not known is ``null``."""
    return json.dumps(as_dict(report, snapshot), indent=indent, allow_nan=False)


def as_dict(report: LeakReport, snapshot: Snapshot) -> dict[str, Any]:
    """The object behind :func:`as_json`."""
    indices = {gpu.uuid: gpu.index for gpu in snapshot.gpus}
    scan = report.scan
    return {
        "taken_at": snapshot.taken_at,
        "verdicts": [_verdict_json(verdict, report, indices) for verdict in report.verdicts],
        "notes": [_verdict_json(verdict, report, indices) for verdict in report.notes],
        "unattributed": [
            {
                "gpu_uuid": card.gpu_uuid,
                "gpu_index": indices.get(card.gpu_uuid),
                "bytes": card.bytes,
                "since": card.since,
                "busy": card.busy,
                "causes": [cause._asdict() for cause in card.causes],
                "holders": [_holder_json(holder) for holder in card.holders],
            }
            for card in report.unattributed
        ],
        "memory": [
            {
                "gpu_uuid": parts.gpu_uuid,
                "gpu_index": indices.get(parts.gpu_uuid),
                "total_bytes": parts.total,
                "used_bytes": parts.used,
                "living_bytes": parts.living,
                "dead_bytes": parts.dead_pids,
                "unattributed_bytes": parts.unattributed,
                "shared_bytes": parts.shared,
                "reserved_bytes": parts.reserved,
                "free_bytes": parts.free,
                "unknown": parts.unknown,
            }
            for parts in report.breakdowns
        ],
        "standouts": [
            {"job": one.job, "pid": one.process.pid, "gpu_uuid": one.gpu_uuid, "words": one.message}
            for one in report.stragglers
        ],
        "scan": scan
        and {
            "inspected": scan.inspected,
            "denied": dict(scan.denied),
            "hidden": scan.hidden,
            "complete": scan.complete,
            "seconds": round(scan.took, 3),
        },
        "unsure": list(report.unsure),
    }


def _verdict_json(verdict: LeakVerdict, report: LeakReport, indices: dict[str, int]) -> dict[str, Any]:
    owner = report.owners.get(verdict.process)
    dead_pid = report.dead_pid(verdict.process.pid)
    return {
        "verdict": verdict.verdict.name,
        "rules": list(verdict.rules),
        **_key_json(verdict.process),
        "user": verdict.user,
        "command": verdict.command,
        "where": (owner and owner.where) or None,
        "stop_with": owner and owner.stop_with,
        "memory_bytes": verdict.memory_bytes,
        "memory": [
            {"gpu_uuid": uuid, "gpu_index": indices.get(uuid), "bytes": bytes_} for uuid, bytes_ in verdict.memory
        ],
        "since": verdict.since,
        "findings": [finding._asdict() for finding in verdict.findings],
        "doubts": list(verdict.doubts),
        "targets": [_key_json(key) for key in verdict.targets],
        "holders": [
            {**_holder_json(found.holder), "how": found.how, "certain": found.certain}
            for found in (dead_pid.holders if dead_pid is not None else ())
        ],
    }


def _key_json(key: ProcessKey) -> dict[str, Any]:
    return {"pid": key.pid, "start_ticks": key.start_ticks}


def _holder_json(holder: Holder) -> dict[str, Any]:
    return {
        **_key_json(holder.key),
        "user": holder.facts.user,
        "command": holder.facts.command,
        "benign": holder.benign,
        "devices": [
            {"path": device.path, "descriptors": list(device.descriptors), "mapped": device.mapped}
            for device in holder.devices
        ],
    }
