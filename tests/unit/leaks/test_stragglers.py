"""Who stands out among the members of a job."""

from __future__ import annotations

from gputop.leaks.stragglers import Member, stragglers
from gputop.model import ProcessKey
from gputop.model.owner import Owner

GIB = 1024**3


def members(
    *memory: float | None, workers: tuple[int, ...] = (), job: str | None = "88123", first: int = 0
) -> list[Member]:
    return [
        Member(
            ProcessKey(100 + first + rank, rank), f"GPU-{rank}", rank, None if gib is None else int(gib * GIB),
            Owner(rank=rank, slurm_job=job), 99 + first, workers[rank] if workers else 4,
        )
        for rank, gib in enumerate(memory)
    ]  # fmt: skip


def said(made: list[Member]) -> list[str]:
    return [found.message for found in stragglers(made)]


def test_the_rank_that_holds_more_and_has_more_workers() -> None:
    found = stragglers(members(60, 60.1, 60, 62.1, workers=(4, 4, 4, 8)))
    assert [one.message for one in found] == [
        "rank 3 holds 2.1 GiB more than its peers; it has 8 worker processes, they have 4"
    ]
    assert found[0].job == "slurm 88123" and found[0].gpu_uuid == "GPU-3"


def test_the_rank_that_holds_less() -> None:
    assert said(members(60, 60, 20, 60)) == ["rank 2 holds 40.0 GiB less than its peers"]


def test_ranks_that_all_differ_have_no_odd_one() -> None:
    """Pipeline stages hold what their layers need."""
    assert said(members(20, 35, 50, 65)) == []


def test_small_differences_are_none() -> None:
    assert said(members(60, 60.3, 59.9, 60.1)) == []


def test_two_are_too_few_to_tell_who_is_odd() -> None:
    assert said(members(60, 20)) == []


def test_other_jobs_are_not_peers() -> None:
    assert said(members(60, 60) + members(20, 20, job="2", first=10)) == []


def test_ranks_of_one_launcher_are_a_job_without_slurm() -> None:
    (found,) = stragglers(members(60, 60, 60, 70, job=None))
    assert found.job == "job of 99"


def test_unknown_memory_is_no_difference() -> None:
    assert said(members(60, None, 60, 60)) == []


def test_workers_alone_can_stand_out() -> None:
    assert said(members(60, 60, 60, workers=(4, 1, 4))) == ["rank 1 has 1 worker process, they have 4"]
