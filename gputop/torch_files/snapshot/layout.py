"""Which addresses are whose: the segments of a device at the dump, and the free room in them at an earlier moment."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Final

from gputop import units
from gputop.torch_files.snapshot.memory_snapshot import INACTIVE, DeviceSnapshot
from gputop.torch_files.snapshot.overview import PoolKey
from gputop.torch_files.snapshot.replay import SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP

_ROUND_BYTES: Final = 512  # a block's size is a multiple
_UNSPLIT_BYTES: Final = units.MIB  # a large block is not split when less than this would be left


@dataclass(frozen=True, slots=True)
class Free:
    """A free range and who may use it."""

    size: int
    key: PoolKey


def free_at_dump(device: DeviceSnapshot) -> list[Free]:
    """The free blocks of the dump."""
    return [
        Free(device.block_size[block], _key(device, device.block_segment[block]))
        for block, state in enumerate(device.block_state)
        if state == INACTIVE
    ]


def _key(device: DeviceSnapshot, segment: int) -> PoolKey:
    return PoolKey(device.segment_pool[segment], device.segment_stream[segment], bool(device.segment_small[segment]))


def free_at(device: DeviceSnapshot, moment: int) -> list[Free]:
    """The free ranges of an earlier moment, from the segments and allocations of then. Where a large block was left
    unsplit the rest of it (under 1 MiB) belongs to it; nothing that a large request could have used."""
    ranges = _segments_at(device, moment)
    starts = sorted(ranges)
    taken: dict[int, list[tuple[int, int]]] = {start: [] for start in starts}
    for row in device.rows_at(moment):
        address = device.row_address[row]
        at = bisect.bisect_right(starts, address) - 1
        if at >= 0 and address < starts[at] + ranges[starts[at]][0]:
            taken[starts[at]].append((address, -(-max(1, device.row_size[row]) // _ROUND_BYTES) * _ROUND_BYTES))
    found = []
    for start, (size, key) in ranges.items():
        at = start
        for address, length in sorted(taken[start]):
            gap = address - at
            if gap > 0 and (key.small or at == start or gap >= _UNSPLIT_BYTES):
                found.append(Free(gap, key))
            at = max(at, address + length)
        rest = start + size - at
        if rest > 0 and (key.small or at == start or rest >= _UNSPLIT_BYTES):
            found.append(Free(rest, key))
    return found


def _segments_at(device: DeviceSnapshot, moment: int) -> dict[int, tuple[int, PoolKey]]:
    """start: (size, who) of each range that was reserved then, from the dump's backwards."""
    ranges = _Ranges(
        {
            device.segment_address[segment]: (device.segment_size[segment], _key(device, segment))
            for segment in range(device.segments)
        }
    )
    for entry in range(device.last, moment, -1):
        code = device.action[entry]
        address, size = device.address[entry], device.size[entry]
        if code in (SEGMENT_ALLOC, SEGMENT_MAP):
            ranges.cut(address, size)
        elif code in (SEGMENT_FREE, SEGMENT_UNMAP):
            small = size <= 2 * units.MIB
            ranges.put(address, size, PoolKey(device.pool[entry], device.stream[entry], small))
    return ranges.of


class _Ranges:
    """Reserved ranges by address, found by bisection: an expandable segment maps and unmaps thousands."""

    def __init__(self, of: dict[int, tuple[int, PoolKey]]) -> None:
        self.of = of
        self._starts = sorted(of)

    def put(self, start: int, size: int, key: PoolKey) -> None:
        if start not in self.of:
            bisect.insort(self._starts, start)
        self.of[start] = (size, key)

    def cut(self, address: int, size: int) -> None:
        """Take [address, address + size) out: what was mapped later is not there yet."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0:
            return
        start = self._starts[at]
        length, key = self.of[start]
        if address + size > start + length:
            return
        del self.of[start], self._starts[at]
        if address > start:
            self.put(start, address - start, key)
        rest = start + length - address - size
        if rest:
            self.put(address + size, rest, key)


@dataclass(frozen=True, slots=True)
class SegmentUse:
    """One segment of the dump and what keeps it alive."""

    segment: int
    size: int
    active: int
    pins: tuple[int, ...]  # its active blocks, the largest first

    @property
    def wasted(self) -> int:
        """Free bytes that cannot be given back since something lives beside them."""
        return self.size - self.active if self.active else 0


def segment_uses(device: DeviceSnapshot) -> list[SegmentUse]:
    """All segments of the dump, those first that waste the most."""
    uses = []
    for segment in range(device.segments):
        blocks = range(device.segment_block[segment], device.segment_block[segment + 1])
        active = [block for block in blocks if device.block_state[block] != INACTIVE]
        active.sort(key=device.block_size.__getitem__, reverse=True)
        held = sum([device.block_size[block] for block in active])
        uses.append(SegmentUse(segment, device.segment_size[segment], held, tuple(active)))
    return sorted(uses, key=lambda use: (-use.wasted, -use.size, use.segment))
