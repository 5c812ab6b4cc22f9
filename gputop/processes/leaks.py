"""The rules by which a process that holds GPU memory is called LEAK, STUCK, SUSPECT or IDLE (facts/nvml.md §4.3).

Pure functions of what was found out, so each rule is a line in a table of tests. What is deliberate (nohup, setsid),
looked after (systemd, a living Slurm job, a container) or merely at rest (servers, notebooks) is never a leak.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gputop import units
from gputop.model import Finding, HostFacts, LeakVerdict, ProcessKey, Verdict
from gputop.processes.past import ParentChange
from gputop.processes.report import Circumstances, Ghost, HeldDevice, HolderScan
from gputop.processes.words import amount, clock, descriptors, plural, span
from gputop.settings import Settings

GHOST_SECONDS: Final = 5.0  # tearing down tens of GiB takes some of them
STUCK_SECONDS: Final = 60.0
DAEMON_SECONDS: Final = 60.0  # who loses its parent sooner after its start was started that way
IDLE_CPU_PERCENT: Final = 1.0
IDLE_BYTES: Final = 512 * units.MIB
IDLE_SHARE: Final = 0.02
MOST_HOLDERS: Final = 8  # named in the evidence; all are among the targets

#: Parents that adopt orphans, beside pid 1: systemd --user, the shims and init programs of containers, Slurm's.
_ADOPTERS: Final = re.compile(
    r"systemd$|containerd-shim|tini(-static)?$|dumb-init$|docker-init$|catatonit$|conmon|slurmstepd|s6-svscan|runsv"
)
_MULTIPLEXER: Final = re.compile(r"tmux|screen$|SCREEN$|zellij")
#: Processes that exist for another one's sake. comm is cut at 15 characters.
_WORKER: Final = re.compile(
    r"pt_data_worker|multiprocessing\.(spawn|forkserver|resource_tracker)|spawn_main\(|VLLM::|sglang::|ray::"
    r"|torch\._inductor\.compile_worker|horovod|deepspeed\.launcher"
)

_DOUBTS: Final[dict[str, str]] = {
    "R1": "a large context takes seconds to be torn down, and CRIU keeps one while it checkpoints",
    "R2": "a holder that still hands the descriptor on (a fork server, CRIU)",
    "R3": "a launcher that was meant to end and to leave its children at work",
    "R4": "a program that was detached on purpose (disown, a double fork)",
    "R5": "output that is wanted though the terminal is gone (disown)",
    "R6": "a debugger, `scontrol suspend` or CRIU stopped it on purpose",
    "R7": "a slow network file system: it may come back by itself",
    "R8": "a cluster that does not track processes by cgroup: `squeue -j {job}` says whether the job lives",
    "R9": "a server that waits for requests, a notebook, a breakpoint",
    "R10": "a package upgrade, or a temporary directory that was cleaned",
}


@dataclass(frozen=True, slots=True)
class Case:
    """All that the rules ask about one living process. Times are epoch seconds, None: not known or not so."""

    circumstances: Circumstances
    memory: tuple[tuple[str, int | None], ...]  # (GPU's UUID, bytes), the largest first
    gpu_bytes: int | None = None  # memory of the largest of these GPUs
    first_seen: float = 0.0
    memory_since: float | None = None  # unchanged since
    idle_since: float | None = None  # neither GPU nor CPU used since; None: used, or the driver does not tell
    cpu_percent_idle: float | None = None  # of a core, since then
    stopped_since: float | None = None
    stuck_since: float | None = None
    parent_changes: tuple[ParentChange, ...] = ()
    held: tuple[HeldDevice, ...] = ()

    @property
    def facts(self) -> HostFacts:
        return self.circumstances.facts


def judge(case: Case, settings: Settings, now: float) -> LeakVerdict | None:
    """The verdict on a living process; None where there is nothing to say. Never LEAK without R3 or R8."""
    facts, circumstances = case.facts, case.circumstances
    if ignored(facts, settings):
        return None
    findings = {
        finding.rule: finding
        for finding in (
            _escaped_job(case),
            _parent_died(case, now),
            _stuck(case, now),
            _orphan(case),
            _terminal_gone(circumstances),
            _stopped(case, now),
            _idle(case, settings, now),
            _deleted(circumstances),
        )
        if finding is not None
    }
    verdict, rules = _combine(case, findings, settings, now)
    if verdict is None:
        return None
    first, *others = (findings[rule] for rule in rules if rule in findings)
    first = first._replace(words="; ".join([first.words, *_context(case, now)]))
    return LeakVerdict(
        verdict=verdict,
        process=facts.key,
        memory=case.memory,
        findings=(first, *others),
        doubts=tuple(
            dict.fromkeys(_DOUBTS[f.rule].format(job=circumstances.slurm_job_claimed) for f in (first, *others))
        ),
        targets=(facts.key,),
        since=_since(case, first.rule),
        user=facts.user,
        command=facts.command,
    )


def nothing_to_ask(
    facts: HostFacts, circumstances: Circumstances, lost_parent: bool, idle_seconds: float, settings: Settings
) -> bool:
    """Whether no rule can hold: the short answer for most of a thousand processes, without making a case of them."""
    return (
        facts.state not in ("T", "Z", "D")
        and not lost_parent
        and circumstances.leader_exists is not False
        and (circumstances.slurm_job_claimed is None or circumstances.owner.slurm_job is not None)
        and idle_seconds < settings.leak_idle_minutes * 60
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
        long = now - case.stopped_since >= settings.leak_stopped_minutes * 60
        return (Verdict.SUSPECT if long else Verdict.NOTE), ordered("R6")
    if "R9" in findings:
        return Verdict.IDLE, ordered("R9")
    return (Verdict.NOTE, ordered("R4")) if "R4" in findings else (None, ())


def judge_ghost(
    ghost: Ghost, settings: Settings, now: float, names: Mapping[str, str], scan: HolderScan | None = None
) -> LeakVerdict | None:
    """The verdict on a pid that only the driver knows (R1) and those who keep its memory (R2). *names* of GPUs by
    UUID."""
    if now - ghost.since < GHOST_SECONDS or (ghost.known is not None and ignored(ghost.known, settings)):
        return None
    where = ", ".join(f"{amount(bytes_)} on {names.get(uuid, uuid)}" for uuid, bytes_ in ghost.memory)
    name = f" ({ghost.known.name})" if ghost.known is not None and ghost.known.name else ""
    gone = "no such process exists"
    if ghost.reused_by is not None:
        gone = f"who bears that pid now ({ghost.reused_by.name}) has no GPU open"
    died = f"died {clock(ghost.since)}" if ghost.saw_death else f"was dead already at {clock(ghost.since)}"
    words = f"the driver lists {ghost.pid}{name} with {where}, but {gone}; it {died}"
    findings = [Finding("R1", words)]
    for hold in ghost.holds[:MOST_HOLDERS]:
        grip = descriptors(hold.device.descriptors)
        proof = hold.how if hold.certain else f"likely, not proven: {hold.how}"
        findings.append(
            Finding("R2", f"{hold.holder.key.pid} holds {hold.device.path} ({grip}) opened by {ghost.pid}; {proof}")
        )
    if len(ghost.holds) > MOST_HOLDERS:
        findings.append(Finding("R2", f"{len(ghost.holds) - MOST_HOLDERS} more processes hold it likewise"))
    doubts = [_DOUBTS["R1"]]
    if not ghost.scanned:
        doubts.append("who keeps its memory has not been looked for yet")
    elif ghost.holds:
        doubts.append(_DOUBTS["R2"])
    elif scan is not None and not scan.complete:
        doubts.append(f"no holder was found: {scan.words()}")
    elif scan is not None:
        findings.append(
            Finding("R1", f"nobody holds the device any more ({plural(scan.inspected, 'process')} inspected): if this "
                    "stays so, the driver itself keeps it; reset the GPU (nvidia-smi --gpu-reset) or reboot")
        )  # fmt: skip
    return LeakVerdict(
        verdict=Verdict.LEAK,
        process=ProcessKey(ghost.pid, None),
        memory=ghost.memory,
        findings=tuple(findings),
        doubts=tuple(doubts),
        targets=ghost.targets,
        since=ghost.since,
        user=ghost.known.user if ghost.known is not None else _only(hold.holder.facts.user for hold in ghost.holds),
        command=ghost.known.command if ghost.known is not None else _only(h.holder.facts.command for h in ghost.holds),
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


# ----------------------------------------------------------------------- excuses


def is_worker(case: Case) -> bool:
    """Whether it works for another process, without which it is of no use."""
    facts, owner = case.facts, case.circumstances.owner
    if _WORKER.search(facts.name or "") or _WORKER.search(facts.command or ""):
        return True
    return (
        owner.rank is not None and owner.run_id is not None and (bool(case.parent_changes) or _adopted(case))
    )  # no torchrun


def manager_of(case: Case) -> str | None:
    """Who looks after it and will clean up: a living Slurm job, a container, a systemd service."""
    owner = case.circumstances.owner
    if owner.slurm_job is not None:
        return f"Slurm job {owner.slurm_job}"
    if owner.container is not None:
        return f"its {owner.container.engine} container"
    if owner.unit is not None and owner.unit.endswith(".service"):
        return owner.unit
    return None


def deliberate(case: Case) -> str | None:
    """Why it is meant to live without its starter: nohup, a session of its own, a terminal multiplexer above it."""
    facts = case.facts
    if case.circumstances.ignores_hangup:
        return "nohup"
    if facts.session_id == facts.key.pid:
        return "setsid"
    if any(_MULTIPLEXER.match(relative.name) for relative in case.circumstances.ancestors):
        return "a terminal multiplexer"
    return None


def _adopted(case: Case) -> bool:
    parent = case.circumstances.ancestors[0] if case.circumstances.ancestors else None
    return case.facts.parent_pid == 1 or (parent is not None and bool(_ADOPTERS.match(parent.name)))


# ------------------------------------------------------------------------- rules


def _parent_died(case: Case, now: float) -> Finding | None:
    """R3: seen to lose a parent that was on a GPU too or of its kind, and not right after its own start."""
    facts = case.facts
    change = case.parent_changes[-1] if case.parent_changes else None
    if change is None or change.new_pid != facts.parent_pid:
        return None
    if facts.start_time is not None and change.at - facts.start_time < DAEMON_SECONDS:
        return None
    kin = _family(change.old.command) is not None and _family(change.old.command) == _family(facts.command)
    if not (change.old_was_on_gpu or kin):
        return None
    what = f" ({change.old.command or change.old.name})" if change.old.command or change.old.name else ""
    return Finding("R3", f"its parent {change.old.pid}{what} died {clock(change.at)}")


def _family(command: str | None) -> tuple[str, ...] | None:
    """Program and script: what a process and its workers have in common."""
    words = [word for word in (command or "").split() if not word.startswith("-")]
    return tuple(word.rpartition("/")[2] for word in words[:2]) or None


def _orphan(case: Case) -> Finding | None:
    """R4: adopted, and the leader of its session is dead."""
    facts, circumstances = case.facts, case.circumstances
    if not _adopted(case) or circumstances.leader_exists is not False or facts.session_id == facts.key.pid:
        return None
    parent = circumstances.ancestors[0].name if circumstances.ancestors else "init"
    words = (
        f"orphan: its parent is {facts.parent_pid} ({parent}) now, the leader {facts.session_id} of its session is dead"
    )
    if (excuse := deliberate(case)) is not None:
        words += f"; meant to be so ({excuse})"
    elif (manager := manager_of(case)) is not None:
        words += f"; looked after by {manager}"
    return Finding("R4", words)


def _terminal_gone(circumstances: Circumstances) -> Finding | None:
    """R5."""
    if circumstances.lost_terminal is None or circumstances.has_terminal or circumstances.leader_exists is not False:
        return None
    return Finding("R5", f"its terminal {circumstances.lost_terminal} is gone")


def _stopped(case: Case, now: float) -> Finding | None:
    """R6. State t is a debugger's and none of our business."""
    if case.facts.state != "T" or case.stopped_since is None:
        return None
    watched = "at least " if case.stopped_since <= case.first_seen else ""
    return Finding(
        "R6", f"stopped for {watched}{span(now - case.stopped_since)}: SIGTERM will not act until SIGCONT, SIGKILL will"
    )


