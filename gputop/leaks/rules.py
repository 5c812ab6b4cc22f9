"""The single rules by which processes that hold GPU memory are judged (R3 to R10 of docs/leak-rules.md), each with its
evidence, and what excuses a process. :mod:`gputop.leaks.verdicts` combines them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gputop.leaks.holders.holder import HeldDevice
from gputop.leaks.process_context import ProcessContext
from gputop.leaks.process_history import ParentChange
from gputop.leaks.thresholds import IDLE_CPU_PERCENT, STARTUP_SECONDS, STUCK_SECONDS, idle_bytes, idle_seconds
from gputop.model import Finding, HostFacts
from gputop.settings import Settings
from gputop.units import clock_or_day, duration_in_words, plural

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


@dataclass(frozen=True, slots=True)
class Case:
    """All that the rules ask about one living process. Times are epoch seconds, None: not known or not so."""

    context: ProcessContext
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
        return self.context.facts


# ----------------------------------------------------------------------- excuses


def is_worker(case: Case) -> bool:
    """Whether it works for another process, without which it is of no use."""
    facts, owner = case.facts, case.context.owner
    if _WORKER.search(facts.name or "") or _WORKER.search(facts.command or ""):
        return True
    return (
        owner.rank is not None and owner.run_id is not None and (bool(case.parent_changes) or _adopted(case))
    )  # no torchrun


def manager_of(case: Case) -> str | None:
    """Who looks after it and will clean up: a living Slurm job, a container, a systemd service."""
    owner = case.context.owner
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
    if case.context.ignores_hangup:
        return "nohup"
    if facts.session_id == facts.key.pid:
        return "setsid"
    if any(_MULTIPLEXER.match(relative.name) for relative in case.context.ancestors):
        return "a terminal multiplexer"
    return None


def _adopted(case: Case) -> bool:
    parent = case.context.ancestors[0] if case.context.ancestors else None
    return case.facts.parent_pid == 1 or (parent is not None and bool(_ADOPTERS.match(parent.name)))


# ------------------------------------------------------------------------- rules


def parent_died(case: Case) -> Finding | None:
    """R3: seen to lose a parent that was on a GPU too or of its kind, and not right after its own start."""
    facts = case.facts
    change = case.parent_changes[-1] if case.parent_changes else None
    if change is None or change.new_pid != facts.parent_pid:
        return None
    if facts.start_time is not None and change.at - facts.start_time < STARTUP_SECONDS:
        return None
    related = _family(change.old.command) is not None and _family(change.old.command) == _family(facts.command)
    if not (change.old_was_on_gpu or related):
        return None
    what = f" ({change.old.command or change.old.name})" if change.old.command or change.old.name else ""
    return Finding("R3", f"its parent {change.old.pid}{what} died at {clock_or_day(change.at)}")


def _family(command: str | None) -> tuple[str, ...] | None:
    """Program and script: what a process and its workers have in common."""
    words = [word for word in (command or "").split() if not word.startswith("-")]
    return tuple(word.rpartition("/")[2] for word in words[:2]) or None


def orphan(case: Case) -> Finding | None:
    """R4: adopted, and the leader of its session is dead."""
    facts, context = case.facts, case.context
    if not _adopted(case) or context.leader_exists is not False or facts.session_id == facts.key.pid:
        return None
    parent = context.ancestors[0].name if context.ancestors else "init"
    words = (
        f"orphaned: its parent is now {facts.parent_pid} ({parent}), and its session leader {facts.session_id} is dead"
    )
    if (excuse := deliberate(case)) is not None:
        words += f"; detached on purpose ({excuse})"
    elif (manager := manager_of(case)) is not None:
        words += f"; managed by {manager}"
    return Finding("R4", words)


def terminal_gone(context: ProcessContext) -> Finding | None:
    """R5."""
    if context.lost_terminal is None or context.has_terminal or context.leader_exists is not False:
        return None
    return Finding("R5", f"its terminal {context.lost_terminal} is gone")


def stopped(case: Case, now: float) -> Finding | None:
    """R6. State t is a debugger's and none of our business."""
    if case.facts.state != "T" or case.stopped_since is None:
        return None
    watched = "at least " if case.stopped_since <= case.first_seen else ""
    return Finding(
        "R6",
        f"stopped for {watched}{duration_in_words(now - case.stopped_since)}: SIGTERM stays pending until SIGCONT, "
        "SIGKILL works",
    )


def stuck(case: Case, now: float) -> Finding | None:
    """R7: a dead first thread whose siblings live on, or a minute in the kernel."""
    facts = case.facts
    waits = f" in {case.context.waits_in}" if case.context.waits_in else ""
    if facts.state == "Z" and (facts.threads or 0) > 1:
        others = plural((facts.threads or 0) - 1, "thread")
        return Finding("R7", f"its main thread has exited, but {others} still running keep its memory")
    if facts.state == "D" and case.stuck_since is not None and now - case.stuck_since >= STUCK_SECONDS:
        stuck = duration_in_words(now - case.stuck_since)
        return Finding(
            "R7", f"stuck in the kernel (state D) for {stuck}{waits}: SIGKILL has no effect until it returns"
        )
    return None


def escaped_job(case: Case) -> Finding | None:
    """R8: started in a Slurm job that is over."""
    context = case.context
    job = context.slurm_job_claimed
    if job is None or context.owner.slurm_job is not None or context.slurm_job_running is not False:
        return None
    return Finding(
        "R8", f"started by Slurm job {job}, but it is in no job's cgroup and that job has none left on this node"
    )


def idle(case: Case, settings: Settings, now: float) -> Finding | None:
    """R9: much memory, and neither GPU nor CPU used for long."""
    least = idle_bytes(case.gpu_bytes)
    if case.idle_since is None or not any((bytes_ or 0) >= least for _, bytes_ in case.memory):
        return None
    if now - case.idle_since < idle_seconds(settings):
        return None
    if case.cpu_percent_idle is None or case.cpu_percent_idle >= IDLE_CPU_PERCENT:
        return None
    watched = "at least " if case.idle_since <= case.first_seen else ""
    return Finding(
        "R9",
        f"idle for {watched}{duration_in_words(now - case.idle_since)}: "
        f"SM 0 % since {clock_or_day(case.idle_since)}, {case.cpu_percent_idle:.1f} % of a CPU core",
    )


def deleted(context: ProcessContext) -> Finding | None:
    """R10."""
    if context.deleted_executable is not None:
        return Finding("R10", f"its executable {context.deleted_executable} was deleted")
    if context.deleted_directory is not None:
        return Finding("R10", f"its working directory {context.deleted_directory} was deleted")
    return None
