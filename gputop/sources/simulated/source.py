"""The GPU side of a simulated machine, as :class:`gputop.sources.Source` wants it."""

from __future__ import annotations

import dataclasses
import threading

from gputop.model import Driver, Gpu, GpuFacts, GpuProcess, MigInstance, NvLink, Xid
from gputop.sources import Reading, SourceError
from gputop.sources.simulated.boards import MIB
from gputop.sources.simulated.gpu import CONTEXT_OVERHEAD, PCIE_LANE, Physics, SimulatedGpu
from gputop.sources.simulated.machine import World
from gputop.sources.simulated.population import SimulatedProcess, Use
from gputop.sources.simulated.rhythm import noise
from gputop.sources.simulated.workloads import TICK

LOST = "GPU is lost: it fell off the bus (Xid 79). Reset it with nvidia-smi -r or reboot; then look at power and seating"
Row = tuple[int, int | None, int | None, int | None, int | None, bool]


class SimulatedSource:
    """Reads the simulated GPUs. A GPU of a scenario that is slow or hangs blocks its reader, and nobody else."""

    name = "simulated"

    def __init__(self, world: World) -> None:
        self._world = world
        self._closed = threading.Event()
        self._rows: dict[tuple[int, int, int | None], tuple[Row, GpuProcess]] = {}
        self._facts: dict[int, tuple[int, GpuFacts]] = {}

    def open(self) -> Driver:
        self._closed.clear()
        return self._world.driver

    def count(self) -> int:
        return len(self._world.gpus)

    def read(self, slot: int) -> Reading:
        if not 0 <= slot < len(self._world.gpus):
            raise SourceError(f"no GPU in slot {slot}", exit_status=7)
        gpu = self._world.gpus[slot]
        with self._world.lock:
            t = self._world.now()
        ailment = gpu.ailment
        if ailment.hangs_from is not None and t >= ailment.hangs_from:
            self._closed.wait()
        elif ailment.answers_after and t >= ailment.ill_from:
            self._closed.wait(ailment.answers_after)
        with self._world.lock:
            return self._read(gpu, self._world.now())

    def read_medium(self, slot: int) -> None:
        """Nothing to do: a simulated reading is complete."""

    def read_slow(self, slot: int) -> None:
        """Nothing to do: a simulated reading is complete."""

    def wait_events(self, timeout: float) -> None:
        self._closed.wait(timeout)

    def close(self) -> None:
        self._closed.set()

    # ---------------------------------------------------------------- one GPU

    def _read(self, gpu: SimulatedGpu, t: float) -> Reading:
        board = gpu.board
        at = self._world.epoch + t
        xids = self._xids(gpu, t)
        if gpu.is_lost(t):
            bare = Gpu(gpu.index, gpu.uuid, board.name, at, pci_bus_id=gpu.bus, error=LOST, xids=xids)
            return Reading(dataclasses.replace(bare, facts=self._static_facts(gpu)))
        if gpu.is_asleep(t):
            bare = Gpu(gpu.index, gpu.uuid, board.name, at, pci_bus_id=gpu.bus, asleep=True)
            return Reading(dataclasses.replace(bare, facts=self._static_facts(gpu)))
        now = gpu.physics(t)
        processes, sum_bytes = self._processes(gpu, t)
        used, free = self._memory(gpu, sum_bytes, bool(processes))
        load, mig = now.load, bool(gpu.instances)
        link = PCIE_LANE[board.pcie_generation] * board.pcie_width * 0.9
        links = board.nvlinks * board.nvlink_bytes_per_second if board.nvlinks else None
        degrees = int(now.degrees)
        busy = load.busy >= 0.01 or load.encoder >= 0.01
        state = 0 if busy and board.server else 2 if busy else board.idle_state
        total = board.memory_mib * MIB
        reading = Gpu(
            gpu.index, gpu.uuid, board.name, at, pci_bus_id=gpu.bus,
            memory_total_bytes=total,
            memory_used_bytes=used,
            memory_reserved_bytes=None if board.shared_memory else board.reserved_mib * MIB,
            memory_free_bytes=free,
            memory_unattributed_bytes=None if board.shared_memory else max(0, used - sum_bytes),
            memory_is_shared=board.shared_memory,
            utilization_gpu_percent=None if mig else _percent(load.busy),
            utilization_memory_percent=None if mig else _percent(load.dram * 0.95),
            utilization_encoder_percent=None if mig else _percent(load.encoder),
            utilization_decoder_percent=None if mig else _percent(load.decoder),
            utilization_jpeg_percent=None if mig or not board.server else 0,
            utilization_ofa_percent=None if mig or not board.server else 0,
            sm_active_percent=_tenths(load.active) if board.gpm else None,
            sm_occupancy_percent=_tenths(load.occupancy) if board.gpm else None,
            tensor_active_percent=_tenths(load.tensor) if board.gpm else None,
            dram_bandwidth_percent=_tenths(load.dram) if board.gpm else None,
            temperature_celsius=degrees,
            temperature_memory_celsius=self._memory_degrees(gpu, now),
            temperature_margin_celsius=max(0, board.slowdown - degrees) if board.server else None,
            power_watts=round(gpu.average_watts(now.watts), 2),
            power_instant_watts=round(now.watts, 2) if board.server else None,
            power_limit_watts=board.limit_watts if board.power_range else None,
            fans_percent=gpu.fan_percents(now.degrees),
            clock_sm_mhz=now.clock_sm,
            clock_memory_mhz=(board.clock_memory[1 if busy else 0] or None),
            clock_video_mhz=int(now.clock_sm * 0.9) // 15 * 15,
            performance_state=state,
            event_reasons_mask=now.reasons,
            pcie_rx_bytes_per_second=min(link, load.rx),
            pcie_tx_bytes_per_second=min(link, load.tx),
            nvlink_rx_bytes_per_second=links * min(0.92, load.nvlink) if links is not None else None,
            nvlink_tx_bytes_per_second=links * min(0.92, load.nvlink * 0.99) if links is not None else None,
            facts=self._slow_facts(gpu, t, busy, used),
            mig=self._mig(gpu, t, processes),
            xids=xids,
            notes=() if gpu.persistence else ("persistence mode is off: the driver unloads when the GPU is unused",),
        )  # fmt: skip
        return Reading(reading, processes)

    def _memory(self, gpu: SimulatedGpu, sum_bytes: int, any_process: bool) -> tuple[int, int | None]:
        """(used, free): processes, what their contexts cost beside them, what is hidden; never more than there is."""
        board = gpu.board
        if board.shared_memory:
            return sum_bytes, None
        room = (board.memory_mib - board.reserved_mib) * MIB
        overhead = (CONTEXT_OVERHEAD if any_process else 0) + gpu.hidden_bytes
        used = min(room, sum_bytes + overhead)
        return used, room - used

    def _memory_degrees(self, gpu: SimulatedGpu, now: Physics) -> int | None:
        if gpu.board.memory_maximum is None:
            return None
        return int(now.degrees - 2.0 - 7.0 * min(1.0, now.watts / gpu.board.limit_watts))

    def _xids(self, gpu: SimulatedGpu, t: float) -> tuple[Xid, ...]:
        epoch = self._world.epoch
        return tuple(dataclasses.replace(xid, at=epoch + xid.at) for xid in gpu.ailment.xids if xid.at <= t)

    # ---------------------------------------------------------------- processes

    def _processes(self, gpu: SimulatedGpu, t: float) -> tuple[tuple[GpuProcess, ...], int]:
        """The rows of *gpu* and the sum of their memory. A row that says the same as before is the same object."""
        found: list[GpuProcess] = []
        total = 0
        tick = int(t * TICK) / TICK
        second = float(int(t))
        mig, room = bool(gpu.instances), (gpu.board.memory_mib - gpu.board.reserved_mib) * MIB
        for process, use in gpu.population.on_gpu[gpu.index]:
            if process.started > t:
                continue
            exists = t < process.ends_at
            memory = int(use.workload.memory(min(tick, process.ends_at))) // 2 * 2 * MIB
            memory = max(0, min(memory, room - CONTEXT_OVERHEAD - total))  # nobody gets more than there is
            total += memory
            row = self._row(process, use, second, memory, exists, mig)
            key = (gpu.index, process.pid, use.instance)
            known = self._rows.get(key)
            if known is None or known[0] != row or known[1].kind != use.kind:
                known = (row, _gpu_process(gpu, process, use, row))
                self._rows[key] = known
            found.append(known[1])
        if len(self._rows) > 4096:
            self._rows.clear()
        return tuple(found), total

    def _row(self, process: SimulatedProcess, use: Use, t: float, memory: int, exists: bool, mig: bool) -> Row:
        if mig or "C" not in use.kind and "G" not in use.kind:
            return memory, None, None, None, None, exists
        load = process.load(use, t) if exists else None
        if load is None or (load.busy < 0.005 and load.encoder < 0.005):
            return memory, 0, 0, 0, 0, exists
        share = 0.97 + 0.03 * noise(int(t), process.pid)
        return (
            memory, _percent(load.busy * share), _percent(load.dram * 0.95 * share), _percent(load.encoder),
            _percent(load.decoder), exists,
        )  # fmt: skip

    def _mig(self, gpu: SimulatedGpu, t: float, processes: tuple[GpuProcess, ...]) -> tuple[MigInstance, ...]:
        if not gpu.instances:
            return ()
        tick = int(t * TICK) / TICK
        made = []
        for instance in gpu.instances:
            number = instance.gpu_instance_id
            taken = sum(p.memory_bytes or 0 for p in processes if p.gpu_instance_id == number)
            active = sum(p.load(u, tick).active for p, u in gpu.population.on_gpu[gpu.index] if u.instance == number)
            total, reserved = instance.memory_mib * MIB, 22 * MIB
            used = min(total - reserved, taken + (CONTEXT_OVERHEAD // 3 if taken else 0))
            made.append(
                MigInstance(
                    instance.uuid, number, 0, instance.profile, total, used, total - reserved - used, reserved,
                    _tenths(active),
                )
            )  # fmt: skip
        return tuple(made)

    # ---------------------------------------------------------------- facts

    def _static_facts(self, gpu: SimulatedGpu) -> GpuFacts:
        board = gpu.board
        low, high = board.power_range or (None, None)
        others = self._world.gpus
        return GpuFacts(
            minor_number=gpu.index, architecture=board.architecture, compute_capability=board.compute_capability,
            serial=gpu.serial if board.serial_known else None, vbios="96.00.CF.00.02" if board.server else "95.02.3C.40.B1",
            compute_mode="Default", persistence_mode=gpu.persistence, display_active=gpu.display,
            mig_mode=bool(gpu.instances) if board.mig else None, gpm=board.gpm,
            numa_node=gpu.index * 2 // max(1, len(others)) if board.server else 0,
            cpu_affinity=self._affinity(gpu),
            topology=tuple((o.uuid, self._path(gpu, o)) for o in others if o is not gpu),
            clock_sm_max_mhz=board.clock_sm[1], clock_memory_max_mhz=board.clock_memory[1] or None,
            clock_video_max_mhz=board.clock_video_max,
            temperature_shutdown_celsius=board.shutdown, temperature_slowdown_celsius=board.slowdown,
            temperature_max_celsius=board.maximum, temperature_memory_max_celsius=board.memory_maximum,
            power_limit_default_watts=board.limit_watts if board.power_range else None,
            power_limit_min_watts=low, power_limit_max_watts=high,
            pcie_generation=board.pcie_generation, pcie_generation_max=board.pcie_generation,
            pcie_width=board.pcie_width, pcie_width_max=board.pcie_width, ecc_enabled=board.ecc or None,
        )  # fmt: skip

    def _affinity(self, gpu: SimulatedGpu) -> str:
        cpus, nodes = self._world.cpu_count, 2 if gpu.board.server else 1
        node = gpu.index * nodes // max(1, len(self._world.gpus))
        return f"{node * cpus // nodes}-{(node + 1) * cpus // nodes - 1}"

    def _path(self, gpu: SimulatedGpu, other: SimulatedGpu) -> str:
        if gpu.board.nvlinks:
            return f"NV{gpu.board.nvlinks}"
        half = max(1, len(self._world.gpus) // 2)
        return "PHB" if not gpu.board.server else "NODE" if gpu.index // half == other.index // half else "SYS"

    def _slow_facts(self, gpu: SimulatedGpu, t: float, busy: bool, used: int) -> GpuFacts:
        """Facts as the slow tier reads them, every 5 s."""
        board, ill, age = gpu.board, gpu.ailment, int(t // 5)
        known = self._facts.get(gpu.index)
        if known is not None and known[0] == age:
            return known[1]
        ecc = board.ecc
        corrected = ill.corrected + int(max(0.0, age * 5.0) / 60.0 * ill.corrected_per_minute)
        lifetime = int(noise(gpu.index, gpu.seed + 8) ** 6 * 40)
        flow = gpu.together(age * 5.0).nvlink if board.nvlinks else 0.0
        bar1 = 128 * 1024 * MIB if board.server else 256 * MIB
        total = corrected + lifetime
        facts = dataclasses.replace(
            self._static_facts(gpu),
            pcie_generation=board.pcie_generation if busy or board.server else 1,
            pcie_replays=0, bar1_total_bytes=bar1, bar1_used_bytes=min(bar1, (1 + (used >> 33)) * MIB),
            fan_rpm=tuple(int(p * 31.5) for p in gpu.fan_percents(gpu.physics(t).degrees)),
            ecc_corrected=corrected if ecc else None, ecc_uncorrected=ill.uncorrected if ecc else None,
            ecc_corrected_total=total if ecc else None, ecc_uncorrected_total=ill.uncorrected if ecc else None,
            rows_remapped_corrected=ill.rows_corrected if ecc else None,
            rows_remapped_uncorrected=ill.rows_uncorrected if ecc else None,
            rows_remap_pending=ill.remap_pending if ecc else None, rows_remap_failed=False if ecc else None,
            recovery_action="reset the GPU" if ill.remap_pending else None,
            nvlinks=self._links(gpu, flow, age),
        )  # fmt: skip
        self._facts[gpu.index] = (age, facts)
        return facts

    def _links(self, gpu: SimulatedGpu, flow: float, age: int) -> tuple[NvLink, ...]:
        rate = gpu.board.nvlink_bytes_per_second * min(0.92, flow)
        switch = "NVSwitch" if len(self._world.gpus) > 2 else "GPU"
        made = []
        for k in range(gpu.board.nvlinks):
            here = rate * (0.96 + 0.04 * noise(age * 31 + k, gpu.seed))
            made.append(NvLink(k, True, here, here * 0.99, switch))
        return tuple(made)


def _gpu_process(gpu: SimulatedGpu, process: SimulatedProcess, use: Use, row: Row) -> GpuProcess:
    memory, sm, bandwidth, encoder, decoder, exists = row
    return GpuProcess(
        process.pid, gpu.uuid, use.kind, gpu.index, use.instance, None if use.instance is None else 0, memory, sm,
        bandwidth, encoder, decoder, exists,
    )  # fmt: skip


def _percent(share: float) -> int:
    return 100 if share >= 1.0 else 0 if share <= 0.0 else int(share * 100.0 + 0.5)


def _tenths(share: float) -> float:
    return round(min(100.0, max(0.0, share * 100.0)), 1)
