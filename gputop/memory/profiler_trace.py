"""The tables of a PyTorch Profiler trace, as ``key_averages()`` has them and thread by thread; its memory over time.

Bytes are net (allocated minus freed) while something ran; nothing in torch's table is a peak.

torch gives an op all memory events of its span, of whatever thread: an op of the main thread swallows what the backward
thread allocates meanwhile. The thread-aware figures give each event to the innermost op of its own thread.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from gputop.memory.trace_reader import (
    ANNOTATION,
    CPU,
    DEVICE,
    DEVICE_ANNOTATION,
    MEMORY,
    OVERHEAD_THREAD,
    PYTHON,
    Progress,
    TraceEvents,
    read,
)

#: What a table can be sorted by; torch's names, also those before 2.4.
COLUMNS: Final = {
    "cpu_memory": "cpu_memory", "self_cpu_memory": "self_cpu_memory", "device_memory": "device_memory",
    "self_device_memory": "self_device_memory", "thread_memory": "thread_memory",
    "self_thread_memory": "self_thread_memory", "cpu_time": "cpu_time", "self_cpu_time": "self_cpu_time",
    "device_time": "device_time", "self_device_time": "self_device_time", "calls": "calls", "name": "name",
    "cpu_memory_usage": "cpu_memory", "self_cpu_memory_usage": "self_cpu_memory",
    "device_memory_usage": "device_memory", "self_device_memory_usage": "self_device_memory",
    "cuda_memory_usage": "device_memory", "self_cuda_memory_usage": "self_device_memory",
    "cpu_time_total": "cpu_time", "self_cpu_time_total": "self_cpu_time", "cuda_time_total": "device_time",
    "self_cuda_time_total": "self_device_time", "device_time_total": "device_time",
    "self_device_time_total": "self_device_time", "count": "calls",
}  # fmt: skip
_TYPES: Final = {0: "CPU", 1: "CUDA", 5: "CPU (MKLDNN)", 6: "HIP", 8: "CPU (IDEEP)", 12: "XPU", 13: "MPS", 20: "device"}


@dataclass(slots=True)
class Row:
    """Sums over the calls of one op. Memory in bytes, times in µs."""

    name: str
    kind: int
    shape: str = ""
    stack: tuple[str, ...] = ()  # Python frames it was called from, the innermost first
    calls: int = 0
    cpu_memory: int = 0
    self_cpu_memory: int = 0
    device_memory: int = 0
    self_device_memory: int = 0
    thread_memory: int = 0  # device memory by the thread it was asked for on (the host's, where no device has any)
    self_thread_memory: int = 0
    cpu_time: float = 0.0
    self_cpu_time: float = 0.0
    device_time: float = 0.0
    self_device_time: float = 0.0


class Peak(NamedTuple):
    """The most that was allocated on one device."""

    at_ns: int
    allocated: int
    reserved: int
    running: tuple[str, ...]  # ops and Python frames that were open, the outermost first


class Curve(NamedTuple):
    """A device's memory over time, a point an event. Without torch's totals, allocated counts from 0 at the start."""

    device: str
    at_ns: Sequence[int]
    allocated: Sequence[int]
    reserved: Sequence[int]  # -1: not told
    peak: Peak
    allocations: int
    frees: int
    allocated_bytes: int  # sum of what was allocated
    freed_bytes: int
    never_freed: int  # bytes allocated in the trace and not freed in it


@dataclass(slots=True)
class Trace:
    """What one file tells."""

    path: Path
    events: TraceEvents
    curves: list[Curve] = field(default_factory=list)
    _trees: dict[bool, _Tree] = field(default_factory=dict)

    @property
    def has_device_memory(self) -> bool:
        events = self.events
        return any(not events.is_cpu(device) for device in range(len(events.devices.texts)))

    @property
    def has_python(self) -> bool:
        """Whether Python's functions are in it (with_stack)."""
        return PYTHON in set(self.events.kind)

    def rows(self, by_shape: bool = False, stack_depth: int = 0, python: bool = True) -> list[Row]:
        """The table, in order of appearance, as ``key_averages(by_shape, stack_depth)``. Python's functions are rows,
        and parents, where they are in the trace, as in torch from 2.12 on; without *python* they are not, as before."""
        return self._tree(python).rows(by_shape, stack_depth)

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

    def _tree(self, python: bool) -> _Tree:
        python = python or not self.has_python
        if python not in self._trees:
            self._trees[python] = _Tree(self.events, self.has_device_memory, python)
        return self._trees[python]


