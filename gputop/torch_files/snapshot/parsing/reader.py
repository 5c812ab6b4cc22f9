"""From what torch pickled to columns: every form since torch 1.8. Runs in the child of safe_pickle.

=========  ===========================================================================================
1.8–1.12   a list of segments; blocks of size and state only, in address order
1.13       …with a stream, and block['history'] = [{addr, real_size, frames}], newest first
2.0        a dict {segments, device_traces}; requested_size; no times in the trace
2.1        block['frames'] and block['address'] instead of history; expandable segments, private pools
2.2–2.14   time_us, allocator_settings, external_annotations, compile_context, user_metadata, pool_id,
           host_segments; trace entries without context have no 'frames' key at all
=========  ===========================================================================================

Whatever has another type than it should raises TypeError, ValueError or OverflowError, which the caller puts in words.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

from gputop.model import clean_text
from gputop.torch_files import columns
from gputop.torch_files.maxima import levels
from gputop.torch_files.safe_pickle import Progress
from gputop.torch_files.snapshot.frames import FrameCollector
from gputop.torch_files.snapshot.parsing.entry_values import (
    ACTION,
    ADDRESS,
    CONTEXT,
    FRAMES,
    METADATA,
    POOL,
    SIZE,
    STREAM,
    TIME,
    go_back,
    in_short,
    numbered,
    values,
    without_odd,
)
from gputop.torch_files.snapshot.parsing.schema import HOST, device_of, top_level
from gputop.torch_files.snapshot.replay import ACTIONS, FREE_COMPLETED, OOM, OTHER, lifetimes, reserved_curve

INACTIVE, ALLOCATED, PENDING = range(3)
_STATES: Final = {
    "inactive": INACTIVE,
    "active_allocated": ALLOCATED,
    "active_pending_free": PENDING,
    "active_awaiting_free": PENDING,  # in docstrings only
}
_CODES: Final = {name: code for code, name in enumerate(ACTIONS)} | {"free": FREE_COMPLETED}
UNKNOWN_POOL: Final = 0  # the number of "the file does not say"
_MOST: Final = 2**63 - 1
_CHUNK: Final = 512  # entries


def write(data: Any, out: BinaryIO, progress: Progress) -> None:
    """Digest *data*, what a snapshot's pickle holds, into columns in *out*."""
    form, segments, traces, extra = top_level(data)
    progress("sorting", 0.0)
    frames = FrameCollector()
    names = _Names()
    by_device: dict[int, list[Any]] = {}
    for segment in segments:
        by_device.setdefault(device_of(segment), []).append(segment)
    devices = sorted(
        {device for device in by_device if by_device[device]} | {device for device in traces if traces[device]},
        key=lambda device: (device == HOST, device),
    )
    header: dict[str, Any] = {"form": form, "devices": [], **extra}
    found: dict[str, Any] = {}
    for n, device in enumerate(devices):

        def tell(what: str, share: float, n: int = n) -> None:
            progress(what, (n + share) / len(devices))

        reader = _Device(device, frames, names, tell)
        reader.read_segments(by_device.get(device, []))
        reader.read_trace(traces.get(device, []))
        header["devices"].append(reader.header)
        found |= {f"{n}.{name}": column for name, column in reader.columns.items()}
    frame_header, frame_columns = frames.tables()
    header |= {"frames": frame_header, "streams": names.streams, "pools": names.pools, "notes": names.notes}
    columns.write(out, header, found | frame_columns)


class _Names:
    """Streams, pools and texts that appear in many rows, numbered."""

    def __init__(self) -> None:
        self.streams: list[int] = []
        self.pools: list[list[int] | None] = [None]  # UNKNOWN_POOL
        self.notes: list[str] = [""]
        self._streams: dict[Any, int] = {}
        self._pools: dict[Any, int] = {}
        self._notes: dict[str, int] = {"": 0}

    def stream(self, value: Any) -> int:
        number = self._streams.get(value)
        if number is None:
            if not isinstance(value, int):
                raise TypeError("a stream is not a number")
            number = self._streams[value] = len(self.streams)
            self.streams.append(value)
        return number

    def pool(self, value: Any) -> int:
        if value is None:
            return UNKNOWN_POOL
        key = tuple(value)
        number = self._pools.get(key)
        if number is None:
            if len(key) != 2 or not all(isinstance(part, int) for part in key):
                raise TypeError("a pool id is not two numbers")
            number = self._pools[key] = len(self.pools)
            self.pools.append(list(key))
        return number

    def note(self, value: Any) -> int:
        if isinstance(value, dict | list | tuple):
            value = in_short(value)
        if not isinstance(value, str) or value in ("", "N/A"):
            return 0
        number = self._notes.get(value)
        if number is None:
            number = self._notes[value] = len(self.notes)
            self.notes.append(clean_text(value, 300))
        return number


# --------------------------------------------------------------------------------- a device


