"""What is written when the GPU's memory runs out: a snapshot and one page of text."""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
import weakref
from pathlib import Path
from typing import Any, Final

from gputop.torch_monitor.allocator import Unsupported
from gputop.torch_monitor.tracker import MemoryTracker

#: Who searches for a batch size runs out of memory on purpose, again and again.
MOST_REPORTS: Final = 3
BETWEEN_REPORTS_SECONDS: Final = 30.0

_log = logging.getLogger("gputop.torch_monitor")
_watched: weakref.WeakSet[MemoryTracker] = weakref.WeakSet()
_attached = False
_written: list[float] = []  # when reports were written, by the monotonic clock
_writing = False


def observe(tracker: MemoryTracker) -> None:
    """Have an OOM of this process reported by *tracker*. CUDA must be initialised."""
    global _attached
    _watched.add(tracker)
    if not _attached:  # torch has no way to take an observer back: one for all monitors
        _attached = tracker.allocator.on_oom(_observer)


def _observer(device: int, asked: int, limit: int, free: int) -> None:
    """Called by torch on the allocating thread, before it raises: an exception here would take the place of the OOM."""
    global _writing
    now = time.monotonic()
    if _writing or len(_written) >= MOST_REPORTS or (_written and now - _written[-1] < BETWEEN_REPORTS_SECONDS):
        return
    _writing = True
    try:
        for tracker in list(_watched):
            path = write_report(tracker, device, asked, limit, free)
            _written.append(now)
            print(f"gputop: out of GPU memory; what was held and who asked: {path}", file=sys.stderr, flush=True)
            break
    except Exception as error:  # whatever it is, the script must see its OutOfMemoryError
        _log.warning("no report of the OOM could be written: %r", error)
    finally:
        _writing = False


def write_report(tracker: MemoryTracker, device: int, asked: int, limit: int, free: int) -> Path:
    """The snapshot and the page. Returns the page's path. Raises OSError."""
    try:
        snapshot, why = tracker.dump("oom"), ""
    except (Unsupported, RuntimeError, OSError) as error:
        snapshot, why = None, str(error)
    frames = [frame for frame in traceback.extract_stack()[:-1] if "gputop/torch_monitor" not in frame.filename]
    text = page(tracker, device, asked, limit, free, snapshot, why, frames)
    tracker.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = (snapshot or tracker.directory / f"oom-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}").with_suffix(".txt")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(text)
    return path


def _others(bytes_: int) -> list[str]:
    """What neither PyTorch nor anybody else has free, where *limit* is the card's size; a limit of the process's own
    (an H200 with a fraction of 2.8 GiB) says nothing of the others."""
    return [f"others         {size(bytes_)} (CUDA context, libraries, other processes)"] if bytes_ >= 0 else []


def page(
    tracker: MemoryTracker,
    device: int,
    asked: int,
    limit: int,
    free: int,
    snapshot: Path | None,
    why: str,
    frames: list[traceback.FrameSummary],
) -> str:
    """One page of text: what was asked for by which line, what was held, what may help."""
    memory = tracker.allocator.read(device)
    lines = [
        f"Out of GPU memory: cuda:{device}, {time.strftime('%Y-%m-%d %H:%M:%S')}, pid {os.getpid()}",
        "",
        f"requested      {size(asked)}",
        f"free           {size(free)} on the device, after the cache was flushed",
        f"limit          {size(limit)}" + (" (set_per_process_memory_fraction, or the card's size)"),
    ]
    if memory is not None:
        cached = memory.reserved_bytes - memory.active_bytes
        pending = memory.active_bytes - memory.allocated_bytes
        lines += [
            f"allocated      {size(memory.allocated_bytes)} in tensors",
            f"reserved       {size(memory.reserved_bytes)} by PyTorch from the driver",
            f"cached         {size(cached)}, of it {size(memory.inactive_split_bytes)} stuck in segments in use",
            *([f"pending        {size(pending)} freed, waited for by a stream"] if pending else []),
            *_others(limit - free - memory.reserved_bytes),
            f"cache flushes  {memory.retries} (allocation retries), OOMs before this one: {memory.ooms}",
        ]
    lines += ["", f"In step {tracker.steps + 1}" + (f", phase {tracker.phase_now}" if tracker.phase_now else "") + ":"]
    for step in list(tracker.history)[-5:]:
        phases = ", ".join(f"{phase.name} {size(phase.peak_bytes.get(device, 0))}" for phase in step.phases)
        end = next((one.allocated_bytes for one in step.devices if one.device == device), 0)
        peak = size(step.peak_bytes.get(device, 0))
        lines.append(f"  step {step.number}: peak {peak}, at its end {size(end)}{f' ({phases})' if phases else ''}")
    lines += ["", "Requested by:", *(f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in _users(frames))]
    lines += ["", "What may help:", *(f"- {words}" for words in advice(tracker, device, asked, memory))]
    if snapshot is not None:
        lines += ["", "Which lines hold the memory:", f"  gputop torch-snapshot {snapshot}"]
        if not tracker.recording:
            lines.append("  (no stacks in it: MemoryMonitor(record_history=True) records them)")
    else:
        lines += ["", f"No snapshot: {why}"]
    return "\n".join(lines) + "\n"


def advice(tracker: MemoryTracker, device: int, asked: int, memory: Any) -> list[str]:
    """What the figures speak for, the likeliest first."""
    found = []
    if memory is not None and memory.reserved_bytes - memory.active_bytes >= asked:
        if "expandable_segments:True" not in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
            found.append("the cache holds more than was requested, but in pieces: "
                         "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")  # fmt: skip
        else:
            found.append("the cache holds more than was requested, but in pieces, though expandable segments are on")
    ends = [
        next((one.allocated_bytes for one in step.devices if one.device == device), 0) for step in tracker.history
    ]  # fmt: skip
    if len(ends) >= 4 and all(a < b for a, b in zip(ends[-4:], ends[-3:], strict=False)):
        grown = (ends[-1] - ends[-4]) // 3
        found.append(f"each step keeps {size(grown)} more than the one before: something holds on to its tensors "
                     "(a list of losses? use loss.item() or loss.detach())")  # fmt: skip
    found.append("a smaller batch with gradient accumulation, activation checkpointing, or bf16")
    return found


def _users(frames: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """The innermost frames that are the user's own; all, where none is."""
    own = [frame for frame in frames if "/torch/" not in frame.filename and not frame.filename.startswith("<")]
    return list(reversed(own or frames))[:6]


def size(bytes_: float) -> str:
    """``81.25 GiB``, ``1.5 KiB``. Of its own, so that a training script loads nothing of gputop but torch_monitor."""
    for suffix, scale in (("GiB", 1024**3), ("MiB", 1024**2)):
        if abs(bytes_) >= scale:
            return f"{bytes_ / scale:.2f} {suffix}"
    return f"{bytes_ / 1024:.1f} KiB"
