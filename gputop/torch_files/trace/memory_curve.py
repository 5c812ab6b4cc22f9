"""Memory over time, from the memory events of a trace: a point an event, a curve a device."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from gputop.torch_files.maxima import first, levels, most
from gputop.torch_files.trace.events import TraceEvents

_TYPES: Final = {0: "CPU", 1: "CUDA", 5: "CPU (MKLDNN)", 6: "HIP", 8: "CPU (IDEEP)", 12: "XPU", 13: "MPS", 20: "device"}


class Peak(NamedTuple):
    """The most that was allocated on one device: after which of its events, when, and bytes."""

    event: int
    at_ns: int
    allocated: int
    reserved: int


def memory_curves(events: TraceEvents) -> list[MemoryCurve]:
    """A curve for each device, in order of appearance."""
    of_device = [array("i") for _ in events.devices.texts]  # its memory events by time
    for n in sorted(range(len(events.memory_at)), key=events.memory_at.__getitem__):
        of_device[events.memory_device[n]].append(n)
    return [MemoryCurve(events, number, those) for number, those in enumerate(of_device)]


class MemoryCurve:
    """One device: the memory events *those*, by time. Without torch's totals, allocated counts from 0 at the start of
    the trace; -1 reserved: not told."""

    def __init__(self, events: TraceEvents, number: int, those: Iterable[int]) -> None:
        self.device = device_name(events.devices.texts[number])
        self.at_ns, self.bytes, self.thread = array("q"), array("q"), array("i")
        self.allocated, self.reserved = array("q"), array("q")
        self.address = array("Q")
        self.allocations = self.frees = self.allocated_bytes = self.freed_bytes = 0
        at = events.memory_at
        running = 0
        live: dict[int, int] = {}
        for n in those:
            bytes_ = events.memory_bytes[n]
            running += bytes_
            if bytes_ >= 0:
                self.allocations += 1
                self.allocated_bytes += bytes_
                live[events.memory_address[n]] = bytes_
            else:
                self.frees += 1
                self.freed_bytes -= bytes_
                live.pop(events.memory_address[n], None)
            self.at_ns.append(at[n])
            self.bytes.append(bytes_)
            self.thread.append(events.memory_thread[n])
            self.address.append(events.memory_address[n])
            told = events.memory_allocated[n]
            self.allocated.append(told if told >= 0 else running)
            self.reserved.append(events.memory_reserved[n])
        self.never_freed = sum(live.values())  # bytes allocated in the trace and not freed in it

    def __len__(self) -> int:
        return len(self.at_ns)

    @cached_property
    def peak(self) -> Peak:
        event = first(self._allocated, max(self.allocated))
        return Peak(event, self.at_ns[event], self.allocated[event], self.reserved[event])

    def held(self, event: int) -> list[int]:
        """The allocations of the trace that were not freed after *event*, by their own events."""
        live: dict[int, int] = {}
        for n in range(event + 1):
            if self.bytes[n] >= 0:
                live[self.address[n]] = n
            else:
                live.pop(self.address[n], None)
        return list(live.values())

    def most_allocated(self, start: int, end: int) -> int:
        """The most that was allocated after any of the events *start* to *end* (without)."""
        return most(self._allocated, start, end)

    def most_reserved(self, start: int, end: int) -> int:
        return most(self._reserved, start, end)

    @cached_property
    def _allocated(self) -> list[Sequence[int]]:
        return [self.allocated, *levels(self.allocated)]

    @cached_property
    def _reserved(self) -> list[Sequence[int]]:
        return [self.reserved, *levels(self.reserved)]


def device_name(text: str) -> str:
    """``CUDA 0`` of ``1:0``."""
    kind, _, number = text.partition(":")
    name = _TYPES.get(int(kind), f"device type {kind}")
    return name if int(number) < 0 else f"{name} {number}"
