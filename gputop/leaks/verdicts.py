"""The rules by which a process that holds GPU memory is called LEAK, STUCK, SUSPECT or IDLE (docs/leak-rules.md).

Pure functions of what was found out, so each rule is a line in a table of tests. What is deliberate (nohup, setsid),
looked after (systemd, a living Slurm job, a container) or merely at rest (servers, notebooks) is never a leak.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gputop.leaks import rules
from gputop.leaks.holders.holder import HolderScan
from gputop.leaks.process_context import ProcessContext
from gputop.leaks.report import DeadPid
from gputop.leaks.rules import Case, deliberate, is_worker, manager_of
from gputop.leaks.thresholds import DEAD_PID_SECONDS, idle_seconds, stopped_seconds
from gputop.model import Finding, HostFacts, LeakVerdict, ProcessKey, Verdict
from gputop.settings import Settings
from gputop.units import clock_or_day, duration_in_words, plural, size_in_words

MOST_HOLDERS: Final = 8  # named in the evidence; all are among the targets

_DOUBTS: Final[dict[str, str]] = {
    "R1": "the driver needs a few seconds to tear down a large context, and CRIU keeps one during a checkpoint",
    "R2": "the holder passes the descriptor on (a fork server, CRIU)",
    "R3": "the launcher was meant to exit and leave its children running",
    "R4": "the program was detached on purpose (disown, a double fork)",
    "R5": "it is meant to outlive its terminal (disown)",
    "R6": "a debugger, `scontrol suspend` or CRIU stopped it on purpose",
    "R7": "it waits for a slow network file system and may recover by itself",
    "R8": "the cluster does not track processes by cgroup: `squeue -j {job}` shows whether the job is still running",
    "R9": "it is a server waiting for requests, a notebook, or at a breakpoint",
    "R10": "a package was upgraded, or a temporary directory cleaned up",
}


def judge(case: Case, settings: Settings, now: float) -> LeakVerdict | None:
    """The verdict on a living process; None where there is nothing to say. Never LEAK without R3 or R8."""
    facts, context = case.facts, case.context
    if ignored(facts, settings):
        return None
    findings = {
        finding.rule: finding
        for finding in (
            rules.escaped_job(case),
            rules.parent_died(case),
            rules.stuck(case, now),
            rules.orphan(case),
            rules.terminal_gone(context),
            rules.stopped(case, now),
            rules.idle(case, settings, now),
            rules.deleted(context),
        )
        if finding is not None
    }
    verdict, decisive = _combine(case, findings, settings, now)
    if verdict is None:
        return None
    first, *others = (findings[rule] for rule in decisive if rule in findings)
    first = first._replace(evidence="; ".join([first.evidence, *_context(case, now)]))
    return LeakVerdict(
        verdict=verdict,
        process=facts.key,
        memory=case.memory,
        findings=(first, *others),
        doubts=tuple(dict.fromkeys(_DOUBTS[f.rule].format(job=context.slurm_job_claimed) for f in (first, *others))),
        targets=(facts.key,),
        since=_since(case, first.rule),
        user=facts.user,
        command=facts.command,
    )


def nothing_to_ask(
    facts: HostFacts, context: ProcessContext, lost_parent: bool, idle_for: float, settings: Settings
) -> bool:
    """Whether no rule can hold: the short answer for most of a thousand processes, without making a case of them."""
    return (
        facts.state not in ("T", "Z", "D")
        and not lost_parent
        and context.leader_exists is not False
        and (context.slurm_job_claimed is None or context.owner.slurm_job is not None)
        and idle_for < idle_seconds(settings)
    )


def _combine(
    case: Case, findings: Mapping[str, Finding], settings: Settings, now: float
) -> tuple[Verdict | None, tuple[str, ...]]:
    """The verdict, and the rules in the order in which they count for it."""
    worker = is_worker(case)
    supported = [rule for rule in ("R5", "R9", "R10") if rule in findings]
    also = tuple(rule for rule in ("R7", "R3", "R4", "R5", "R6", "R9", "R10") if rule in findings)

    def ordered(*first: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*first, *also)))

    if "R8" in findings:
        return Verdict.LEAK, ordered("R8")
    if "R3" in findings and worker and manager_of(case) is None:
        return Verdict.LEAK, ordered("R3")
    if "R7" in findings:
        return Verdict.STUCK, ordered("R7")
    excused = deliberate(case) is not None or manager_of(case) is not None
    if "R3" in findings and (worker or not excused):
        return Verdict.SUSPECT, ordered("R3")
    if "R4" in findings and not excused and (supported or worker):
        return Verdict.SUSPECT, ordered("R4")
    if "R6" in findings and case.stopped_since is not None:
        long = now - case.stopped_since >= stopped_seconds(settings)
        return (Verdict.SUSPECT if long else Verdict.NOTE), ordered("R6")
    if "R9" in findings:
        return Verdict.IDLE, ordered("R9")
    return (Verdict.NOTE, ordered("R4")) if "R4" in findings else (None, ())


def judge_dead_pid(
    dead_pid: DeadPid, settings: Settings, now: float, names: Mapping[str, str], scan: HolderScan | None = None
) -> LeakVerdict | None:
    """The verdict on a pid that only the driver knows (R1) and those that hold its memory (R2). *names* of GPUs by
    UUID."""
    if now - dead_pid.since < DEAD_PID_SECONDS or (dead_pid.known is not None and ignored(dead_pid.known, settings)):
        return None
    where = ", ".join(f"{size_in_words(bytes_)} on {names.get(uuid, uuid)}" for uuid, bytes_ in dead_pid.memory)
    name = f" ({dead_pid.known.name})" if dead_pid.known is not None and dead_pid.known.name else ""
    gone = "no such process exists"
    if dead_pid.zombie is not None:
        gone = f"it is a zombie: it has exited, and its parent {dead_pid.zombie.parent_pid} has not reaped it"
    if dead_pid.reused_by is not None:
        gone = f"the process with that pid now ({dead_pid.reused_by.name}) has no GPU open"
    died = f"{'died at' if dead_pid.saw_death else 'was already dead at'} {clock_or_day(dead_pid.since)}"
    words = f"the driver lists {dead_pid.pid}{name} with {where}, but {gone}; it {died}"
    findings = [Finding("R1", words)]
    for found in dead_pid.holders[:MOST_HOLDERS]:
        held = found.device
        proof = found.how if found.certain else f"probably, not proven: {found.how}"
        findings.append(
            Finding(
                "R2", f"{found.holder.key.pid} holds {held.path} ({held.open_as}) opened by {dead_pid.pid}; {proof}"
            )
        )
    if len(dead_pid.holders) > MOST_HOLDERS:
        findings.append(Finding("R2", f"{len(dead_pid.holders) - MOST_HOLDERS} more processes hold it as well"))
    doubts = [_DOUBTS["R1"]]
    if not dead_pid.scanned:
        doubts.append("the processes that hold its memory have not been looked for yet")
    elif dead_pid.holders:
        doubts.append(_DOUBTS["R2"])
    elif scan is not None and not scan.complete:
        doubts.append(f"no holder was found: {scan.summary()}")
    elif scan is not None:
        findings.append(
            Finding("R1", f"no process holds the device now ({plural(scan.inspected, 'process')} inspected): if it "
                    "stays this way, the driver itself holds it: reset the GPU (nvidia-smi --gpu-reset) or reboot")
        )  # fmt: skip
    return LeakVerdict(
        verdict=Verdict.LEAK,
        process=ProcessKey(dead_pid.pid, None),
        memory=dead_pid.memory,
        findings=tuple(findings),
        doubts=tuple(doubts),
        targets=dead_pid.targets,
        since=dead_pid.since,
        user=dead_pid.known.user
        if dead_pid.known is not None
        else _only(found.holder.facts.user for found in dead_pid.holders),
        command=dead_pid.known.command
        if dead_pid.known is not None
        else _only(found.holder.facts.command for found in dead_pid.holders),
    )


def worst_first(verdicts: Iterable[LeakVerdict]) -> tuple[LeakVerdict, ...]:
    """LEAK before STUCK before SUSPECT before IDLE, then the largest."""
    return tuple(sorted(verdicts, key=lambda one: (-one.verdict, -(one.memory_bytes or 0), one.process.pid)))


def ignored(facts: HostFacts, settings: Settings) -> bool:
    """Whether the user's ignore list names it: ``user:NAME``, or any part of its command line."""
    for name in settings.leak_ignore:
        if name.startswith("user:"):
            if facts.user == name.removeprefix("user:"):
                return True
        elif name in (facts.command or "") or name == facts.name:
            return True
    return False