class Reconciliation(NamedTuple):
    """Bytes: what was really allocated minus freed; sums of the Self columns; what was in no op of its thread."""

    of: str
    net: int
    torch_sum: int
    thread_sum: int
    outside: int

    def words(self) -> str:
        """One line."""
        from gputop.memory.words import size

        said = (
            f"net of all {self.of} memory events {size(self.net)}; torch's Self column sums to {size(self.torch_sum)}"
        )
        if self.torch_sum != self.net:
            said += f" ({size(self.torch_sum - self.net)} counted in more or fewer ops than one: other threads)"
        said += f"; by thread {size(self.thread_sum)} + {size(self.outside)} in no op of its thread"
        return said


def open_trace(path: Path, progress: Progress | None = None) -> Trace:
    """Raises gputop.memory.trace_reader.UnreadableTrace in one sentence."""
    events = read(path, progress)
    trace = Trace(path, events)
    trace.curves = [_curve(events, number) for number in range(len(events.devices.texts))]
    return trace


def device_name(text: str) -> str:
    """``CUDA 0`` of ``1:0``."""
    kind, _, number = text.partition(":")
    name = _TYPES.get(int(kind), f"device type {kind}")
    return name if int(number) < 0 else f"{name} {number}"


# --------------------------------------------------------------------------- the table


