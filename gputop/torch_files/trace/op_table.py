"""The table of a trace: its ops nested by thread, figures summed by name, shape and stack as ``key_averages()`` does.

Bytes are net (allocated minus freed) while something ran; nothing in torch's table is a peak.

torch gives an op all memory events of its span, of whatever thread: an op of the main thread swallows what the backward
thread allocates meanwhile. The thread-aware figures give each event to the innermost op of its own thread.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final

from gputop.torch_files.trace.callers import Callers, main_thread
from gputop.torch_files.trace.events import ANNOTATION, CPU, DEVICE, DEVICE_ANNOTATION, MEMORY, PYTHON, TraceEvents

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


_SORTED_AT_ONCE: Final = 1 << 18  # events
#: Ranges of a process group's work (c10d), which are asynchronous: torch's trace does not say so.
_WORK: Final = ("gloo:", "nccl:", "mpi:", "ucc:")


@dataclass(slots=True)
class OpRow:
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


class OpTree:
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
        self._memory = _MemoryEvents(events)
        self._by_thread: dict[int, array[int]] = {}  # made when it is asked for
        self._async = {n for n, text in enumerate(events.names.texts) if text.startswith(_WORK)}
        self._nest()
        self._kernels = self._kernel_times()
        self._merge()

    def _nest(self) -> None:
        """Parents, as torch finds them: by time on the same thread. And each memory event's innermost op."""
        events = self.events
        start, end, kind, thread = events.start, events.end, events.kind, events.thread
        parent, children, own = self._parent, self._children, self._own
        python, main, aside = self._python, *main_thread(events, self.order)
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
            if kind[op] in (DEVICE, DEVICE_ANNOTATION) or self._is_async(op):
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

    def _is_async(self, op: int) -> bool:
        """Whether it may end on another thread, so that torch gives it no part in the nesting and no time of its own:
        the work of a process group (c10d's Work has its range begin where it is asked for, and end where it is done).
        """
        return self.events.name[op] in self._async

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

    def running(self, thread: int, at_ns: int) -> list[int]:
        """Ops and frames that were open on *thread* at a moment, the outermost first."""
        events, gone = self.events, self._gone
        if not self._by_thread:
            for op in self.order:
                if events.kind[op] in (CPU, PYTHON, ANNOTATION) and not gone[op] and not self._is_async(op):
                    self._by_thread.setdefault(events.thread[op], array("i")).append(op)
        begun = self._by_thread.get(thread, array("i"))
        place = bisect_right(begun, at_ns, key=events.start.__getitem__) - 1
        op = begun[place] if place >= 0 else -1
        found = []
        while op >= 0:
            if events.end[op] >= at_ns:
                found.append(op)
            op = self._parent[op]
        return found[::-1]

    def rows(self, by_shape: bool, stack_depth: int) -> list[OpRow]:
        """See Trace.rows()."""
        events = self.events
        start, end, kind, parent, gone = events.start, events.end, events.kind, self._parent, self._gone
        memory = self._memory
        count = len(start)
        below_cpu, below_device = array("q", [0]) * count, array("q", [0]) * count
        below_time, below_thread = array("q", [0]) * count, array("q", [0]) * count
        below_kernels = array("q", [0]) * (count if self._kernels else 0)
        table: dict[tuple[int, int, int, int], list[int]] = {}
        first: dict[tuple[int, int, int, int], int] = {}
        kernels = self._kernels
        callers = Callers(events, self.order, stack_depth) if stack_depth else None
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
            low, high = bisect_left(memory.at, start[op]), bisect_right(memory.at, end[op])
            if self._is_async(op):
                sums[1] += memory.cpu[high] - memory.cpu[low]
                sums[3] += memory.device[high] - memory.device[low]
                sums[7] += lasted
                continue
            cpu = memory.cpu[high] - memory.cpu[low]
            device = memory.device[high] - memory.device[low]
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
            found.append(OpRow(events.names.texts[key[0]], key[1], shape, stack, *sums[:7], *times))
        alone = self._alone()
        alone.shape = "[]" if by_shape else ""
        return [*found, alone] if alone.calls else found

    def _alone(self) -> OpRow:
        """Memory events in no op at all: torch's rows "[memory]"."""
        events, memory = self.events, self._memory
        inside = array("i", [0]) * (len(memory.at) + 1)
        for op in range(len(events.start)):
            if events.kind[op] not in (DEVICE, DEVICE_ANNOTATION) and (self._python or events.kind[op] != PYTHON):
                inside[bisect_left(memory.at, events.start[op])] += 1
                inside[bisect_right(memory.at, events.end[op])] -= 1
        row = OpRow(MEMORY, CPU, "")
        depth = 0
        for n in range(len(memory.at)):
            depth += inside[n]
            if depth == 0:
                row.calls += 1
                row.cpu_memory += memory.cpu[n + 1] - memory.cpu[n]
                row.device_memory += memory.device[n + 1] - memory.device[n]
        row.self_cpu_memory, row.self_device_memory = row.cpu_memory, row.device_memory
        return row


class _MemoryEvents:
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
    """Events by start, the longer first, as torch sorts them: an integer each, since tuples would take much memory, and
    those of a part of the time at once, since all integers together would too."""
    if not events.start:
        return array("i")
    starts, ends = events.start, events.end
    base, span = min(starts), max(starts) - min(starts) + 1
    parts = [array("i") for _ in range(1 + len(starts) // _SORTED_AT_ONCE)]
    count = len(parts)
    for n, start in enumerate(starts):
        parts[(start - base) * count // span].append(n)
    order = array("i")
    for part in parts:
        longest = max([ends[n] - starts[n] for n in part], default=0)
        bits = longest.bit_length() + 1
        keys = [((((starts[n] - base) << bits) | (longest - (ends[n] - starts[n]))) << 32) | n for n in part]
        keys.sort()
        order.extend([key & 0xFFFFFFFF for key in keys])
    return order
