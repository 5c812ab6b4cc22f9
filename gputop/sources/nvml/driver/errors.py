"""What NVML's return codes mean: NVML's own sentence, ours with what to do about it, and what a caller does with it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from gputop.sources.nvml.driver import abi
from gputop.sources.source import SourceError


class NvmlError(Exception):
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

#: What nvmlErrorString says, read from driver 580.159 on an H200 (docs/nvml-quirks.md §1): what people search for.
NVML_MESSAGES: Final = {
    abi.UNINITIALIZED: "Uninitialized",
    abi.INVALID_ARGUMENT: "Invalid Argument",
    abi.NOT_SUPPORTED: "Not Supported",
    abi.NO_PERMISSION: "Insufficient Permissions",
    abi.ALREADY_INITIALIZED: "Already Initialized",
    abi.NOT_FOUND: "Not Found",
    abi.INSUFFICIENT_SIZE: "Insufficient Size",
    abi.INSUFFICIENT_POWER: "Insufficient External Power",
    abi.DRIVER_NOT_LOADED: "Driver Not Loaded",
    abi.TIMEOUT: "Timeout",
    abi.IRQ_ISSUE: "Interrupt Request Issue",
    abi.LIBRARY_NOT_FOUND: "NVML Shared Library Not Found",
    abi.FUNCTION_NOT_FOUND: "Function Not Found",
    abi.CORRUPTED_INFOROM: "Corrupted infoROM",
    abi.GPU_IS_LOST: "GPU is lost",
    abi.RESET_REQUIRED: "GPU requires reset",
    abi.OPERATING_SYSTEM: "GPU access blocked by the operating system",
    abi.LIB_RM_VERSION_MISMATCH: "Driver/library version mismatch",
    abi.IN_USE: "In use by another client",
    abi.MEMORY: "Insufficient Memory",
    abi.NO_DATA: "No data",
    abi.VGPU_ECC_NOT_SUPPORTED: "vGPU ECC not supported",
    abi.INSUFFICIENT_RESOURCES: "Insufficient Resources",
    abi.FREQ_NOT_SUPPORTED: "Invalid Frequency",
    abi.ARGUMENT_VERSION_MISMATCH: "Argument version mismatch",
    abi.DEPRECATED: "Requested functionality has been deprecated",
    abi.NOT_READY: "System is not in ready state",
    abi.GPU_NOT_FOUND: "No supported GPUs were found",
    abi.INVALID_STATE: "Resource not in correct state to perform requested operation",
    abi.RESET_TYPE_NOT_SUPPORTED: "Reset type is not supported for given device",
}
NVML_UNKNOWN: Final = "Unknown Error"  # its answer to every other code

_EXPLANATIONS: Final = {
    abi.UNINITIALIZED: "the connection to the driver was lost; reconnecting",
    abi.INVALID_ARGUMENT: "the driver no longer knows this GPU or MIG instance; looking for it again",
    abi.NOT_SUPPORTED: "not supported by this GPU or driver",
    abi.NO_PERMISSION: "no permission; run as root, or ask for access to /dev/nvidia*",
    abi.NOT_FOUND: "not found",
    abi.INSUFFICIENT_POWER: "the external power cables are not properly connected: check them",
    abi.DRIVER_NOT_LOADED: "the NVIDIA kernel driver is not running; try `nvidia-smi`, or `modprobe nvidia` as root",
    abi.TIMEOUT: "the driver did not answer in time",
    abi.IRQ_ISSUE: "interrupts from this GPU do not arrive (IRQ issue): see `dmesg`, check BIOS and kernel settings",
    abi.LIBRARY_NOT_FOUND: "the NVIDIA driver library libnvidia-ml.so.1 was not found: is the driver installed?",
    abi.FUNCTION_NOT_FOUND: "this driver is too old for that function",
    abi.CORRUPTED_INFOROM: "the GPU's infoROM is corrupted: have the board serviced",
    abi.GPU_IS_LOST: "GPU is lost: it has fallen off the bus (see Xid 79 in `dmesg`); reset the GPU or reboot",
    abi.RESET_REQUIRED: "GPU needs a reset: end its processes, then `nvidia-smi -r` as root",
    abi.OPERATING_SYSTEM: "the operating system denies access to the GPU (container, job or permissions of "
    "/dev/nvidia*)",
    abi.LIB_RM_VERSION_MISMATCH: "the driver's kernel module and its library differ: reboot or reload the modules",
    abi.IN_USE: "the GPU is in use by another program",
    abi.MEMORY: "the driver is out of memory",
    abi.INSUFFICIENT_RESOURCES: "the driver is out of resources",
    abi.NOT_READY: "the GPU is not ready yet; trying again",
    abi.GPU_NOT_FOUND: "no GPU was found",
    abi.INVALID_STATE: "the GPU is in the wrong state for this; trying again",
    abi.UNKNOWN: "the driver answers 'unknown error'; see `dmesg`",
}

_START_WITH_GPUS: Final = "; in a container, start it with `--gpus all`"
_IN_CONTAINER: Final = {
    abi.DRIVER_NOT_LOADED: _START_WITH_GPUS,
    abi.LIBRARY_NOT_FOUND: " In a container, start it with `--gpus all` and the utility capability",
    abi.OPERATING_SYSTEM: _START_WITH_GPUS,
    abi.NO_PERMISSION: _START_WITH_GPUS,
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


def nvml_message(code: int) -> str:
    """NVML's own sentence for *code*; nvmlErrorString needs a loaded library, this does not."""
    return NVML_MESSAGES.get(code, NVML_UNKNOWN)


def _explanation(code: int, container: bool | None) -> str:
    message = _EXPLANATIONS.get(code, f"the driver answers error {code}")
    if code in _IN_CONTAINER and (in_container() if container is None else container):
        message += _IN_CONTAINER[code]
    return message


def explain(code: int, about: str = "", container: bool | None = None) -> str:
    """What *code* means and what to do, with NVML's own sentence where ours does not have it in it; *about* says of
    what ("GPU 3"). An unknown code keeps its number."""
    message, nvml = _explanation(code, container), nvml_message(code)
    if nvml.lower() not in message.lower():
        message += f" (NVML: {nvml})"
    return f"{about}: {message}" if about else message


def source_error(code: int, more: str = "", initializing: bool = False) -> SourceError:
    """What to raise when *code* concerns the whole driver; *more* is what else is known. *initializing*: nvmlInit
    gave it, and nvidia-smi would end with the same "Failed to initialize NVML: ..."."""
    message = _explanation(code, None)
    beside = [f"{'Failed to initialize ' if initializing else ''}NVML: {nvml_message(code)}", more]
    message += f" ({'; '.join(filter(None, beside))})"
    return SourceError(message, exit_status=_EXIT_STATUS.get(code, 8), transient=code != abi.LIBRARY_NOT_FOUND)


def no_gpus() -> SourceError:
    """For consumers that cannot wait for a GPU to appear (``--once``) when :meth:`Source.count` is 0. It begins with
    the sentence of nvidia-smi."""
    message = "No devices were found: the NVIDIA driver runs but lists no GPU; see `nvidia-smi -L` and `lspci -d 10de:`"
    return SourceError(message + (_START_WITH_GPUS if in_container() else ""), exit_status=7)