class _Tree:
    """Ops, nested by thread. Event *n* is in ``self.order`` at the place of its start."""

    def __init__(self, events: TraceEvents, device: bool, python: bool) -> None:
        self.events, self._device, self._python = events, device, python
        self.order = _by_start(events)
        count = len(events.start)
        self._parent = array("i", [-1]) * count
        self._children = array("i", [0]) * count
        self._gone = bytearray(count)  # merged into the only parent of its name, or not wanted
        self._own = array("q", [0]) * count  # bytes asked for on its thread, by no child
        self.outside = 0
        self._bare = _Bare(events)
        self._nest()
        self._kernels = self._kernel_times()
        self._merge()

    def _nest(self) -> None:
        """Parents, as torch finds them: by time on the same thread. And each memory event's innermost op."""
        events = self.events
        start, end, kind, thread = events.start, events.end, events.kind, events.thread
        parent, children, own = self._parent, self._children, self._own
        python, main, aside = self._python, *_threads(events, self.order)
        stacks: dict[int, list[int]] = {}
        memory = sorted(range(len(events.memory_at)), key=events.memory_at.__getitem__)
        wanted = [events.is_cpu(n) != self._device for n in range(len(events.devices.texts))]
        m, memories = 0, len(memory)
        at, bytes_, on, whose = events.memory_at, events.memory_bytes, events.memory_device, events.memory_thread

        def give(record: int) -> None:
            if not wanted[on[record]]:
                return
            stack = stacks.get(whose[record])
            when = at[record]
            for op in reversed(stack) if stack else ():
                if end[op] >= when:
                    own[op] += bytes_[record]
                    return
            self.outside += bytes_[record]

        for op in self.order:
            if kind[op] in (DEVICE, DEVICE_ANNOTATION):
                continue
            if kind[op] == PYTHON and not python:
                self._gone[op] = 1
                continue
            begins, ends = start[op], end[op]
            while m < memories and at[memory[m]] < begins:
                give(memory[m])
                m += 1
            on_thread = main if thread[op] == aside else thread[op]
            stack = stacks.get(on_thread)
            if stack is None:
                stack = stacks[on_thread] = []
            while stack:
                top = stack[-1]
                if begins >= end[top] or ends > end[top]:
                    stack.pop()
                else:
                    parent[op] = top
                    children[top] += 1
                    break
            stack.append(op)
        for record in memory[m:]:
            give(record)

    def _kernel_times(self) -> dict[int, int]:
        """ns on the device, by op: torch links kernels with ops by their External id. It also takes the number of a
        runtime call outside all ops for one, and counts the kernels of an op that has it there too."""
        events = self.events
        external, kind = events.external, events.kind
        launched: dict[int, int] = {}  # External id: ns of its kernels
        for op, of in enumerate(external):
            if kind[op] == DEVICE and of > 0:
                launched[of] = launched.get(of, 0) + events.end[op] - events.start[op]
        if not launched:
            return {}
        return {op: launched[of] for op, of in enumerate(external) if of in launched and kind[op] in (CPU, ANNOTATION)}

    def _merge(self) -> None:
        """An op whose only child bears its name is one op, as in torch's table."""
        parent, children, gone, name = self._parent, self._children, self._gone, self.events.name
        moved: dict[int, int] = {}
        for op in self.order:
            above = parent[op]
            if above < 0:
                continue
            above = parent[op] = moved.get(above, above)
            if name[above] == name[op] and children[above] == 1:
                gone[op] = 1
                children[above] = children[op]
                moved[op] = above
                self._own[above] += self._own[op]
                if op in self._kernels or above in self._kernels:
                    self._kernels[above] = self._kernels.pop(op, 0)

    def rows(self, by_shape: bool, stack_depth: int) -> list[Row]:
        """See Trace.rows()."""
        events = self.events
        start, end, kind, parent, gone = events.start, events.end, events.kind, self._parent, self._gone
        bare = self._bare
        count = len(start)
        below_cpu, below_device = array("q", [0]) * count, array("q", [0]) * count
        below_time, below_thread = array("q", [0]) * count, array("q", [0]) * count
        below_kernels = array("q", [0]) * (count if self._kernels else 0)
        table: dict[tuple[int, int, int, int], list[int]] = {}
        first: dict[tuple[int, int, int, int], int] = {}
        kernels = self._kernels
        callers = Callers(events, self.order, stack_depth) if stack_depth > 0 else None
        for place in range(count - 1, -1, -1):  # children before their parents
            op = self.order[place]
            if gone[op]:
                continue
            key = (
                events.name[op],
                kind[op],
                events.shape[op] if by_shape else -1,
                callers.of[op] if callers is not None else 0,
            )
            sums = table.get(key)
            if sums is None:
                sums = table[key] = [0] * 11
            first[key] = place
            sums[0] += 1
            lasted = end[op] - start[op]
            if kind[op] in (DEVICE, DEVICE_ANNOTATION):
                sums[9] += lasted
                sums[10] += lasted
                continue
            low, high = bisect_left(bare.at, start[op]), bisect_right(bare.at, end[op])
            cpu = bare.cpu[high] - bare.cpu[low]
            device = bare.device[high] - bare.device[low]
            mine = self._own[op]
            all_ = mine + below_thread[op]
            sums[1] += cpu
            sums[2] += cpu - below_cpu[op]
            sums[3] += device
            sums[4] += device - below_device[op]
            sums[5] += all_
            sums[6] += mine
            sums[7] += lasted
            sums[8] += lasted - below_time[op]
            above = parent[op]
            if kernels:
                own = kernels.get(op, 0)
                ran = own + below_kernels[op]
                sums[9] += ran
                sums[10] += own
                if above >= 0:
                    below_kernels[above] += ran
            if above >= 0:
                below_cpu[above] += cpu
                below_device[above] += device
                below_thread[above] += all_
                below_time[above] += lasted
        found = []
        for key in sorted(table, key=first.__getitem__):
            sums = table[key]
            shape = events.shapes.texts[key[2]] if key[2] >= 0 else "[]" if by_shape else ""
            stack = callers.stacks[key[3]] if callers is not None else ()
            times = (value / 1000 for value in sums[7:])
            found.append(Row(events.names.texts[key[0]], key[1], shape, stack, *sums[:7], *times))
        alone = self._alone()
        alone.shape = "[]" if by_shape else ""
        return [*found, alone] if alone.calls else found

    def _alone(self) -> Row:
        """Memory events in no op at all: torch's rows "[memory]"."""
        events, bare = self.events, self._bare
        inside = array("i", [0]) * (len(bare.at) + 1)
        for op in range(len(events.start)):
            if events.kind[op] not in (DEVICE, DEVICE_ANNOTATION) and (self._python or events.kind[op] != PYTHON):
                inside[bisect_left(bare.at, events.start[op])] += 1
                inside[bisect_right(bare.at, events.end[op])] -= 1
        row = Row(MEMORY, CPU, "")
        depth = 0
        for n in range(len(bare.at)):
            depth += inside[n]
            if depth == 0:
                row.calls += 1
                row.cpu_memory += bare.cpu[n + 1] - bare.cpu[n]
                row.device_memory += bare.device[n + 1] - bare.device[n]
        row.self_cpu_memory, row.self_device_memory = row.cpu_memory, row.device_memory
        return row


