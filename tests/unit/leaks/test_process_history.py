"""What is remembered of processes: since when, from whom, how much."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.leaks.process_history import MAX_CHILDREN, MAX_GONE, ProcessHistory, ProcessRecord
from gputop.model import GpuProcess, ProcessKey, replace
from gputop.model.owner import Relative
from tests.unit.ui.process_data import GIB, TAKEN_AT, process, snapshot


def watch(*moments: tuple[float, list[GpuProcess]]) -> ProcessHistory:
    past = ProcessHistory()
    for at, processes in moments:
        past.observe(snapshot(*processes, at=at))
    return past


def life(past: ProcessHistory, pid: int) -> ProcessRecord:
    found = past.last_of(pid)
    assert found is not None
    return found


def still(pid: int = 7, **values: Any) -> GpuProcess:
    return process(pid, **({"sm_percent": 0, "cpu_percent": 0.0, "cpu_seconds": 3.0} | values))


def test_memory_is_unchanged_since_it_changed_last() -> None:
    past = watch((0, [still(gib=2)]), (10, [still(gib=5)]), (20, [still(gib=3)]), (90, [still(gib=3)]))
    seen = life(past, 7)
    assert seen.memory_since == TAKEN_AT + 20
    (use,) = seen.gpu_uses.values()
    assert (use.peak, use.peak_at) == (5 * GIB, TAKEN_AT + 10)
    assert (seen.first_seen, seen.last_seen) == (TAKEN_AT, TAKEN_AT + 90)


def test_idle_begins_after_the_last_use_of_gpu_or_cpu() -> None:
    busy_cpu = still(cpu_percent=80.0, cpu_seconds=9.0)
    past = watch((0, [still(sm_percent=5)]), (10, [still()]), (20, [busy_cpu]), (30, [still()]), (60, [still()]))
    seen = life(past, 7)
    assert seen.idle_since == TAKEN_AT + 30 and seen.last_active == TAKEN_AT


def test_what_is_busy_now_is_not_idle() -> None:
    assert life(watch((0, [still()]), (10, [still(sm_percent=40)])), 7).idle_since is None
    assert life(watch((0, [still()]), (10, [still(sm_percent=None)])), 7).idle_since is None, "not told"


def test_idle_on_one_gpu_and_busy_on_another_is_busy() -> None:
    past = watch((0, [still(), still(index=1, sm_percent=30)]), (9, [still(), still(index=1, sm_percent=30)]))
    assert life(past, 7).idle_since is None


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_clock_that_is_set_makes_nobody_idle_for_longer_or_less(step: float) -> None:
    past = ProcessHistory()
    for n in range(60):
        taken = snapshot(still(), at=n + (step if n >= 30 else 0.0))
        past.observe(replace(taken, steady=TAKEN_AT + n))
    idle_since = life(past, 7).idle_since
    assert idle_since is not None and past.now - idle_since == 59


def test_time_that_was_not_watched_is_not_counted_as_idle() -> None:
    """A laptop that slept, handles that were released."""
    past = watch((0, [still()]), (10, [still()]), (4000, [still()]), (4010, [still()]))
    assert life(past, 7).idle_since == TAKEN_AT + 4000


def test_the_cpu_use_while_idle_is_a_share_of_that_time() -> None:
    past = watch((0, [still(cpu_seconds=10.0)]), (100, [still(cpu_seconds=12.0)]))
    assert life(past, 7).cpu_share_since_quiet() == pytest.approx(2.0)


def test_stopped_and_stuck_since_it_was_first_seen_so() -> None:
    past = watch((0, [still()]), (5, [still(state="T")]), (9, [still(state="T", cpu_seconds=3.1)]))
    assert life(past, 7).stopped_since == TAKEN_AT + 5
    past.observe(snapshot(still(state="D", cpu_seconds=3.2), at=12))
    assert (life(past, 7).stopped_since, life(past, 7).stuck_since) == (None, TAKEN_AT + 12)


def test_who_waits_for_a_slow_disk_again_and_again_is_not_stuck() -> None:
    past = watch(*((n * 10, [still(state="D", cpu_seconds=3.0 + n / 100)]) for n in range(10)))
    assert life(past, 7).stuck_since == TAKEN_AT + 90
    past.observe(snapshot(still(state="D", cpu_seconds=3.09, host_memory_bytes=5), at=200))
    assert life(past, 7).stuck_since == TAKEN_AT + 90


def test_a_lost_parent_is_remembered_as_it_was_known() -> None:
    parent, worker = process(6), process(7, parent_pid=6)
    past = watch((0, [parent, worker]), (10, [process(7, parent_pid=1)]))
    (change,) = life(past, 7).parent_changes
    assert (change.at, change.old.pid, change.new_pid, change.old_was_on_gpu) == (TAKEN_AT + 10, 6, 1, True)
    assert change.old.command == "/usr/bin/python train_6.py"


def test_a_lost_parent_on_no_gpu_is_known_by_what_was_looked_up() -> None:
    worker = process(7, parent_pid=6)
    past = watch((0, [worker]))
    past.note_relatives(worker.key, (Relative(6, "torchrun", "torchrun train.py", 60),), ())
    past.observe(snapshot(process(7, parent_pid=1), at=5))
    (change,) = life(past, 7).parent_changes
    assert change.old == Relative(6, "torchrun", "torchrun train.py", 60) and not change.old_was_on_gpu


def test_a_dead_pid_is_the_one_that_was_known_by_it() -> None:
    dead = process(7, exists=False, host=None)
    past = watch((0, [process(7)]), (5, [dead]), (60, [dead]))
    seen = life(past, 7)
    assert seen.seen_dead_at == TAKEN_AT + 5 and seen.facts is not None and seen.facts.user == "ml"
    assert len(past.records) == 1


def test_a_reused_pid_is_another_life() -> None:
    past = watch((0, [process(7)]), (5, [process(7, start_ticks=999)]))
    assert set(past.records) == {ProcessKey(7, 70), ProcessKey(7, 999)}
    assert life(past, 7).key == ProcessKey(7, 999)


def test_children_are_remembered_with_the_time_they_were_seen_last() -> None:
    parent, kid = process(6), ProcessKey(8, 80)
    past = watch((0, [parent]))
    past.note_relatives(parent.key, (), [kid])
    past.observe(snapshot(parent, at=30))
    past.note_relatives(parent.key, (), [kid])
    past.observe(snapshot(parent, at=60))
    past.note_relatives(parent.key, (), [])
    found = past.parent_of(kid)
    assert found is not None and found[0].key == parent.key and found[1] == TAKEN_AT + 30
    past.note_relatives(parent.key, (), [ProcessKey(1000 + n, n) for n in range(2 * MAX_CHILDREN)])
    assert len(life(past, 6).children) == MAX_CHILDREN


def test_it_does_not_grow_without_bound() -> None:
    past = ProcessHistory()
    keep = process(1)
    for n in range(0, 8 * MAX_GONE, 64):
        past.observe(snapshot(keep, *(process(10 + n + k) for k in range(64)), at=n))
    assert len(past.records) <= MAX_GONE + 65 and past.of(keep.key) is not None
    assert past.last_of(10) is None, "the oldest are forgotten first"
