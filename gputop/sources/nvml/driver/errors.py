"""What NVML's return codes mean to whoever is looking at the screen, and what to do about each."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from gputop.sources.nvml.driver import abi
from gputop.sources.source import SourceError


class Fault(Exception):
    """One GPU cannot be read now. ``code`` is NVML's."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


#: The driver as a whole is gone: everything has to be opened again.
DRIVER_GONE: Final = frozenset({abi.UNINITIALIZED, abi.DRIVER_NOT_LOADED, abi.LIB_RM_VERSION_MISMATCH})

#: No further call on this GPU makes sense now.
GPU_GONE: Final = DRIVER_GONE | {abi.GPU_IS_LOST}

#: This function will not answer on this GPU until the driver is opened again: fall back, or leave it.
PERMANENT: Final = frozenset({abi.NOT_SUPPORTED, abi.FUNCTION_NOT_FOUND, abi.ARGUMENT_VERSION_MISMATCH, abi.DEPRECATED})

_WORDS: Final = {
    abi.UNINITIALIZED: "the connection to the driver was lost; connecting again",
    abi.INVALID_ARGUMENT: "the driver does not know this GPU or MIG instance any more; looking for it again",
    abi.NOT_SUPPORTED: "not supported by this GPU or driver",
    abi.NO_PERMISSION: "no permission; run as root, or ask for access to /dev/nvidia*",
    abi.NOT_FOUND: "not found",
    abi.INSUFFICIENT_POWER: "external power cables are not connected properly: check them",
    abi.DRIVER_NOT_LOADED: "the NVIDIA kernel driver is not running; try `nvidia-smi`, or `modprobe nvidia` as root",
    abi.TIMEOUT: "the driver did not answer in time",
    abi.IRQ_ISSUE: "interrupts of this GPU do not arrive (IRQ issue): see `dmesg`, check BIOS and kernel settings",
    abi.LIBRARY_NOT_FOUND: "NVIDIA driver library not found (libnvidia-ml.so.1). Is the driver installed?",
    abi.FUNCTION_NOT_FOUND: "this driver is too old for that function",
    abi.CORRUPTED_INFOROM: "the GPU's infoROM is corrupted: have the board serviced",
    abi.GPU_IS_LOST: "GPU is lost: it has fallen off the bus (see Xid 79 in `dmesg`); reset the GPU or reboot",
    abi.RESET_REQUIRED: "GPU needs a reset: end its processes, then `nvidia-smi -r` as root",
    abi.OPERATING_SYSTEM: "the operating system denies access to the GPU (container, job or rights of /dev/nvidia*)",
    abi.LIB_RM_VERSION_MISMATCH: "the driver's kernel module and its library differ: reboot or reload the modules",
    abi.IN_USE: "the GPU is in use by another program",
    abi.MEMORY: "the driver is out of memory",
    abi.INSUFFICIENT_RESOURCES: "the driver is out of resources",
    abi.NOT_READY: "the GPU is not ready yet; trying again",
    abi.GPU_NOT_FOUND: "no GPU was found",
    abi.INVALID_STATE: "the GPU is in the wrong state for this; trying again",
    abi.UNKNOWN: "the driver answers 'unknown error'; see `dmesg`",
}

_IN_CONTAINER: Final = {
    abi.DRIVER_NOT_LOADED: "; in a container start it with `--gpus all`",
    abi.LIBRARY_NOT_FOUND: " In a container start it with `--gpus all` (utility capability).",
    abi.OPERATING_SYSTEM: "; in a container start it with `--gpus all`",
    abi.NO_PERMISSION: "; in a container start it with `--gpus all`",
    abi.UNKNOWN: "; this is a container: restart it (`systemctl daemon-reload` on the host takes its GPUs away)",
}

_EXIT_STATUS: Final = {
    abi.LIBRARY_NOT_FOUND: 3,
    abi.DRIVER_NOT_LOADED: 4,
    abi.LIB_RM_VERSION_MISMATCH: 5,
    abi.NO_PERMISSION: 6,
    abi.OPERATING_SYSTEM: 6,
    abi.GPU_NOT_FOUND: 7,
    abi.NOT_FOUND: 7,
}


def in_container(root: Path = Path("/")) -> bool:
    """Whether gputop runs in a container: the marks of Docker and Podman, or a container's cgroup."""
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists() or os.environ.get("container"):  # noqa: SIM112 (systemd-nspawn, podman)
        return True
    try:
        cgroup = (root / "proc/self/cgroup").read_text()
    except OSError:
        return False
    return re.search(r"docker|libpod-|kubepods|/lxc|containerd", cgroup) is not None


def explain(code: int, about: str = "", container: bool | None = None) -> str:
    """*code* in words, with what to do; *about* says of what ("GPU 3"). An unknown code keeps its number."""
    words = _WORDS.get(code, f"the driver answers error {code}")
    if code in _IN_CONTAINER and (in_container() if container is None else container):
        words += _IN_CONTAINER[code]
    return f"{about}: {words}" if about else words


def source_error(code: int, more: str = "") -> SourceError:
    """What to raise when *code* concerns the whole driver; *more* is what else is known."""
    words = f"{explain(code)} ({more})" if more else explain(code)
    return SourceError(words, exit_status=_EXIT_STATUS.get(code, 8), transient=code != abi.LIBRARY_NOT_FOUND)


def no_gpus() -> SourceError:
    """For consumers that cannot wait for a GPU to appear (``--once``) when :meth:`Source.count` is 0."""
    words = "the NVIDIA driver runs but counts no GPU: see `nvidia-smi -L` and `lspci -d 10de:`"
    if in_container():
        words += "; in a container start it with `--gpus all`"
    return SourceError(words, exit_status=7)
