"""One GPU, asked on demand: nothing is read that nobody asked for, and nothing twice at one moment."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import Structure, byref, c_char_p, c_int, c_uint, c_void_p, create_string_buffer
from typing import Any, Final, TypeVar

from gputop.model import clean_text
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.calls import Handle
from gputop.sources.nvml.driver.errors import Fault
from gputop.sources.nvml.driver.library import Library
from gputop.sources.nvml.readings.processes import KINDS, EntryLayoutProbe, ProcessList
from gputop.sources.query_fields import Answer, Field, Unanswered

T = TypeVar("T")
S = TypeVar("S", bound=Structure)

_MEMBER: Final = {
    abi.VALUE_DOUBLE: "double",
    abi.VALUE_UINT: "uint",
    abi.VALUE_ULONG: "ulonglong",
    abi.VALUE_ULONGLONG: "ulonglong",
    abi.VALUE_LONGLONG: "longlong",
    abi.VALUE_INT: "int",
    abi.VALUE_USHORT: "uint",
}
_NAME_SIZE: Final = 4096


class AskedGpu:
    """A GPU by its index in the driver's count. Asking raises Fault where the driver gives no answer.

    Belongs to one thread at a time.
    """

    def __init__(self, library: Library, index: int, strides: EntryLayoutProbe, driver_version: str) -> None:
        self.index, self.library, self.driver_version = index, library, driver_version
        self.moment = 0.0  # of the reading, seconds since the epoch
        self.code = 0  # why it could not be opened
        self._strides = strides
        self._pointer: c_void_p | None = None
        self._lists: list[ProcessList] = []
        self._answers: dict[Any, Any] = {}

    def forget(self, moment: float) -> None:
        """Another reading begins; a GPU that could not be opened is tried again."""
        self.moment, self.code = moment, 0
        self._answers.clear()

    def once(self, key: Any, ask: Callable[[], T]) -> T:
        """What *ask* gave, or failed with, the first time in this reading."""
        if key not in self._answers:
            try:
                self._answers[key] = ask()
            except Fault as fault:
                self._answers[key] = fault
        answer = self._answers[key]
        if isinstance(answer, Fault):
            raise Fault(answer.code)
        return answer  # type: ignore[no-any-return]

    def _handle(self) -> c_void_p:
        """Opened when something is asked first: that may take long, and belongs to this GPU's thread."""
        if self._pointer is None and not self.code:
            self._pointer, self.code = self.library.open_device(self.index)
        if self._pointer is None:
            raise Fault(self.code)
        return self._pointer

    def call(self, name: str, *arguments: Any) -> None:
        """One call of the driver."""
        code = self.library.call(name, self._handle(), *arguments)
        if code:
            raise Fault(code)

    def numbers(self, name: str, count: int, *before: int, kind: Any = c_uint) -> tuple[int, ...]:
        """*count* integers of a function that takes *before* first. NVML's "not available" is NOT_SUPPORTED."""

        def ask() -> tuple[int, ...]:
            out = [kind() for _ in range(count)]
            self.call(name, *map(c_uint, before), *map(byref, out))
            return tuple([number.value for number in out])

        numbers = self.once((name, before), ask)
        if numbers[0] == (abi.NOT_AVAILABLE_32 if kind is c_uint else abi.NOT_AVAILABLE_64):
            raise Fault(abi.NOT_SUPPORTED)
        return numbers

    def number(self, name: str, *before: int, kind: Any = c_uint) -> int:
        return self.numbers(name, 1, *before, kind=kind)[0]

    def text(self, name: str, *before: int, size: int = 96) -> str:
        def ask() -> str:
            buffer = create_string_buffer(size)
            self.call(name, *map(c_uint, before), buffer, c_uint(size))
            return clean_text(buffer.value).strip()

        return self.once((name, before), ask)

    def struct(self, name: str, layout: type[S], version: int = 0, *before: int) -> S:
        """The struct a function fills; *version* where it has one."""

        def ask() -> S:
            out = layout()
            if version:
                out.version = abi.version(layout, version)
            self.call(name, *map(c_uint, before), byref(out))
            return out

        return self.once((name, before, layout), ask)

    def field(self, id_: int, scope: int = 0) -> float:
        """One field value. Drivers call those they do not know invalid."""

        def ask() -> float:
            entry = abi.FieldValue(id=id_, scope=scope)
            self.call("nvmlDeviceGetFieldValues", c_int(1), byref(entry))
            if entry.code:
                raise Fault(abi.NOT_SUPPORTED if entry.code == abi.INVALID_ARGUMENT else entry.code)
            if entry.value_type not in _MEMBER:
                raise Fault(abi.NOT_SUPPORTED)
            value = getattr(entry.value, _MEMBER[entry.value_type])
            return value & 0xFFFF if entry.value_type == abi.VALUE_USHORT else value  # type: ignore[no-any-return]

        return self.once((id_, scope), ask)

    def processes(self) -> list[AskedProcess]:
        """Those with a compute context, MPS clients included, in the driver's order."""
        if not self._lists:
            handle = Handle(self.library, self._handle())
            self._lists = [ProcessList(handle, kind, self._strides) for kind in KINDS if kind.letter in "CM"]
        found: dict[tuple[int, int, int], AskedProcess] = {}
        for list_ in self._lists:
            raw = list_.read()
            if list_.failure and list_ is self._lists[0]:
                raise Fault(list_.failure)
            for pid, memory, gi, ci in list_.decode(raw) if raw else ():
                found.setdefault((pid, gi, ci), AskedProcess(self, pid, memory))
        return list(found.values())


class AskedProcess:
    """A process on a GPU, or what stands in its place where the GPU's list cannot be had."""

    def __init__(self, gpu: AskedGpu, pid: int, memory: int, code: int = 0) -> None:
        self.gpu, self._pid, self._memory, self._code = gpu, pid, memory, code

    @property
    def pid(self) -> int:
        if self._code:
            raise Fault(self._code)
        return self._pid

    @property
    def memory(self) -> int:
        """Bytes."""
        if self._code or self._memory == abi.NOT_AVAILABLE_64:
            raise Fault(self._code or abi.NOT_SUPPORTED)
        return self._memory

    @property
    def name(self) -> str:
        """What the driver calls it: its argv[0]. NOT_FOUND where it is not of this PID namespace, or is dead."""
        name = create_string_buffer(_NAME_SIZE)
        code = self.gpu.library.call("nvmlSystemGetProcessName", c_uint(self.pid), name, c_uint(_NAME_SIZE))
        if code:
            raise Fault(code)
        return clean_text(name.value)


def answer(field: Field, asked: AskedGpu | AskedProcess) -> Answer:
    """What there is to *field*, or why there is nothing."""
    try:
        return field.read(asked)
    except Fault as fault:
        library = asked.library if isinstance(asked, AskedGpu) else asked.gpu.library
        return Unanswered(fault.code, words_for(library, fault.code))


def words_for(library: Library, code: int) -> str:
    """The driver's own words, as nvidia-smi prints them in brackets; what is not supported is N/A there."""
    if code == abi.NOT_SUPPORTED:
        return "N/A"
    function: Any = library.function("nvmlErrorString")
    if function is None:
        return "Unknown Error"
    function.restype = c_char_p
    return clean_text(function(c_int(code)) or b"Unknown Error")
