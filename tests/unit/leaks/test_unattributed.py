"""Where a GPU's bytes are, and what may use those that nobody listed accounts for."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.leaks.holders.holder import HeldDevice, Holder, HolderScan
from gputop.leaks.report import UnattributedMemory
from gputop.leaks.thresholds import unattributed_bytes
from gputop.leaks.unattributed import UnattributedClock, explain_unattributed
from gputop.model import (
    Gpu,
    GpuFacts,
    GpuProcess,
    Host,
    HostFacts,
    MigInstance,
    ProcessKey,
    Snapshot,
    memory_breakdown,
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


# ---------------------------------------------------------------------------- cards


def card(
    made: Gpu,
    *rows: GpuProcess,
    seconds: float = 10.0,
    host: Host | None = None,
    scan: HolderScan | None = None,
    least_mib: int = 512,
) -> UnattributedMemory | None:
    """The card after *seconds* of this."""
    clock, found = UnattributedClock(), None
    for at in (0.0, seconds):
        snapshot = Snapshot(1000.0 + at, host or Host(pids_are_host=True), gpus=(made,), processes=rows)
        parts = memory_breakdown(made, rows)
        clock.observe(snapshot, [parts], least_mib)
        found = explain_unattributed(made, parts, clock, snapshot, scan)
    return found


def causes(found: UnattributedMemory | None) -> list[str]:
    assert found is not None
    assert all(cause.evidence and cause.advice for cause in found.causes)
    assert [cause.weight for cause in found.causes] == sorted((cause.weight for cause in found.causes), reverse=True)
    return [cause.name for cause in found.causes]


def test_the_normal_gap_has_no_card() -> None:
    assert card(gpu(20), on(1, 20 - 43 / 1024)) is None
    assert card(gpu(20), on(1, 20 - 600 / 1024)) is None, "2 % of 140 GiB are 2.8 GiB"
    assert unattributed_bytes(gpu(), 512) == int(0.02 * 140 * GIB)
    small = gpu(6, memory_total_bytes=8 * GIB)
    assert card(small, on(1, 5.6)) is None
    assert card(small, on(1, 5.4)) is not None


def test_a_gap_must_last_five_seconds() -> None:
    assert card(gpu(20), on(1, 8), seconds=4.0) is None
    found = card(gpu(20), on(1, 8), seconds=5.0)
    assert found is not None and (found.bytes, found.since) == (12 * GIB, 1000.0)


def test_the_least_gap_is_a_setting() -> None:
    small = gpu(6, memory_total_bytes=8 * GIB)
    assert card(small, on(1, 5), least_mib=2048) is None and card(small, on(1, 5)) is not None


def test_from_within_a_container_that_is_the_first_thing_said() -> None:
    found = card(gpu(20), host=Host(pids_are_host=False))
    assert causes(found)[0] == "another PID namespace"
    assert found is not None and found.causes[0].advice == "run gputop on the host"


def scan(*holders: Holder, **values: Any) -> HolderScan:
    return HolderScan(**({"taken_at": 0.0, "took": 0.1, "holders": holders, "inspected": 400} | values))


def holder(pid: int, name: str, minor: int = 0, benign: str | None = None) -> Holder:
    facts = HostFacts(ProcessKey(pid, 1), 0.0, name=name)
    return Holder(facts, (HeldDevice(f"/dev/nvidia{minor}", minor, (3,)),), benign)


def test_unlisted_holders_are_the_likeliest_cause() -> None:
    seen = scan(
        holder(9, "pt_data_worker"), holder(1, "python"), holder(8, "nvtop", benign="a monitor"), holder(7, "x", 5)
    )
    found = card(gpu(20), on(1, 8), scan=seen)
    assert causes(found)[0] == "unlisted holders"
    assert found is not None and "9 pt_data_worker have" in found.causes[0].evidence
    assert [one.key.pid for one in found.holders] == [9, 8], (
        "harmless ones last; listed ones and other GPUs' not at all"
    )


def test_the_workers_of_a_living_process_and_those_at_home_on_another_gpu_explain_nothing() -> None:
    facts = HostFacts(ProcessKey(9, 1), 0.0, name="pt_data_worker", parent_pid=1)
    worker = Holder(facts, (HeldDevice("/dev/nvidia0", 0, (3,)),))
    elsewhere = GpuProcess(6, "GPU-1", "C", memory_bytes=GIB, exists=True)
    found = card(gpu(20), on(1, 8), elsewhere, scan=scan(worker, holder(6, "python")))
    assert found is not None and found.holders == ()


def test_what_could_not_be_looked_into_is_said_with_its_number() -> None:
    found = card(gpu(20), scan=scan(denied=(("root", 37),)))
    assert "processes that could not be inspected" in causes(found)
    assert found is not None and any("37 of root not permitted" in cause.evidence for cause in found.causes)


@pytest.mark.parametrize(
    ("made", "seen", "name"),
    [
        (gpu(20, mig=(MigInstance("MIG-1", 1, 0, "1g.18gb"),)), None, "MIG instances"),
        (gpu(20), scan(holder(5, "nvidia-cuda-mps", benign="MPS")), "MPS"),
        (gpu(20), None, "managed memory"),
        (Gpu(0, UUID, "NVIDIA GH200 480GB", 0.0, memory_total_bytes=96 * GIB, memory_used_bytes=40 * GIB,
             memory_reserved_bytes=0), None, "memory managed by the host"),
    ],
)  # fmt: skip
def test_further_causes(made: Gpu, seen: HolderScan | None, name: str) -> None:
    assert name in causes(card(made, scan=seen))


def test_load_without_anybody_is_a_card_after_a_minute() -> None:
    busy = gpu(0, utilization_gpu_percent=100)
    assert card(busy, seconds=59) is None
    found = card(busy, seconds=61)
    assert found is not None and found.busy and found.bytes == 0 and "work left running on the GPU" in causes(found)
    assert card(busy, on(1, 0), seconds=61) is None, "somebody is listed"
