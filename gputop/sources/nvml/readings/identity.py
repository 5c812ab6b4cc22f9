"""What a GPU is."""

from __future__ import annotations

from dataclasses import dataclass

from gputop.model import clean_text
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.calls import Handle, Quantity, as_it_is


@dataclass(frozen=True, slots=True)
class Identity:
    """What a GPU is; kept by the source when the GPU itself is lost."""

    uuid: str
    name: str
    pci_bus_id: str | None = None


def identify(handle: Handle, index: int) -> Identity:
    """Ask an opened GPU. Raises NvmlError when it or the driver is gone."""
    pci = pci_info(handle).read()
    return Identity(
        uuid=handle.text("nvmlDeviceGetUUID").read() or f"slot:{index}",
        name=handle.text("nvmlDeviceGetName").read() or "NVIDIA GPU",
        pci_bus_id=None if pci is None else bus_id(pci) or None,
    )


def pci_info(handle: Handle) -> Quantity[abi.PciInfo]:
    """nvmlDeviceGetPciInfo_v3, or _v2 before R510."""
    return handle.first_of(
        ("nvmlDeviceGetPciInfo_v3", (), abi.PciInfo(), as_it_is),
        ("nvmlDeviceGetPciInfo_v2", (), abi.PciInfo(), as_it_is),
    )


def bus_id(pci: abi.PciInfo) -> str:
    """ "00000000:83:00.0": with a domain of eight digits where the driver gives one."""
    id_: bytes = pci.bus_id or pci.bus_id_legacy
    return clean_text(id_)
