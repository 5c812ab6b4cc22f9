"""What is known of this process's CUDA memory: the devices as sampled last, steps and phases, peaks.

The monitor drives it; the OOM report and the publisher read it.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from gputop.torch_monitor.allocator import Allocator, DeviceMemory

KEPT_STEPS: Final = 512


class Phase(NamedTuple):
    """A part of a step. Bytes are allocated ones, by torch's device index."""

    name: str
    seconds: float
    peak_bytes: dict[int, int]
    kept_bytes: dict[int, int]  # allocated at its end minus at its beginning


class Step(NamedTuple):
    """What one step left behind."""

    number: int
    at: float  # epoch seconds
    seconds: float
    devices: tuple[DeviceMemory, ...]
    peak_bytes: dict[int, int]  # most allocated within the step, by torch's device index
    phases: tuple[Phase, ...]
    labels: dict[str, Any]


class _Open:
    """A phase, or the step, while it lasts."""

    __slots__ = ("began", "name", "peak", "start")

    def __init__(self, name: str, began: float, allocated: dict[int, int]) -> None:
        self.name, self.began = name, began
        self.start, self.peak = dict(allocated), dict(allocated)


class MemoryTracker:
    """Samples the allocator when its subclass says so. Used by one thread, the training loop's."""

    def __init__(self, devices: Sequence[int] | None, exact_peaks: bool, directory: str | Path | None) -> None:
        self.allocator = Allocator()
        self.history: deque[Step] = deque(maxlen=KEPT_STEPS)
        self.peak: dict[int, int] = {}  # most allocated since reset_peak(), by torch's device index
        self.newest: tuple[DeviceMemory, ...] = ()  # the devices as they were sampled last
        self.steps = 0
        self.labels: dict[str, Any] = {}  # of the newest step
        self.recording = False
        self.directory = Path(directory) if directory is not None else state_directory()
        self._devices = None if devices is None else tuple(devices)
        self._active: tuple[int, ...] = ()
        self._exact = exact_peaks
        self._limits: dict[int, int | None] = {}
        self._torch_peak: dict[int, int] = {}
        self._allocated: dict[int, int] = {}
        self._open: list[_Open] = []
        self._done: list[Phase] = []
        self._step = _Open("", time.perf_counter(), {})

    @property
    def phase_now(self) -> str | None:
        return self._open[-1].name if self._open else None

    def limit(self, device: int) -> int | None:
        """Bytes that may be allocated on *device*; None: not known."""
        if device not in self._limits:
            self._limits[device] = self.allocator.total_bytes(device)
        return self._limits[device]

    def start_recording(self) -> None:
        """Have torch record its allocations. Raises Unsupported, RuntimeError in words."""
        self.allocator.start_history()
        self.recording = True

    def stop_recording(self) -> None:
        self.allocator.stop_history()
        self.recording = False

    def dump(self, reason: str = "asked") -> Path:
        """Write a memory snapshot and return where. Raises Unsupported, OSError, RuntimeError in words."""
        return self.allocator.dump(self.directory, reason)

    # -- sampling

    def _end_step(self, now: float, labels: dict[str, Any]) -> Step:
        """*now*: by ``time.perf_counter()``."""
        devices, begun = self._sample(), self._step
        self.steps += 1
        self.labels = labels
        step = Step(self.steps, time.time(), now - begun.began, devices, begun.peak, tuple(self._done), labels)
        self.history.append(step)
        self._done = []
        self._step = _Open("", now, self._allocated)
        return step

    def _open_phase(self, name: str) -> None:
        self._open.append(_Open(name, time.perf_counter(), self._allocated))

    def _end_phase(self) -> None:
        phase = self._open.pop()
        kept = {device: bytes_ - phase.start.get(device, 0) for device, bytes_ in self._allocated.items()}
        self._done.append(Phase(phase.name, time.perf_counter() - phase.began, phase.peak, kept))

    def _forget_peaks(self) -> None:
        """Torch's own too."""
        for device in self._active:
            self.allocator.reset_peaks(device)
        self._torch_peak = {}
        self.peak = {}
        self._sample()

    def _find_devices(self) -> None:
        """Those asked for; else those that hold or held memory: each costs a call a sample."""
        if self._devices is not None:
            self._active = self._devices
            return
        known = set(self._active)
        for device in range(self.allocator.count()):
            if device not in known and (memory := self.allocator.read(device)) is not None and memory.peak_bytes:
                known.add(device)
        self._active = tuple(sorted(known))

    def _sample(self) -> tuple[DeviceMemory, ...]:
        if not self._active:  # nothing was allocated yet when it was looked for
            self._find_devices()
        found = []
        for device in self._active:
            memory = self.allocator.read(device)
            if memory is None:
                continue
            found.append(memory)
            most = memory.allocated_bytes
            if memory.peak_bytes > self._torch_peak.get(device, 0):  # it rose since the last sample: the true one
                most = memory.peak_bytes
            self._torch_peak[device] = memory.peak_bytes
            if self._exact and self.allocator.reset_peaks(device):
                self._torch_peak[device] = memory.allocated_bytes
            self._allocated[device] = memory.allocated_bytes
            if most > self.peak.get(device, 0):
                self.peak[device] = most
            if most > self._step.peak.get(device, 0):
                self._step.peak[device] = most
            for phase in self._open:
                if most > phase.peak.get(device, 0):
                    phase.peak[device] = most
        self.newest = tuple(found)
        return self.newest


def state_directory() -> Path:
    """``$XDG_STATE_HOME/gputop/snapshots``; it need not exist. Without a home directory, a new temporary one."""
    if told := os.environ.get("XDG_STATE_HOME"):
        return Path(told) / "gputop" / "snapshots"
    from gputop import locations  # late: `import gputop.torch_monitor` loads what it needs and no more

    home = locations.home()
    if home is None:
        import tempfile

        return Path(tempfile.mkdtemp(prefix="gputop-snapshots-"))
    return home / ".local" / "state" / "gputop" / "snapshots"
