"""Which GPUs somebody means by ``0``, ``GPU-1234abcd`` or ``0000:65:00.0``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gputop.model import Gpu, Snapshot, replace

UUID_PREFIX: Final = 8  # the least of a UUID that names a GPU, without "GPU-"


def find(gpus: Iterable[Gpu], name: str) -> Gpu | None:
    """The GPU called *name*: its index, its UUID or a part of it that is unique, or its PCI id. None: there is none,
    or more than one."""
    name = name.strip().lower()
    gpus = tuple(gpus)
    if name.isascii() and name.isdecimal() and len(name) < UUID_PREFIX:
        found = [gpu for gpu in gpus if gpu.index == int(name)]
    elif ":" in name:
        found = [gpu for gpu in gpus if gpu.pci_bus_id and _pci(gpu.pci_bus_id) == _pci(name)]
    else:
        prefix = name.removeprefix("gpu-")
        found = [gpu for gpu in gpus if gpu.uuid.lower().removeprefix("gpu-").startswith(prefix)]
        found = found if len(prefix) >= UUID_PREFIX else []
    return found[0] if len(found) == 1 else None


def _pci(text: str) -> tuple[int, int, int, int] | str:
    """Domain, bus, device, function: NVML writes the domain with eight digits, sysfs with four, people with none."""
    try:
        head, function = text.split(".") if "." in text else (text, "0")
        numbers = [int(part, 16) for part in head.split(":")]
        domain, bus, device = numbers if len(numbers) == 3 else (0, *numbers)
        return domain, bus, device, int(function, 16)
    except ValueError:
        return text


def only(snapshot: Snapshot, names: Iterable[str]) -> tuple[Snapshot, tuple[str, ...]]:
    """*snapshot* with the GPUs called *names* only (all, where none are), and the names no GPU has."""
    names = tuple(names)
    if not names:
        return snapshot, ()
    found = {name: find(snapshot.gpus, name) for name in names}
    uuids = {gpu.uuid for gpu in found.values() if gpu is not None}
    selected = replace(
        snapshot,
        gpus=tuple(gpu for gpu in snapshot.gpus if gpu.uuid in uuids),
        processes=tuple(process for process in snapshot.processes if process.gpu_uuid in uuids),
    )
    return selected, tuple(name for name, gpu in found.items() if gpu is None)
