"""Who is on a GPU: processes, their identity, and what the host says about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from gputop.model.torch import TorchReport


class ProcessKey(NamedTuple):
    """A process. The start time (clock ticks since boot, field 22 of /proc/PID/stat) tells a reused pid from its first
    bearer; None where the host does not have the pid."""

    pid: int
    start_ticks: int | None


class RowKey(NamedTuple):
    """A process on a GPU or MIG instance: what a row of the table is."""

    process: ProcessKey
    gpu_uuid: str
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


_STATE_LABELS: Final = {"Z": "zombie", "T": "stopped", "t": "traced", "D": "in the kernel"}


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the host says about a process (/proc/PID)."""

    key: ProcessKey
    read_at: float
    start_time: float | None = None
    parent_pid: int | None = None
    group_id: int | None = None
    session_id: int | None = None
    uid: int | None = None
    user: str | None = None  # the number as text where it has no name
    name: str | None = None  # comm
    command: str | None = None  # the command line; [comm] where there is none
    state: str | None = None  # the letter of /proc/PID/stat
    threads: int | None = None
    cpu_percent: float | None = None  # 100 is one core; None at the first look
    cpu_seconds: float | None = None
    host_memory_bytes: int | None = None  # resident
    #: What was asked for and has not been answered yet, in words: the user's number and [comm] stand in for it.
    waits_for: tuple[str, ...] = ()

    @property
    def is_zombie(self) -> bool:
        """Exited, with all its threads, and not reaped by its parent: nothing is its own any more."""
        return self.state in ("Z", "X") and (self.threads or 0) <= 1

    @property
    def state_label(self) -> str:
        """``zombie``, ``stopped``… where a command line should say so; empty for states that need no mention."""
        return _STATE_LABELS.get(self.state or "", "")


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process on a GPU or MIG instance. A pid in the compute and the graphics list is one of these, kind C+G."""

    pid: int
    gpu_uuid: str
    kind: str  # "C", "G", "C+G" or "M" (MPS)
    gpu_index: int = 0  # for showing only
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    memory_bytes: int | None = None
    sm_percent: int | None = None
    memory_bandwidth_percent: int | None = None
    encoder_percent: int | None = None
    decoder_percent: int | None = None
    #: On this host; False too for a zombie, which is as dead; None: cannot be told (another PID namespace).
    exists: bool | None = None
    host: HostFacts | None = None
    torch: TorchReport | None = None  # where it uses gputop.torch_monitor

    @property
    def key(self) -> ProcessKey:
        return self.host.key if self.host is not None else ProcessKey(self.pid, None)

    @property
    def gpu_label(self) -> str:
        """``3``; on MIG ``3:1:0``: GPU, GPU instance, compute instance."""
        if self.gpu_instance_id is None:
            return str(self.gpu_index)
        compute = "" if self.compute_instance_id is None else f":{self.compute_instance_id}"
        return f"{self.gpu_index}:{self.gpu_instance_id}{compute}"

    @property
    def row(self) -> RowKey:
        return RowKey(self.key, self.gpu_uuid, self.gpu_instance_id, self.compute_instance_id)
