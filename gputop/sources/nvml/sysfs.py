"""What sysfs and /proc say about GPUs without touching (and waking) them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

NVIDIA: Final = "0x10de"
DISPLAY_CLASS: Final = "0x03"

_PCI_DEVICES: Final = "sys/bus/pci/devices"


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def nvidia_gpus(root: Path = Path("/")) -> tuple[str, ...]:
    """PCI addresses ("0000:01:00.0") of the GPUs that NVIDIA's driver is bound to, in the order NVML counts them."""
    found = []
    try:
        folders = list((root / _PCI_DEVICES).iterdir())
    except OSError:
        return ()
    for folder in folders:
        if (
            _read(folder / "vendor") == NVIDIA
            and (_read(folder / "class") or "").startswith(DISPLAY_CLASS)
            and (folder / "driver").resolve().name == "nvidia"
        ):
            found.append(folder.name)
    return tuple(sorted(found))


def asleep(address: str, root: Path = Path("/")) -> bool:
    """Whether the kernel has put the GPU to sleep (a laptop's, between uses). Opening it would wake it."""
    return _read(root / _PCI_DEVICES / address / "power/runtime_status") == "suspended"


def address_of(pci_bus_id: str) -> str:
    """NVML's bus id ("00000000:01:00.0") as sysfs spells it: a domain of four digits, lower case."""
    domain, colon, rest = pci_bus_id.partition(":")
    return f"{domain[-4:]}{colon}{rest}".lower()


def bus_id_of(address: str) -> str:
    """The other way round, as NVML and nvidia-smi spell it."""
    domain, colon, rest = address.partition(":")
    return f"{domain:0>8}{colon}{rest}".upper()


def numa_node(address: str, root: Path = Path("/")) -> int | None:
    """The NUMA node a GPU hangs on. (nvmlDeviceGetNumaNodeId is about GPUs that *are* one.)"""
    text = _read(root / _PCI_DEVICES / address / "numa_node")
    return int(text) if text is not None and text.isdecimal() else None  # "-1": the machine has no nodes


def cpu_affinity(address: str, root: Path = Path("/")) -> str | None:
    """The CPUs next to a GPU, as the kernel lists them: "0-31,64-95"."""
    return _read(root / _PCI_DEVICES / address / "local_cpulist") or None


#: GT/s of a lane, by PCIe generation.
_GENERATIONS: Final = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}


def root_port_generation(address: str, root: Path = Path("/")) -> int | None:
    """The highest PCIe generation of the root port above a GPU; None where there is none (virtual machines)."""
    folder = (root / _PCI_DEVICES / address).resolve()
    bridges = [parent for parent in folder.parents if parent.name.count(":") == 2]
    speed = _read(bridges[-1] / "max_link_speed") if bridges else None  # "32.0 GT/s PCIe"
    return None if speed is None else _GENERATIONS.get(speed.split()[0] if speed else "")


@cache
def host_memory(root: Path = Path("/")) -> int | None:
    """MemTotal of /proc/meminfo, in bytes."""
    for line in (_read(root / "proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return None