class _Device:
    """The columns of one device."""

    def __init__(self, device: int, frames: FrameCollector, names: _Names, tell: Progress) -> None:
        self.header: dict[str, Any] = {"device": device}
        self.columns: dict[str, Any] = {}
        self._frames, self._names, self._tell = frames, names, tell
        self._held: list[tuple[int, int, int]] = []
        self._reserved = 0
        self._places: tuple[list[int], list[int], list[int]] = ([], [], [])  # start, end, pool of each segment

    def read_segments(self, segments: list[dict[str, Any]]) -> None:
        names, own = self._names, self.columns
        first = array("I")
        flat: list[tuple[int, int, int, int, int, Any]] = []  # segment, address, size, requested, state, frames
        has_requested = True
        next_address = 1 << 20  # where segments without an address are put: 1.8 to 1.12 have one, profile_plot has not
        for n, segment in enumerate(segments):
            first.append(len(flat))
            address = segment.get("address")
            if address is None:
                address = next_address
            at = address
            for block in segment["blocks"]:
                size, state, requested, frames = _block(block)
                if requested is None:
                    has_requested, requested = has_requested and not state, size
                flat.append((n, block.get("address", at), size, requested if state else 0, state, frames))
                at += size
            next_address = max(next_address, at)
        first.append(len(flat))
        totals = [_total(segment, flat, first, n) for n, segment in enumerate(segments)]
        cut = [_fit(segment, flat, first, n) for n, segment in enumerate(segments)]
        addresses = [
            flat[first[n]][1] if first[n] < first[n + 1] else s.get("address", 0) for n, s in enumerate(segments)
        ]
        own["segment.address"] = array("Q", [s.get("address", a) for s, a in zip(segments, addresses, strict=True)])
        own["segment.size"] = array("q", totals)
        streams = array("I", [names.stream(s.get("stream", 0)) for s in segments])
        pools = array("I", [names.pool(s.get("segment_pool_id", (0, 0))) for s in segments])
        own["segment.stream"], own["segment.pool"] = streams, pools
        own["segment.small"] = bytes([s.get("segment_type") == "small" for s in segments])
        own["segment.expandable"] = bytes([bool(s.get("is_expandable")) for s in segments])
        own["segment.stack"] = self._frames.stacks([s.get("frames") or None for s in segments])
        own["segment.block"] = first
        stacks = self._frames.stacks([block[5] for block in flat])
        own["block.segment"] = array("I", [block[0] for block in flat])
        own["block.address"] = array("Q", [block[1] for block in flat])
        own["block.size"] = array("q", [block[2] for block in flat])
        own["block.requested"] = array("q", [block[3] for block in flat])
        own["block.state"] = bytes([block[4] for block in flat])
        own["block.stack"] = stacks
        self._held = [(block[1], block[3], stack) for block, stack in zip(flat, stacks, strict=True) if block[4]]
        row = iter(range(len(self._held)))
        own["block.row"] = array("i", [next(row) if block[4] else -1 for block in flat])
        self._reserved = sum(totals)
        self.header |= {
            "blocks_cut": sum(cut),
            "has_requested": has_requested,
            "has_streams": any("stream" in s for s in segments),
        }
        order = sorted(range(len(segments)), key=own["segment.address"].__getitem__)
        starts = [own["segment.address"][n] for n in order]
        ends = [own["segment.address"][n] + totals[n] for n in order]
        self._places = (starts, ends, [pools[n] for n in order])

    def read_trace(self, trace: list[Any]) -> None:
        own = self.columns
        action, address, size, stack = self._read_entries(trace)
        self._tell("replaying", 0.5)
        found = lifetimes(action, address, size, stack, self._held)
        self._tell("replaying", 0.7)
        reserved_at_start, reserved = reserved_curve(action, size, self._reserved)
        own["change"] = found.changes
        for name, curve in (("live", found.live), ("reserved", reserved)):
            own[name] = array("q", curve)
            for n, level in enumerate(levels(curve)):
                own[f"{name}.{n}"] = array("q", level)
        self._tell("replaying", 0.9)
        entries, starts, rows = found.checkpoints
        own |= {"checkpoint.entry": entries, "checkpoint.start": starts, "checkpoint.row": rows}
        own |= {"row.birth": found.birth, "row.death": found.death, "row.size": found.size, "row.stack": found.stack}
        at = own["block.row"]
        own["block.stack"] = array(
            "I", [found.stack[row] if row >= 0 else kept for row, kept in zip(at, own["block.stack"], strict=True)]
        )
        self.header |= {
            "entries": len(trace),
            "held_at_start": found.held_at_start,
            "reserved_at_start": reserved_at_start,
            "unmatched": found.unmatched,
            "unseen": found.unseen,
            "has_times": any(own["time"]) and not self.header["times_go_back"],
            "ooms": [[n, _free_of(trace[n])] for n in _places_of(action, OOM)],
        }

    def _read_entries(self, trace: list[dict[str, Any]]) -> tuple[bytes, array[int], array[int], array[int]]:
        """The trace as columns, some hundred entries at a time: each dict comes into the processor's cache once."""
        own = self.columns
        action = bytearray()
        address, size, when = array("Q"), array("q"), array("q")
        stream, stack, pool, note = array("I"), array("I"), array("I"), array("I")
        has_pools = any("pool_id" in entry for entry in trace[:64])
        odd = 0
        for start in range(0, len(trace), _CHUNK):
            part = trace[start : start + _CHUNK]
            try:
                found = self._columns_of(part, has_pools)
            except (AttributeError, TypeError, ValueError, OverflowError):
                part, replaced = without_odd(part)
                odd += replaced
                found = self._columns_of(part, has_pools)
            action += found[0]
            for column, more in zip((address, size, when, stream, stack, note, pool), found[1:], strict=True):
                column.extend(more)
            if not start % (64 * _CHUNK):
                self._tell("sorting", 0.5 * start / len(trace))
        codes = bytes(action)
        self.header |= {"odd_entries": odd, "times_go_back": go_back(when)}
        if trace and odd == len(trace):
            raise ValueError("no entry of the trace holds numbers where they belong")
        if size and min(size) < 0:
            raise ValueError("a size in the trace is negative")
        if not has_pools:
            pool = self._pools(trace, address)
        own |= {"action": codes, "address": address, "size": size, "stream": stream, "time": when}
        own |= {"stack": stack, "pool": pool, "note": note}
        return codes, address, size, stack

    def _columns_of(self, part: list[Any], has_pools: bool) -> tuple[Any, ...]:
        names = self._names
        notes = values(part, METADATA, "user_metadata", None)
        if notes.count(notes[0]) == len(notes) and not notes[0]:
            notes = values(part, CONTEXT, "compile_context", None)
        return (
            bytes(_codes(values(part, ACTION, "action", "other"))),
            array("Q", values(part, ADDRESS, "addr", 0)),
            array("q", values(part, SIZE, "size", 0)),
            array("q", values(part, TIME, "time_us", 0)),
            numbered(values(part, STREAM, "stream", 0), names.stream),
            self._frames.stacks(values(part, FRAMES, "frames", None)),
            numbered(notes, names.note),
            numbered(values(part, POOL, "pool_id", None), names.pool) if has_pools else (),
        )

    def _pools(self, trace: list[Any], address: array[int]) -> array[int]:
        """The pool of each entry before 2.12: that of the segment its address is in at the dump."""
        starts, ends, pools = self._places
        if len(set(pools)) <= 1:
            return array("I", [pools[0] if pools else UNKNOWN_POOL]) * len(trace)
        found = array("I", bytes(4 * len(trace)))
        known: dict[int, int] = {}
        for n, where in enumerate(address):
            pool = known.get(where)
            if pool is None:
                at = bisect.bisect_right(starts, where) - 1
                pool = known[where] = pools[at] if at >= 0 and where < ends[at] else UNKNOWN_POOL
            found[n] = pool
        return found


