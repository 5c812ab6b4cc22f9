"""Where every byte of a GPU is, and what may use the bytes that no listed process accounts for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gputop import units
from gputop.leaks.holders.holder import Holder, HolderScan
from gputop.leaks.report import Attribution, Cause, UnattributedMemory
from gputop.model import Gpu, GpuProcess, Snapshot, memory_by_pid

GAP_SECONDS: Final = 5.0
GAP_SHARE: Final = 0.02  # of the GPU's memory; the normal gap of an H200 is 43 MiB (facts/h200.md)
#: R12: a GPU that works though nobody is listed.
DEAD_PID_LOAD_PERCENT: Final = 95
DEAD_PID_LOAD_SECONDS: Final = 60.0
MPS_CONTROL: Final = "nvidia-cuda-mps"
#: Grace with Hopper or Blackwell: their memory is onlined as the host's (nvmlDeviceGetNumaNodeId).
_SUPERCHIP: Final = re.compile(r"\bG[HB][23]\d0\b")


def attribute(gpu: Gpu, processes: Iterable[GpuProcess]) -> Attribution:
    """The parts of *gpu*'s memory; *processes* are those listed on it."""
    here = [process for process in processes if process.gpu_uuid == gpu.uuid]
    dead = {process.pid for process in here if process.exists is False}
    by_pid = memory_by_pid(here)
    unknown = _why_unknown(gpu, by_pid)
    living = _sum(by_pid[pid] for pid in by_pid if pid not in dead)
    dead_pids = _sum(by_pid[pid] for pid in dead)
    shared = gap = None
    if unknown is None and living is not None and dead_pids is not None and gpu.memory_used_bytes is not None:
        rest = gpu.memory_used_bytes - living - dead_pids
        gap, shared = max(0, rest), max(0, -rest)
    return Attribution(
        gpu_uuid=gpu.uuid,
        total=gpu.memory_total_bytes,
        used=gpu.memory_used_bytes,
        living=living,
        dead_pids=dead_pids,
        unattributed=gap,
        shared=shared,
        reserved=gpu.memory_reserved_bytes,
        free=gpu.memory_free_bytes,
        unknown=unknown,
    )


def _why_unknown(gpu: Gpu, by_pid: Mapping[int, int | None]) -> str | None:
    if gpu.error is not None or gpu.late:
        return "the GPU does not answer now"
    if gpu.memory_is_shared:
        return "its memory is the host's: what is used is the sum of its processes"
    if gpu.memory_used_bytes is None:
        return "the driver does not say how much memory is used"
    if gpu.memory_reserved_bytes is None:
        return "this driver counts what it reserves for itself as used (memory info v1)"
    silent = [pid for pid, bytes_ in by_pid.items() if bytes_ is None]
    if silent:
        return f"the driver gives no memory figure for {len(silent)} of {len(by_pid)} processes"
    return None


