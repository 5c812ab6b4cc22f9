"""A caching allocator that knows all answers, and dumps itself as torch would: several devices, streams, private pools,
expandable segments, a trace that is a ring, every form since torch 1.8.

The rules are those of c10/cuda/CUDACachingAllocator: sizes are rounded to 512 B; requests up to 1 MiB are served from
2 MiB segments, up to 10 MiB from 20 MiB ones, larger ones from their own rounded to 2 MiB; a block is split when enough
is left; free neighbours merge; a block freed while another stream uses it stays pending.
"""

from __future__ import annotations

import bisect
import pickle
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

MIB = 1 << 20
Frames = list[dict[str, Any]]


def frame(name: str, filename: str, line: int) -> dict[str, Any]:
    return {"name": name, "filename": filename, "line": line}


NATIVE = [
    frame("torch::unwind::unwind()", "??", 0),
    frame("at::native::empty_cuda(c10::ArrayRef<long>)", "/pytorch/aten/src/ATen/native/cuda/TensorFactories.cu", 52),
    frame("_PyEval_EvalFrameDefault", "/python/ceval.c", 4000),
]
TORCH = [
    frame("forward", "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 125),
    frame("_call_impl", "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 1750),
]


def stack(*user: tuple[str, str, int], deep: bool = True) -> Frames:
    """C++ frames, torch's, then the user's, innermost first."""
    return [*(NATIVE + TORCH if deep else []), *(frame(*parts) for parts in user)]


@dataclass
class Block:
    address: int
    size: int
    requested: int = 0
    state: str = "inactive"
    frames: Frames | None = None
    serial: int = -1


@dataclass
class Segment:
    address: int
    size: int
    stream: int
    pool: tuple[int, int]
    small: bool
    expandable: bool
    frames: Frames | None
    blocks: list[Block] = field(default_factory=list)


@dataclass
class Truth:
    """What was so after each recorded entry, kept beside the ring and never lost."""

    live: list[int] = field(default_factory=list)
    reserved: list[int] = field(default_factory=list)
    held: list[dict[int, int]] = field(default_factory=list)  # address: requested (small runs only)


class Allocator:
    """One device."""

    def __init__(
        self,
        device: int = 0,
        capacity: int = 80 << 30,
        ring: int | None = None,
        expandable: bool = False,
        keep_held: bool = True,
    ) -> None:
        self.device, self.capacity, self.expandable, self.keep_held = device, capacity, expandable, keep_held
        self.segments: list[Segment] = []
        self.trace: deque[dict[str, Any]] = deque(maxlen=ring)
        self.truth = Truth()
        self.recording = True
        self.time = 1_700_000_000_000_000
        self.reserved = 0
        self.live = 0
        self.held: dict[int, int] = {}
        self.ooms = 0
        self.note = ""
        self._base = 0x7F0000000000 + device * (1 << 40)
        self._blocks: dict[int, tuple[Segment, Block]] = {}

    # -- the allocator

    def malloc(
        self, requested: int, frames: Frames | None = None, stream: int = 0, pool: tuple[int, int] = (0, 0)
    ) -> int:
        """The address; raises MemoryError (and records the oom) where it does not fit."""
        size = max(512, -(-requested // 512) * 512)
        small = size <= MIB
        found = self._best(size, stream, pool, small)
        if found is None:
            found = self._grow(size, stream, pool, small, frames)
        segment, block = found
        rest = block.size - size
        if rest >= 512 if small or segment.expandable else rest > MIB:
            at = segment.blocks.index(block)
            segment.blocks.insert(at + 1, Block(block.address + size, rest))
            block.size = size
        block.requested, block.state, block.frames = requested, "active_allocated", frames if self.recording else None
        self._blocks[block.address] = (segment, block)
        self.live += requested
        self.held[block.address] = requested
        self._record("alloc", block.address, requested, stream, frames, pool)
        return block.address

    def free(self, address: int, frames: Frames | None = None, pending: bool = False) -> None:
        segment, block = self._blocks[address]
        block.state = "active_pending_free"
        self._record("free_requested", address, block.requested, segment.stream, frames, segment.pool)
        if not pending:
            self.complete(address, frames)

    def complete(self, address: int, frames: Frames | None = None) -> None:
        """The other stream is done with it."""
        segment, block = self._blocks.pop(address)
        self.live -= block.requested
        del self.held[address]
        requested = block.requested
        block.state, block.frames = "inactive", None
        at = segment.blocks.index(block)
        if at + 1 < len(segment.blocks) and segment.blocks[at + 1].state == "inactive":
            block.size += segment.blocks.pop(at + 1).size
        if at and segment.blocks[at - 1].state == "inactive":
            segment.blocks[at - 1].size += segment.blocks.pop(at).size
        self._record("free_completed", address, requested, segment.stream, frames, segment.pool)

    def empty_cache(self, frames: Frames | None = None) -> None:
        for segment in list(self.segments):
            if len(segment.blocks) == 1 and segment.blocks[0].state == "inactive":
                self.segments.remove(segment)
                self.reserved -= segment.size
                action = "segment_unmap" if segment.expandable else "segment_free"
                self._record(action, segment.address, segment.size, segment.stream, frames, segment.pool)

    def _best(self, size: int, stream: int, pool: tuple[int, int], small: bool) -> tuple[Segment, Block] | None:
        found: tuple[int, int, Segment, Block] | None = None
        for segment in self.segments:
            if (segment.stream, segment.pool, segment.small) != (stream, pool, small):
                continue
            for block in segment.blocks:
                if block.state != "inactive" or block.size < size:
                    continue
                if found is None or (block.size, block.address) < found[:2]:
                    found = (block.size, block.address, segment, block)
        return None if found is None else found[2:]

    def _grow(
        self, size: int, stream: int, pool: tuple[int, int], small: bool, frames: Frames | None
    ) -> tuple[Segment, Block]:
        granule = 2 * MIB if small else 20 * MIB
        if self.expandable:
            need = -(-size // granule) * granule
        else:
            need = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        if self.reserved + need > self.capacity:
            self.empty_cache(frames)
        if self.reserved + need > self.capacity:
            self.ooms += 1
            self._record("oom", None, size, stream, frames, pool)
            raise MemoryError(size)
        if self.expandable:
            last = next((s for s in self.segments if (s.stream, s.pool, s.small) == (stream, pool, small)), None)
            if last is not None:  # map more at its end
                address = last.address + last.size
                last.size += need
                tail = last.blocks[-1]
                if tail.state == "inactive":
                    tail.size += need
                else:
                    tail = Block(address, need)
                    last.blocks.append(tail)
                self.reserved += need
                self._record("segment_map", address, need, stream, frames, pool)
                return last, tail
        address = self._base
        self._base += 1 << 36 if self.expandable else need + 2 * MIB
        segment = Segment(address, need, stream, pool, small, self.expandable, frames if self.recording else None)
        segment.blocks.append(Block(address, need))
        bisect.insort(self.segments, segment, key=lambda s: s.address)
        self.reserved += need
        self._record("segment_map" if self.expandable else "segment_alloc", address, need, stream, frames, pool)
        return segment, segment.blocks[0]

    def _record(
        self, action: str, address: int | None, size: int, stream: int, frames: Frames | None, pool: tuple[int, int]
    ) -> None:
        if not self.recording:
            return
        self.time += 7
        entry: dict[str, Any] = {"action": action, "size": size, "stream": stream, "time_us": self.time}
        if address is None:
            entry["device_free"] = self.capacity - self.reserved
        else:
            entry["addr"] = address
        if frames is not None:
            entry["frames"] = frames
        entry |= {"compile_context": "N/A", "user_metadata": self.note, "pool_id": pool}
        self.trace.append(entry)
        self.truth.live.append(self.live)
        self.truth.reserved.append(self.reserved)
        if self.keep_held:
            self.truth.held.append(dict(self.held))

    # -- what is known of it

    def stats(self) -> dict[str, int]:
        """memory_stats() at this moment, by torch's names."""
        blocks = [(s, b) for s in self.segments for b in s.blocks]
        allocated = sum(b.size for _, b in blocks if b.state == "active_allocated")
        active = sum(b.size for _, b in blocks if b.state != "inactive")
        split = [(s, b) for s, b in blocks if b.state == "inactive" and len(s.blocks) > 1 and not s.expandable]
        return {
            "reserved_bytes": sum(s.size for s in self.segments),
            "allocated_bytes": allocated,
            "active_bytes": active,
            "requested_bytes": sum(b.requested for _, b in blocks if b.state != "inactive"),
            "inactive_bytes": sum(b.size for _, b in blocks if b.state == "inactive"),
            "inactive_split_bytes": sum(b.size for _, b in split),
            "largest_free_block_bytes": max((b.size for _, b in blocks if b.state == "inactive"), default=0),
            "releasable_bytes": sum(s.size for s in self.segments if all(b.state == "inactive" for b in s.blocks))
            if not self.expandable
            else -1,
        }

    def segment_dicts(self) -> list[dict[str, Any]]:
        return [self._segment(segment) for segment in self.segments]

    def _segment(self, s: Segment) -> dict[str, Any]:
        active = [b for b in s.blocks if b.state != "inactive"]
        return {
            "device": self.device,
            "address": s.address,
            "total_size": s.size,
            "allocated_size": sum(b.size for b in active if b.state == "active_allocated"),
            "active_size": sum(b.size for b in active),
            "requested_size": sum(b.requested for b in active),
            "stream": s.stream,
            "segment_type": "small" if s.small else "large",
            "segment_pool_id": s.pool,
            "is_expandable": s.expandable,
            "frames": s.frames or [],
            "blocks": [
                {
                    "address": b.address,
                    "size": b.size,
                    "requested_size": b.requested or b.size,  # stale in inactive blocks, as torch's is
                    "state": b.state,
                    "frames": b.frames or [],
                }
                for b in s.blocks
            ],
        }


# ------------------------------------------------------------------------------------ forms


def snapshot(*allocators: Allocator, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """As torch 2.12's _snapshot()."""
    traces: list[list[dict[str, Any]]] = [[] for _ in range(max(a.device for a in allocators) + 1)]
    for allocator in allocators:
        traces[allocator.device] = list(allocator.trace)
    return {
        "segments": [s for allocator in allocators for s in allocator.segment_dicts()],
        "device_traces": traces,
        "allocator_settings": settings
        or {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": allocators[0].expandable},
        "external_annotations": [],
    }


def as_form(data: dict[str, Any], form: str) -> Any:
    """The same dump as an older torch wrote it: 1.8, 1.13, 2.0, 2.1; or 2.12 (as it is)."""
    if form == "2.12":
        return data
    segments = []
    for segment in data["segments"]:
        s = dict(segment)
        blocks = []
        for block in segment["blocks"]:
            b = dict(block)
            if form == "2.1":
                del b["address"]
            else:
                frames = b.pop("frames")
                address = b.pop("address")
                if form != "1.8" and b["state"] != "inactive":
                    entry = {"addr": address, "real_size": block["requested_size"], "frames": frames}
                    b["history"] = [entry, {"addr": address, "real_size": 1, "frames": []}]
                if form != "2.0":
                    del b["requested_size"]
            blocks.append(b)
        s["blocks"] = blocks
        if form in ("1.8", "1.13", "2.0"):
            for key in ("frames", "segment_pool_id", "is_expandable"):
                del s[key]
        if form in ("1.8", "1.13"):
            del s["requested_size"]
        if form == "1.8":
            del s["stream"]
        segments.append(s)
    if form in ("1.8", "1.13"):
        return segments
    drop = {"time_us", "compile_context", "user_metadata", "pool_id"}
    traces = [[{k: v for k, v in e.items() if k not in drop} for e in trace] for trace in data["device_traces"]]
    return {"segments": segments, "device_traces": traces}


def dumps(data: Any, protocol: int = 4) -> bytes:
    return pickle.dumps(data, protocol)


# ------------------------------------------------------------------------------------ stories

MODEL = stack(("build", "/home/ml/train.py", 12), ("main", "/home/ml/train.py", 80))
ACTIVATION = stack(
    ("forward", "/home/ml/model.py", 44), ("step", "/home/ml/train.py", 33), ("main", "/home/ml/train.py", 85)
)
GRADIENT = stack(("backward", "/home/ml/train.py", 36), ("main", "/home/ml/train.py", 85))
LEAKING = stack(
    ("log_loss", "/home/ml/metrics.py", 7), ("step", "/home/ml/train.py", 38), ("main", "/home/ml/train.py", 85)
)


def training(allocator: Allocator, steps: int = 20, seed: int = 0, leak: int = 3 * MIB + 100, layers: int = 6) -> None:
    """Parameters, then steps of activations and gradients that are freed, and a leak of *leak* bytes a step."""
    random_ = random.Random(seed)
    for _ in range(8):
        allocator.malloc(random_.randrange(1, 60 * MIB), MODEL)
    for _ in range(steps):
        alive = [allocator.malloc(random_.randrange(1, 30 * MIB), ACTIVATION) for _ in range(layers)]
        if leak:
            allocator.malloc(leak, LEAKING)
        for address in reversed(alive):
            gradient = allocator.malloc(random_.randrange(1, 8 * MIB), GRADIENT)
            allocator.free(address, GRADIENT)
            allocator.free(gradient, GRADIENT)


def until_out_of_memory(allocator: Allocator, size: int) -> None:
    """Activations of *size* bytes until one fails."""
    before = allocator.ooms
    while allocator.ooms == before:
        try:
            allocator.malloc(size, ACTIVATION)
        except MemoryError:
            pass


def chaos(allocator: Allocator, entries: int, seed: int = 0) -> None:
    """Allocations and frees at random: streams, pools, pending frees, cache flushes."""
    random_ = random.Random(seed)
    stacks = [stack((f"f{n}", f"/home/ml/part{n % 3}.py", n)) for n in range(12)] + [None, stack(deep=True)]
    held: list[int] = []
    pending: list[int] = []
    for _ in range(entries):
        roll = random_.random()
        if roll < 0.5 or not held:
            size = random_.choice(
                (random_.randrange(1, 4096), random_.randrange(1, MIB), random_.randrange(1, 64 * MIB))
            )
            pool = (0, 0) if random_.random() < 0.85 else (1, random_.randrange(2))
            try:
                address = allocator.malloc(size, random_.choice(stacks), random_.choice((0, 0, 0x55AA0010)), pool)
            except MemoryError:
                continue
            held.append(address)
        elif roll < 0.9:
            address = held.pop(random_.randrange(len(held)))
            late = random_.random() < 0.15
            allocator.free(address, random_.choice(stacks), pending=late)
            if late:
                pending.append(address)
        elif roll < 0.97 and pending:
            allocator.complete(pending.pop(0))
        elif roll > 0.99:
            allocator.empty_cache()
