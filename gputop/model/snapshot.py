"""One machine at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field

from gputop.model.gpu import Gpu
from gputop.model.process import GpuProcess


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver's versions (nvmlSystemGetDriverVersion, …NVMLVersion, …CudaDriverVersion_v2)."""

    version: str | None = None
    nvml_version: str | None = None
    cuda_version: str | None = None  # "13.0"


@dataclass(frozen=True, slots=True)
class Host:
    """The machine the GPUs are in."""

    name: str = ""
    cpu_percent: float | None = None  # of all cores together
    cpu_count: int | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None  # total minus available
    load: tuple[float, float, float] | None = None
    pids_are_host: bool | None = None  # False: gputop runs in a PID namespace of its own
    slow: tuple[str, ...] = ()  # what has not answered yet, in words: "user names (uid 1000)"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One machine at one moment; what the bus carries and everything draws, records or prints."""

    taken_at: float
    host: Host = field(default_factory=Host)
    driver: Driver = field(default_factory=Driver)
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    problems: tuple[str, ...] = ()  # what failed for the whole machine, in words, with what to do
    took: float = 0.0  # seconds the sweep took
    interval: float = 1.0  # seconds between sweeps now; longer than asked where the machine cannot keep up
    source: str = "nvml"
    #: See :attr:`steady_at`; not part of what the snapshot says, so neither recorded nor compared.
    steady: float | None = field(default=None, compare=False, repr=False)

    @property
    def steady_at(self) -> float:
        """``taken_at`` by a clock that nobody sets (``model.steady_clock``): for how long something has been so, and
        since when. Where it is not known, ``taken_at``."""
        return self.taken_at if self.steady is None else self.steady

    def gpu(self, uuid: str) -> Gpu | None:
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)
