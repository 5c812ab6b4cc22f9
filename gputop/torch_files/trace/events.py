"""The events of a trace, as columns: some 40 bytes each. Filled by the reader, read by everything else."""

from __future__ import annotations

from array import array
from typing import Final

MEMORY: Final = "[memory]"
OUT_OF_MEMORY: Final = "[OutOfMemory]"

#: The "thread" of what the driver did by the way: it loaded code, asked for a buffer.
OVERHEAD_THREAD: Final = "-1:0"

#: What a row of the table is of.
CPU, DEVICE, PYTHON, ANNOTATION, DEVICE_ANNOTATION = range(5)
_CPU_TYPES: Final = frozenset({0, 5, 8})  # CPU, MKLDNN, IDEEP: as torch sums them


class Numbers:
    """Texts by number, in order of appearance."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def of(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return number


class TraceEvents:
    """The events of one file, as columns. Times in ns since the trace's base."""

    def __init__(self) -> None:
        self.start, self.end = array("q"), array("q")
        self.name, self.thread, self.shape = array("i"), array("i"), array("i")  # numbers; shape -1: none
        self.kind = array("b")
        self.external = array("q")  # torch's correlation of ops with kernels; -1: none, or of an op's runtime call
        self.forward: dict[int, tuple[int, int]] = {}  # (thread, start) of a forward op, by number of its arrow
        self.backward: dict[tuple[int, int], int] = {}  # and that number, by (thread, start) of its backward op
        self.names, self.shapes, self.threads = Numbers(), Numbers(), Numbers()
        self.memory_at, self.memory_bytes = array("q"), array("q")  # negative: freed
        self.memory_device = array("i")  # number of "TYPE:ID"
        self.memory_thread = array("i")
        self.memory_allocated, self.memory_reserved = array("q"), array("q")  # -1: not in the trace
        self.memory_address = array("Q")
        self.devices = Numbers()
        self.ooms = 0
        self.seen = 0  # events of any kind
        self.base_ns = 0
        self.profile_memory = False
        self.rank: int | None = None  # of a distributed job, where it is one
        self.world_size: int | None = None
        self.notes: list[str] = []

    def is_cpu(self, device: int) -> bool:
        """Whether the memory of the device with this number is the host's."""
        return int(self.devices.texts[device].partition(":")[0]) in _CPU_TYPES
