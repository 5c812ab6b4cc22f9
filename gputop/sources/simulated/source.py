"""The GPU side of a simulated machine, as :class:`gputop.sources.source.Source` wants it."""

from __future__ import annotations

import dataclasses
import threading
from typing import Final

from gputop.model import Driver, Gpu, Xid
from gputop.sources.simulated.facts import SimulatedFacts
from gputop.sources.simulated.gpu import Physics, SimulatedGpu
from gputop.sources.simulated.listing import CONTEXT_OVERHEAD_BYTES, SimulatedListing, percent, tenths
from gputop.sources.simulated.machine import SimulatedWorld
from gputop.sources.source import Reading, SourceError
from gputop.units import MIB

LOST: Final = "GPU is lost: it has fallen off the bus (Xid 79); reset it with `nvidia-smi -r` or reboot"
NO_PERSISTENCE: Final = "persistence mode is off: the driver unloads while nobody uses the GPU"

#: What a PCIe lane carries, by generation.
LANE_BYTES_PER_SECOND: Final = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.56e9}


class SimulatedSource:
    """Reads the simulated GPUs. A GPU of a scenario that is slow or hangs keeps its reader, and nobody else."""

    name = "simulated"

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._closed = threading.Event()
        self._rows = [SimulatedListing(gpu) for gpu in world.gpus]
        self._facts = [SimulatedFacts(world, gpu) for gpu in world.gpus]

    def open(self) -> Driver:
        self._closed.clear()
        return self._world.driver

    def count(self) -> int:
        return len(self._world.gpus)

    def read(self, slot: int) -> Reading:
        if not 0 <= slot < len(self._world.gpus):
            raise SourceError(f"there is no GPU in slot {slot}", exit_status=7)
        gpu = self._world.gpus[slot]
        self._delay(gpu)
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

    def _delay(self, gpu: SimulatedGpu) -> None:
        fault = gpu.fault
        if fault.hangs_from is None and not fault.answers_after:
            return
        with self._world.lock:
            t = self._world.now()
        if fault.hangs_from is not None and t >= fault.hangs_from:
            self._closed.wait()
        elif fault.answers_after and t >= fault.slow_from:
            self._closed.wait(fault.answers_after)

    def _read(self, gpu: SimulatedGpu, t: float) -> Reading:
        model = gpu.model
        at, xids = self._world.epoch + t, self._xids(gpu, t)
        facts, rows = self._facts[gpu.index], self._rows[gpu.index]
        if gpu.is_lost(t) or gpu.is_asleep(t):
            lost = gpu.is_lost(t)
            return Reading(
                Gpu(
                    gpu.index, gpu.uuid, model.name, at, pci_bus_id=gpu.bus, error=LOST if lost else None,
                    asleep=not lost, facts=facts.static(), xids=xids,
                )
            )  # fmt: skip
        now = gpu.physics(t)
        processes, taken = rows.read(t)
        used, free = self._memory(gpu, taken, bool(processes))
        load, mig, busy = now.load, bool(gpu.instances), now.busy
        link = LANE_BYTES_PER_SECOND[model.pcie_generation] * model.pcie_width * 0.9
        links = model.nvlinks * model.nvlink_bytes_per_second if model.nvlinks else None
        reading = Gpu(
            gpu.index,
            gpu.uuid,
            model.name,
            at,
            pci_bus_id=gpu.bus,
            memory_total_bytes=model.memory_mib * MIB,
            memory_used_bytes=used,
            memory_reserved_bytes=None if model.shared_memory else model.reserved_mib * MIB,
            memory_free_bytes=free,
            memory_unattributed_bytes=None if model.shared_memory else used - taken,
            memory_is_shared=model.shared_memory,
            utilization_gpu_percent=None if mig else percent(load.busy),
            utilization_memory_percent=None if mig else percent(load.dram),
            utilization_encoder_percent=None if mig else percent(load.encoder),
            utilization_decoder_percent=None if mig else percent(load.decoder),
            utilization_jpeg_percent=None if mig or not model.server else 0,
            utilization_ofa_percent=None if mig or not model.server else 0,
            sm_active_percent=tenths(load.active) if model.gpm else None,
            sm_occupancy_percent=tenths(load.occupancy) if model.gpm else None,
            tensor_active_percent=tenths(load.tensor) if model.gpm else None,
            dram_bandwidth_percent=tenths(load.dram) if model.gpm else None,
            temperature_celsius=int(now.degrees),
            temperature_memory_celsius=self._memory_degrees(gpu, now),
            temperature_margin_celsius=max(0, model.slowdown - int(now.degrees)) if model.server else None,
            power_watts=round(gpu.average_watts(now.watts), 2),
            power_instant_watts=round(now.watts, 2) if model.server else None,
            power_limit_watts=model.limit_watts if model.power_range else None,
            fans_percent=gpu.fan_percents(now.degrees),
            clock_sm_mhz=now.clock_sm,
            clock_memory_mhz=model.clock_memory[1 if busy else 0] or None,
            clock_video_mhz=int(now.clock_sm * 0.9) // 15 * 15,
            performance_state=model.idle_state if not busy else 0 if model.server else 2,
            event_reasons_mask=now.reasons,
            pcie_rx_bytes_per_second=min(link, load.rx),
            pcie_tx_bytes_per_second=min(link, load.tx),
            nvlink_rx_bytes_per_second=links * min(0.92, load.nvlink) if links is not None else None,
            nvlink_tx_bytes_per_second=links * min(0.92, load.nvlink * 0.99) if links is not None else None,
            facts=facts.read(),
            mig=rows.instances(t, processes),
            xids=xids,
            notes=() if gpu.persistence else (NO_PERSISTENCE,),
        )
        return Reading(reading, processes)

    def _memory(self, gpu: SimulatedGpu, taken: int, any_process: bool) -> tuple[int, int | None]:
        """(used, free): the processes, what their contexts cost besides, what is hidden; never more than there is."""
        model = gpu.model
        if model.shared_memory:
            return taken, None
        room = (model.memory_mib - model.reserved_mib) * MIB
        used = min(room, taken + (CONTEXT_OVERHEAD_BYTES if any_process else 0) + gpu.hidden_bytes)
        return used, room - used

    def _memory_degrees(self, gpu: SimulatedGpu, now: Physics) -> int | None:
        if gpu.model.memory_maximum is None:
            return None
        return int(now.degrees - 2.0 - 7.0 * min(1.0, now.watts / gpu.model.limit_watts))

    def _xids(self, gpu: SimulatedGpu, t: float) -> tuple[Xid, ...]:
        if not gpu.fault.xids:
            return ()
        epoch = self._world.epoch
        return tuple(dataclasses.replace(xid, at=epoch + xid.at) for xid in gpu.fault.xids if xid.at <= t)
