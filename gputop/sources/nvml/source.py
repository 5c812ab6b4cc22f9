"""The source that reads this machine's driver."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final

from gputop.model import Driver, Gpu, Xid
from gputop.sources import Reading, SourceError
from gputop.sources.nvml import abi
from gputop.sources.nvml.device import Device, Identity
from gputop.sources.nvml.errors import DRIVER_GONE, Fault, source_error
from gputop.sources.nvml.library import Library
from gputop.sources.nvml.processes import Strides

RETRY: Final = (0.5, 1.0, 2.0, 5.0)  # seconds until a GPU that failed is tried again
XIDS_KEPT: Final = 32


class Slot:
    """A position in the driver's count: the GPU there, or why it cannot be read."""

    def __init__(self, index: int, identity: Identity | None = None) -> None:
        self.index = index
        self.identity = identity or Identity(f"slot:{index}", f"GPU {index}")
        self.device: Device | None = None
        self.code = 0  # of the last failure
        self.failures = 0  # in a row
        self.retry_at = 0.0


class NvmlSource:
    """The NVIDIA driver of this machine, through NVML. See :class:`gputop.sources.Source`.

    *root* is where /sys and /proc are found (tests put their own there).
    """

    name = "nvml"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._library: Library | None = None
        self._slots: list[Slot] = []
        self._known: dict[int, Identity] = {}
        self._strides = Strides()
        self._xids: dict[str, tuple[Xid, ...]] = {}
        self._closing = threading.Event()

    def open(self) -> Driver:
        library = Library(self._root)
        self._library = library
        self._strides = Strides()
        self._slots = []
        return library.driver()

    def count(self) -> int:
        count = self._lib().count()
        if count != len(self._slots):
            self._slots = [Slot(index, self._known.get(index)) for index in range(count)]
        return count

    def _lib(self) -> Library:
        if self._library is None:
            raise SourceError("the driver is not open")
        return self._library

    def read(self, slot: int) -> Reading:
        place = self._slots[slot]
        try:
            device = place.device or self._attach(place)
            reading = device.read(self._xids.get(place.identity.uuid, ()))
        except Fault as fault:
            return self._failed(place, fault.code)
        place.failures = 0
        return reading

    def _attach(self, place: Slot) -> Device:
        if time.monotonic() < place.retry_at:
            raise Fault(place.code)
        library = self._lib()
        pointer, code = library.open_device(place.index)
        if pointer is None:
            raise Fault(code)
        device = Device(library, pointer, place.index, self._strides)
        place.identity = device.identity
        self._known[place.index] = device.identity
        place.device = device
        return device

    def _failed(self, place: Slot, code: int) -> Reading:
        library = self._lib()
        if code in DRIVER_GONE:
            raise source_error(code, library.mismatch if code == abi.LIB_RM_VERSION_MISMATCH else None)
        if time.monotonic() >= place.retry_at:
            place.code = code
            place.retry_at = time.monotonic() + RETRY[min(place.failures, len(RETRY) - 1)]
            place.failures += 1
        identity = place.identity
        return Reading(
            Gpu(
                index=place.index,
                uuid=identity.uuid,
                name=identity.name,
                read_at=time.time(),
                pci_bus_id=identity.pci_bus_id,
                error=library.explain(code),
                xids=self._xids.get(identity.uuid, ()),
            )
        )

    def read_medium(self, slot: int) -> None:
        device = self._slots[slot].device
        if device is not None:
            try:
                device.read_medium()
            except Fault:
                pass  # the next fast reading meets it too, and shows it

    def read_slow(self, slot: int) -> None:
        pass

    def wait_events(self, timeout: float) -> None:
        self._closing.wait(timeout)

    def close(self) -> None:
        for place in self._slots:
            if place.device is not None:
                place.device.close()
        self._slots = []
        if self._library is not None:
            self._library.shutdown()
            self._library = None
