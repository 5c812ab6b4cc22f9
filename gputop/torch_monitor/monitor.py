"""The monitor: samples the allocator at steps and phases, keeps what was, raises alarms."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

from gputop.torch_monitor import oom
from gputop.torch_monitor.allocator import Allocator, DeviceMemory, Unsupported
from gputop.torch_monitor.publisher import Publisher

KEPT_STEPS: Final = 512
#: An alarm ends when memory is that share of the device below its threshold, so that it does not flutter.
HYSTERESIS: Final = 0.05
TEND_SECONDS: Final = 0.5  # between looks at other devices, requests and (where something changed) publications

_log = logging.getLogger("gputop.torch_monitor")


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


@dataclass(frozen=True)
class Alarm:
    """Memory came close to its limit (``raised``), or is well below it again."""

    device: int
    raised: bool
    bytes: int  # the step's peak
    limit_bytes: int
    words: str


class _Open:
    """A phase, or the step, while it lasts."""

    __slots__ = ("began", "name", "peak", "start")

    def __init__(self, name: str, began: float, allocated: dict[int, int]) -> None:
        self.name, self.began = name, began
        self.start, self.peak = dict(allocated), dict(allocated)


class MemoryMonitor:
    """Watches torch's CUDA memory of this process. Used by one thread, the training loop's.

    *devices*: torch's indices; None: each that is used. *threshold*: the share of a device's memory at which
    *on_alarm* is called with an :class:`Alarm` (None: it is logged as a warning). *publish*: let gputop see it.
    *record_history*: have torch record its allocations with Python stacks from the start, so that a snapshot tells
    the line of code. *exact_peaks*: reset torch's own peaks at each sample, which makes the peaks of steps and phases
    exact, and changes what ``max_memory_allocated()`` tells others; without it they are exact where torch's peak rose,
    else the most seen at a phase's ends. *directory*: where snapshots and OOM reports go.
    """

    def __init__(
        self,
        devices: Sequence[int] | None = None,
        threshold: float = 0.9,
        on_alarm: Callable[[Alarm], None] | None = None,
        publish: bool = True,
        *,
        record_history: bool = False,
        exact_peaks: bool = False,
        on_oom: bool = True,
        directory: str | Path | None = None,
    ) -> None:
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold {threshold!r} is not a share above 0, at most 1")
        self.threshold, self.on_alarm = threshold, on_alarm
        self.history: deque[Step] = deque(maxlen=KEPT_STEPS)
        self.peak: dict[int, int] = {}  # most allocated since reset_peak(), by torch's device index
        self.allocator = Allocator()
        self.steps = 0
        self.recording = False
        self.labels: dict[str, Any] = {}
        self.directory = Path(directory) if directory is not None else oom.state_directory()
        self._devices = None if devices is None else tuple(devices)
        self._active: tuple[int, ...] = ()
        self._started = False  # CUDA was seen to be there
        self._record_history, self._exact, self._on_oom = record_history, exact_peaks, on_oom
        self._limits: dict[int, int | None] = {}
        self._alarmed: set[int] = set()
        self._torch_peak: dict[int, int] = {}
        self._allocated: dict[int, int] = {}
        self._newest: tuple[DeviceMemory, ...] = ()
        self._open: list[_Open] = []
        self._done: list[Phase] = []
        self._step = _Open("", time.perf_counter(), {})
        self._tend_at = 0.0
        self._closed = False
        self._publisher = Publisher(self) if publish else None

    # -- what a training loop calls

    def step(self, **labels: Any) -> Step | None:
        """A step of the training ended. None where there is nothing to tell (no torch, or CUDA not yet used)."""
        if self._closed or not (self._started or self._start()):
            return None
        now = time.perf_counter()
        if now >= self._tend_at:
            self._find_devices()
        devices = self._sample()
        begun = self._step
        self.steps += 1
        self.labels = labels
        step = Step(
            self.steps, time.time(), now - begun.began, devices, begun.peak, tuple(self._done), labels
        )  # fmt: skip
        self.history.append(step)
        self._done = []
        self._step = _Open("", now, self._allocated)
        self._check(step)
        if now >= self._tend_at:
            self._tend_at = now + TEND_SECONDS
            if self._publisher is not None:
                self._publisher.tend()
        return step

    def phase(self, name: str) -> _PhaseContext:
        """``with monitor.phase("forward"):`` Phases may be nested."""
        return _PhaseContext(self, name)

    def enter(self, name: str) -> None:
        """A phase begins; :meth:`leave` ends it."""
        if self._started or self._start():
            self._sample()
        self._open.append(_Open(name, time.perf_counter(), self._allocated))

    def leave(self) -> None:
        """The phase entered last ends."""
        if not self._open:
            return
        if self._started:
            self._sample()
        phase = self._open.pop()
        kept = {device: bytes_ - phase.start.get(device, 0) for device, bytes_ in self._allocated.items()}
        self._done.append(Phase(phase.name, time.perf_counter() - phase.began, phase.peak, kept))

    def reset_peak(self) -> None:
        """Forget the peaks, torch's own too (``max_memory_allocated()`` begins anew for everybody in the process)."""
        if self._started or self._start():
            for device in self._active:
                self.allocator.reset_peaks(device)
            self._torch_peak = {}
            self.peak = {}
            self._sample()

    def close(self) -> None:
        """The report is taken back; later calls do nothing."""
        self._closed = True
        if self._publisher is not None:
            self._publisher.close()

    def __enter__(self) -> MemoryMonitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what the report and the requests need

    @property
    def newest(self) -> tuple[DeviceMemory, ...]:
        """The devices as they were sampled last."""
        return self._newest

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
        return oom.dump(self.allocator, self.directory, reason)

    # -- inside

    def _start(self) -> bool:
        if not self.allocator.ready():
            return False
        self._started = True
        self._find_devices()
        if self._record_history:
            try:
                self.start_recording()
            except (Unsupported, RuntimeError) as error:
                _log.warning("%s", error)
        if self._on_oom:
            oom.observe(self)
        self._sample()
        return True

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
        self._newest = tuple(found)
        return self._newest

    def _check(self, step: Step) -> None:
        """Alarms by the step's peak: reserved memory is high by design."""
        for device, peak in step.peak_bytes.items():
            limit = self.limit(device)
            if not limit:
                continue
            share = peak / limit
            if share >= self.threshold and device not in self._alarmed:
                self._alarmed.add(device)
                words = f"step {step.number}: {_gib(peak)} of {_gib(limit)} allocated on cuda:{device} ({share:.0%})"
                self._say(Alarm(device, True, peak, limit, words))
            elif share < self.threshold - HYSTERESIS and device in self._alarmed:
                self._alarmed.remove(device)
                words = f"step {step.number}: cuda:{device} is back at {_gib(peak)} of {_gib(limit)} ({share:.0%})"
                self._say(Alarm(device, False, peak, limit, words))

    def _say(self, alarm: Alarm) -> None:
        if self.on_alarm is not None:
            self.on_alarm(alarm)
        elif alarm.raised:
            _log.warning("%s", alarm.words)
        else:
            _log.info("%s", alarm.words)


class _PhaseContext:
    __slots__ = ("_monitor", "_name")

    def __init__(self, monitor: MemoryMonitor, name: str) -> None:
        self._monitor, self._name = monitor, name

    def __enter__(self) -> None:
        self._monitor.enter(self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._monitor.leave()


def _gib(bytes_: int) -> str:
    return f"{bytes_ / 1024**3:.1f} GiB"
