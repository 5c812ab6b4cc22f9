"""A PyTorch Profiler trace: its table, its memory over time, and how the two add up."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from gputop.torch_files.trace.callers import ENGINE, is_users
from gputop.torch_files.trace.events import ANNOTATION, CPU, DEVICE, PYTHON, TraceEvents
from gputop.torch_files.trace.memory_curve import MemoryCurve, memory_curves
from gputop.torch_files.trace.memory_timeline import MemoryTimeline, is_timeline, read_timeline
from gputop.torch_files.trace.op_table import OpRow, OpTree
from gputop.torch_files.trace.profiler_file import ProfilerFile, Progress, UnreadableTrace
from gputop.torch_files.trace.reader import read

_BEYOND: Final = "damaged: its figures sum up to more than 63 bits"


class Held(NamedTuple):
    """Allocations of one origin: the op, the user's function and the annotation it was in, where there are such."""

    op: str
    frame: str
    phase: str
    bytes: int
    blocks: int

    @property
    def where(self) -> str:
        """Without the op: function and annotation."""
        return " in ".join(part for part in (self.frame, self.phase) if part)


@dataclass
class ProfilerTrace:
    """What one file tells."""

    path: Path
    events: TraceEvents
    curves: list[MemoryCurve] = field(default_factory=list)
    _trees: dict[bool, OpTree] = field(default_factory=dict)
    _tables: dict[tuple[bool, int, bool], list[OpRow]] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, events: TraceEvents) -> ProfilerTrace:
        """Raises UnreadableTrace."""
        trace = cls(path, events)
        try:
            trace.curves = memory_curves(events)
        except OverflowError:
            raise UnreadableTrace(_BEYOND) from None
        return trace

    @property
    def rank(self) -> str:
        """``rank 3 of 8`` of a distributed job, else nothing."""
        events = self.events
        if events.rank is None:
            return ""
        return f"rank {events.rank}" + (f" of {events.world_size}" if events.world_size is not None else "")

    @property
    def why_no_memory(self) -> str:
        """A sentence, where no memory event is in it."""
        if self.events.notes:
            return "No memory events could be read."
        if self.events.profile_memory:
            return "The trace has no memory events though profile_memory was on: nothing was allocated meanwhile."
        return "The trace has no memory events: record with profile(profile_memory=True, record_shapes=True)."

    @cached_property
    def has_device_memory(self) -> bool:
        events = self.events
        return any(not events.is_cpu(device) for device in range(len(events.devices.texts)))

    @cached_property
    def has_kernels(self) -> bool:
        return DEVICE in set(self.events.kind)

    @cached_property
    def begins_ns(self) -> int:
        """When the first of all begins."""
        starts = [min(self.events.start)] if self.events.start else []
        return min([*starts, *(curve.at_ns[0] for curve in self.curves)], default=0)

    @cached_property
    def has_python(self) -> bool:
        """Whether Python's functions are in it (with_stack)."""
        return PYTHON in set(self.events.kind)

    def rows(self, by_shape: bool = False, stack_depth: int = 0, python: bool = True) -> list[OpRow]:
        """The table, in order of appearance, as ``key_averages(by_shape, stack_depth)``. Python's functions are rows,
        and parents, where they are in the trace, as in torch from 2.12 on; without *python* they are not, as before.
        *stack_depth* may be FUNCTION: by the innermost function of the user's. Raises UnreadableTrace."""
        key = (by_shape, stack_depth, python or not self.has_python)
        if key not in self._tables:
            try:
                self._tables[key] = self._tree(python).rows(by_shape, stack_depth)
            except OverflowError:
                raise UnreadableTrace(_BEYOND) from None
        return list(self._tables[key])

    def running(self, curve: MemoryCurve, event: int) -> tuple[str, ...]:
        """What was open when memory changed, on the thread that changed it: ops and frames, the outermost first."""
        texts, name = self.events.names.texts, self.events.name
        return tuple([texts[name[op]] for op in self._running(curve, event)])

    def held(self, curve: MemoryCurve, event: int) -> list[Held]:
        """What was allocated in the trace and held after *event*, by the op that asked for it; the most first."""
        found: dict[Held, list[int]] = {}
        for allocation in curve.held(event):
            sums = found.setdefault(self.asked_for(curve, allocation), [0, 0])
            sums[0] += curve.bytes[allocation]
            sums[1] += 1
        held = [by._replace(bytes=bytes_, blocks=blocks) for by, (bytes_, blocks) in found.items()]
        return sorted(held, key=lambda one: -one.bytes)

    def _running(self, curve: MemoryCurve, event: int) -> list[int]:
        return self._tree(True).running(curve.thread[event], curve.at_ns[event])

    def asked_for(self, curve: MemoryCurve, event: int) -> Held:
        """Who made the allocation of *event*: the outermost op that ran, and the innermost frame of the user's. What is
        inside the one, and between both, is torch's."""
        texts, name, kind = self.events.names.texts, self.events.name, self.events.kind
        op = frame = phase = ""
        for open_ in self._running(curve, event):
            text = texts[name[open_]]
            if kind[open_] == PYTHON and is_users(text):
                frame, op = text, ""  # what it calls counts
            elif kind[open_] == ANNOTATION:
                phase = text
            elif kind[open_] == CPU and not op and not text.startswith(ENGINE):
                op = text
        return Held(op, frame, phase, 0, 0)

    def reconciliation(self, python: bool = True) -> Reconciliation:
        """What the events sum up to, against what the table's rows do."""
        rows = self.rows(python=python)
        events = self.events
        device = self.has_device_memory
        net = sum(
            bytes_
            for bytes_, number in zip(events.memory_bytes, events.memory_device, strict=True)
            if events.is_cpu(number) != device
        )
        torch = sum(row.self_device_memory if device else row.self_cpu_memory for row in rows)
        thread = sum(row.self_thread_memory for row in rows)
        return Reconciliation("device" if device else "host", net, torch, thread, self._tree(python).outside)

    def _tree(self, python: bool) -> OpTree:
        python = python or not self.has_python
        if python not in self._trees:
            self._trees[python] = OpTree(self.events, self.has_device_memory, python)
        return self._trees[python]


class Reconciliation(NamedTuple):
    """Bytes: what was really allocated minus freed; sums of the Self columns; what was in no op of its thread."""

    of: str
    net: int
    torch_sum: int
    thread_sum: int
    outside: int

    def sentence(self) -> str:
        """One line."""
        from gputop.units.fine import size

        said = (
            f"net of all {self.of} memory events: {size(self.net)}; torch's Self column sums to {size(self.torch_sum)}"
        )
        if self.torch_sum != self.net:
            said += f" ({size(self.torch_sum - self.net)} counted twice or not at all, because of other threads)"
        said += f"; by thread: {size(self.thread_sum)}, and {size(self.outside)} outside any op of its thread"
        return said


def open_profile(path: Path, progress: Progress | None = None) -> ProfilerTrace | MemoryTimeline:
    """What ``export_chrome_trace()`` or ``export_memory_timeline()`` wrote. Raises UnreadableTrace in one sentence."""
    try:
        with ProfilerFile(path) as file:
            if is_timeline(file.head()):
                return read_timeline(path, file, progress)
            return ProfilerTrace.of(path, read(file, progress))
    except OSError as error:
        raise UnreadableTrace(error.strerror or str(error)) from None


def open_trace(path: Path, progress: Progress | None = None) -> ProfilerTrace:
    """The same where it must be a trace."""
    profile = open_profile(path, progress)
    if isinstance(profile, MemoryTimeline):
        raise UnreadableTrace("a memory timeline, not a trace")
    return profile
