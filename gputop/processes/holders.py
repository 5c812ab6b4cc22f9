"""Who holds NVIDIA devices open: GPU memory lives as long as the last descriptor or mapping of its device does.

The driver lists the process that *opened* a device. Forked children keep the descriptor, so they keep the memory of a
parent that was killed, and no list of the driver names them (facts/nvml.md §2.5, §4.2; facts/h200.md).
"""

from __future__ import annotations

import os
import re
import stat as stat_bits
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from gputop.model import HostFacts
from gputop.processes.devices import NvidiaDevices
from gputop.processes.followed import Users
from gputop.processes.host import pids_are_host
from gputop.processes.proc_stat import Stat, read_stat
from gputop.processes.report import HeldDevice, Holder, HolderScan

#: The scan works this long and then rests, so that it never takes more than part of a core.
WORK_SECONDS: Final = 0.004
REST_SECONDS: Final = 0.001

#: Programs that hold devices because that is their job, by the start of their name (comm has 15 characters).
_BENIGN: Final = (
    (
        re.compile(r"nvidia-persiste|nvidia-powerd|nv-fabricmanage|nvidia-(fabricma|imex)"),
        "a daemon of the driver",
    ),
    (re.compile(r"nv-hostengine|dcgm|nvidia-smi|nvtop|nvitop|gpustat|btop|gputop|nvidia_gpu_expo"), "a monitor"),
    (
        re.compile(r"Xorg|Xwayland|X$|gnome-shell|kwin|plasmashell|sway$|Hyprland|weston"),
        "a display server",
    ),
    (re.compile(r"nvidia-cuda-mps"), "the MPS service, which holds its clients' contexts"),
)
_SCRIPT: Final = re.compile(r"python[\d.]*(?: -\S+)* (?:-m )?(\S+)")

FactsOf = Callable[[int, Stat], HostFacts]


class HolderScanner:
    """Looks at the open files of all processes, by device number and not by name: inside containers the nodes may have
    other names. Slow (up to 2 s with 5 000 processes), so for a thread of its own; safe to be called from any."""

    def __init__(
        self,
        facts_of: FactsOf,
        proc: Path | str = "/proc",
        devices: NvidiaDevices | None = None,
        rest: float = REST_SECONDS,
    ) -> None:
        """*facts_of* reads the facts of a process found to be a holder."""
        self._facts_of = facts_of
        self._proc = str(proc)
        self._devices = devices or NvidiaDevices(proc)
        self._rest = rest
        self._users = Users()

    def scan(self, with_maps: bool = False) -> HolderScan:
        """Look once. With *with_maps* also for devices that are mapped only, which takes several times as long."""
        taken_at, started = time.time(), time.perf_counter()
        judge = self._devices.judge()
        look = _Look(judge)
        found: list[Holder] = []
        denied: Counter[int] = Counter()
        inspected = 0
        for pid in self._paced():
            try:
                if look.holds(f"{self._proc}/{pid}") or (with_maps and self._maps(pid, judge)):
                    holder = self._holder(int(pid), look, judge)
                    if holder is not None:
                        found.append(holder)
                inspected += 1
            except PermissionError:
                seen = read_stat(f"{self._proc}/{pid}/stat")
                if seen is None or seen.is_kernel_thread or (seen.state in "ZX" and seen.threads <= 1):
                    continue  # gone, or holds nothing
                try:
                    denied[os.stat(f"{self._proc}/{pid}").st_uid] += 1
                except OSError:
                    continue  # gone
            except (OSError, ValueError):
                continue  # gone
        return HolderScan(
            taken_at=taken_at,
            took=time.perf_counter() - started,
            holders=tuple(found),
            inspected=inspected,
            denied=tuple((self._users.name(uid) or str(uid), count) for uid, count in denied.most_common()),
            hidden=not os.path.exists(f"{self._proc}/1"),
            with_maps=with_maps,
            own_namespace=pids_are_host(self._proc) is False,
        )

    def _paced(self) -> Iterator[str]:
        """The pids, with a rest now and then."""
        began = time.perf_counter()
        for name in os.listdir(self._proc):
            if name.isdecimal():
                yield name
                if self._rest and time.perf_counter() - began > WORK_SECONDS:
                    time.sleep(self._rest)
                    began = time.perf_counter()

    def _maps(self, pid: str, judge: Callable[[int], bool]) -> bool:
        """Whether a device is mapped. Not asked of a process in state D: the answer could wait as long as it does."""
        seen = read_stat(f"{self._proc}/{pid}/stat")
        if seen is None or seen.state in "DZX" or seen.is_kernel_thread:
            return False
        return bool(_mapped(f"{self._proc}/{pid}", judge))

    def _holder(self, pid: int, look: _Look, judge: Callable[[int], bool]) -> Holder | None:
        """All it holds, read again and only believed where it was the same process before and after."""
        root = f"{self._proc}/{pid}"
        before = read_stat(f"{root}/stat")
        if before is None:
            return None
        held: dict[int, tuple[str, list[int]]] = {}
        for descriptor, path, device in look.devices(root):
            held.setdefault(device, (self._devices.name_of(device, path), []))[1].append(descriptor)
        mapped = _mapped(root, judge) if before.state not in "DZX" else {}
        after = read_stat(f"{root}/stat")
        if after is None or after.start_ticks != before.start_ticks or not (held or mapped):
            return None
        for device, path in mapped.items():
            held.setdefault(device, (self._devices.name_of(device, path), []))
        devices = [
            HeldDevice(path, self._devices.minor_of(device), tuple(sorted(numbers)), device in mapped)
            for device, (path, numbers) in held.items()
        ]
        facts = self._facts_of(pid, after)
        return Holder(facts, tuple(sorted(devices, key=lambda one: (one.minor is None, one.path))), benign(facts))


