"""What every layer speaks: one machine at one moment, as frozen values.

Three rules hold everywhere:

* ``None`` means that the driver (or the host) does not say. It is never 0.
* A GPU is its UUID, a process is (pid, start ticks). Indices, rows and bare pids identify nothing.
* Text from outside went through :func:`clean_text` once, before it got in here.

Field names carry their unit (bytes, percent 0-100, degrees Celsius, watts, MHz, seconds) and are
the keys of ``--json``. Times are seconds since the epoch unless a name says otherwise.

Not here: anything that reads (``sources``, ``procfs``), and what is concluded from it (``leaks``, ``alarms``).
"""

from dataclasses import replace

from gputop.model.gpu import (
    EVENT_REASONS,
    PROCESSES_UNRELIABLE,
    EventReason,
    Gpu,
    GpuFacts,
    MigInstance,
    NvLink,
    Severity,
    Xid,
    event_reasons,
)
from gputop.model.hostile_text import REPLACEMENT, clean_text
from gputop.model.memory import (
    MemoryBreakdown,
    memory_breakdown,
    memory_by_gpu,
    memory_by_pid,
    sum_or_none,
    unattributed,
    used_minus_listed,
)
from gputop.model.process import GpuProcess, HostFacts, ProcessKey, RowKey
from gputop.model.snapshot import Driver, Host, Snapshot
from gputop.model.steady_clock import steady_time
from gputop.model.torch import TorchAnswer, TorchDevice, TorchPhase, TorchReport
from gputop.model.verdict import Finding, LeakVerdict, Verdict

__all__ = [
    "EVENT_REASONS",
    "PROCESSES_UNRELIABLE",
    "REPLACEMENT",
    "Driver",
    "EventReason",
    "Finding",
    "Gpu",
    "GpuFacts",
    "GpuProcess",
    "Host",
    "HostFacts",
    "LeakVerdict",
    "MemoryBreakdown",
    "MigInstance",
    "NvLink",
    "ProcessKey",
    "RowKey",
    "Severity",
    "Snapshot",
    "TorchAnswer",
    "TorchDevice",
    "TorchPhase",
    "TorchReport",
    "Verdict",
    "Xid",
    "clean_text",
    "event_reasons",
    "memory_breakdown",
    "memory_by_gpu",
    "memory_by_pid",
    "replace",
    "steady_time",
    "sum_or_none",
    "unattributed",
    "used_minus_listed",
]
