"""What changes rarely about a simulated GPU: limits, thresholds, links, ECC, remapped rows, topology."""

from __future__ import annotations

import dataclasses

from gputop.model import GpuFacts, NvLink
from gputop.sources.simulated.gpu import SimulatedGpu
from gputop.sources.simulated.machine import SimulatedWorld
from gputop.sources.simulated.noise import noise
from gputop.units import MIB


class SimulatedFacts:
    """Makes the facts of one GPU; the same object until the next look of the slow tier."""

    def __init__(self, world: SimulatedWorld, gpu: SimulatedGpu) -> None:
        self._gpu = gpu
        self._world = world
        self._static: GpuFacts | None = None
        self._known: GpuFacts | None = None
        self._known_at = -2

    def static(self) -> GpuFacts:
        """What is known even of a GPU that does not answer."""
        if self._static is None:
            self._static = self._read_static()
        return self._static

    def read(self) -> GpuFacts:
        """As the slow tier saw them last."""
        if self._known is None or self._known_at != self._gpu.slow.second:
            self._known, self._known_at = self._read(), self._gpu.slow.second
        return self._known

    def _read_static(self) -> GpuFacts:
        gpu, model, others = self._gpu, self._gpu.model, self._world.gpus
        low, high = model.power_range or (None, None)
        nodes = 2 if model.server else 1
        node = gpu.index * nodes // max(1, len(others))
        cpus = self._world.cpu_count
        return GpuFacts(
            minor_number=gpu.index,
            architecture=model.architecture,
            compute_capability=model.compute_capability,
            serial=gpu.serial if model.serial_known else None,
            vbios="96.00.CF.00.02" if model.server else "95.02.3C.40.B1",
            compute_mode="default",
            persistence_mode=gpu.persistence,
            display_active=gpu.display,
            mig_mode=bool(gpu.instances) if model.mig else None,
            gpm=model.gpm,
            numa_node=node,
            cpu_affinity=f"{node * cpus // nodes}-{(node + 1) * cpus // nodes - 1}",
            topology=tuple((other.uuid, self._path(other)) for other in others if other is not gpu),
            clock_sm_max_mhz=model.clock_sm[1],
            clock_memory_max_mhz=model.clock_memory[1] or None,
            clock_video_max_mhz=model.clock_video_max,
            temperature_shutdown_celsius=model.shutdown,
            temperature_slowdown_celsius=model.slowdown,
            temperature_max_celsius=model.maximum,
            temperature_memory_max_celsius=model.memory_maximum,
            power_limit_default_watts=model.limit_watts if model.power_range else None,
            power_limit_min_watts=low,
            power_limit_max_watts=high,
            pcie_generation=model.pcie_generation,
            pcie_generation_max=model.pcie_generation,
            pcie_width=model.pcie_width,
            pcie_width_max=model.pcie_width,
            ecc_enabled=model.ecc or None,
        )

    def _path(self, other: SimulatedGpu) -> str:
        """How two GPUs reach each other, in nvidia-smi topo -m's words."""
        if self._gpu.model.nvlinks:
            return f"NV{self._gpu.model.nvlinks}"
        half = max(1, len(self._world.gpus) // 2)
        if not self._gpu.model.server:
            return "PHB"
        return "NODE" if self._gpu.index // half == other.index // half else "SYS"

    def _read(self) -> GpuFacts:
        gpu, model, fault = self._gpu, self._gpu.model, self._gpu.fault
        second, load, degrees = gpu.slow
        busy = load.busy >= 0.01 or load.encoder >= 0.01
        bar1 = 128 * 1024 * MIB if model.server else 256 * MIB
        facts = dataclasses.replace(
            self.static(),
            pcie_generation=model.pcie_generation if busy or model.server else 1,  # a resting card slows its link
            pcie_replays=0,
            bar1_total_bytes=bar1,
            bar1_used_bytes=2 * MIB,
            fan_rpm=tuple(int(speed * 31.5) for speed in gpu.fan_percents(degrees)),
            nvlinks=self._links(load.nvlink, second),
        )
        if not model.ecc:
            return facts
        corrected = fault.corrected + int(second / 60.0 * fault.corrected_per_minute)
        lifetime = int(noise(gpu.index, gpu.seed + 8) ** 6 * 40)
        return dataclasses.replace(
            facts,
            ecc_corrected=corrected,
            ecc_uncorrected=fault.uncorrected,
            ecc_corrected_total=corrected + lifetime,
            ecc_uncorrected_total=fault.uncorrected,
            rows_remapped_corrected=fault.rows_corrected,
            rows_remapped_uncorrected=fault.rows_uncorrected,
            rows_remap_pending=fault.remap_pending,
            rows_remap_failed=False,
            recovery_action="reset the GPU" if fault.remap_pending else None,
        )

    def _links(self, flow: float, second: int) -> tuple[NvLink, ...]:
        gpu = self._gpu
        rate = gpu.model.nvlink_bytes_per_second * min(0.92, flow)
        peer = "NVSwitch" if len(self._world.gpus) > 2 else "GPU"
        links = []
        for index in range(gpu.model.nvlinks):
            here = rate * (0.96 + 0.04 * noise(second * 31 + index, gpu.seed))
            links.append(NvLink(index, True, here, here * 0.99, peer))
        return tuple(links)