def benign(facts: HostFacts) -> str | None:
    """Why holding a device is this program's job; None where it is not."""
    if facts.key.pid == os.getpid():
        return "gputop itself"
    names = [facts.name or ""]
    script = _SCRIPT.match(_last_part(facts.command or ""))
    if script is not None:
        names.append(_last_part(script[1]))
    for pattern, words in _BENIGN:
        if any(pattern.match(name) for name in names):
            return words
    return None


def _last_part(command: str) -> str:
    """*command* without the directories of its program."""
    program, space, rest = command.partition(" ")
    return program.rpartition("/")[2] + space + rest


class _Look:
    """One pass over descriptors, which remembers what kind of file a path outside /dev is: a log that a hundred
    processes write is looked at once (and looking at a file may ask a server for it)."""

    def __init__(self, judge: Callable[[int], bool]) -> None:
        self._judge = judge
        self._no_device: set[str] = set()

    def holds(self, root: str) -> bool:
        """Whether any descriptor of the process at *root* is one of NVIDIA's. Raises OSError."""
        return next(self.devices(root), None) is not None

    def devices(self, root: str) -> Iterator[tuple[int, str, int]]:
        """(descriptor, path, device number) of NVIDIA's among its descriptors. Files elsewhere than under /dev are
        looked at only where there is none under it. Raises OSError."""
        names, found = self._in(f"{root}/fd")
        if not names:  # a dead first thread has no files, its living siblings have them; a kernel thread has neither
            for task in os.listdir(f"{root}/task")[1:]:
                try:
                    _, found = self._in(f"{root}/task/{task}/fd")
                except (FileNotFoundError, ProcessLookupError):
                    continue  # that thread is gone
                if found:
                    break
        yield from found

    def _in(self, path: str) -> tuple[list[str], list[tuple[int, str, int]]]:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            names = os.listdir(folder)
            return names, list(self._among(folder, names))
        finally:
            os.close(folder)

    def _among(self, folder: int, names: list[str]) -> Iterator[tuple[int, str, int]]:
        elsewhere: list[tuple[str, str]] = []
        none_under_dev = True
        seen: dict[str, int | None] = {}
        for name in names:
            try:
                path = os.readlink(name, dir_fd=folder)
            except OSError:
                continue  # closed meanwhile
            if path.startswith("/dev/"):
                if path not in seen:
                    seen[path] = self._device(folder, name)
                if (device := seen[path]) is not None:
                    none_under_dev = False
                    yield int(name), path, device
            elif path.startswith("/") and path not in self._no_device:
                elsewhere.append((name, path))
        if none_under_dev:
            for name, path in elsewhere:
                if (device := self._device(folder, name)) is not None:
                    yield int(name), path, device
                else:
                    self._no_device.add(path)

    def _device(self, folder: int, name: str) -> int | None:
        """The number of the file if it is one of NVIDIA's devices."""
        try:
            status = os.stat(name, dir_fd=folder)
        except OSError:
            return None  # closed meanwhile
        return status.st_rdev if stat_bits.S_ISCHR(status.st_mode) and self._judge(status.st_rdev) else None


def _mapped(root: str, judge: Callable[[int], bool]) -> dict[int, str]:
    """Device number and path of what is mapped from under /dev. A mapping outlives the descriptor."""
    paths: set[str] = set()
    found: dict[int, str] = {}
    try:
        with open(f"{root}/maps", "rb") as file:
            for line in file:
                at = line.find(b" /dev/")
                if at >= 0 and not line.startswith(b"/dev/shm", at + 1):
                    paths.add(os.fsdecode(line[at + 1 : -1]))
    except OSError:
        return found
    for path in paths:
        try:
            status = os.stat(f"{root}/root{path}")
        except OSError:
            continue
        if stat_bits.S_ISCHR(status.st_mode) and judge(status.st_rdev):
            found[status.st_rdev] = path
    return found
