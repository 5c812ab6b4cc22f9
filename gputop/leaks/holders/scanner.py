"""Who holds NVIDIA devices open: GPU memory lives as long as the last descriptor or mapping of its device does.

The driver lists the process that *opened* a device. Forked children keep the descriptor, so they keep the memory of a
parent that was killed, and no list of the driver names them (docs/leak-rules.md).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from gputop.leaks.holders import probe as holder_probe
from gputop.leaks.holders.holder import HeldDevice, Holder, HolderScan
from gputop.model import HostFacts, steady_time
from gputop.procfs.devices import NvidiaDevices
from gputop.procfs.lookups import Lookups
from gputop.procfs.machine import pids_are_host
from gputop.procfs.stat import Stat, read_stat
from gputop.procfs.user_names import UserNames

PATIENCE: Final = 20.0  # seconds a scan may take
HOLDER_SECONDS: Final = 1.0  # a second look at one holder may take
#: In a thread of gputop's own the scan works this long and then rests.
WORK_SECONDS: Final = 0.004
REST_SECONDS: Final = 0.001

#: Programs that hold devices because that is their job, by the start of their name (comm has 15 characters).
_BENIGN: Final = (
    (
        re.compile(r"nvidia-persiste|nvidia-powerd|nv-fabricmanage|nvidia-(fabricma|imex)"),
        "a driver daemon",
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
        lookups: Lookups | None = None,
    ) -> None:
        """*facts_of* reads the facts of a process found to be a holder."""
        self._facts_of = facts_of
        self._proc = str(proc)
        self._devices = devices or NvidiaDevices(proc)
        self._lookups = lookups or Lookups()
        self._users = UserNames(self._lookups)

    def scan(self, with_maps: bool = False) -> HolderScan:
        """Look once. With *with_maps* also for devices that are mapped only, which takes twice as long."""
        taken_at, started = steady_time(), time.perf_counter()
        judge = self._devices.judge()
        found: list[Holder] = []
        inspected, denied, complete, late = 0, Counter[int](), False, list[int]()
        lines = partial(self._lines, with_maps)
        for line in self._lookups.one(("scan", id(self), with_maps), lambda: list(lines()), (), PATIENCE + 1):
            word, first, *others = line.split()
            if word == "holder":
                pid = int(first)
                key = "holder", pid
                answers = self._lookups.ask({key: partial(self._holder, pid, judge)}, HOLDER_SECONDS)
                if key not in answers:
                    late.append(pid)
                elif answers[key] is not None:
                    found.append(answers[key])
            elif word == "late":
                late.append(int(first))
            else:
                complete, inspected = True, int(first)
                denied.update({int(uid): int(count) for uid, count in (other.split("=") for other in others)})
        return HolderScan(
            taken_at=taken_at,
            took=time.perf_counter() - started,
            holders=tuple(found),
            inspected=inspected,
            denied=tuple((self._users.name(uid) or str(uid), count) for uid, count in denied.most_common()),
            hidden=not os.path.exists(f"{self._proc}/1"),
            with_maps=with_maps,
            own_namespace=pids_are_host(self._proc) is False,
            late=tuple(late),
            cut_short=not complete,
        )

    def _lines(self, with_maps: bool) -> Iterator[str]:
        """What :mod:`~gputop.leaks.holders.probe` says: as a program of its own, or in this thread where none can be
        started."""
        numbers = self._devices.numbers()
        if numbers is not None and sys.executable and os.path.exists(holder_probe.__file__):
            majors, devices = (",".join(map(str, some)) for some in numbers)
            command = [sys.executable, "-I", "-S", holder_probe.__file__]
            command += [self._proc, "maps" if with_maps else "", majors, devices]
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
            except OSError:
                pass
            else:
                yield from _bounded(process)
                return
        yield from holder_probe.probe(self._proc, self._devices.judge(), with_maps, _rests())

    def _holder(self, pid: int, judge: Callable[[int], bool]) -> Holder | None:
        """All it holds, read again and only believed where it was the same process before and after."""
        root = f"{self._proc}/{pid}"
        before = read_stat(f"{root}/stat")
        if before is None:
            return None
        held: dict[int, tuple[str, list[int]]] = {}
        for descriptor, path, device in holder_probe.DescriptorScan(judge).devices(root):
            held.setdefault(device, (self._devices.name_of(device, path), []))[1].append(descriptor)
        mapped = holder_probe.mapped(root, judge) if before.state not in "DZX" else {}
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


def _bounded(process: subprocess.Popen[str]) -> Iterator[str]:
    """The lines it writes, until it has taken too long: a file on a network file system may keep it waiting."""
    late = threading.Timer(PATIENCE, process.kill)
    late.daemon = True
    late.start()
    try:
        with process:
            assert process.stdout is not None
            yield from process.stdout
    finally:
        late.cancel()


def _rests() -> Callable[[], None]:
    """A rest now and then, for the work in this process's own thread."""
    began = time.perf_counter()

    def rest() -> None:
        nonlocal began
        if time.perf_counter() - began > WORK_SECONDS:
            time.sleep(REST_SECONDS)
            began = time.perf_counter()

    return rest


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
