"""The source that reads this machine's driver."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from gputop.model import Driver, Gpu, Xid, steady_time
from gputop.sources.nvml import sysfs
from gputop.sources.nvml.device import NvmlDevice
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.errors import DRIVER_GONE, NvmlError
from gputop.sources.nvml.driver.library import Library
from gputop.sources.nvml.event_watch import XidWatch
from gputop.sources.nvml.readings import topology
from gputop.sources.nvml.readings.identity import Identity
from gputop.sources.nvml.readings.pcie import RateLimiter
from gputop.sources.nvml.readings.processes import EntryLayoutProbe
from gputop.sources.source import Reading, SourceError

RETRY_SECONDS: Final = (0.5, 1.0, 2.0, 5.0)  # until a GPU that failed is tried again
REOPEN_SECONDS: Final = (0.0, 5.0, 15.0, 30.0)  # between giving the driver up because no GPU answers
SLEEP_CHECK_SECONDS: Final = 1.0
XIDS_PER_GPU: Final = 32
NO_GPU_WAIT_SECONDS: Final = 0.1  # until it is asked again whose events to wait for

#: When all GPUs answer this, opening the driver again may help: it was reloaded, or a container lost its devices.
_HOPELESS: Final = frozenset({abi.GPU_IS_LOST, abi.UNKNOWN})
_HOPELESS_READS: Final = 3


class GpuSlot:
    """A position in the driver's count: the GPU there, or why it cannot be read."""

    def __init__(self, index: int, identity: Identity | None, address: str | None) -> None:
        self.index = index
        self.identity = identity or Identity(f"slot:{index}", f"GPU {index}")
        self.address = address  # in sysfs, where that can be addresses_fit without opening the GPU
        self.device: NvmlDevice | None = None
        self.code = 0  # of the last failure
        self.failed_reads = 0  # in a row
        self.attempts = 0  # to open it, in a row
        self.retry_at = 0.0
        self.asleep_until = 0.0  # when to look again


