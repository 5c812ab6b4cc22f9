"""The monitor: a tracker that a training loop drives, with alarms, OOM reports and a report for gputop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from gputop.torch_monitor import oom
from gputop.torch_monitor.allocator import Unsupported
from gputop.torch_monitor.publisher import Publisher
from gputop.torch_monitor.tracker import MemoryTracker, Step

#: An alarm ends when memory is that share of the device below its threshold, so that it does not flutter.
HYSTERESIS_SHARE: Final = 0.05
TEND_SECONDS: Final = 0.5  # between looks at other devices, requests and (where something changed) publications

_log = logging.getLogger("gputop.torch_monitor")


@dataclass(frozen=True)
class Alarm:
    """Memory came close to its limit (``raised``), or is well below it again."""

    device: int
    raised: bool
    bytes: int  # the step's peak
    limit_bytes: int
    message: str

    @property
    def words(self) -> str:
        """The same: its older name."""
        return self.message


class MemoryMonitor(MemoryTracker):
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
        super().__init__(devices, exact_peaks, directory)
        self.threshold, self.on_alarm = threshold, on_alarm
        self._started = False  # CUDA was seen to be there
        self._record_history, self._on_oom = record_history, on_oom
        self._alarmed: set[int] = set()
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
        step = self._end_step(now, labels)
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
        self._open_phase(name)

    def leave(self) -> None:
        """The phase entered last ends."""
        if not self._open:
            return
        if self._started:
            self._sample()
        self._end_phase()

    def reset_peak(self) -> None:
        """Forget the peaks, torch's own too (``max_memory_allocated()`` begins anew for everybody in the process)."""
        if self._started or self._start():
            self._forget_peaks()

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

    def _check(self, step: Step) -> None:
        """Alarms by the step's peak: reserved memory is high by design."""
        for device, peak in step.peak_bytes.items():
            limit = self.limit(device)
            if not limit:
                continue
            share = peak / limit
            if share >= self.threshold and device not in self._alarmed:
                self._alarmed.add(device)
                held = f"{oom.size(peak)} of {oom.size(limit)}"
                message = f"step {step.number}: {held} allocated on cuda:{device} ({share:.0%})"
                self._say(Alarm(device, True, peak, limit, message))
            elif share < self.threshold - HYSTERESIS_SHARE and device in self._alarmed:
                self._alarmed.remove(device)
                held = f"{oom.size(peak)} of {oom.size(limit)}"
                message = f"step {step.number}: cuda:{device} is back at {held} ({share:.0%})"
                self._say(Alarm(device, False, peak, limit, message))

    def _say(self, alarm: Alarm) -> None:
        if self.on_alarm is not None:
            self.on_alarm(alarm)
        elif alarm.raised:
            _log.warning("%s", alarm.message)
        else:
            _log.info("%s", alarm.message)


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