class Callers:
    """Which Python frames each event was called from: ``stacks[of[event]]``, the innermost first, *depth* at most.

    As in torch's table: a backward op's are those of its forward op, a kernel's those of the op that launched it.
    Forward ops are found by the arrows in the trace; torch takes the first op with the same sequence number, which may
    be a detach() of long before.
    """

    def __init__(self, events: TraceEvents, order: Sequence[int], depth: int) -> None:
        self.of = array("i", [0]) * len(events.start)
        self.stacks: list[tuple[str, ...]] = [()]
        self._depth = depth
        self._numbers: dict[tuple[str, ...], int] = {(): 0}
        self._called: dict[tuple[int, int], int] = {}  # (name of a frame, its own stack): the stack of what it calls
        start, end, kind, thread, name = events.start, events.end, events.kind, events.thread, events.name
        texts, external = events.names.texts, events.external
        begun = {place: arrow for arrow, place in events.forward.items()}
        forward: dict[int, int] = {}  # arrow: stack of the forward op
        launched: dict[int, int] = {}  # External id: stack of the op
        main, aside = _threads(events, order)
        #: By thread, what is open: the earliest end of it and of all below it, what it is called from, its stack as a
        #: caller, the stack of its forward op where it is one of backward.
        open_: dict[int, list[tuple[int, int, int | None]]] = {}
        nothing: tuple[int, int, int | None] = (1 << 62, 0, None)
        for event in order:
            if kind[event] == DEVICE:
                self.of[event] = launched.get(external[event], 0)
                continue
            if kind[event] == DEVICE_ANNOTATION:
                continue
            begins = start[event]
            stack = open_.setdefault(main if thread[event] == aside else thread[event], [])
            while stack and stack[-1][0] < begins:
                stack.pop()
            place = thread[event], begins
            arrow = events.backward.get(place)
            earliest, callers, back = stack[-1] if stack else nothing
            called = texts[name[event]]
            if not stack and called.startswith(_ENGINE):  # its thread works for the one that called backward()
                caller = open_.get(events.forward.get(arrow, (main, 0))[0] if arrow is not None else main)
                callers = caller[-1][1] if caller else 0
            if kind[event] == PYTHON:
                calls = self._below(name[event], called, callers)
            else:
                calls = callers
                if _is_backward(called):
                    back = forward.get(arrow, 0) if arrow is not None else 0
                elif place in begun and back is None:
                    forward.setdefault(begun[place], callers)
                launched.setdefault(external[event], callers)
            self.of[event] = callers if back is None else back
            stack.append((min(earliest, end[event]), calls, back))

    def _below(self, frame: int, words: str, stack: int) -> int:
        number = self._called.get((frame, stack))
        if number is None:
            if any(file in words and function in words for file, function in _NO_FRAME):
                number = stack
            else:
                frames = (words, *self.stacks[stack])[: self._depth]
                number = self._numbers.setdefault(frames, len(self.stacks))
                if number == len(self.stacks):
                    self.stacks.append(frames)
            self._called[frame, stack] = number
        return number


_ENGINE: Final = "autograd::engine::evaluate_function"
_NODE: Final = re.compile(r"(?!autograd::engine).*(?:Backward\d*|AccumulateGrad|CopySlices)\Z", re.DOTALL)


def _is_backward(name: str) -> bool:
    """Whether it is a node of the backward graph: torch's scope of it is not in the trace."""
    return _NODE.match(name) is not None


