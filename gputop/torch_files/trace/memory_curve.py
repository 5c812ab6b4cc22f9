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
        live = _Live()
        for n in those:
            bytes_ = events.memory_bytes[n]
            running += bytes_
            if bytes_ >= 0:
                self.allocations += 1
                self.allocated_bytes += bytes_
                live.put(len(self.bytes), events.memory_address[n], bytes_)
            else:
                self.frees += 1
                self.freed_bytes -= bytes_
                live.take(events.memory_address[n], -bytes_)
            self.at_ns.append(at[n])
            self.bytes.append(bytes_)
            self.thread.append(events.memory_thread[n])
            self.address.append(events.memory_address[n])
            told = events.memory_allocated[n]
            self.allocated.append(told if told >= 0 else running)
            self.reserved.append(events.memory_reserved[n])
        self.never_freed = sum(self.bytes[n] for n in live.events())  # bytes allocated in the trace and not freed in it

    def __len__(self) -> int:
        return len(self.at_ns)

    @cached_property
    def peak(self) -> Peak:
        event = first(self._allocated, max(self.allocated))
        return Peak(event, self.at_ns[event], self.allocated[event], self.reserved[event])

    def held(self, event: int) -> list[int]:
        """The allocations of the trace that were not freed after *event*, by their own events."""
        live = _Live()
        for n in range(event + 1):
            if self.bytes[n] >= 0:
                live.put(n, self.address[n], self.bytes[n])
            else:
                live.take(self.address[n], -self.bytes[n])
        return live.events()

    def lifetimes(self) -> list[tuple[int, int | None]]:
        """Each allocation of the trace and its free, by their events; None: never freed in it."""
        live, freed = _Live(), dict[int, int]()
        for n, bytes_ in enumerate(self.bytes):
            if bytes_ >= 0:
                live.put(n, self.address[n], bytes_)
            elif (made := live.take(self.address[n], -bytes_)) is not None:
                freed[made] = n
        return [(n, freed.get(n)) for n, bytes_ in enumerate(self.bytes) if bytes_ >= 0]

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


class _Live:
    """Allocations not freed yet, by their events. Where a trace tells no addresses (kineto's own samples, torch before
    1.10), a free is of the newest allocation of its size."""

    def __init__(self) -> None:
        self._by_address: dict[int, int] = {}
        self._by_size: dict[int, list[int]] = {}

    def put(self, event: int, address: int, bytes_: int) -> None:
        if address:
            self._by_address[address] = event
        else:
            self._by_size.setdefault(bytes_, []).append(event)

    def take(self, address: int, bytes_: int) -> int | None:
        """The allocation that is freed; None: it was made before the trace."""
        if address:
            return self._by_address.pop(address, None)
        of_size = self._by_size.get(bytes_)
        return of_size.pop() if of_size else None

    def events(self) -> list[int]:
        return [*self._by_address.values(), *(event for events in self._by_size.values() for event in events)]


def device_name(text: str) -> str:
    """``CUDA 0`` of ``1:0``."""
    kind, _, number = text.partition(":")
    name = _TYPES.get(int(kind), f"device type {kind}")
    return name if int(number) < 0 else f"{name} {number}"
