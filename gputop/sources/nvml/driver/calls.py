"""Calling NVML's functions on one GPU: prepared once, run with the same buffers again and again.

A function that a GPU does not support is asked once; its fallback is used from then on, or nothing.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_int, c_uint, c_ulonglong, c_void_p, sizeof
from functools import partial
from typing import Any, Final, Generic, TypeVar

from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.errors import GPU_GONE, PERMANENT, Fault
from gputop.sources.nvml.driver.library import Library

T = TypeVar("T")

PERMISSION_RETRY: Final = 30.0  # seconds until something that was not permitted is asked again


class NvmlCall(Generic[T]):
    """One way to a quantity: a bound NVML function, the buffer it fills, how to take the value out of it."""

    __slots__ = ("buffer", "call", "take")

    def __init__(self, call: Callable[[], int], buffer: Any, take: Callable[[Any], T | None]) -> None:
        self.call, self.buffer, self.take = call, buffer, take


class Quantity(Generic[T]):
    """Something a GPU tells, by the first of its ways that this driver and GPU support."""

    __slots__ = ("_buffer", "_call", "_handle", "_retry_at", "_take", "_ways")

    def __init__(self, handle: Handle, ways: Sequence[NvmlCall[T]]) -> None:
        self._handle = handle
        self._ways = list(ways)
        self._retry_at = 0.0
        self._use_first()

    def _use_first(self) -> None:
        self._call: Callable[[], int] | None = None
        if self._ways:
            way = self._ways[0]
            self._call, self._buffer, self._take = way.call, way.buffer, way.take

    @property
    def unsupported(self) -> bool:
        return not self._ways

    def read(self) -> T | None:
        """The value now; None where the driver does not say. Raises Fault when the GPU or the driver is gone."""
        call = self._call
        if call is None:
            if not self._ways or time.monotonic() < self._retry_at:
                return None
            self._use_first()
            return self.read()
        code = call()
        if code == 0:
            return self._take(self._buffer)
        if code in PERMANENT:
            del self._ways[0]
            self._use_first()
            return self.read()
        if code == abi.NO_PERMISSION:
            self._call = None
            self._retry_at = time.monotonic() + PERMISSION_RETRY
        self._handle.failed(code)
        return None


class Handle:
    """An opened GPU or MIG device, as one tier (hence one thread at a time) uses it."""

    def __init__(self, library: Library, pointer: c_void_p) -> None:
        self.library, self.pointer = library, pointer
        self.failures: set[int] = set()  # codes since the owner cleared them

    def failed(self, code: int) -> None:
        """Note a failure that may pass. Raises Fault for one that ends this GPU's reading."""
        if code in GPU_GONE:
            raise Fault(code)
        self.failures.add(code)

    def bind(self, name: str, *arguments: Any) -> Callable[[], int] | None:
        """*name* with this handle and *arguments*; None where the library lacks it."""
        function = self.library.function(name)
        return None if function is None else partial(function, self.pointer, *arguments)

    def ways(self, *candidates: tuple[str, tuple[Any, ...], Any, Callable[[Any], T | None]]) -> Quantity[T]:
        """A quantity from (name, arguments before the buffer, buffer, take)…, best first."""
        found = []
        for name, before, buffer, take in candidates:
            call = self.bind(name, *before, byref(buffer))
            if call is not None:
                found.append(NvmlCall(call, buffer, take))
        return Quantity(self, found)

    def uint(self, *names: str, before: tuple[Any, ...] = ()) -> Quantity[int]:
        """An unsigned int by the first of *names* there is."""
        return self.ways(*((name, before, c_uint(), take_uint) for name in names))

    def percent(self, name: str) -> Quantity[int]:
        """A utilization with its sampling period (``nvmlDeviceGetEncoderUtilization`` and the like)."""
        return self.many(name, (c_uint(), c_uint()), take_percent)

    def u64(self, *names: str, before: tuple[Any, ...] = ()) -> Quantity[int]:
        return self.ways(*((name, before, c_ulonglong(), take_u64) for name in names))

    def pair(self, name: str, kind: Any = c_uint) -> Quantity[tuple[int, int]]:
        """Two integers (current and pending mode, major and minor, minimum and maximum)."""
        first, second = kind(), kind()
        return self.many(name, (first, second), take_pair)

    def many(self, name: str, buffers: tuple[Any, ...], take: Callable[[Any], T | None]) -> Quantity[T]:
        """A function that fills several buffers."""
        call = self.bind(name, *(byref(buffer) for buffer in buffers))
        return Quantity(self, [] if call is None else [NvmlCall(call, buffers, take)])

    def text(self, name: str, size: int = 96) -> str | None:
        return self.library.text(name, size, self.pointer)


def take_uint(buffer: c_uint) -> int | None:
    value = buffer.value
    return None if value == abi.NOT_AVAILABLE_32 else value


def take_u64(buffer: c_ulonglong) -> int | None:
    value = buffer.value
    return None if value == abi.NOT_AVAILABLE_64 else value


def take_percent(buffers: tuple[c_uint, c_uint]) -> int | None:
    """The first of two, if it can be a percentage."""
    value = buffers[0].value
    return value if value <= 100 else None


def take_pair(buffers: tuple[Any, Any]) -> tuple[int, int]:
    return buffers[0].value, buffers[1].value


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


class Fields:
    """Several field values by one nvmlDeviceGetFieldValues; those the GPU does not support are asked once."""

    def __init__(self, handle: Handle, fields: Sequence[Field]) -> None:
        self._handle = handle
        self._retry_at = 0.0
        self._refused: list[Field] = []
        self.wide: dict[Field, bool] = {}  # whether a counter has 64 bits
        self._ask(fields)

    def _ask(self, fields: Sequence[Field]) -> None:
        self._fields = list(fields)
        self._buffer = (abi.FieldValue * max(1, len(fields)))()
        for entry, (id_, scope) in zip(self._buffer, fields, strict=False):
            entry.id, entry.scope = id_, scope
        self._call = self._handle.bind("nvmlDeviceGetFieldValues", c_int(len(fields)), self._buffer)

    def read(self) -> Mapping[Field, float]:
        """The values there are now. Raises Fault when the GPU or the driver is gone."""
        if self._refused and time.monotonic() >= self._retry_at:
            self._ask(self._fields + self._refused)
            self._refused = []
        if not self._fields or self._call is None:
            return {}
        code = self._call()
        if code:
            if code in PERMANENT:
                self._ask(())
            else:
                self._handle.failed(code)
            return {}
        values: dict[Field, float] = {}
        drop: list[Field] = []
        for id_, scope, _, _, type_, code, raw in _FIELD_VALUE.iter_unpack(self._buffer):
            if code == 0 and type_ in _DECODE:
                values[id_, scope] = _DECODE[type_].unpack(raw)[0]
                self.wide[id_, scope] = type_ in _WIDE
            elif code in PERMANENT or code == abi.INVALID_ARGUMENT:  # old drivers call unknown ids invalid
                drop.append((id_, scope))
            elif code == abi.NO_PERMISSION:
                drop.append((id_, scope))
                self._refused.append((id_, scope))
                self._retry_at = time.monotonic() + PERMISSION_RETRY
            elif code:
                self._handle.failed(code)
        if drop:
            self._ask([field for field in self._fields if field not in drop])
        return values


assert sizeof(abi.FieldValue) == _FIELD_VALUE.size
