"""Every figure of the leak rules (docs/leak-rules.md), with its unit. Those that a user can set are functions here."""

from __future__ import annotations

from typing import Final

from gputop import units
from gputop.model import Gpu
from gputop.settings import Settings

#: R1: a dead pid stays listed while its context is torn down; tens of GiB take some seconds.
DEAD_PID_SECONDS: Final = 5.0

#: R3: a process that loses its parent sooner after its own start is a daemon that was started that way.
STARTUP_SECONDS: Final = 60.0


def stopped_seconds(settings: Settings) -> float:
    """R6: a process that is stopped (state T) for longer is SUSPECT; before that it is only noted."""
    return settings.leak_stopped_minutes * 60.0


#: R7: in the kernel (state D) for this long without any CPU time.
STUCK_SECONDS: Final = 60.0


def idle_seconds(settings: Settings) -> float:
    """R9: without GPU and CPU use for longer, a process is IDLE."""
    return settings.leak_idle_minutes * 60.0


#: R9: from this much of a CPU core on, a process is at work whatever its GPUs do.
BUSY_CPU_PERCENT: Final = 5.0
#: R9: on average over the idle time a process uses less of a CPU core than this.
IDLE_CPU_PERCENT: Final = 1.0
#: R9: an idle process that holds less than both of these is not worth a word.
IDLE_BYTES: Final = 512 * units.MIB
IDLE_SHARE: Final = 0.02  # of the GPU's memory


def idle_bytes(gpu_bytes: int | None) -> int:
    """R9: what an idle process holds at least, on a GPU of *gpu_bytes*."""
    return max(IDLE_BYTES, int(IDLE_SHARE * (gpu_bytes or 0)))


#: R11: how long memory is unattributed before it is explained.
UNATTRIBUTED_SECONDS: Final = 5.0
UNATTRIBUTED_SHARE: Final = 0.02  # of the GPU's memory; 43 MiB are normal on an H200
#: What the screens mention of it at once.
UNATTRIBUTED_SHOWN_BYTES: Final = 512 * units.MIB


def unattributed_bytes(gpu: Gpu, least_mib: int) -> int:
    """R11: more unattributed memory than this is explained; *least_mib* is the setting ``leak_gap_mib``."""
    return max(least_mib * units.MIB, int(UNATTRIBUTED_SHARE * (gpu.memory_total_bytes or 0)))


#: R12: a GPU that is this busy for this long, and lists no process.
UNLISTED_LOAD_PERCENT: Final = 95
UNLISTED_LOAD_SECONDS: Final = 60.0

#: Stragglers: so many other ranks must agree; what differs by more than both of these is named.
STRAGGLER_PEERS: Final = 2
STRAGGLER_BYTES: Final = 512 * units.MIB
STRAGGLER_SHARE: Final = 0.02  # of the peers' memory
#: Peers that differ among themselves by more than this share of the difference are no measure.
STRAGGLER_SPREAD: Final = 0.25
