"""Which processes are on a GPU: the compute, graphics and MPS lists, whatever layout this driver writes them in.

The layout of an entry changed without notice between driver versions (16, 24 or 32 bytes; gpustat#161, nvitop#75,
nvml-wrapper#48; docs/nvml-quirks.md §4), so it is measured: the buffer is filled with a pattern, and how far the driver
wrote over it, divided by the number of entries, is the stride.
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import c_uint
from typing import Final, NamedTuple

from gputop.model import GpuProcess
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.calls import PERMISSION_RETRY_SECONDS, Handle
from gputop.sources.nvml.driver.errors import PERMANENT
from gputop.sources.nvml.readings.mig import MigReader

#: Utilization of one process: SM, memory bandwidth, encoder, decoder, in percent.
UtilizationSample = tuple[int, int, int, int]
SamplesByPid = Mapping[int, UtilizationSample]
IDLE: Final[UtilizationSample] = (0, 0, 0, 0)
UNKNOWN: Final = (None, None, None, None)

#: pid, memory, GPU instance, compute instance.
Entry = tuple[int, int, int, int]

_V1_STRIDE: Final = 16
_V2_STRIDE: Final = 24
_WIDEST_STRIDE: Final = 32  # 535.43 to 535.86: 24 bytes and the memory protected by confidential computing
_ENTRY: Final = {16: struct.Struct("=I4xQ"), 24: struct.Struct("=I4xQII"), 32: struct.Struct("=I4xQII8x")}
_FILL_BYTE: Final = 0xAA
_TRIES: Final = 3  # when the buffer is too small; a driver that says so for ever must not hold us (nvtop froze)
_CAPACITY: Final = 128
_CAPACITY_MAX: Final = 16384

#: PID_MAX_LIMIT of 64-bit kernels. (/proc/sys/kernel/pid_max is a namespace's own since Linux 6.14, and a
#: container sees pids of the host.)
_PID_MAX: Final = 1 << 22
#: More memory than any GPU, or host that shares its own with one, has: where that is not known.
_MOST_BYTES: Final = 1 << 46
#: Where so much is used and every process is said to have 0, the driver does not know what they have: in containers
#: (HAMi-core#112). A context alone takes more than that.
_USED_BYTES: Final = 64 << 20


class ProcessKind(NamedTuple):
    letter: str
    functions: tuple[str, ...]  # v3, v2, v1


def _kind(letter: str, what: str) -> ProcessKind:
    name = f"nvmlDeviceGet{what}RunningProcesses"
    return ProcessKind(letter, (f"{name}_v3", f"{name}_v2", name))


KINDS: Final = (_kind("C", "Compute"), _kind("G", "Graphics"), _kind("M", "MPSCompute"))


class EntryLayoutProbe:
    """Bytes per entry by function, as measured once for this driver."""

    def __init__(self) -> None:
        self._measured: dict[str, int] = {}

    def of(self, function: str) -> int | None:
        return self._measured.get(function)

    def measure(self, function: str, written: int, count: int, capacity: int) -> int:
        """The stride, from how many bytes were *written* for *count* entries. A driver that clears the whole buffer
        wrote *capacity* entries. Where neither fits, what the header promises, until a list that fits comes by."""
        for entries in (count, capacity):
            stride, rest = divmod(written, entries)
            if not rest and stride in _ENTRY:
                self._measured[function] = stride
                return stride
        return _V2_STRIDE if function.endswith(("_v2", "_v3")) else _V1_STRIDE

    def forget(self, function: str) -> None:
        self._measured.pop(function, None)


#: After which an empty graphics or MPS list is asked for again: on compute GPUs they stay empty, and with 16
#: processes on two H200s each such call took 0.8 ms of CPU.
EMPTY_LIST_SECONDS: Final = 1.0


class ProcessList:
    """One of the three lists of a GPU."""

    def __init__(self, handle: Handle, kind: ProcessKind, layouts: EntryLayoutProbe) -> None:
        self._handle, self._layouts = handle, layouts
        self._names = [name for name in kind.functions if handle.library.function(name) is not None]
        self._count = c_uint()
        self._capacity = 0
        self.function = ""
        self.stride = _V2_STRIDE
        self.failure = 0  # the code of the last read
        self.scrambled = False  # the last read wrote entries of a length that no layout has
        self._required = kind.letter == "C"
        self._answered = False  # at least once
        self._retry_at = 0.0
        self._may_skip = kind.letter != "C"
        self._skip_until = 0.0
        self._allocate(_CAPACITY)

    def _allocate(self, capacity: int) -> None:
        """Room for *capacity* entries of the widest layout."""
        self._capacity = min(capacity, _CAPACITY_MAX)
        self._buffer = ctypes.create_string_buffer(self._capacity * _WIDEST_STRIDE)
        self._view = memoryview(self._buffer)
        self._bind()

    def _bind(self) -> None:
        self._call: Callable[[], int] | None = None
        if self._names:
            self.function = self._names[0]
            self._call = self._handle.bind(self.function, ctypes.byref(self._count), self._buffer)

    def read(self) -> bytes:
        """The entries as the driver wrote them, ``stride`` bytes each; empty (and ``failure`` set) where it failed.
        Raises NvmlError when the GPU or the driver is gone."""
        tries = 0
        if self._skip_until and time.monotonic() < self._skip_until:
            return b""
        if self.failure == abi.NO_PERMISSION and time.monotonic() < self._retry_at:
            return b""
        self.failure = 0
        while self._call is not None:
            stride = self._layouts.of(self.function)
            if stride is None:
                ctypes.memset(self._buffer, _FILL_BYTE, len(self._buffer))
            self._count.value = self._capacity
            code = self._call()
            if code == 0:
                return self._entries(stride)
            if code == abi.INSUFFICIENT_SIZE:
                if tries == _TRIES or self._capacity == _CAPACITY_MAX:
                    self.failure = code
                    return b""
                tries += 1
                self._allocate(max(self._count.value * 2 + 5, self._capacity * 2))
            elif code in PERMANENT and not self._answered:
                del self._names[0]
                self._bind()
            else:
                self.failure = code
                self._retry_at = time.monotonic() + PERMISSION_RETRY_SECONDS
                self._handle.failed(code)
                return b""
        self.failure = abi.NOT_SUPPORTED
        return b""

    @property
    def missed(self) -> int:
        """The code of the last read, where that means that processes may be missing; else 0. A driver without a
        graphics or MPS list lists all in the compute list."""
        return self.failure if self._required or self._answered or self.failure != abi.NOT_SUPPORTED else 0

    def stop_skipping(self) -> None:
        """Ask again at the next read, although the list was empty just now."""
        self._skip_until = 0.0

    def _entries(self, stride: int | None) -> bytes:
        count = min(self._count.value, self._capacity)
        self._answered, self.scrambled = True, False
        self._skip_until = time.monotonic() + EMPTY_LIST_SECONDS if self._may_skip and not count else 0.0
        if count == 0:
            return b""
        if stride is None:
            written = len(bytes(self._view).rstrip(bytes((_FILL_BYTE,))))
            stride = self._layouts.measure(self.function, written, count, self._capacity)
            if self._layouts.of(self.function) is None:
                self.scrambled = True
                return b""
        self.stride = stride
        return self._view[: count * stride].tobytes()

    def decode(self, raw: bytes) -> Iterator[Entry]:
        """The entries of what :meth:`read` gave."""
        entries = _ENTRY[self.stride].iter_unpack(raw)
        if self.stride == _V1_STRIDE:
            return ((pid, memory, abi.NOT_AVAILABLE_32, abi.NOT_AVAILABLE_32) for pid, memory in entries)
        return entries

    def entries(self, raw: bytes, memory_limit: int | None) -> tuple[list[Entry], bool]:
        """The entries of what :meth:`read` gave that can be right, and whether all can: no pid of 0 or beyond any
        Linux's, and no more memory than *memory_limit* bytes. Where they cannot, the layout is measured anew."""
        limit = memory_limit or _MOST_BYTES
        decoded = list(self.decode(raw)) if raw else []
        likely = [
            entry
            for entry in decoded
            if 0 < entry[0] <= _PID_MAX and (entry[1] <= limit or entry[1] == abi.NOT_AVAILABLE_64)
        ]
        if len(likely) < len(decoded):
            self.forget_layout()
        return likely, len(likely) == len(decoded) and not self.scrambled

    def forget_layout(self) -> None:
        """What was decoded makes no sense: measure the stride anew."""
        self._layouts.forget(self.function)


