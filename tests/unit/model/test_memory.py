"""Where the bytes of a GPU are: one computation, whoever asks."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.model import (
    Gpu,
    GpuFacts,
    GpuProcess,
    memory_breakdown,
    memory_by_gpu,
    memory_by_pid,
    unattributed,
    used_minus_listed,
)

MIB, GIB = 1024**2, 1024**3
UUID = "GPU-0"


def gpu(used: float | None = 20.0, **values: Any) -> Gpu:
    """Of 140 GiB, sizes in GiB."""
    given: dict[str, Any] = {
        "memory_total_bytes": 140 * GIB,
        "memory_used_bytes": None if used is None else int(used * GIB),
        "memory_reserved_bytes": GIB,
        "memory_free_bytes": 100 * GIB,
        "facts": GpuFacts(minor_number=0),
    }
    return Gpu(0, UUID, "NVIDIA H200", 0.0, **(given | values))


def on(pid: int, gib: float | None, **values: Any) -> GpuProcess:
    return GpuProcess(pid, UUID, "C", memory_bytes=None if gib is None else int(gib * GIB), exists=True, **values)


def dead(pid: int, gib: float) -> GpuProcess:
    return GpuProcess(pid, UUID, "C", memory_bytes=int(gib * GIB), exists=False)


def test_used_is_the_living_the_dead_and_the_rest() -> None:
    parts = memory_breakdown(gpu(20), [on(1, 8), on(2, 4), dead(3, 5)])
    assert (parts.living, parts.dead_pids, parts.unattributed, parts.shared) == (12 * GIB, 5 * GIB, 3 * GIB, 0)
    assert parts.living is not None and parts.dead_pids is not None and parts.unattributed is not None
    assert parts.living + parts.dead_pids + parts.unattributed == parts.used
    assert (parts.reserved, parts.free, parts.unknown) == (GIB, 100 * GIB, None)


def test_a_pid_in_two_lists_counts_once_with_its_larger_figure() -> None:
    rows = [on(1, 8), GpuProcess(1, UUID, "G", memory_bytes=9 * GIB, exists=True)]
    assert memory_breakdown(gpu(20), rows).living == 9 * GIB


def test_more_than_is_used_is_shared_and_never_negative() -> None:
    """CUDA IPC: an allocation at both its ends."""
    parts = memory_breakdown(gpu(10), [on(1, 8), on(2, 6)])
    assert (parts.unattributed, parts.shared, parts.unknown) == (0, 4 * GIB, None)


@pytest.mark.parametrize(
    ("made", "rows", "why"),
    [
        (gpu(memory_reserved_bytes=None), [on(1, 8)], "memory info v1"),
        (gpu(), [on(1, 8), on(2, None)], "reports no memory for 1 of 2 processes"),
        (gpu(None), [on(1, 8)], "does not report used memory"),
        (gpu(memory_is_shared=True), [on(1, 8)], "shares the host's memory"),
        (gpu(error="GPU is lost"), [], "is not responding"),
        (gpu(late=True), [on(1, 8)], "is not responding"),
    ],
)
def test_what_cannot_be_told_is_unknown_with_the_reason(made: Gpu, rows: list[GpuProcess], why: str) -> None:
    parts = memory_breakdown(made, rows)
    assert parts.unattributed is None and parts.shared is None and why in (parts.unknown or "")


def test_rows_of_other_gpus_do_not_count() -> None:
    assert memory_breakdown(gpu(20), [on(1, 8), GpuProcess(2, "GPU-1", "C", memory_bytes=5 * GIB)]).living == 8 * GIB


def test_compute_instances_share_their_gpu_instance_s_memory_and_gpu_instances_have_their_own() -> None:
    rows = [
        on(1, 8, gpu_instance_id=1, compute_instance_id=0),
        on(1, 8, gpu_instance_id=1, compute_instance_id=1),
        on(1, 3, gpu_instance_id=2, compute_instance_id=0),
    ]
    assert memory_by_pid(rows) == {1: 11 * GIB}
    assert memory_by_gpu([*rows, GpuProcess(1, "GPU-1", "C", memory_bytes=GIB)]) == {UUID: 11 * GIB, "GPU-1": GIB}
    assert memory_breakdown(gpu(20), rows).unattributed == 9 * GIB


def test_memory_of_a_pid_is_unknown_where_the_driver_gives_no_figure_for_one_of_its_parts() -> None:
    assert memory_by_pid([on(1, None), on(1, 8)]) == {1: 8 * GIB}, "the other list has the figure"
    assert memory_by_pid([on(1, 8, gpu_instance_id=1), on(1, None, gpu_instance_id=2)]) == {1: None}


def test_dead_pids_are_told_one_by_one_the_largest_first() -> None:
    assert memory_breakdown(gpu(20), [dead(3, 5), on(1, 8), dead(2, 6)]).by_dead_pid == ((2, 6 * GIB), (3, 5 * GIB))


def test_the_driver_source_and_the_breakdown_say_the_same() -> None:
    for made in (gpu(20), gpu(10), gpu(memory_reserved_bytes=None), gpu(None), gpu(memory_is_shared=True)):
        rows = [on(1, 8), dead(2, 6)]
        assert unattributed(made, memory_by_pid(rows)) == memory_breakdown(made, rows).unattributed
    assert used_minus_listed(gpu(10, memory_reserved_bytes=None), {1: 12 * GIB}) == -2 * GIB, "signed, for comparisons"