class NvmlSource:
    """The NVIDIA driver of this machine, through NVML. See :class:`gputop.sources.source.Source`.

    *root* is where /sys and /proc are found (tests put their own there).
    """

    name = "nvml"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._library: Library | None = None
        self._was_open = False
        self._slots: list[GpuSlot] = []
        self._given_up: list[NvmlDevice] = []  # whose background tiers are still to be closed, by their thread
        self._abandoned: list[NvmlDevice] = []  # which a thread may still be reading
        self._ancestors: dict[tuple[str, str], str | None] = {}
        self._known: dict[int, Identity] = {}
        self._xids: dict[str, tuple[Xid, ...]] = {}
        self._layouts = EntryLayoutProbe()
        self._pcie_limiter = RateLimiter()
        self._watch: XidWatch | None = None
        self._reopened = 0
        self._reopen_at = 0.0

    # -- the driver

    def open(self) -> Driver:
        self.close()
        library = Library(self._root, self._was_open)
        self._library = library
        self._was_open = True
        self._layouts = EntryLayoutProbe()
        self._watch = XidWatch(library, self._arrived)
        return library.driver()

    def count(self) -> int:
        count = self._opened().count()
        if count != len(self._slots):
            self._recount(count)
        return count

    def _recount(self, count: int) -> None:
        """The driver counts other GPUs than before: any position may be another GPU now."""
        addresses = sysfs.nvidia_gpus(self._root)
        addresses_fit = len(addresses) == count  # a container may have only some of them
        slots = []
        for index in range(count):
            if addresses_fit:
                address = addresses[index]
            elif addresses and all(sysfs.asleep(address, self._root) for address in addresses):
                address = addresses[0]
            else:
                address = None
            slots.append(GpuSlot(index, self._known.get(index), address))
        self._abandoned += [slot.device for slot in self._slots if slot.device is not None]
        self._slots = slots

    def _opened(self) -> Library:
        if self._library is None:
            raise SourceError("the driver is not open")
        return self._library

    def close(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch.free()
            self._watch = None
        self._close_given_up()
        for device in (*self._abandoned, *(slot.device for slot in self._slots)):
            if device is not None:
                device.close_fast()
                device.close_background()
        self._abandoned, self._slots = [], []
        self._ancestors.clear()
        if self._library is not None:
            self._library.shutdown()
            self._library = None

    # -- the fast tier

    def read(self, slot: int) -> Reading:
        library, slots = self._opened(), self._slots
        if slot >= len(slots):
            identity = self._known.get(slot) or Identity(f"slot:{slot}", f"GPU {slot}")
            return self._unread(slot, identity, error="the driver no longer lists this GPU")
        entry = slots[slot]
        try:
            if entry.device is not None and entry.device.outdated:
                self._give_up(entry)
            if entry.device is None:
                if self._asleep(entry):
                    return self._unread(slot, entry.identity, asleep=True)
                self._attach(entry)
            assert entry.device is not None
            reading = entry.device.read(self._xids.get(entry.identity.uuid, ()))
        except NvmlError as error:
            self._failed(entry, error.code)
            return self._unread(slot, entry.identity, error=library.explain(error.code))
        entry.failed_reads = entry.attempts = 0
        self._reopened = 0
        return reading

    def _asleep(self, entry: GpuSlot) -> bool:
        """Whether the GPU sleeps (a laptop's). Opening it would wake it, so sysfs is asked."""
        if entry.address is None or entry.attempts:
            return False
        now = time.monotonic()
        if now < entry.asleep_until:
            return True
        if not sysfs.asleep(entry.address, self._root):
            return False
        entry.asleep_until = now + SLEEP_CHECK_SECONDS
        if entry.identity.pci_bus_id is None:
            known = entry.identity
            entry.identity = Identity(known.uuid, "NVIDIA GPU", sysfs.bus_id_of(entry.address))
        return True

    def _attach(self, entry: GpuSlot) -> None:
        if time.monotonic() < entry.retry_at:
            raise NvmlError(entry.code)
        library = self._opened()
        pointer, code = library.open_device(entry.index)
        if pointer is None:
            raise NvmlError(code)
        entry.device = NvmlDevice(library, pointer, entry.index, self._layouts, self._root)
        entry.identity = self._known[entry.index] = entry.device.identity

    def _give_up(self, entry: GpuSlot) -> None:
        device, entry.device = entry.device, None
        if device is not None:
            device.close_fast()
            self._given_up.append(device)

    def _failed(self, entry: GpuSlot, code: int) -> None:
        """A GPU could not be read: it is opened anew, later and later. Raises SourceError where that is no use."""
        if code in DRIVER_GONE:
            raise self._opened().refused(code)
        entry.failed_reads += 1
        now = time.monotonic()
        if entry.device is not None or now >= entry.retry_at:
            entry.code = code
            entry.retry_at = now + RETRY_SECONDS[min(entry.attempts, len(RETRY_SECONDS) - 1)]
            entry.attempts += 1
        self._give_up(entry)
        if code in _HOPELESS and now >= self._reopen_at and all(map(_hopeless, self._slots)):
            self._reopened += 1
            self._reopen_at = now + REOPEN_SECONDS[min(self._reopened, len(REOPEN_SECONDS) - 1)]
            raise SourceError(f"no GPU can be read: {self._opened().explain(code)}")

    def _unread(self, index: int, identity: Identity, error: str | None = None, asleep: bool = False) -> Reading:
        return Reading(
            Gpu(
                index=index,
                uuid=identity.uuid,
                name=identity.name,
                read_at=time.time(),
                steady=steady_time(),
                pci_bus_id=identity.pci_bus_id,
                error=error,
                asleep=asleep,
                xids=self._xids.get(identity.uuid, ()),
            )
        )

    # -- the medium and the slow tier, in one thread

    def read_medium(self, slot: int) -> None:
        self._close_given_up()
        entry, device = self._in_background(slot)
        if entry is None or device is None:
            return
        try:
            device.background.read_medium()
            if device.background.wants_pcie_sample:
                self._sample_pcie(device)
        except NvmlError as error:
            self._background_failed(error.code)

    def _sample_pcie(self, device: NvmlDevice) -> None:
        others = [slot.device for slot in self._slots if slot.device is not None]
        waiting = [other.background.pcie for other in others if other.background.wants_pcie_sample]
        now = time.monotonic()
        if self._pcie_limiter.acquire(now, device.background.pcie, waiting):
            device.background.pcie.read(now)

    def read_slow(self, slot: int) -> None:
        entry, device = self._in_background(slot)
        if entry is None:
            return
        if device is None:
            entry.retry_at = entry.asleep_until = 0.0  # the next reading tries it again
            return
        try:
            device.background.read_slow()
            self._connect()
        except NvmlError as error:
            self._background_failed(error.code)

    def _in_background(self, slot: int) -> tuple[GpuSlot | None, NvmlDevice | None]:
        slots = self._slots
        entry = slots[slot] if slot < len(slots) else None
        return entry, entry.device if entry is not None else None

    def _background_failed(self, code: int) -> None:
        """A lost GPU is met, and shown, by the next fast reading too; a lost driver is everybody's matter now."""
        if code in DRIVER_GONE:
            raise self._opened().refused(code)

    def _close_given_up(self) -> None:
        while self._given_up:
            self._given_up.pop().close_background()

    def _connect(self) -> None:
        """Tell every GPU how it is connected to each other one, NVLink before PCIe."""
        devices = [slot.device for slot in self._slots if slot.device is not None]
        for device in devices:
            found = [(other.identity.uuid, self._connection(device, other)) for other in devices if other is not device]
            device.background.topology = tuple([(uuid, word) for uuid, word in found if word is not None])

    def _connection(self, one: NvmlDevice, other: NvmlDevice) -> str | None:
        links = topology.nvlinks_between(one.background.peers, other.background.peers, other.identity.pci_bus_id)
        if links:
            return f"NV{links}"
        pair = (one.identity.uuid, other.identity.uuid)
        if pair not in self._ancestors:
            self._ancestors[pair] = topology.ancestor(self._opened(), one.pointer, other.pointer)
        return self._ancestors[pair]

    # -- events, in a thread of their own

    def wait_events(self, timeout: float) -> None:
        watch = self._watch
        if watch is None:
            time.sleep(timeout)
            return
        devices = [slot.device for slot in self._slots if slot.device is not None]
        handles = [device.pointer.value for device in devices if device.pointer.value is not None]
        # NVML tells only what happens after it was asked: the first GPU is not to wait for its turn
        watch.wait(timeout if handles else min(timeout, NO_GPU_WAIT_SECONDS), handles)

    def _arrived(self, handle: int, xid: Xid) -> None:
        for slot in self._slots:
            device = slot.device
            if device is not None and device.pointer.value == handle:
                uuid = device.identity.uuid
                self._xids[uuid] = (*self._xids.get(uuid, ()), xid)[-XIDS_PER_GPU:]


def _hopeless(entry: GpuSlot) -> bool:
    return entry.failed_reads >= _HOPELESS_READS and entry.code in _HOPELESS