# ----------------------------------------------------------------------- evidence


def _context(case: Case, now: float) -> list[str]:
    """What it holds, since when unchanged, since when unused."""
    said = [f"holds {size_in_words(case_memory(case))} of GPU memory"]
    devices = [f"{device.path} ({device.open_as})" for device in case.held if device.minor is not None]
    if devices:
        said.append("open: " + ", ".join(devices[:4]) + (" and more" if len(devices) > 4 else ""))
    if case.memory_since is not None and now - case.memory_since >= 60:
        watched = "at least " if case.memory_since <= case.first_seen else ""
        said.append(f"memory unchanged for {watched}{duration_in_words(now - case.memory_since)}")
    if case.idle_since is not None and now - case.idle_since >= 60:
        said.append(f"SM 0 % since {clock_or_day(case.idle_since)}")
    return said


def case_memory(case: Case) -> int | None:
    known = [bytes_ for _, bytes_ in case.memory if bytes_ is not None]
    return sum(known) if known else None


def _since(case: Case, rule: str) -> float | None:
    if rule == "R3" and case.parent_changes:
        return case.parent_changes[-1].at
    return {"R6": case.stopped_since, "R7": case.stuck_since, "R9": case.idle_since}.get(rule)


def _only(values: Iterable[str | None]) -> str | None:
    """The one value there is."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
