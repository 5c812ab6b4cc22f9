"""What a GPU is."""

from __future__ import annotations

from ctypes import byref
from dataclasses import dataclass

from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.calls import Handle


@dataclass(frozen=True, slots=True)
class Identity:
    """What a GPU is; kept by the source when the GPU itself is lost."""

    uuid: str
    name: str
    pci_bus_id: str | None = None


def identify(handle: Handle, index: int) -> Identity:
    """Ask an opened GPU."""
    pci = abi.PciInfo()
    bus_id = None
    for name in ("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"):
        call = handle.bind(name, byref(pci))
        if call is not None and call() == 0:
            bus_id = (pci.bus_id or pci.bus_id_legacy).decode("ascii", "replace") or None
            break
    return Identity(
        uuid=handle.text("nvmlDeviceGetUUID") or f"slot:{index}",
        name=handle.text("nvmlDeviceGetName") or "NVIDIA GPU",
        pci_bus_id=bus_id,
    )
