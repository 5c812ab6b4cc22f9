"""What is known of the processes in the table beyond the snapshot: whose they are, and what is thought of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gputop import units
from gputop.leaks.report import LeakReport
from gputop.model import LeakVerdict, ProcessKey, Verdict
from gputop.model.owner import Owner


class ProcessAnnotation(NamedTuple):
    """What a line of the table says beside figures. Compared by value: lines of equal ones are not drawn anew."""

    where: str = ""  # "slurm 88123", "docker 3fa9c81d02ab"
    verdict: Verdict | None = None
    verdict_label: str = ""  # "LEAK", "IDLE 2h13": the verdict, as short as a line needs it
    held_by: str = ""  # of a dead pid: "50377 +3", who keeps its memory
    job: str = ""  # "slurm 88123", "torchrun 4711": what it is grouped by
    container: str = ""
    group: str = ""  # of a group's line: its name
    remark: str = ""  # of a group's line: who in it stands out
    user: str = ""  # of a dead pid: whose it was, or whose its holders are
    command: str = ""
    exited: str = ""  # of a process that is gone: "14:02:31 after 3h12"


NO_ANNOTATION: Final = ProcessAnnotation()


class ProcessAnnotations:
    """A report, as the table asks for it."""

    def __init__(self, report: LeakReport | None = None) -> None:
        self._known: dict[ProcessKey, ProcessAnnotation] = {}
        self._dead_pids: dict[int, ProcessAnnotation] = {}
        self.stragglers: Mapping[ProcessKey, str] = {}  # who differs from its peers in a job, and by what
        if report is None:
            return
        verdicts = {verdict.process: verdict for verdict in report.verdicts}
        for key in {*report.owners, *verdicts}:
            self._known[key] = _annotation(report.owners.get(key), verdicts.get(key), report.taken_at)
        for dead_pid in report.dead_pids:
            verdict = verdicts.get(ProcessKey(dead_pid.pid, None))
            pids = [str(key.pid) for key in dead_pid.targets]
            held_by = pids[0] + (f" +{len(pids) - 1}" if len(pids) > 1 else "") if pids else ""
            annotation = _annotation(None, verdict, report.taken_at)
            user = (verdict.user if verdict is not None else None) or ""
            command = (verdict.command if verdict is not None else None) or ""
            self._dead_pids[dead_pid.pid] = annotation._replace(
                where="dead", held_by=held_by, user=user, command=command
            )
        self.stragglers = {straggler.process: straggler.message for straggler in report.stragglers}
        for straggler in report.stragglers:  # ranks of one launcher, which have no other name in common
            annotation = self._known.get(straggler.process, NO_ANNOTATION)
            if not annotation.job:
                self._known[straggler.process] = annotation._replace(job=straggler.job)

    def of(self, key: ProcessKey, dead: bool) -> ProcessAnnotation:
        """What is known of a process; of a dead pid, what is known of that."""
        if dead and key.pid in self._dead_pids:
            return self._dead_pids[key.pid]
        return self._known.get(key, NO_ANNOTATION)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProcessAnnotations) and (
            (self._known, self._dead_pids, self.stragglers) == (other._known, other._dead_pids, other.stragglers)
        )

    __hash__ = None  # type: ignore[assignment]


def verdict_label(verdict: LeakVerdict, now: float) -> str:
    """``LEAK``, ``IDLE 2h13m``: with the time for which it is so, to the minute."""
    name = verdict.verdict.name
    if verdict.since is None or verdict.verdict not in (Verdict.IDLE, Verdict.STUCK):
        return name
    return f"{name} {units.coarse_duration(now - verdict.since)}"


def job_of(owner: Owner) -> str:
    """The job that peers are compared within."""
    if owner.slurm_job is not None:
        return f"slurm {owner.slurm_job}"
    if owner.batch_job is not None:
        return owner.batch_job
    return f"torchrun {owner.run_id}" if owner.run_id is not None else ""


def _annotation(owner: Owner | None, verdict: LeakVerdict | None, now: float) -> ProcessAnnotation:
    label = "" if verdict is None else verdict_label(verdict, now)
    thought = None if verdict is None else verdict.verdict
    if owner is None:
        return ProcessAnnotation("", thought, label)
    container = owner.container
    name = "" if container is None else f"{container.engine} {(container.id or container.pod or '')[:12]}".strip()
    return ProcessAnnotation(owner.where, thought, label, job=job_of(owner), container=name)
