"""Calling NVML's functions on one GPU: prepared once, run with the same buffers again and again.

Both ways of asking use it. A tier calls ``read`` tick after tick: what a GPU does not support is asked once, then its
fallback is used, or nothing. `gputop query` calls ``ask``, which says why there is no value.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import Structure, byref, c_int, c_uint, c_ulonglong, c_void_p, create_string_buffer, sizeof
from functools import partial
from typing import Any, Final, Generic, TypeVar

from gputop.model import clean_text
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.errors import GPU_GONE, PERMANENT, NvmlError
from gputop.sources.nvml.driver.library import Library

T = TypeVar("T")
S = TypeVar("S", bound=Structure)

PERMISSION_RETRY_SECONDS: Final = 30.0  # until something that was not permitted is asked again

#: A function of this library has an older one to fall back on.
_OUTDATED: Final = frozenset({abi.FUNCTION_NOT_FOUND, abi.ARGUMENT_VERSION_MISMATCH})


class NvmlCall(Generic[T]):
    """A bound NVML function, the buffer it fills, how the value is decoded from it (None: the driver's "not
    available")."""

    __slots__ = ("buffer", "decode", "function")

    def __init__(self, function: Callable[[], int], buffer: Any, decode: Callable[[Any], T | None]) -> None:
        self.function, self.buffer, self.decode = function, buffer, decode


class Quantity(Generic[T]):
    """Something a GPU tells, by the first of the calls for it that this driver and GPU support."""

    __slots__ = ("_buffer", "_calls", "_decode", "_function", "_handle", "_retry_at")

    def __init__(self, handle: Handle, calls: Sequence[NvmlCall[T]]) -> None:
        self._handle = handle
        self._calls = list(calls)
        self._retry_at = 0.0
        self._use_first()

    def _use_first(self) -> None:
        self._function: Callable[[], int] | None = None
        if self._calls:
            first = self._calls[0]
            self._function, self._buffer, self._decode = first.function, first.buffer, first.decode

    @property
    def unsupported(self) -> bool:
        return not self._calls

    def read(self) -> T | None:
        """The value now; None where the driver does not say. Raises NvmlError when the GPU or the driver is gone."""
        function = self._function
        if function is None:
            if not self._calls or time.monotonic() < self._retry_at:
                return None
            self._use_first()
            return self.read()
        code = function()
        if code == 0:
            return self._decode(self._buffer)
        if code in PERMANENT:
            del self._calls[0]
            self._use_first()
            return self.read()
        if code == abi.NO_PERMISSION:
            self._function = None
            self._retry_at = time.monotonic() + PERMISSION_RETRY_SECONDS
        self._handle.failed(code)
        return None

    def ask(self) -> T:
        """The value now. Raises NvmlError where there is none, with the driver's code for why."""
        code = abi.FUNCTION_NOT_FOUND
        for call in self._calls:
            code = call.function()
            if code == 0:
                value = call.decode(call.buffer)
                if value is None:
                    raise NvmlError(abi.NOT_SUPPORTED)
                return value
            if code not in _OUTDATED:
                break
        raise NvmlError(code)


class Handle:
    """An opened GPU or MIG device, as one tier or query (hence one thread at a time) uses it."""

    def __init__(self, library: Library, pointer: c_void_p) -> None:
        self.library, self.pointer = library, pointer
        self.failures: set[int] = set()  # codes since the owner cleared them

    def failed(self, code: int) -> None:
        """Note a failure that may pass. Raises NvmlError for one that ends this GPU's reading."""
        if code in GPU_GONE:
            raise NvmlError(code)
        self.failures.add(code)

    def bind(self, name: str, *arguments: Any) -> Callable[[], int] | None:
        """*name* with this handle and *arguments*; None where the library lacks it."""
        function = self.library.function(name)
        return None if function is None else partial(function, self.pointer, *arguments)

    def quantity(
        self, function: Callable[[], int] | None, buffer: Any, decode: Callable[[Any], T | None]
    ) -> Quantity[T]:
        """What *function*, bound to whatever it fills, leaves in *buffer*."""
        return Quantity(self, [] if function is None else [NvmlCall(function, buffer, decode)])

    def first_of(self, *candidates: tuple[str, tuple[int, ...], Any, Callable[[Any], T | None]]) -> Quantity[T]:
        """A quantity by the best of (function, unsigned arguments before the buffer, buffer, decode)..., best first."""
        found = []
        for name, before, buffer, decode in candidates:
            function = self.bind(name, *map(c_uint, before), byref(buffer))
            if function is not None:
                found.append(NvmlCall(function, buffer, decode))
        return Quantity(self, found)

    def uint(self, *names: str, before: tuple[int, ...] = ()) -> Quantity[int]:
        """An unsigned int by the first of *names* there is."""
        return self.first_of(*((name, before, c_uint(), decode_uint) for name in names))

    def u64(self, *names: str, before: tuple[int, ...] = ()) -> Quantity[int]:
        return self.first_of(*((name, before, c_ulonglong(), decode_u64) for name in names))

    def numbers(self, name: str, count: int, *before: int, kind: Any = c_uint) -> Quantity[tuple[int, ...]]:
        """*count* integers, each in a buffer of its own (current and pending mode, minimum and maximum)."""
        buffers = [kind() for _ in range(count)]
        return self.quantity(self.bind(name, *map(c_uint, before), *map(byref, buffers)), buffers, decode_numbers)

    def percent(self, name: str) -> Quantity[int]:
        """A utilization with its sampling period (``nvmlDeviceGetEncoderUtilization`` and the like)."""
        buffers = c_uint(), c_uint()
        return self.quantity(self.bind(name, *map(byref, buffers)), buffers, decode_percent)

    def struct(self, name: str, layout: type[S], version: int = 0) -> Quantity[S]:
        """The struct that *name* fills, the same one each time; *version* where it has one."""
        buffer = layout()
        if version:
            buffer.version = abi.version(layout, version)
        return self.first_of((name, (), buffer, as_it_is))

    def text(self, name: str, *before: int, size: int = 96) -> Quantity[str]:
        """A text, cleaned; none where it is empty."""
        buffer = create_string_buffer(size)
        return self.quantity(self.bind(name, *map(c_uint, before), buffer, c_uint(size)), buffer, decode_text)

    def field(self, id_: int, scope: int = 0) -> Quantity[float]:
        """One field value (nvmlDeviceGetFieldValues)."""
        buffer = field_buffer(((id_, scope),))
        function = self.bind("nvmlDeviceGetFieldValues", c_int(1), buffer)

        def get() -> int:
            assert function is not None
            code = function() or int(buffer[0].code)
            return abi.NOT_SUPPORTED if code == abi.INVALID_ARGUMENT else code  # what old drivers call unknown ids

        return self.quantity(get if function is not None else None, buffer, decode_field)


def as_it_is(buffer: S) -> S:
    return buffer


def decode_uint(buffer: c_uint) -> int | None:
    value = buffer.value
    return None if value == abi.NOT_AVAILABLE_32 else value


def decode_u64(buffer: c_ulonglong) -> int | None:
    value = buffer.value
    return None if value == abi.NOT_AVAILABLE_64 else value


def decode_percent(buffers: tuple[c_uint, c_uint]) -> int | None:
    """The first of two, if it can be a percentage."""
    value = buffers[0].value
    return value if value <= 100 else None


def decode_numbers(buffers: Sequence[Any]) -> tuple[int, ...] | None:
    """All of them, if the first is a number."""
    first = buffers[0]
    if first.value == (abi.NOT_AVAILABLE_32 if isinstance(first, c_uint) else abi.NOT_AVAILABLE_64):
        return None
    return tuple([buffer.value for buffer in buffers])


def decode_text(buffer: Any) -> str | None:
    return clean_text(buffer.value).strip() or None


# ------------------------------------------------------------------------------------- field values

#: A field's id and scope (0 where it has none).
Field = tuple[int, int]

_FIELD_VALUE: Final = struct.Struct("=IIqqII8s")
_DECODE: Final = {
    abi.VALUE_DOUBLE: struct.Struct("=d"),
    abi.VALUE_UINT: struct.Struct("=I4x"),
    abi.VALUE_ULONG: struct.Struct("=Q"),
    abi.VALUE_ULONGLONG: struct.Struct("=Q"),
    abi.VALUE_LONGLONG: struct.Struct("=q"),
    abi.VALUE_INT: struct.Struct("=i4x"),
    abi.VALUE_USHORT: struct.Struct("=H6x"),
}
_WIDE: Final = frozenset({abi.VALUE_ULONG, abi.VALUE_ULONGLONG, abi.VALUE_LONGLONG})


def field_buffer(fields: Sequence[Field]) -> Any:
    """Room for *fields*, which it names."""
    buffer = (abi.FieldValue * max(1, len(fields)))()
    for entry, (id_, scope) in zip(buffer, fields, strict=False):
        entry.id, entry.scope = id_, scope
    return buffer


def decode_fields(buffer: Any) -> Iterator[tuple[Field, int, int, float | None]]:
    """(field, code, type, value) of each entry; the value is None where the type is none that is known."""
    for id_, scope, _, _, type_, code, raw in _FIELD_VALUE.iter_unpack(buffer):
        yield (id_, scope), code, type_, _DECODE[type_].unpack(raw)[0] if type_ in _DECODE else None


def decode_field(buffer: Any) -> float | None:
    return next(decode_fields(buffer))[3]


class Fields:
    """Several field values by one nvmlDeviceGetFieldValues; those the GPU does not support are asked once."""

    def __init__(self, handle: Handle, fields: Sequence[Field]) -> None:
        self._handle = handle
        self._retry_at = 0.0
        self._refused: list[Field] = []
        self.wide: dict[Field, bool] = {}  # whether a counter has 64 bits
        self._prepare(fields)

    def _prepare(self, fields: Sequence[Field]) -> None:
        self._fields = list(fields)
        self._buffer = field_buffer(fields)
        self._function = self._handle.bind("nvmlDeviceGetFieldValues", c_int(len(fields)), self._buffer)

    def read(self) -> Mapping[Field, float]:
        """The values there are now. Raises NvmlError when the GPU or the driver is gone."""
        if self._refused and time.monotonic() >= self._retry_at:
            self._prepare(self._fields + self._refused)
            self._refused = []
        if not self._fields or self._function is None:
            return {}
        code = self._function()
        if code:
            if code in PERMANENT:
                self._prepare(())
            else:
                self._handle.failed(code)
            return {}
        values: dict[Field, float] = {}
        drop: list[Field] = []
        for field, code, type_, value in decode_fields(self._buffer):
            if code == 0 and value is not None:
                values[field] = value
                self.wide[field] = type_ in _WIDE
            elif code in PERMANENT or code == abi.INVALID_ARGUMENT:  # old drivers call unknown ids invalid
                drop.append(field)
            elif code == abi.NO_PERMISSION:
                drop.append(field)
                self._refused.append(field)
                self._retry_at = time.monotonic() + PERMISSION_RETRY_SECONDS
            elif code:
                self._handle.failed(code)
        if drop:
            self._prepare([field for field in self._fields if field not in drop])
        return values


assert sizeof(abi.FieldValue) == _FIELD_VALUE.size
