"""What a process that uses gputop.torch_monitor tells about its allocator."""

from __future__ import annotations

from dataclasses import dataclass

from gputop.model.gpu import Gpu


@dataclass(frozen=True, slots=True)
class TorchPhase:
    """A phase of the newest step, on one device: most allocated in it, and what it left allocated."""

    name: str
    seconds: float
    peak_bytes: int
    kept_bytes: int  # may be negative


@dataclass(frozen=True, slots=True)
class TorchDevice:
    """PyTorch's allocator on one device, of one process. ``index`` is torch's, not the driver's."""

    index: int
    uuid: str | None = None
    pci_bus_id: str | None = None
    allocated_bytes: int = 0  # in tensors
    reserved_bytes: int = 0  # taken from the driver: in tensors, and cached
    active_bytes: int = 0  # in tensors, and freed ones that a stream is waited for
    inactive_split_bytes: int = 0  # cached, and not to be released: in segments that are in use
    retries: int = 0  # the cache was flushed to make room: the early warning
    ooms: int = 0
    peak_bytes: int | None = None  # most allocated
    step_peak_bytes: int | None = None
    phases: tuple[TorchPhase, ...] = ()

    @property
    def cached_bytes(self) -> int:
        return max(0, self.reserved_bytes - self.active_bytes)

    @property
    def releasable_bytes(self) -> int:
        """What empty_cache() could give back at most. With expandable segments torch counts none of it as stuck."""
        return max(0, self.cached_bytes - self.inactive_split_bytes)


@dataclass(frozen=True, slots=True)
class TorchAnswer:
    """What became of a request to the process."""

    id: str
    message: str
    path: str | None = None  # of the snapshot


@dataclass(frozen=True, slots=True)
class TorchReport:
    """What a process that uses gputop.torch_monitor tells of its allocator. ``written_at``: it may be long ago."""

    written_at: float
    torch_version: str | None = None
    backend: str | None = None
    steps: int = 0
    step_seconds: float | None = None
    recording: bool = False
    phase: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    devices: tuple[TorchDevice, ...] = ()
    answers: tuple[TorchAnswer, ...] = ()  # the newest last

    def on(self, gpu: Gpu) -> TorchDevice | None:
        """The device that is *gpu*, by UUID or PCI bus id."""
        for device in self.devices:
            if device.uuid is not None and device.uuid == gpu.uuid:
                return device
            known = device.pci_bus_id is not None and gpu.pci_bus_id is not None
            if known and _pci(device.pci_bus_id or "") == _pci(gpu.pci_bus_id or ""):
                return device
        return None


def _pci(bus_id: str) -> tuple[int, str]:
    """Domains have 4 or 8 digits."""
    domain, _, rest = bus_id.lower().partition(":")
    return int(domain, 16), rest
