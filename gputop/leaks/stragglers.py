"""Members of a distributed job side by side: who differs from its peers, and by what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from gputop.leaks.report import Straggler
from gputop.leaks.thresholds import STRAGGLER_BYTES, STRAGGLER_PEERS, STRAGGLER_SHARE, STRAGGLER_SPREAD
from gputop.model import ProcessKey
from gputop.model.owner import Owner
from gputop.units import plural, size_in_words


class Member(NamedTuple):
    """A process of a job on one GPU."""

    process: ProcessKey
    gpu_uuid: str
    gpu_index: int
    memory_bytes: int | None
    owner: Owner
    parent_pid: int | None
    workers: int | None  # child processes


def stragglers(members: Iterable[Member]) -> tuple[Straggler, ...]:
    """Those whose memory, or whose number of worker processes, differs from that of two or more peers."""
    jobs: dict[str, list[Member]] = {}
    for member in members:
        if (job := _job(member)) is not None:
            jobs.setdefault(job, []).append(member)
    return tuple(
        found for job, peers in jobs.items() if len(peers) > STRAGGLER_PEERS for found in _differing(job, peers)
    )


def _job(member: Member) -> str | None:
    """What they have in common: a Slurm job, or the launcher that started the ranks."""
    if member.owner.rank is None:
        return None
    if member.owner.slurm_job is not None:
        return f"slurm {member.owner.slurm_job}"
    return None if member.parent_pid in (None, 1) else f"job of {member.parent_pid}"


def _differing(job: str, members: Sequence[Member]) -> list[Straggler]:
    found = []
    usual_workers = _usual([member.workers for member in members])
    for member in members:
        peers = [one.memory_bytes for one in members if one is not member and one.memory_bytes is not None]
        said = []
        if member.memory_bytes is not None and len(peers) >= STRAGGLER_PEERS:
            middle = median(peers)
            more = member.memory_bytes - middle
            spread = median(abs(value - middle) for value in peers)
            if abs(more) >= max(STRAGGLER_BYTES, STRAGGLER_SHARE * middle) and spread <= STRAGGLER_SPREAD * abs(more):
                said.append(f"holds {size_in_words(int(abs(more)))} {'more' if more > 0 else 'less'} than its peers")
        if usual_workers is not None and member.workers not in (None, usual_workers):
            workers = f"{plural(member.workers or 0, 'worker process')}, they have {usual_workers}"
            said.append(f"{'it ' if said else ''}has {workers}")
        if said:
            words = f"rank {member.owner.rank} {'; '.join(said)}"
            found.append(Straggler(job, member.process, member.gpu_uuid, words))
    return found


def _usual(counts: Sequence[int | None]) -> int | None:
    """The number that all but one have; None where they differ more than that."""
    known = [count for count in counts if count is not None]
    if len(known) <= STRAGGLER_PEERS:
        return None
    value, times = Counter(known).most_common(1)[0]
    return value if times >= len(known) - 1 and times > 1 else None
