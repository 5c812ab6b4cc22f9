"""The processes of a simulated GPU as NVML lists them, and its MIG instances."""

from __future__ import annotations

import math
from typing import Final

from gputop.model import GpuProcess, MigInstance
from gputop.sources.simulated.gpu import SimulatedGpu
from gputop.sources.simulated.population import GpuShare, SimulatedProcess
from gputop.sources.simulated.workloads import REST, SAMPLES_PER_SECOND, Load
from gputop.units import MIB

CONTEXT_OVERHEAD_BYTES: Final = 43 * MIB  # used minus the sum over pids of an H200 with seven processes
INSTANCE_RESERVED_BYTES: Final = 22 * MIB


class SimulatedListing:
    """Makes the rows of one GPU. A row that says the same as before is the same object."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu
        self._known: dict[tuple[int, int | None], GpuProcess] = {}

    def read(self, t: float) -> tuple[tuple[GpuProcess, ...], int]:
        """The rows at *t* and the sum of their memory. Utilization is that of the second, memory that of the tick."""
        gpu, found, known = self._gpu, [], self._known
        tick = math.floor(t * SAMPLES_PER_SECOND) / SAMPLES_PER_SECOND
        room = (gpu.model.memory_mib - gpu.model.reserved_mib) * MIB - CONTEXT_OVERHEAD_BYTES
        here = gpu.population.on_gpu[gpu.index]
        for (process, use), load in zip(here, gpu.loads(float(math.floor(t))), strict=True):
            if process.started > t:
                continue
            key = (process.pid, use.instance)
            row = known.get(key)
            same = use.still and row is not None and row.exists and t < process.ends_at
            if same and row is not None and (row.memory_bytes or 0) <= room:  # most of a crowd
                room -= row.memory_bytes or 0
                found.append(row)
                continue
            memory = int(use.workload.memory(min(tick, process.ends_at))) // 2 * 2 * MIB
            memory = max(0, min(memory, room))  # nobody gets more than there is
            room -= memory
            if row is None or not _same(row, process, memory, load, t < process.ends_at):
                row = known[key] = self._row(process, use, memory, load, t < process.ends_at)
            found.append(row)
        if len(known) > 2 * len(found) + 64:
            self._known = {(row.pid, row.gpu_instance_id): row for row in found}
        return tuple(found), sum(row.memory_bytes or 0 for row in found)

    def _row(self, process: SimulatedProcess, use: GpuShare, memory: int, load: Load, exists: bool) -> GpuProcess:
        gpu = self._gpu
        if gpu.instances:  # per-process utilization is not supported with MIG
            compute_instance = None if use.instance is None else 0
            return GpuProcess(
                pid=process.pid,
                gpu_uuid=gpu.uuid,
                kind=use.kind,
                gpu_index=gpu.index,
                gpu_instance_id=use.instance,
                compute_instance_id=compute_instance,
                memory_bytes=memory,
                exists=exists,
            )
        if not exists:
            load = REST
        return GpuProcess(
            pid=process.pid,
            gpu_uuid=gpu.uuid,
            kind=use.kind,
            gpu_index=gpu.index,
            memory_bytes=memory,
            sm_percent=percent(load.busy),
            memory_bandwidth_percent=percent(load.dram),
            encoder_percent=percent(load.encoder),
            decoder_percent=percent(load.decoder),
            exists=exists,
        )

    def instances(self, t: float, rows: tuple[GpuProcess, ...]) -> tuple[MigInstance, ...]:
        """The MIG instances at *t*, of whose processes *rows* are."""
        gpu, made = self._gpu, []
        if not gpu.instances:
            return ()
        tick = math.floor(t * SAMPLES_PER_SECOND) / SAMPLES_PER_SECOND
        for instance in gpu.instances:
            number = instance.gpu_instance_id
            taken = sum(row.memory_bytes or 0 for row in rows if row.gpu_instance_id == number)
            here = gpu.population.on_gpu[gpu.index]
            active = sum(process.load(use, tick).active for process, use in here if use.instance == number)
            total = instance.memory_mib * MIB
            used = min(total - INSTANCE_RESERVED_BYTES, taken + (14 * MIB if taken else 0))
            made.append(
                MigInstance(
                    instance.uuid, number, 0, instance.profile, total, used, total - INSTANCE_RESERVED_BYTES - used,
                    INSTANCE_RESERVED_BYTES, tenths(active),
                )
            )  # fmt: skip
        return tuple(made)


def _same(row: GpuProcess, process: SimulatedProcess, memory: int, load: Load, exists: bool) -> bool:
    if row.memory_bytes != memory or row.exists is not exists:
        return False
    if row.sm_percent is None or not exists:
        return True
    if load is REST:
        return row.sm_percent == row.memory_bandwidth_percent == row.encoder_percent == row.decoder_percent == 0
    return (
        row.sm_percent == percent(load.busy)
        and row.memory_bandwidth_percent == percent(load.dram)
        and row.encoder_percent == percent(load.encoder)
        and row.decoder_percent == percent(load.decoder)
    )


def percent(share: float) -> int:
    return 100 if share >= 1.0 else 0 if share <= 0.0 else int(share * 100.0 + 0.5)


def tenths(share: float) -> float:
    return round(min(100.0, max(0.0, share * 100.0)), 1)