def _sum(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def gap_threshold(gpu: Gpu, least_mib: int) -> int:
    """Bytes above which unattributed memory is worth a word."""
    return max(least_mib * units.MIB, int(GAP_SHARE * (gpu.memory_total_bytes or 0)))


@dataclass(slots=True)
class UnattributedClock:
    """Since when GPUs have had memory that nobody accounts for, and loads that nobody makes."""

    gaps: dict[str, float]
    loads: dict[str, float]

    @classmethod
    def new(cls) -> UnattributedClock:
        return cls({}, {})

    def observe(self, snapshot: Snapshot, attributions: Iterable[Attribution], least_mib: int) -> None:
        listed = {process.gpu_uuid for process in snapshot.processes}
        found = {attribution.gpu_uuid: attribution for attribution in attributions}
        for gpu in snapshot.gpus:
            gap = found[gpu.uuid].unattributed if gpu.uuid in found else None
            self._keep(self.gaps, gpu, gap is not None and gap > gap_threshold(gpu, least_mib), snapshot.taken_at)
            busy = (gpu.utilization_gpu_percent or 0) >= DEAD_PID_LOAD_PERCENT and gpu.uuid not in listed
            self._keep(self.loads, gpu, busy and gpu.error is None and not gpu.late, snapshot.taken_at)

    @staticmethod
    def _keep(since: dict[str, float], gpu: Gpu, holds: bool, now: float) -> None:
        if holds:
            since.setdefault(gpu.uuid, now)
        else:
            since.pop(gpu.uuid, None)

    def gapped(self, now: float) -> tuple[str, ...]:
        """GPUs with a gap or a ghost load for long enough."""
        long = [uuid for uuid, since in self.gaps.items() if now - since >= GAP_SECONDS]
        return tuple(
            dict.fromkeys(long + [u for u, since in self.loads.items() if now - since >= DEAD_PID_LOAD_SECONDS])
        )


def gap(
    gpu: Gpu,
    attribution: Attribution,
    clock: UnattributedClock,
    snapshot: Snapshot,
    scan: HolderScan | None,
) -> UnattributedMemory | None:
    """The card of *gpu*, where there is something to explain; holders as of *scan*."""
    since, busy_since = clock.gaps.get(gpu.uuid), clock.loads.get(gpu.uuid)
    has_gap = since is not None and snapshot.taken_at - since >= GAP_SECONDS
    busy = busy_since is not None and snapshot.taken_at - busy_since >= DEAD_PID_LOAD_SECONDS
    if not has_gap and not busy:
        return None
    listed = {process.pid for process in snapshot.processes if process.exists is not False}
    unlisted = () if scan is None else _unlisted(gpu, listed, scan)
    causes = _causes(gpu, snapshot, scan, unlisted, busy)
    began = since if has_gap and since is not None else busy_since
    return UnattributedMemory(
        gpu_uuid=gpu.uuid,
        bytes=(attribution.unattributed or 0) if has_gap else 0,
        since=snapshot.taken_at if began is None else began,
        causes=causes,
        holders=unlisted,
        busy=busy,
    )


def _unlisted(gpu: Gpu, listed: set[int], scan: HolderScan) -> tuple[Holder, ...]:
    """Who holds *gpu* open, is on no GPU and no worker of one that is (these have their own memory, or their living
    parent's), the harmless last."""
    minor = gpu.facts.minor_number
    if minor is None:
        return ()
    found = [
        holder
        for holder in scan.holders
        if holder.holds(minor) and holder.key.pid not in listed and holder.facts.parent_pid not in listed
    ]
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
                "gputop runs in a container: the driver lists only this container's processes, but counts everybody's "
                "memory",
                "run gputop on the host",
                3,
            )
        )
    elif snapshot.host.pids_are_host is None:
        found.append(
            Cause(
                "another PID namespace",
                "whether gputop sees all of the host's processes cannot be told",
                "run gputop on the host, as root",
                2,
            )
        )
    if _SUPERCHIP.search(gpu.name):
        found.append(
            Cause(
                "memory that the system manages",
                "this GPU's memory is a NUMA node of the host: page cache and pages of ended processes stay in it",
                "numastat -m shows what is there; echo 3 > /proc/sys/vm/drop_caches as root frees the cache",
                3,
            )
        )
    if gpu.mig or gpu.facts.mig_mode:
        found.append(
            Cause(
                "MIG instances",
                f"cut into {len(gpu.mig)} instances; processes of instances that this user may not see are not listed"
                if gpu.mig
                else "MIG is on: processes of instances that this user may not see are not listed",
                "run gputop as root",
                2,
            )
        )
    found += _from_scan(scan, unlisted)
    found.append(
        Cause(
            "managed memory",
            "cudaMallocManaged pages belong to no process in the driver's list (nvtop#213)",
            "look at the process's own figures (torch.cuda.memory_stats, nsys)",
            2 if unlisted or any(process.gpu_uuid == gpu.uuid for process in snapshot.processes) else 1,
        )
    )
    if busy:
        found.append(
            Cause(
                "work left on the GPU",
                f"{gpu.utilization_gpu_percent}% busy with no process listed (seen after kills on GSP drivers)",
                "nvidia-smi --gpu-reset as root, when nobody uses it",
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
                f"the MPS service runs ({pids}) and holds its clients' memory",
                "echo get_server_list | nvidia-cuda-mps-control; echo quit | nvidia-cuda-mps-control ends it",
                2,
            )
        )
    others = [holder for holder in unlisted if holder.benign is None]
    if others:
        named = ", ".join(f"{holder.key.pid} {holder.facts.name or ''}".rstrip() for holder in others[:4])
        more = f" and {len(others) - 4} more" if len(others) > 4 else ""
        found.append(
            Cause(
                "holders that are not listed",
                f"{named}{more} hold this GPU open and are not in the driver's list",
                "look at them: workers of a process that was killed keep its memory",
                3,
            )
        )
    if not scan.complete:
        found.append(
            Cause(
                "processes that could not be inspected",
                scan.words(),
                "run gputop on the host" if scan.own_namespace else "run gputop as root",
                1 if scan.own_namespace else 2,
            )
        )
    return found
