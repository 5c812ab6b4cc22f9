"""Which NVIDIA devices a process holds open: whoever holds GPU memory holds one."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from gputop.model import clean_text

#: The character device major of /dev/nvidia0…, nvidiactl and nvidia-modeset (NVIDIA's nv-linux.h).
NVIDIA_MAJOR: Final = 195
_SPECIAL_MINORS: Final = {254: "/dev/nvidia-modeset", 255: "/dev/nvidiactl"}
#: Names in /proc/devices of majors given out when a module is loaded; nvhost and nvgpu are Jetson's.
_DRIVER_NAMES: Final = (b"nvidia", b"nvgpu", b"nvhost")


class NvidiaDevices:
    """NVIDIA's devices of this host, told by their numbers: inside containers the nodes may have other names."""

    def __init__(
        self,
        proc: Path | str = "/proc",
        control: Path | str = "/dev/nvidiactl",
        is_nvidia: Callable[[int], bool] | None = None,
        gpus: Mapping[int, int] | None = None,
    ) -> None:
        """*is_nvidia* judges an ``st_rdev`` in place of this host's device numbers; the driver then counts as there.
        *gpus* does it too, and says which is N of /dev/nvidiaN: stand-ins for tests."""
        self._proc = str(proc)
        self._control = str(control)
        self._gpus = gpus
        self._is_nvidia = gpus.__contains__ if gpus is not None else is_nvidia

    def present(self) -> bool:
        """Whether the real driver is on this host, whatever answers for NVML. (WSL has no such devices.)"""
        if self._is_nvidia is not None:
            return True
        try:
            status = os.stat(self._control)
            if stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(NVIDIA_MAJOR, 255):
                return True
        except OSError:
            pass
        return bool(self._majors())

    def held_by(self, process: int, with_maps: bool = True) -> tuple[str, ...] | None:
        """Paths of the NVIDIA devices held by the process whose /proc/PID is open as descriptor *process*.

        None where it cannot be told: not permitted, gone, or nothing was found among its files and *with_maps* is
        False (reading maps waits for the process's memory lock, which a thread stuck in the driver may hold).
        May take milliseconds, and longer where it has files open on a network file system that hangs.
        """
        judge = self.judge()
        try:
            if held := _held_in("fd", process, judge):
                return held
            # /proc/PID/fd of a dead main thread is empty; /proc/PID/task/*/fd of its living threads is not.
            for task in _names_in("task", process):
                try:
                    if held := _held_in(f"task/{task}/fd", process, judge):
                        return held
                except (FileNotFoundError, ProcessLookupError):
                    continue  # that thread is gone
            if not with_maps:
                return None
            return ("/dev/nvidia* (mapped)",) if _maps_nvidia(process) else ()
        except OSError:
            return None

    def minor_of(self, device: int) -> int | None:
        """N where ``st_rdev`` *device* is /dev/nvidiaN; None for nvidiactl, nvidia-uvm and what is none of NVIDIA's."""
        if self._gpus is not None:
            return self._gpus.get(device)
        minor = os.minor(device)
        return minor if os.major(device) == NVIDIA_MAJOR and minor not in _SPECIAL_MINORS else None

    def name_of(self, device: int, path: str) -> str:
        """The usual path of a device on the host; *path* is the one the process opened it by."""
        minor = self.minor_of(device)
        return device_name(device, path) if minor is None else f"/dev/nvidia{minor}"

    def numbers(self) -> tuple[frozenset[int], frozenset[int]] | None:
        """(majors, ``st_rdev`` of single devices) that are NVIDIA's; None where only a function can tell."""
        if self._gpus is not None:
            return frozenset(), frozenset(self._gpus)
        return None if self._is_nvidia is not None else (self._majors() | {NVIDIA_MAJOR}, frozenset())

    def judge(self) -> Callable[[int], bool]:
        """Tells of an ``st_rdev`` whether it is one of NVIDIA's, as of now."""
        if self._is_nvidia is not None:
            return self._is_nvidia
        majors = self._majors() | {NVIDIA_MAJOR}
        return lambda device: os.major(device) in majors

    def _majors(self) -> frozenset[int]:
        """Majors of NVIDIA's character devices in /proc/devices."""
        majors = set()
        try:
            with open(f"{self._proc}/devices", "rb") as file:
                for line in file:
                    if line.startswith(b"Block"):
                        break
                    number, _, name = line.strip().partition(b" ")
                    if number.isdigit() and name.startswith(_DRIVER_NAMES):
                        majors.add(int(number))
        except OSError:
            pass
        return frozenset(majors)


def device_name(device: int, path: str) -> str:
    """The usual path of a device on the host; *path* is the one the process opened it by."""
    if os.major(device) != NVIDIA_MAJOR:
        return clean_text(path, limit=256)
    minor = os.minor(device)
    return _SPECIAL_MINORS.get(minor, f"/dev/nvidia{minor}")


def _held_in(directory: str, process: int, judge: Callable[[int], bool]) -> tuple[str, ...]:
    """Those among the links of a directory of descriptors. Files elsewhere than under /dev are looked at only where
    nothing was found there: looking at a file may ask a server for it."""
    links = [(name, path) for name, path in _links(directory, process) if path.startswith("/")]
    for under_dev in (True, False):
        held: set[str] = set()
        for name, path in links:
            if path.startswith("/dev/") is under_dev:
                try:
                    status = os.stat(f"{directory}/{name}", dir_fd=process)
                except OSError:
                    continue  # closed meanwhile
                if stat.S_ISCHR(status.st_mode) and judge(status.st_rdev):
                    held.add(device_name(status.st_rdev, path))
        if held:
            return tuple(sorted(held))
    return ()


def _links(directory: str, process: int) -> Iterator[tuple[str, str]]:
    for name in _names_in(directory, process):
        try:
            yield name, os.readlink(f"{directory}/{name}", dir_fd=process)
        except (FileNotFoundError, ProcessLookupError):
            continue  # closed meanwhile


def _names_in(directory: str, process: int) -> list[str]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY, dir_fd=process)
    try:
        return os.listdir(descriptor)
    finally:
        os.close(descriptor)


def _maps_nvidia(process: int) -> bool:
    """Whether it has device memory mapped (a mapping outlives the descriptor)."""
    with open(os.open("maps", os.O_RDONLY, dir_fd=process), "rb") as file:
        return any(b" /dev/nvidia" in line for line in file)