#: Frames that torch leaves out of its stacks: (part of the file, of the function).
_NO_FRAME: Final = (
    ("autograd/__init__", "_make_grads"), ("autograd/__init__", "backward"), ("torch/tensor", "backward"),
    ("_internal/common_utils", "prof_callable"), ("_internal/common_utils", "prof_func_call"),
    ("_internal/common_utils", "prof_meth_call"),
)  # fmt: skip


def _threads(events: TraceEvents, order: Sequence[int]) -> tuple[int, int]:
    """(the main thread, the one whose events count as the main one's: the driver's overhead has no thread); -1: none"""
    texts = events.threads.texts
    aside = texts.index(OVERHEAD_THREAD) if OVERHEAD_THREAD in texts else -1
    for op in order if aside >= 0 else ():
        if events.kind[op] in (CPU, ANNOTATION, PYTHON) and events.thread[op] != aside:
            return events.thread[op], aside
    return -1, aside


class _Bare:
    """Memory events by time, with running sums: what was allocated between two moments is a difference."""

    def __init__(self, events: TraceEvents) -> None:
        order = sorted(range(len(events.memory_at)), key=events.memory_at.__getitem__)
        self.at = array("q", [events.memory_at[n] for n in order])
        self.cpu, self.device = array("q", [0]), array("q", [0])
        is_cpu = [events.is_cpu(number) for number in range(len(events.devices.texts))]
        counted = [int(text.partition(":")[0]) in (1, 6, 12, 20) for text in events.devices.texts]  # as torch does
        cpu = device = 0
        for n in order:
            number = events.memory_device[n]
            if is_cpu[number]:
                cpu += events.memory_bytes[n]
            elif counted[number]:
                device += events.memory_bytes[n]
            self.cpu.append(cpu)
            self.device.append(device)


def _by_start(events: TraceEvents) -> array[int]:
    """Events by start, the longer first, as torch sorts them: one integer each, since tuples would take much memory."""
    if not events.start:
        return array("i")
    base = min(events.start)
    longest = max(end - start for start, end in zip(events.start, events.end, strict=True))
    bits = longest.bit_length() + 1
    keys = [
        ((((start - base) << bits) | (longest - (end - start))) << 32) | n
        for n, (start, end) in enumerate(zip(events.start, events.end, strict=True))
    ]
    keys.sort()
    return array("i", [key & 0xFFFFFFFF for key in keys])


# ------------------------------------------------------------------------- over time


def _curve(events: TraceEvents, number: int) -> Curve:
    chosen = [n for n in range(len(events.memory_at)) if events.memory_device[n] == number]
    chosen.sort(key=events.memory_at.__getitem__)
    at, allocated, reserved = array("q"), array("q"), array("q")
    running = allocations = frees = gained = lost = 0
    live: dict[int, int] = {}
    for n in chosen:
        bytes_ = events.memory_bytes[n]
        running += bytes_
        if bytes_ >= 0:
            allocations += 1
            gained += bytes_
            live[events.memory_address[n]] = bytes_
        else:
            frees += 1
            lost -= bytes_
            live.pop(events.memory_address[n], None)
        at.append(events.memory_at[n])
        told = events.memory_allocated[n]
        allocated.append(told if told >= 0 else running)
        reserved.append(events.memory_reserved[n])
    top = max(range(len(at)), key=allocated.__getitem__)
    peak = Peak(at[top], allocated[top], reserved[top], _running(events, at[top], events.memory_thread[chosen[top]]))
    name = device_name(events.devices.texts[number])
    return Curve(name, at, allocated, reserved, peak, allocations, frees, gained, lost, sum(live.values()))


def _running(events: TraceEvents, at: int, thread: int) -> tuple[str, ...]:
    """What was open at a moment on one thread, the outermost first."""
    open_ = [
        (start, -events.end[n], n)
        for n, start in enumerate(events.start)
        if start <= at <= events.end[n] and events.thread[n] == thread and events.kind[n] in (CPU, PYTHON, ANNOTATION)
    ]
    return tuple(events.names.texts[events.name[n]] for _, _, n in sorted(open_))
