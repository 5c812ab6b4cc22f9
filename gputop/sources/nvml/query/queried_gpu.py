"""One GPU, asked on demand: nothing is read that nobody asked for, and nothing twice at one moment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from ctypes import c_uint, create_string_buffer
from pathlib import Path
from typing import Any, Final, TypeVar

from gputop.model import clean_text
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.calls import Handle, Quantity
from gputop.sources.nvml.driver.errors import NvmlError
from gputop.sources.nvml.driver.library import Library
from gputop.sources.nvml.readings.memory import memory_quantity
from gputop.sources.nvml.readings.processes import KINDS, EntryLayoutProbe, ProcessList
from gputop.sources.query_fields import NOT_APPLICABLE, Answer, Field, Unanswered

T = TypeVar("T")

_NAME_SIZE: Final = 4096
ASLEEP: Final = "GPU is asleep"


class GpuAsleep(NvmlError):
    """Opening the GPU would wake it."""

    def __init__(self) -> None:
        super().__init__(abi.NOT_READY)


class QueriedGpu:
    """A GPU by its index in the driver's count. Asking raises NvmlError where the driver gives no answer.

    Belongs to one thread at a time.
    """

    def __init__(self, library: Library, index: int, layouts: EntryLayoutProbe, driver_version: str) -> None:
        self.index, self.library, self.driver_version = index, library, driver_version
        self.moment = 0.0  # of the reading, seconds since the epoch
        self.code = 0  # why it could not be opened
        self.asleep = False  # it sleeps and is left asleep
        self._layouts = layouts
        self._handle: Handle | None = None
        self._lists: list[ProcessList] = []
        self._quantities: dict[Any, Quantity[Any]] = {}
        self._answers: dict[Any, Any] = {}

    def forget(self, moment: float) -> None:
        """Another reading begins; a GPU that could not be opened is tried again."""
        self.moment, self.code = moment, 0
        self._answers.clear()

    def ask(self, key: Any, prepare: Callable[[Handle], Quantity[T]]) -> T:
        """What the quantity that *prepare* makes gave, or failed with, the first time in this reading. *key* stands
        for it: it is prepared once."""
        if key not in self._answers:
            try:
                if key not in self._quantities:
                    self._quantities[key] = prepare(self._opened())
                self._answers[key] = self._quantities[key].ask()
            except NvmlError as error:
                self._answers[key] = error
        answer = self._answers[key]
        if isinstance(answer, NvmlError):
            raise GpuAsleep if isinstance(answer, GpuAsleep) else NvmlError(answer.code)
        return answer  # type: ignore[no-any-return]

    def _opened(self) -> Handle:
        """Opened when something is asked first: that may take long, and belongs to this GPU's thread."""
        if self.asleep:
            raise GpuAsleep
        if self._handle is None and not self.code:
            pointer, self.code = self.library.open_device(self.index)
            if pointer is not None:
                self._handle = Handle(self.library, pointer)
        if self._handle is None:
            raise NvmlError(self.code)
        return self._handle

    def processes(self) -> list[QueriedProcess]:
        """Those with a compute context, MPS clients included, in the driver's order."""
        if not self._lists:
            handle = self._opened()
            self._lists = [ProcessList(handle, kind, self._layouts) for kind in KINDS if kind.letter in "CM"]
        found: dict[tuple[int, int, int], QueriedProcess] = {}
        for list_ in self._lists:
            raw = list_.read()
            if list_.missed:
                raise NvmlError(list_.missed)
            entries, right = list_.entries(raw, self._memory_limit())
            if not right:  # some of it cannot be: neither can the rest be trusted
                raise NvmlError(abi.UNKNOWN)
            for pid, memory, gi, ci in entries:
                found.setdefault((pid, gi, ci), QueriedProcess(self, pid, memory))
        return list(found.values())

    def _memory_limit(self) -> int | None:
        """Bytes of its memory; None where it does not say, or has none of its own."""
        try:
            return self.ask("memory", memory_quantity)[0]
        except NvmlError:
            return None


class QueriedProcess:
    """A process on a GPU, or what stands in its place where the GPU's list cannot be had."""

    def __init__(self, gpu: QueriedGpu, pid: int, memory: int, code: int = 0) -> None:
        self.gpu, self._pid, self._memory, self._code = gpu, pid, memory, code

    @property
    def pid(self) -> int:
        if self._code:
            raise NvmlError(self._code)
        return self._pid

    @property
    def memory(self) -> int:
        """Bytes."""
        if self._code or self._memory == abi.NOT_AVAILABLE_64:
            raise NvmlError(self._code or abi.NOT_SUPPORTED)
        return self._memory

    @property
    def name(self) -> str:
        """What the driver calls it: its argv[0]. NOT_FOUND where it is not of this PID namespace, or is dead."""
        name = create_string_buffer(_NAME_SIZE)
        code = self.gpu.library.call("nvmlSystemGetProcessName", c_uint(self.pid), name, c_uint(_NAME_SIZE))
        if code:
            raise NvmlError(code)
        if not name.value.isascii() or b"?" in name.value:  # the driver takes UTF-8 for something else
            with contextlib.suppress(OSError):
                return clean_text(Path(f"/proc/{self.pid}/cmdline").read_bytes().partition(b"\0")[0] or name.value)
        return clean_text(name.value)


def answer(field: Field, asked: QueriedGpu | QueriedProcess) -> Answer:
    """What there is to *field*, or why there is nothing."""
    try:
        return field.read(asked)
    except GpuAsleep:
        return Unanswered(abi.NOT_READY, ASLEEP)
    except NvmlError as error:
        library = asked.library if isinstance(asked, QueriedGpu) else asked.gpu.library
        return Unanswered(error.code, message(library, error.code))


def message(library: Library, code: int) -> str:
    """What nvidia-smi prints in brackets: the library's own sentence, but N/A for what is not supported."""
    return NOT_APPLICABLE if code == abi.NOT_SUPPORTED else library.nvml_message(code)
