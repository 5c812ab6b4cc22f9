"""What can be asked of a process on a GPU, and of whose and what it is (``user:``, ``pid:``, ``type:``).

A field is read from the process, what the host says of it, and the memory in bytes of the GPU (or GPUs) it is on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gputop.filters.errors import FilterError
from gputop.filters.field import Field, FieldRegistry
from gputop.filters.quantities import BYTES, PERCENT
from gputop.filters.terms import Term
from gputop.model import GpuProcess, HostFacts
from gputop.units import percent_of

ProcessField = Field[[GpuProcess, HostFacts | None, int | None]]
ProcessFields = FieldRegistry[[GpuProcess, HostFacts | None, int | None]]

PROCESS_FIELDS: Final[ProcessFields] = FieldRegistry(
    (
        Field(
            "memory",
            ("memory", "mem", "memory used", "gpu memory", "gpu-mem", "process memory"),
            {
                BYTES: lambda process, host, capacity: process.memory_bytes,
                PERCENT: lambda process, host, capacity: percent_of(process.memory_bytes, capacity),
            },
            whole="the size of the GPU's memory",
        ),
        Field(
            "utilization",
            ("utilization", "util", "gpu utilization", "process utilization"),
            {PERCENT: lambda process, host, capacity: process.sm_percent},
        ),
        Field("sm", ("sm",), {PERCENT: lambda process, host, capacity: process.sm_percent}),
        Field(
            "memory bandwidth",
            ("memory bandwidth", "bw"),
            {PERCENT: lambda process, host, capacity: process.memory_bandwidth_percent},
        ),
        Field("encoder", ("encoder", "enc"), {PERCENT: lambda process, host, capacity: process.encoder_percent}),
        Field("decoder", ("decoder", "dec"), {PERCENT: lambda process, host, capacity: process.decoder_percent}),
        Field(
            "cpu",
            ("cpu",),
            {PERCENT: lambda process, host, capacity: None if host is None else host.cpu_percent},
            from_host=True,
        ),
        Field(
            "host memory",
            ("host memory", "host"),
            {BYTES: lambda process, host, capacity: None if host is None else host.host_memory_bytes},
            from_host=True,
        ),
    )
)


def has_kind(term: Term) -> Callable[[GpuProcess], bool]:
    """``type:C``. Raises FilterError."""
    wanted = {kind for value in term.values for kind in value.upper().split("+")}
    if not wanted <= {"C", "G", "M"}:
        raise FilterError("the types are C (compute), G (graphics) and M (MPS)", term.position)
    return lambda process: wanted.isdisjoint(process.kind.split("+")) is term.negated


def pids_of(term: Term) -> tuple[str, ...]:
    """The numbers of ``pid:12,13``, as they were written. Raises FilterError."""
    if not all(value.isascii() and value.isdecimal() for value in term.values):
        raise FilterError(f"{term.value!r} is not a pid", term.position)
    return term.values
