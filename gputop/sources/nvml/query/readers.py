"""Ways to ask: each makes a function that reads one field of a GPU, or raises Fault."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import Structure, c_uint, c_ulonglong
from typing import Any

from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.errors import Fault
from gputop.sources.nvml.query.asked_gpu import AskedGpu
from gputop.sources.query_fields import Answer

Read = Callable[[AskedGpu], Answer]
ReadInt = Callable[[AskedGpu], int]


def unsupported() -> Any:
    """Takes the place of a value, but raises: there is no answer."""
    raise Fault(abi.NOT_SUPPORTED)


def number(call: str, *before: int, of: int = 1, position: int = 0, kind: Any = c_uint) -> ReadInt:
    """The integer at *position* of the *of* that *call* fills."""
    return lambda gpu: gpu.numbers(call, of, *before, kind=kind)[position]


def flag(call: str, of: int = 1, position: int = 0) -> Read:
    return lambda gpu: bool(gpu.numbers(call, of)[position])


def text(call: str, *before: int) -> Read:
    return lambda gpu: gpu.text(call, *before) or unsupported()


def watts(call: str, of: int = 1, position: int = 0) -> Read:
    """Of a call that gives milliwatts."""
    return lambda gpu: gpu.numbers(call, of)[position] / 1000


def field_watts(id_: int, scope: int = 0) -> Read:
    return lambda gpu: gpu.field(id_, scope) / 1000


def field_number(id_: int) -> Read:
    return lambda gpu: int(gpu.field(id_))


def member(call: str, layout: type[Structure], part: str, version: int = 0) -> ReadInt:
    """An integer in the struct that *call* fills."""
    return lambda gpu: int(getattr(gpu.struct(call, layout, version), part))


def truth(read: Read) -> Read:
    return lambda gpu: bool(read(gpu))


def word(words: tuple[str, ...], value: float) -> str:
    """The word for an enumerated value; none for what is "not supported" or newer than *words*."""
    return (words[int(value)] if 0 <= value < len(words) else "") or unsupported()


def mask(*calls: str) -> ReadInt:
    """64 bits by the first of *calls* that the library has."""

    def read(gpu: AskedGpu) -> int:
        for call in calls[:-1]:
            try:
                return gpu.numbers(call, 1, kind=c_ulonglong)[0]
            except Fault as fault:
                if fault.code != abi.FUNCTION_NOT_FOUND:
                    raise
        return gpu.numbers(calls[-1], 1, kind=c_ulonglong)[0]

    return read


def deprecated(since: int, read: Read) -> Read:
    """From driver *since* on nvidia-smi does not ask any more."""

    def asked(gpu: AskedGpu) -> Answer:
        major = gpu.driver_version.partition(".")[0]
        if major.isdecimal() and int(major) >= since:
            raise Fault(abi.DEPRECATED)
        return read(gpu)

    return asked
