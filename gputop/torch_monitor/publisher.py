"""The process's side of the talk with gputop: writes its report, looks for requests, at most twice a second."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
import weakref
from pathlib import Path
from typing import Any, Final

from gputop.torch_monitor import runtime_directory
from gputop.torch_monitor.allocator import Unsupported
from gputop.torch_monitor.tracker import MemoryTracker, Step

LOOK_AGAIN_SECONDS: Final = 10.0  # until a directory is sought again where none could be had
MOST_PHASES: Final = 16
MOST_LABELS: Final = 8
MOST_ANSWERS: Final = 4

_log = logging.getLogger("gputop.torch_monitor")


class Publisher:
    """Writes ``PID.json`` and obeys ``PID.ask``. Never raises: a training must not fail for being watched."""

    def __init__(self, tracker: MemoryTracker) -> None:
        self._tracker: weakref.ref[MemoryTracker] = weakref.ref(tracker)
        self._pid = os.getpid()
        self._ticks = runtime_directory.start_ticks(self._pid)
        self._directory: int | None = None
        self._next_look = 0.0
        self._identities: dict[int, tuple[str | None, str | None]] = {}
        self._answers: list[dict[str, Any]] = []
        self._asked: tuple[int, int] | None = None  # inode and time of the request obeyed last
        self._finalizer = weakref.finalize(self, _withdraw, self._pid)

    def tend(self) -> None:
        """Publish, and do what was asked for."""
        tracker = self._tracker()
        if tracker is None or os.getpid() != self._pid:  # a forked child is another process, without a say here
            return
        if self._directory is None:
            if time.monotonic() < self._next_look:
                return
            self._directory = runtime_directory.own_directory()
            if self._directory is None:
                self._next_look = time.monotonic() + LOOK_AGAIN_SECONDS
                return
        if self._request(tracker):
            self._write(tracker)  # the answer comes with the report
            return
        self._write(tracker)

    def close(self) -> None:
        self._finalizer()
        if self._directory is not None:
            with contextlib.suppress(OSError):
                os.close(self._directory)
            self._directory = None

    def _write(self, tracker: MemoryTracker) -> None:
        assert self._directory is not None
        try:
            runtime_directory.write(self._directory, f"{self._pid}.json", self._report(tracker))
        except (OSError, ValueError):  # the directory is gone (logged out), or the disk full: look for another
            with contextlib.suppress(OSError):
                os.close(self._directory)
            self._directory = None

    def _report(self, tracker: MemoryTracker) -> dict[str, Any]:
        step = tracker.history[-1] if tracker.history else None
        return {
            "schema": runtime_directory.SCHEMA,
            "pid": self._pid,
            "start_ticks": self._ticks,
            "written_at": time.time(),
            "torch": tracker.allocator.version,
            "backend": tracker.allocator.backend,
            "steps": tracker.steps,
            "step_seconds": None if step is None else step.seconds,
            "recording": tracker.recording,
            "phase": tracker.phase_now,
            "labels": _labels(tracker.labels),
            "devices": [self._device(tracker, step, memory) for memory in tracker.newest],
            "answers": self._answers,
        }

    def _device(self, tracker: MemoryTracker, step: Step | None, memory: Any) -> dict[str, Any]:
        device = memory.device
        if device not in self._identities:
            self._identities[device] = tracker.allocator.identity(device)
        uuid, pci = self._identities[device]
        return {
            "index": device,
            "uuid": uuid,
            "pci_bus_id": pci,
            "allocated_bytes": memory.allocated_bytes,
            "reserved_bytes": memory.reserved_bytes,
            "active_bytes": memory.active_bytes,
            "inactive_split_bytes": memory.inactive_split_bytes,
            "retries": memory.retries,
            "ooms": memory.ooms,
            "peak_bytes": tracker.peak.get(device),
            "step_peak_bytes": None if step is None else step.peak_bytes.get(device),
            "phases": [
                {
                    "name": phase.name[:64],
                    "seconds": phase.seconds,
                    "peak_bytes": phase.peak_bytes.get(device, 0),
                    "kept_bytes": phase.kept_bytes.get(device, 0),
                }
                for phase in (step.phases[:MOST_PHASES] if step is not None else ())
            ],
        }

    # -- requests

    def _request(self, tracker: MemoryTracker) -> bool:
        """Do what ``PID.ask`` asks for; whether there was something."""
        assert self._directory is not None
        name = f"{self._pid}.ask"
        found = runtime_directory.read(self._directory, name, os.getuid())
        if found is None:
            return False
        request, facts = found
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._directory)
        mark = (facts.st_ino, facts.st_mtime_ns)
        if mark == self._asked:  # it could not be removed
            return False
        self._asked = mark
        if not isinstance(request, dict) or request.get("schema") != runtime_directory.SCHEMA:
            return False
        if (request.get("pid"), request.get("start_ticks")) != (self._pid, self._ticks):
            return False  # meant for an earlier bearer of the pid
        action, id_ = request.get("action"), request.get("id")
        if action not in runtime_directory.ACTIONS or not isinstance(id_, str):
            return False
        path: Path | None = None
        try:
            if action == "dump":
                path = tracker.dump()
                message = f"snapshot written to {path}"
            elif action == "record":
                tracker.start_recording()
                message = "torch now records its allocations"
            else:
                tracker.stop_recording()
                message = "torch has stopped recording"
        except (Unsupported, OSError, RuntimeError, AttributeError, TypeError, ValueError) as error:
            message = f"{action} failed: {error}"
        _log.info("gputop asked: %s", message)
        answer = {
            "id": id_[:64],
            "action": action,
            "words": message[:500],
            "path": path and str(path),
            "at": time.time(),
        }
        self._answers = [*self._answers, answer][-MOST_ANSWERS:]
        return True


def _labels(labels: dict[str, Any]) -> list[list[str]]:
    """Labels as short text. Only of plain values: the text of a GPU's tensor would wait for the GPU."""
    found = []
    for name, value in list(labels.items())[:MOST_LABELS]:
        if isinstance(value, float):
            text = f"{value:.6g}" if math.isfinite(value) else str(value)
        elif isinstance(value, str | int):
            text = str(value)[:64]
        else:
            text = type(value).__name__
        found.append([str(name)[:32], text])
    return found


def _withdraw(pid: int) -> None:
    """Take the report back, at the tracker's end or the process's."""
    if os.getpid() != pid:
        return
    for path in runtime_directory.candidates(os.getuid()):
        directory = runtime_directory.open_directory(path, os.getuid())
        if directory is not None:
            for name in (f"{pid}.json", f"{pid}.ask"):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=directory)
            os.close(directory)