def _block(block: Any) -> tuple[int, int, int | None, Any]:
    """Size, state, bytes asked for (None: not told) and frames of a block, in whichever form."""
    size = block["size"]
    if not isinstance(size, int) or size < 0:
        raise ValueError("a block's size is not a size")
    state = _STATES.get(block.get("state"))
    if state is None:
        state = ALLOCATED if str(block.get("state", "")).startswith("active") else INACTIVE
    requested, frames = block.get("requested_size"), block.get("frames")
    history = block.get("history")
    if state and history and isinstance(history, list | tuple) and isinstance(history[0], dict):
        newest = history[0]
        requested = newest.get("real_size") if requested is None else requested
        frames = frames or newest.get("frames") or newest.get("cpp_frames")
    if requested is not None and (not isinstance(requested, int) or requested < 0):
        raise ValueError("what a block was asked for is not a size")
    return size, state, requested, frames or None


def _fit(segment: dict[str, Any], flat: list[Any], first: array[int], n: int) -> int:
    """Cut blocks that reach into the next one or beyond their segment, or hold more than their size, as only a damaged
    file has them; how many."""
    total = segment.get("total_size")
    if total is None or first[n] == first[n + 1]:
        return 0
    end = segment.get("address", flat[first[n]][1]) + total
    count = 0
    for at in range(first[n + 1] - 1, first[n] - 1, -1):
        of, address, size, requested, state, frames = flat[at]
        if address + size > end or requested > size:
            count += 1
            size = max(0, min(size, end - address))
            flat[at] = (of, address, size, min(requested, size), state, frames)
        end = min(end, address)
    return count


def _total(segment: dict[str, Any], flat: Sequence[Any], first: array[int], n: int) -> int:
    total = segment.get("total_size")
    if total is None:
        total = sum([block[2] for block in flat[first[n] : first[n + 1]]])
    if not isinstance(total, int) or total < 0:
        raise ValueError("a segment's size is not a size")
    return total


def _codes(actions: list[Any]) -> list[int]:
    try:
        return list(map(_CODES.__getitem__, actions))
    except KeyError:
        return [_CODES.get(action, OTHER) for action in actions]


def _places_of(codes: bytes, code: int) -> list[int]:
    found = []
    at = codes.find(code)
    while at >= 0:
        found.append(at)
        at = codes.find(code, at + 1)
    return found


def _free_of(entry: dict[str, Any]) -> int | None:
    free = entry.get("device_free")
    return free if isinstance(free, int) and 0 <= free <= _MOST else None