def _stuck(case: Case, now: float) -> Finding | None:
    """R7: a dead first thread whose siblings live on, or a minute in the kernel."""
    facts = case.facts
    waits = f" in {case.circumstances.waits_in}" if case.circumstances.waits_in else ""
    if facts.state == "Z" and (facts.threads or 0) > 1:
        others = plural((facts.threads or 0) - 1, "thread")
        return Finding("R7", f"its first thread has exited, {others} of it live on and keep its memory")
    if facts.state == "D" and case.stuck_since is not None and now - case.stuck_since >= STUCK_SECONDS:
        stuck = span(now - case.stuck_since)
        return Finding("R7", f"in the kernel (D) for {stuck}{waits}: SIGKILL will not help while it is there")
    return None


def _escaped_job(case: Case) -> Finding | None:
    """R8: started in a Slurm job that is over."""
    circumstances = case.circumstances
    job = circumstances.slurm_job_claimed
    if job is None or circumstances.owner.slurm_job is not None or circumstances.slurm_job_lives is not False:
        return None
    return Finding("R8", f"started in Slurm job {job}, is in no job's cgroup, and no cgroup of that job is left here")


def _idle(case: Case, settings: Settings, now: float) -> Finding | None:
    """R9: much memory, and neither GPU nor CPU used for long."""
    least = max(IDLE_BYTES, int(IDLE_SHARE * (case.gpu_bytes or 0)))
    if case.idle_since is None or not any((bytes_ or 0) >= least for _, bytes_ in case.memory):
        return None
    if now - case.idle_since < settings.leak_idle_minutes * 60:
        return None
    if case.cpu_percent_idle is None or case.cpu_percent_idle >= IDLE_CPU_PERCENT:
        return None
    watched = "at least " if case.idle_since <= case.first_seen else ""
    return Finding(
        "R9",
        f"idle for {watched}{span(now - case.idle_since)}: SM 0 % since {clock(case.idle_since)}, "
        f"{case.cpu_percent_idle:.1f} % of a CPU core",
    )


def _deleted(circumstances: Circumstances) -> Finding | None:
    """R10."""
    if circumstances.deleted_executable is not None:
        return Finding("R10", f"its program {circumstances.deleted_executable} was deleted")
    if circumstances.deleted_directory is not None:
        return Finding("R10", f"its directory {circumstances.deleted_directory} was deleted")
    return None


# ----------------------------------------------------------------------- evidence


def _context(case: Case, now: float) -> list[str]:
    """What it holds, since when unchanged, since when unused."""
    said = [f"holds {amount(case_memory(case))} of GPU memory"]
    grips = [f"{device.path} ({descriptors(device.descriptors)})" for device in case.held if device.minor is not None]
    if grips:
        said.append("open: " + ", ".join(grips[:4]) + (" and more" if len(grips) > 4 else ""))
    if case.memory_since is not None and now - case.memory_since >= 60:
        watched = "at least " if case.memory_since <= case.first_seen else ""
        said.append(f"memory unchanged for {watched}{span(now - case.memory_since)}")
    if case.idle_since is not None and now - case.idle_since >= 60:
        said.append(f"SM 0 % since {clock(case.idle_since)}")
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
