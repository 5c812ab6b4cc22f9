"""Memory that no listed process accounts for (R11), and GPUs that are busy with no process listed (R12): how long that
has been so, and what may be the cause. Never called a leak."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from gputop.leaks.holders.holder import Holder, HolderScan
from gputop.leaks.holders.unlisted import unlisted_holders
from gputop.leaks.report import Cause, UnattributedMemory
from gputop.leaks.thresholds import (
    UNATTRIBUTED_SECONDS,
    UNLISTED_LOAD_PERCENT,
    UNLISTED_LOAD_SECONDS,
    unattributed_bytes,
)
from gputop.model import Gpu, MemoryBreakdown, Snapshot

MPS_CONTROL: Final = "nvidia-cuda-mps"
#: Grace with Hopper or Blackwell: their memory is onlined as the host's (nvmlDeviceGetNumaNodeId).
_SUPERCHIP: Final = re.compile(r"\bG[HB][23]\d0\b")


@dataclass(slots=True)
class UnattributedClock:
    """Since when (``Snapshot.steady_at``) GPUs, by UUID, have more unattributed memory than is normal, and since when
    they are busy with no process listed."""

    memory_since: dict[str, float] = field(default_factory=dict)
    load_since: dict[str, float] = field(default_factory=dict)

    def observe(self, snapshot: Snapshot, breakdowns: Iterable[MemoryBreakdown], least_mib: int) -> None:
        """*least_mib* is the setting ``leak_gap_mib``."""
        listed = {process.gpu_uuid for process in snapshot.processes}
        found = {breakdown.gpu_uuid: breakdown for breakdown in breakdowns}
        for gpu in snapshot.gpus:
            bytes_ = found[gpu.uuid].unattributed if gpu.uuid in found else None
            much = bytes_ is not None and bytes_ > unattributed_bytes(gpu, least_mib)
            self._keep(self.memory_since, gpu, much, snapshot.steady_at)
            busy = (gpu.utilization_gpu_percent or 0) >= UNLISTED_LOAD_PERCENT and gpu.uuid not in listed
            self._keep(self.load_since, gpu, busy and gpu.processes_known, snapshot.steady_at)

    @staticmethod
    def _keep(since: dict[str, float], gpu: Gpu, holds: bool, now: float) -> None:
        if holds:
            since.setdefault(gpu.uuid, now)
        else:
            since.pop(gpu.uuid, None)


def explain_unattributed(
    gpu: Gpu,
    breakdown: MemoryBreakdown,
    clock: UnattributedClock,
    snapshot: Snapshot,
    scan: HolderScan | None,
) -> UnattributedMemory | None:
    """What may be the cause on *gpu*, where there is something to explain; holders as of *scan*."""
    since, busy_since = clock.memory_since.get(gpu.uuid), clock.load_since.get(gpu.uuid)
    has_memory = since is not None and snapshot.steady_at - since >= UNATTRIBUTED_SECONDS
    busy = busy_since is not None and snapshot.steady_at - busy_since >= UNLISTED_LOAD_SECONDS
    if not has_memory and not busy:
        return None
    unlisted = () if scan is None else _unlisted(gpu, snapshot, scan)
    causes = _causes(gpu, snapshot, scan, unlisted, busy)
    began = since if has_memory and since is not None else busy_since
    return UnattributedMemory(
        gpu_uuid=gpu.uuid,
        bytes=(breakdown.unattributed or 0) if has_memory else 0,
        since=snapshot.steady_at if began is None else began,
        causes=causes,
        holders=unlisted,
        busy=busy,
    )


def _unlisted(gpu: Gpu, snapshot: Snapshot, scan: HolderScan) -> tuple[Holder, ...]:
    """Who holds *gpu* open, is on no GPU and no worker of one that is (these have their own memory, or their living
    parent's), the harmless last."""
    minor = gpu.facts.minor_number
    if minor is None:
        return ()
    found = [holder for holder in unlisted_holders(scan.holders, snapshot) if holder.device(minor)]
    return tuple(sorted(found, key=lambda holder: (holder.benign is not None, holder.key.pid)))


def _causes(
    gpu: Gpu, snapshot: Snapshot, scan: HolderScan | None, unlisted: Sequence[Holder], busy: bool
) -> tuple[Cause, ...]:
    """What may use it, the likeliest first. Each says what speaks for it and what to do."""
    found: list[Cause] = []
    if snapshot.host.pids_are_host is False:
        found.append(
            Cause(
                "another PID namespace",
                "gputop runs in a container: the driver lists only this container's processes, but counts all memory",
                "run gputop on the host",
                3,
            )
        )
    elif snapshot.host.pids_are_host is None:
        found.append(
            Cause(
                "another PID namespace",
                "gputop cannot tell whether it sees all of the host's processes",
                "run gputop on the host, as root",
                2,
            )
        )
    if _SUPERCHIP.search(gpu.name):
        found.append(
            Cause(
                "memory managed by the host",
                "this GPU's memory is a NUMA node of the host: page cache and pages of exited processes stay in it",
                "numastat -m shows what is there; echo 3 > /proc/sys/vm/drop_caches as root frees the cache",
                3,
            )
        )
    if gpu.mig or gpu.facts.mig_mode:
        found.append(
            Cause(
                "MIG instances",
                f"{len(gpu.mig)} instances; processes in instances this user has no access to are not listed"
                if gpu.mig
                else "MIG is on: processes in instances this user has no access to are not listed",
                "run gputop as root",
                2,
            )
        )
    found += _from_scan(scan, unlisted)
    found.append(
        Cause(
            "managed memory",
            "the driver does not attribute cudaMallocManaged pages to any process (nvtop#213)",
            "check the processes' own figures (torch.cuda.memory_stats, nsys)",
            2 if unlisted or any(process.gpu_uuid == gpu.uuid for process in snapshot.processes) else 1,
        )
    )
    if busy:
        found.append(
            Cause(
                "work left running on the GPU",
                f"{gpu.utilization_gpu_percent}% busy with no process listed (seen after kills on GSP drivers)",
                "run nvidia-smi --gpu-reset as root when nothing uses the GPU",
                2,
            )
        )
    return tuple(sorted(found, key=lambda cause: -cause.weight))


def _from_scan(scan: HolderScan | None, unlisted: Sequence[Holder]) -> list[Cause]:
    if scan is None:
        return []
    found = []
    mps = [holder for holder in scan.holders if (holder.facts.name or "").startswith(MPS_CONTROL)]
    if mps:
        pids = ", ".join(str(holder.key.pid) for holder in mps)
        found.append(
            Cause(
                "MPS",
                f"the MPS service is running ({pids}) and holds its clients' memory",
                "echo get_server_list | nvidia-cuda-mps-control shows it; echo quit | nvidia-cuda-mps-control stops it",
                2,
            )
        )
    others = [holder for holder in unlisted if holder.benign is None]
    if others:
        named = ", ".join(f"{holder.key.pid} {holder.facts.name or ''}".rstrip() for holder in others[:4])
        more = f" and {len(others) - 4} more" if len(others) > 4 else ""
        found.append(
            Cause(
                "unlisted holders",
                f"{named}{more} have this GPU open and are not in the driver's list",
                "check them: workers of a killed process keep its memory",
                3,
            )
        )
    if not scan.complete:
        found.append(
            Cause(
                "processes that could not be inspected",
                scan.summary(),
                "run gputop on the host" if scan.own_namespace else "run gputop as root",
                1 if scan.own_namespace else 2,
            )
        )
    return found
