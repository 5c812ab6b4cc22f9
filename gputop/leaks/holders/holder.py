"""Who holds NVIDIA devices open, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gputop.model import HostFacts, ProcessKey


class HeldDevice(NamedTuple):
    """An NVIDIA device that a process has open or mapped."""

    path: str  # "/dev/nvidia3", whatever its name is where the process opened it
    minor: int | None  # N of /dev/nvidiaN (GpuFacts.minor_number); None for nvidiactl, nvidia-uvm…
    descriptors: tuple[int, ...]  # empty: only mapped
    mapped: bool = False

    @property
    def open_as(self) -> str:
        """ "fd 41", "fd 11, 12, 13 and 20 more" (CUDA opens a device two dozen times); "mapped" where there is none."""
        if not self.descriptors:
            return "mapped"
        more = f" and {len(self.descriptors) - 3} more" if len(self.descriptors) > 3 else ""
        return f"fd {', '.join(map(str, self.descriptors[:3]))}{more}"


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has an NVIDIA device open: GPU memory lives as long as any of these does."""

    facts: HostFacts
    devices: tuple[HeldDevice, ...]
    benign: str | None = None  # why it is none to worry about: "a monitor", "the display server"

    @property
    def key(self) -> ProcessKey:
        return self.facts.key

    def device(self, minor: int) -> HeldDevice | None:
        """/dev/nvidiaN, where it has that open or mapped."""
        return next((device for device in self.devices if device.minor == minor), None)


@dataclass(frozen=True, slots=True)
class HolderScan:
    """One look at the open files of all processes."""

    taken_at: float
    took: float  # seconds
    holders: tuple[Holder, ...]
    inspected: int  # processes whose open files could be read
    denied: tuple[tuple[str, int], ...] = ()  # (user, number of processes that were not permitted), most first
    hidden: bool = False  # others' processes are not even listed (hidepid)
    with_maps: bool = False  # memory maps were read too
    own_namespace: bool = False  # only the processes of this PID namespace were there to look at
    late: tuple[int, ...] = ()  # pids that did not answer: a file on a server that is away, a lock that is held
    cut_short: bool = False  # it took too long (a hanging network file system) and was ended

    @property
    def denied_count(self) -> int:
        return sum(count for _, count in self.denied)

    @property
    def complete(self) -> bool:
        return not (self.denied or self.hidden or self.own_namespace or self.cut_short or self.late)

    def summary(self) -> str:
        """What was looked at and what was not: "412 processes inspected, 37 of root not permitted: run as root"."""
        said = "the scan took too long and was stopped" if self.cut_short else f"{self.inspected} processes inspected"
        if self.denied:
            named = ", ".join(f"{count} of {user}" for user, count in self.denied[:3])
            more = sum(count for _, count in self.denied[3:])
            said += f", {named}{f' and {more} of others' if more else ''} not permitted: run gputop as root"
        if self.late:
            said += f", no answer from pid {', '.join(map(str, self.late[:4]))}{', …' if len(self.late) > 4 else ''}"
        if self.hidden:
            said += ", other users' processes are hidden (hidepid): run gputop as root"
        if self.own_namespace:
            said += ", none outside this container: run gputop on the host"
        return said
