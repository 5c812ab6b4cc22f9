"""What came back of the GPUs' memory after signals, whose memory is still held, and who was started again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gputop import units
from gputop.model import Gpu, GpuProcess, HostFacts, ProcessKey, Snapshot


@dataclass(slots=True)
class HeldMemory:
    """Memory of a dead pid, which comes back when the last of those who hold it has ended."""

    pid: int
    memory: dict[str, int | None]  # GPU's UUID: bytes
    back: set[str] = field(default_factory=set)
    back_after: float = 0.0  # seconds from the signal

    @property
    def memory_bytes(self) -> int | None:
        known = [bytes_ for bytes_ in self.memory.values() if bytes_ is not None]
        return sum(known) if known else None

    @property
    def released(self) -> bool:
        return self.back.issuperset(self.memory)

    def look(self, snapshot: Snapshot, after: float, sent_at: float) -> None:
        """*after*: only readings since then count; *sent_at*: of the signal. Epoch seconds."""
        for uuid in self.memory:
            gpu = snapshot.gpu(uuid)
            if uuid in self.back or gpu is None or not gpu.processes_known or gpu.steady_at < after:
                continue
            if not any(process.pid == self.pid and process.gpu_uuid == uuid for process in snapshot.processes):
                self.back.add(uuid)
                self.back_after = max(self.back_after, gpu.steady_at - sent_at)


@dataclass(slots=True)
class MemoryDrop:
    """By how much the used memory of a GPU fell, and after how many seconds that was reached."""

    before: int
    bytes: int = 0
    after: float = 0.0


class MemoryReclaim:
    """Used memory of GPUs since right before the first signal. Others' coming and going is in it: it is what a user
    sees, beside what the processes themselves held."""

    def __init__(self, uuids: Iterable[str]) -> None:
        self._uuids = tuple(uuids)
        self.by_gpu: dict[str, MemoryDrop] = {}

    def begin(self, snapshot: Snapshot) -> None:
        """The state before the signal; only the first call counts."""
        if self.by_gpu:
            return
        for gpu in snapshot.gpus:
            if gpu.uuid in self._uuids and gpu.memory_used_bytes is not None:
                self.by_gpu[gpu.uuid] = MemoryDrop(gpu.memory_used_bytes)

    def look(self, snapshot: Snapshot, sent_at: float) -> None:
        """*sent_at* in epoch seconds. The deepest drop counts."""
        for uuid, drop in self.by_gpu.items():
            gpu = snapshot.gpu(uuid)
            if gpu is None or not _readable(gpu) or gpu.memory_used_bytes is None or gpu.steady_at < sent_at:
                continue
            fell = drop.before - gpu.memory_used_bytes
            if fell > drop.bytes:
                drop.bytes, drop.after = fell, max(0.0, gpu.steady_at - sent_at)

    def messages(self, names: Callable[[str], str], unit: str) -> list[str]:
        """``GPU 1: used memory down by 38.0G in 0.4 s, from 118.3G to 80.3G``."""
        return [
            f"{names(uuid)}: used memory down by {units.size(drop.bytes, unit)} in {units.elapsed(drop.after)}, "
            f"from {units.size(drop.before, unit)} to {units.size(drop.before - drop.bytes, unit)}"
            for uuid, drop in self.by_gpu.items()
            if drop.bytes
        ]


def respawned(
    ended: HostFacts, ended_at: float, known: Iterable[ProcessKey], processes: Sequence[GpuProcess]
) -> HostFacts | None:
    """A process on a GPU with the command and the user of one that was ended, not among the *known* and started since
    the signal at *ended_at* (epoch seconds)."""
    if not ended.command:
        return None
    for process in processes:
        facts = process.host
        if facts is None or facts.command != ended.command or facts.uid != ended.uid or facts.key in known:
            continue
        if facts.start_time is not None and facts.start_time >= ended_at - 1:
            return facts
    return None


def _readable(gpu: Gpu | None) -> bool:
    return gpu is not None and gpu.error is None and not gpu.late