class ProcessListing(NamedTuple):
    """A list to read: of the GPU, or of one of its MIG instances (whose ids its entries may lack)."""

    letter: str
    list: ProcessList
    gi: int = abi.NOT_AVAILABLE_32
    ci: int = abi.NOT_AVAILABLE_32


class Processes:
    """The processes on one GPU, merged from its lists. Objects (and the tuple) are reused while nothing changed."""

    def __init__(self, handle: Handle, layouts: EntryLayoutProbe, gpu_uuid: str, gpu_index: int) -> None:
        self._layouts, self._gpu_uuid, self._gpu_index = layouts, gpu_uuid, gpu_index
        self._own = _listings(handle, layouts)
        self._instances: dict[MigReader, tuple[ProcessListing, ...]] = {}
        self._listings = self._own
        self._raw: list[bytes] = []
        self._samples: SamplesByPid | None = None
        self._used_much = False
        self._by_key: dict[tuple[int, int, int], GpuProcess] = {}
        self._processes: tuple[GpuProcess, ...] = ()
        self.unreliable = False
        self.failure = 0  # why the list is missing, or not all of it is there; or 0
        self.pids: frozenset[int] = frozenset()  # read by the medium tier's thread

    def read(
        self,
        samples: SamplesByPid | None,
        memory_limit: int | None,
        used: int | None,
        instances: Sequence[MigReader] = (),
    ) -> tuple[GpuProcess, ...]:
        """What is on the GPU now. *samples* is the utilization by pid (pids not in it are idle), None where the driver
        does not tell it; *memory_limit*: bytes that no process can exceed; *used*: bytes used on the GPU. Raises
        NvmlError when the GPU or the driver is gone."""
        listings = self._own
        raw = [listings[0].list.read()]
        changed = raw != self._raw[:1]
        for listing in listings[1:]:
            if changed:
                listing.list.stop_skipping()
            raw.append(listing.list.read())
        if listings[0].list.failure and instances:  # reading a whole GPU takes a right that our own instances do not
            listings = self._of_instances(instances)
            raw = [listing.list.read() for listing in listings]
        self.failure = next((listing.list.missed for listing in listings if listing.list.missed), 0)
        partial = any(listing.list.failure == abi.INSUFFICIENT_SIZE or listing.list.scrambled for listing in listings)
        used_much = used is not None and used >= _USED_BYTES
        if (
            raw != self._raw
            or samples is not self._samples
            or partial
            or self.unreliable
            or listings is not self._listings
            or used_much != self._used_much
        ):
            self._listings, self.unreliable = listings, partial
            self._used_much = used_much
            self._merge(raw, samples, memory_limit)
        return self._processes

    def _of_instances(self, instances: Sequence[MigReader]) -> tuple[ProcessListing, ...]:
        self._instances = {
            instance: self._instances.get(instance)
            or _listings(instance.handle, self._layouts, instance.gi, instance.ci)
            for instance in instances
        }
        return tuple([listing for listings in self._instances.values() for listing in listings])

    def _merge(self, raw: list[bytes], samples: SamplesByPid | None, memory_limit: int | None) -> None:
        found: dict[tuple[int, int, int], tuple[str, int]] = {}
        for (letter, list_, own_gi, own_ci), part in zip(self._listings, raw, strict=True):
            entries, right = list_.entries(part, memory_limit)
            self.unreliable = self.unreliable or not right
            for pid, memory, gi, ci in entries:
                key = (pid, own_gi if gi == abi.NOT_AVAILABLE_32 else gi, own_ci if ci == abi.NOT_AVAILABLE_32 else ci)
                known = found.get(key)
                found[key] = (letter, memory) if known is None else _joined(known, letter, memory)
        if self._used_much and not any(memory for _, memory in found.values()):
            found = {key: (kind, abi.NOT_AVAILABLE_64) for key, (kind, _) in found.items()}
        before = self._by_key
        self._by_key = {
            key: self._process(key, kind, memory, samples, before.get(key)) for key, (kind, memory) in found.items()
        }
        self._processes = tuple(self._by_key.values())
        self.pids = frozenset([process.pid for process in self._processes])
        self._raw, self._samples = raw, samples

    def _process(
        self,
        key: tuple[int, int, int],
        kind: str,
        memory: int,
        samples: SamplesByPid | None,
        before: GpuProcess | None,
    ) -> GpuProcess:
        pid, gi, ci = key
        bytes_ = None if memory == abi.NOT_AVAILABLE_64 else memory
        sm, bandwidth, encoder, decoder = UNKNOWN if samples is None else samples.get(pid, IDLE)
        if (
            before is not None
            and before.memory_bytes == bytes_
            and before.sm_percent == sm
            and before.memory_bandwidth_percent == bandwidth
            and before.encoder_percent == encoder
            and before.decoder_percent == decoder
            and before.kind == kind
        ):
            return before
        return GpuProcess(
            pid=pid,
            gpu_uuid=self._gpu_uuid,
            kind=kind,
            gpu_index=self._gpu_index,
            gpu_instance_id=None if gi == abi.NOT_AVAILABLE_32 else gi,
            compute_instance_id=None if ci == abi.NOT_AVAILABLE_32 else ci,
            memory_bytes=bytes_,
            sm_percent=sm,
            memory_bandwidth_percent=bandwidth,
            encoder_percent=encoder,
            decoder_percent=decoder,
        )


def _listings(
    handle: Handle, layouts: EntryLayoutProbe, gi: int = abi.NOT_AVAILABLE_32, ci: int = abi.NOT_AVAILABLE_32
) -> tuple[ProcessListing, ...]:
    return tuple([ProcessListing(kind.letter, ProcessList(handle, kind, layouts), gi, ci) for kind in KINDS])


def _joined(known: tuple[str, int], letter: str, memory: int) -> tuple[str, int]:
    """A pid that is in two lists: both carry the same memory, so the larger figure counts, not the sum."""
    kind, other = known
    if letter not in kind:
        kind = "M" if letter == "M" else f"{kind}+{letter}"
    if abi.NOT_AVAILABLE_64 in (memory, other):
        return kind, min(memory, other)
    return kind, max(memory, other)
