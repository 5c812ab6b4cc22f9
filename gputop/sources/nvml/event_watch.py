"""Xid events, waited for in a thread of their own. NVML keeps no history and gives no time: stamped on arrival."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from ctypes import byref, c_uint, c_ulonglong, c_void_p
from typing import Final

from gputop.model import Xid, steady_time
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.errors import PERMANENT
from gputop.sources.nvml.driver.library import Library
from gputop.sources.nvml.driver.xids import xid

BACK_OFF_SECONDS: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # until a failed event set is made again
EVENTS_PER_WAIT: Final = 32  # a storm of them must not hold the processor


class XidWatch:
    """One event set for all GPUs. Everything but ``stop`` belongs to the events thread."""

    def __init__(self, library: Library, arrived: Callable[[int, Xid], None]) -> None:
        self._library, self._arrived = library, arrived
        self._wait = library.function("nvmlEventSetWait_v2") or library.function("nvmlEventSetWait")
        self._set: c_void_p | None = None
        self._registered: dict[int, bool] = {}  # by handle: whether its events come
        self._supported = self._wait is not None
        self._retry_at = 0.0
        self._attempts = 0
        self._data = abi.EventData()
        self._stopped = threading.Event()

    def wait(self, timeout: float, handles: Iterable[int]) -> None:
        """Wait *timeout* seconds for events of the GPUs with these handles; hand each to ``arrived`` with its
        handle. Takes that long also where events are not supported or fail."""
        until = time.monotonic() + timeout
        if self._ready(handles):
            for _ in range(EVENTS_PER_WAIT):
                left = until - time.monotonic()
                if left <= 0 or not self._next(left):
                    break
        self._stopped.wait(max(0.0, until - time.monotonic()))

    def _ready(self, handles: Iterable[int]) -> bool:
        """Whether there is a set with something registered in it; makes it if need be."""
        if not self._supported or time.monotonic() < self._retry_at:
            return False
        if self._set is None and not self._create():
            return False
        for handle in handles:
            if handle not in self._registered:
                self._registered[handle] = self._register(handle)
                if self._set is None:
                    return False
        return any(self._registered.values())

    def _create(self) -> bool:
        events = c_void_p()
        code = self._library.call("nvmlEventSetCreate", byref(events))
        if code == 0 and events.value:
            self._set = events
            return True
        self._supported = code not in PERMANENT
        self._fail()
        return False

    def _register(self, handle: int) -> bool:
        """Ask for the Xids of a GPU. Without them the set stays usable; after other failures it is made anew."""
        pointer, supported = c_void_p(handle), c_ulonglong()
        code = self._library.call("nvmlDeviceGetSupportedEventTypes", pointer, byref(supported))
        if code or not supported.value & abi.EVENT_XID:
            return False
        code = self._library.call("nvmlDeviceRegisterEvents", pointer, c_ulonglong(abi.EVENT_XID), self._set)
        if code == abi.UNKNOWN:
            self._fail()
        return code == 0

    def _next(self, seconds: float) -> bool:
        """Wait for one event; False when there is nothing more to wait for."""
        assert self._wait is not None
        code = self._wait(self._set, byref(self._data), c_uint(max(1, int(seconds * 1000))))
        if code in (0, abi.TIMEOUT):
            self._attempts = 0
        if code == 0:
            if self._data.type & abi.EVENT_XID and self._data.device:
                self._arrived(self._data.device, xid(self._data.data, time.time(), self._where(), steady_time()))
            return True
        if code != abi.TIMEOUT:  # a GPU died, or the driver: probing finds out which
            self._fail()
        return False

    def _where(self) -> str:
        gi = self._data.gpu_instance_id
        return "" if gi == abi.NOT_AVAILABLE_32 else f"GPU instance {gi}"

    def _fail(self) -> None:
        self.free()
        self._retry_at = time.monotonic() + BACK_OFF_SECONDS[min(self._attempts, len(BACK_OFF_SECONDS) - 1)]
        self._attempts += 1

    def free(self) -> None:
        """Give the set back; it is made again when waited for."""
        events, self._set = self._set, None
        self._registered.clear()
        if events is not None:
            self._library.call("nvmlEventSetFree", events)

    def stop(self) -> None:
        """End a wait that only sleeps; from any thread."""
        self._stopped.set()
