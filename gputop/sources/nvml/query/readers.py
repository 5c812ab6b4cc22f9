"""What fields are read with: most make a function that reads one field of a GPU, or raises NvmlError."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import Structure, c_uint
from typing import Any, TypeVar

from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.errors import NvmlError
from gputop.sources.nvml.query.queried_gpu import QueriedGpu
from gputop.sources.query_fields import Answer

S = TypeVar("S", bound=Structure)

Read = Callable[[QueriedGpu], Answer]
ReadInt = Callable[[QueriedGpu], int]


def unsupported() -> Any:
    """Takes the place of a value, but raises: there is no answer."""
    raise NvmlError(abi.NOT_SUPPORTED)


def numbers(gpu: QueriedGpu, call: str, of: int, *before: int, kind: Any = c_uint) -> tuple[int, ...]:
    """The *of* integers that *call* fills, behind the arguments *before*. Raises NvmlError."""
    return gpu.ask((call, before), lambda handle: handle.numbers(call, of, *before, kind=kind))


def struct(gpu: QueriedGpu, call: str, layout: type[S], version: int = 0) -> S:
    """The struct that *call* fills. Raises NvmlError."""
    return gpu.ask((call, layout), lambda handle: handle.struct(call, layout, version))


def field(gpu: QueriedGpu, id_: int, scope: int = 0) -> float:
    """A field value. Raises NvmlError."""
    return gpu.ask((id_, scope), lambda handle: handle.field(id_, scope))


def number(call: str, *before: int, of: int = 1, position: int = 0, kind: Any = c_uint) -> ReadInt:
    """The integer at *position* of the *of* that *call* fills, behind the arguments *before*."""
    return lambda gpu: numbers(gpu, call, of, *before, kind=kind)[position]


def flag(call: str, of: int = 1, position: int = 0) -> Read:
    return lambda gpu: bool(numbers(gpu, call, of)[position])


def text(call: str, *before: int) -> Read:
    return lambda gpu: gpu.ask((call, before), lambda handle: handle.text(call, *before))


def watts(call: str, of: int = 1, position: int = 0) -> Read:
    """Of a call that gives milliwatts."""
    return lambda gpu: numbers(gpu, call, of)[position] / 1000


def field_watts(id_: int, scope: int = 0) -> Read:
    return lambda gpu: field(gpu, id_, scope) / 1000


def field_number(id_: int) -> Read:
    return lambda gpu: int(field(gpu, id_))


def member(call: str, layout: type[Structure], part: str, version: int = 0) -> ReadInt:
    """An integer in the struct that *call* fills."""
    return lambda gpu: int(getattr(struct(gpu, call, layout, version), part))


def truth(read: Read) -> Read:
    return lambda gpu: bool(read(gpu))


def label(labels: tuple[str, ...], value: float) -> str:
    """The label of an enumerated value; none for what is "not supported" or newer than *labels*."""
    return (labels[int(value)] if 0 <= value < len(labels) else "") or unsupported()


def mask(*calls: str) -> ReadInt:
    """64 bits by the first of *calls* that the library has."""

    return lambda gpu: gpu.ask(calls, lambda handle: handle.u64(*calls))


def deprecated(since: int, read: Read) -> Read:
    """From driver *since* on nvidia-smi does not ask any more."""

    def asked(gpu: QueriedGpu) -> Answer:
        major = gpu.driver_version.partition(".")[0]
        if major.isdecimal() and int(major) >= since:
            raise NvmlError(abi.DEPRECATED)
        return read(gpu)

    return asked
