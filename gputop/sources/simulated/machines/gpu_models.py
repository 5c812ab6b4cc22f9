"""The GPU models that can be simulated, with the figures that their drivers give.

H200 as measured (driver 580, NVML 13.580); the others from their data sheets and public nvidia-smi -q output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class GpuModel:
    """What is the same for every GPU of a model. Watts, MHz, MiB, degrees Celsius."""

    name: str
    architecture: str
    compute_capability: str
    memory_mib: int
    reserved_mib: int
    limit_watts: float
    idle_watts: float
    clock_sm: tuple[int, int]  # idle, maximum
    clock_memory: tuple[int, int]
    shutdown: int = 95
    slowdown: int = 89
    maximum: int = 87
    memory_maximum: int | None = 95  # None: no memory temperature either
    ambient: float = 33.5  # where the temperature would end at 0 W
    degrees_per_watt: float = 0.0395
    pcie_generation: int = 5
    pcie_width: int = 16
    nvlinks: int = 18
    nvlink_bytes_per_second: float = 25e9  # one link, one direction
    fans: int = 0
    gpm: bool = True
    ecc: bool = True
    mig: bool = True
    power_range: tuple[float, float] | None = (200.0, 700.0)  # None: no limit is told
    shared_memory: bool = False
    server: bool = True
    idle_state: int = 0  # performance state at rest
    serial_known: bool = True

    @property
    def clock_video_max(self) -> int:
        return int(self.clock_sm[1] * 0.9) // 15 * 15


def _consumer(name: str, mib: int, watts: float, idle: float, sm: int, **more: object) -> GpuModel:
    settings: dict[str, object] = {
        "architecture": "Ada", "compute_capability": "8.9", "reserved_mib": 420, "clock_sm": (210, sm),
        "clock_memory": (405, 10501), "shutdown": 100, "slowdown": 97, "maximum": 90, "memory_maximum": None,
        "ambient": 31.0, "degrees_per_watt": 0.088, "pcie_generation": 4, "nvlinks": 0, "fans": 2, "gpm": False,
        "ecc": False, "mig": False, "power_range": (watts / 3, watts * 1.2), "server": False, "idle_state": 8,
        "serial_known": False,
    }  # fmt: skip
    return GpuModel(name, memory_mib=mib, limit_watts=watts, idle_watts=idle, **(settings | more))  # type: ignore[arg-type]


GPU_MODELS: Final[dict[str, GpuModel]] = {
    "h200": GpuModel("NVIDIA H200", "Hopper", "9.0", 143771, 616, 700, 76, (345, 1980), (3201, 3201)),
    "h100": GpuModel("NVIDIA H100 80GB HBM3", "Hopper", "9.0", 81559, 557, 700, 70, (345, 1980), (2619, 2619)),
    "b200": GpuModel(
        "NVIDIA B200", "Blackwell", "10.0", 183359, 712, 1000, 140, (120, 1965), (3996, 3996), degrees_per_watt=0.029,
        nvlink_bytes_per_second=50e9, power_range=(200.0, 1000.0),
    ),
    "a100": GpuModel(
        "NVIDIA A100-SXM4-80GB", "Ampere", "8.0", 81920, 612, 400, 54, (210, 1410), (1593, 1593), shutdown=92,
        slowdown=89, maximum=85, ambient=29.0, degrees_per_watt=0.078, pcie_generation=4, nvlinks=12, gpm=False,
        power_range=(100.0, 400.0),
    ),
    "v100": GpuModel(
        "Tesla V100-SXM2-32GB", "Volta", "7.0", 32768, 268, 300, 42, (135, 1530), (877, 877), shutdown=90,
        slowdown=87, maximum=83, memory_maximum=85, ambient=29.0, degrees_per_watt=0.1, pcie_generation=3, nvlinks=6,
        gpm=False, mig=False, power_range=(150.0, 300.0),
    ),
    "l40s": GpuModel(
        "NVIDIA L40S", "Ada", "8.9", 46068, 603, 350, 36, (210, 2520), (405, 9001), shutdown=100, slowdown=97,
        maximum=88, memory_maximum=None, ambient=28.0, degrees_per_watt=0.115, pcie_generation=4, nvlinks=0,
        gpm=False, mig=False, power_range=(100.0, 350.0), idle_state=8,
    ),
    "t4": GpuModel(
        "Tesla T4", "Turing", "7.5", 15360, 448, 70, 10, (300, 1590), (405, 5001), shutdown=96, slowdown=93,
        maximum=85, memory_maximum=None, ambient=30.0, degrees_per_watt=0.6, pcie_generation=3, nvlinks=0, gpm=False,
        mig=False, power_range=(60.0, 70.0), idle_state=8,
    ),
    "4090": _consumer("NVIDIA GeForce RTX 4090", 24564, 450, 22, 3105, fans=2, degrees_per_watt=0.085),
    "5090": _consumer(
        "NVIDIA GeForce RTX 5090", 32607, 575, 24, 3090, architecture="Blackwell", compute_capability="12.0",
        clock_memory=(405, 14001), pcie_generation=5, degrees_per_watt=0.072,
    ),
    "3090": _consumer(
        "NVIDIA GeForce RTX 3090", 24576, 350, 25, 2100, architecture="Ampere", compute_capability="8.6",
        clock_memory=(405, 9751), degrees_per_watt=0.11, nvlinks=4, nvlink_bytes_per_second=14e9,
    ),
    "6000ada": _consumer(
        "NVIDIA RTX 6000 Ada Generation", 49140, 300, 21, 3105, fans=1, degrees_per_watt=0.16, ecc=True,
        clock_memory=(405, 10001), power_range=(100.0, 300.0), serial_known=True,
    ),
    "4090laptop": _consumer(
        "NVIDIA GeForce RTX 4090 Laptop GPU", 16376, 150, 9, 2040, clock_memory=(405, 9001), shutdown=105,
        slowdown=102, maximum=87, ambient=38.0, degrees_per_watt=0.28, power_range=None, fans=0,
    ),
    "2000adalaptop": _consumer(
        "NVIDIA RTX 2000 Ada Generation Laptop GPU", 8188, 60, 5, 2115, clock_memory=(405, 8001), shutdown=105,
        slowdown=102, maximum=87, ambient=37.0, degrees_per_watt=0.5, power_range=None, fans=0, pcie_width=8,
    ),
    "gb10": GpuModel(
        "NVIDIA GB10", "Blackwell", "12.1", 122571, 0, 100, 4, (208, 3003), (0, 0), shutdown=104, slowdown=101,
        maximum=90, memory_maximum=None, ambient=34.0, degrees_per_watt=0.42, nvlinks=0, gpm=False, ecc=False,
        mig=False, power_range=None, shared_memory=True, server=False, idle_state=8, pcie_width=1,
    ),
}  # fmt: skip

ALIASES: Final = {
    "rtx4090": "4090", "rtx5090": "5090", "rtx3090": "3090", "rtx6000ada": "6000ada", "rtx6000": "6000ada",
    "a100-80gb": "a100", "h100-80gb": "h100", "spark": "gb10", "rtx4090laptop": "4090laptop",
}  # fmt: skip
