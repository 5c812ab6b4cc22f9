"""NVLink: the state of each link, who is at its other end, and what goes through (by byte counters)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from ctypes import byref, c_uint
from dataclasses import dataclass
from typing import Final

from gputop.model import NvLink
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.calls import Field, Fields, Handle
from gputop.sources.nvml.driver.errors import PERMANENT
from gputop.sources.nvml.readings.identity import bus_id

SWITCH: Final = "NVSwitch"
LINKS_PER_BATCH: Final = 6  # links whose counters are read at one time: 0.35 ms of CPU a counter on an H200

#: Counters of one direction: (RX field, TX field, bytes a count).
_KIB_COUNTERS: Final = (abi.FIELD_NVLINK_RX, abi.FIELD_NVLINK_TX, 1024)
_NVLINK5_COUNTERS: Final = (abi.FIELD_NVLINK5_RX, abi.FIELD_NVLINK5_TX, 1)

Rates = tuple[float | None, float | None]  # RX, TX in bytes per second
_UNKNOWN: Final[Rates] = (None, None)


class LinkCounters:
    """Throughput of some scopes (links, or all links together) since the last reading."""

    def __init__(self, handle: Handle, scopes: Sequence[int]) -> None:
        self._handle, self._scopes = handle, scopes
        self._last: Mapping[Field, float] = {}
        self._at = 0.0
        self._use(_KIB_COUNTERS)

    def _use(self, counters: tuple[int, int, int]) -> None:
        self._rx, self._tx, self._unit = counters
        self._fields = Fields(self._handle, [(id_, scope) for scope in self._scopes for id_ in (self._rx, self._tx)])

    def read(self) -> dict[int, Rates]:
        """By scope; unknown at first, and after a counter was reset."""
        values, now = self._fields.read(), time.monotonic()
        if not values and self._unit != 1 and self._scopes:  # NVLink 5 counts elsewhere
            self._use(_NVLINK5_COUNTERS)
            values = self._fields.read()
        last, elapsed = self._last, now - self._at
        self._last, self._at = values, now

        def rate(id_: int, scope: int) -> float | None:
            new, old = values.get((id_, scope)), last.get((id_, scope))
            if new is None or old is None or new < old or elapsed <= 0:
                return None
            return (new - old) * self._unit / elapsed

        return {scope: (rate(self._rx, scope), rate(self._tx, scope)) for scope in self._scopes}


@dataclass(frozen=True, slots=True)
class Peers:
    """Who is at the other ends: links to each PCI bus id, and links to switches."""

    gpus: Mapping[str, int]
    switches: int

    @property
    def any(self) -> bool:
        return bool(self.gpus) or self.switches > 0


NO_PEERS: Final = Peers({}, 0)


class NvLinks:
    """The links of one GPU, for the slow tier."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.counted = True  # False: the driver did not say whether there are more
        self._links = list(self._count())
        starts = range(0, len(self._links), LINKS_PER_BATCH)
        self._batches = [LinkCounters(handle, self._links[i : i + LINKS_PER_BATCH]) for i in starts]
        self._rates: dict[int, Rates] = {}
        self._ends: dict[int, str | None] = {}
        self.peers = NO_PEERS

    def _count(self) -> Iterator[int]:
        for link in range(abi.NVLINK_MAX):
            active, code = self._ask(link)
            if code in PERMANENT or code == abi.INVALID_ARGUMENT:
                return  # there is no such link
            yield link
            if active is None:
                self.counted = False
                return

    def _ask(self, link: int) -> tuple[bool | None, int]:
        """Whether *link* is active, None where that is not told, and the driver's code."""
        active = c_uint()
        library = self._handle.library
        code = library.call("nvmlDeviceGetNvLinkState", self._handle.pointer, c_uint(link), byref(active))
        if code and code not in PERMANENT and code != abi.INVALID_ARGUMENT:
            self._handle.failed(code)
        return (None if code else active.value == 1), code

    def read(self) -> tuple[NvLink, ...]:
        """Empty where the GPU has no NVLink. Raises NvmlError when the GPU or the driver is gone."""
        if not self._links:
            return ()
        self._batches.append(self._batches.pop(0))
        self._rates |= self._batches[-1].read()
        found = []
        for link in self._links:
            active, _ = self._ask(link)
            if active and link not in self._ends:
                self._ends[link] = self._other_end(link)
            rx, tx = self._rates.get(link, _UNKNOWN)
            found.append(NvLink(link, active, rx, tx, self._ends.get(link)))
        self._note_peers(found)
        return tuple(found)

    def _note_peers(self, links: Sequence[NvLink]) -> None:
        gpus: dict[str, int] = {}
        switches = 0
        for link in links:
            if link.active and link.peer == SWITCH:
                switches += 1
            elif link.active and link.peer:
                gpus[link.peer] = gpus.get(link.peer, 0) + 1
        self.peers = Peers(gpus, switches)

    def _other_end(self, link: int) -> str | None:
        """A switch, or the PCI bus id of what is there."""
        library, pointer = self._handle.library, self._handle.pointer
        kind = c_uint()
        code = library.call("nvmlDeviceGetNvLinkRemoteDeviceType", pointer, c_uint(link), byref(kind))
        if code == 0 and kind.value == abi.NVLINK_REMOTE_SWITCH:
            return SWITCH
        pci = abi.PciInfo()
        if library.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", pointer, c_uint(link), byref(pci)):
            return None
        return bus_id(pci) or None
