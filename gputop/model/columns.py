"""The columns of the process table as data: settings name them, the screen lays them out and draws them.

A column that shows a fact as it is needs one entry here. One that looks or sorts otherwise has a cell or a sort key in
ui/processes/cells.py too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from gputop.model.process import GpuProcess, HostFacts

ESSENTIAL: Final = 100


class Column(NamedTuple):
    """One column. ``of_process`` or ``of_host`` is the fact it shows; the host is asked about visible rows only, unless
    the table is sorted by such a column."""

    id: str  # in the settings ``columns`` and ``sort``
    heading: str
    help: str
    width: int  # cells; of the command, the least it should have
    of_process: Callable[[GpuProcess], Any] | None = None
    of_host: Callable[[HostFacts], Any] | None = None
    right: bool = True
    descending: bool = True  # the natural order: large numbers first; names and ids ascend
    importance: int = 0  # where the screen is too narrow the least important goes first, an ESSENTIAL one never


_COLUMNS: Final = (
    Column("gpu", "GPU", "GPU, or GPU:instance:compute instance; ×4: on 4 GPUs; †: dead, the driver still lists it",
           3, descending=False, importance=ESSENTIAL),
    Column("pid", "PID", "process ID, as the driver reports it", 7,
           lambda process: process.pid, descending=False, importance=ESSENTIAL),
    Column("user", "USER", "owner of the process", 8,
           of_host=lambda facts: facts.user, right=False, descending=False, importance=11),
    Column("type", "TYPE", "C compute, G graphics, C+G both, M MPS client", 4,
           lambda process: process.kind, right=False, descending=False, importance=2),
    Column("gpu_mem", "GPU-MEM", "GPU memory the process uses", 8,
           lambda process: process.memory_bytes, importance=ESSENTIAL),
    Column("gpu_mem_percent", "MEM%", "GPU memory the process uses, percent of the GPU's memory", 4,
           lambda process: process.memory_bytes, importance=7),
    Column("sm", "SM%", "percent of time its kernels were running; on several GPUs, the busiest one", 3,
           lambda process: process.sm_percent, importance=13),
    Column("mem_bw", "BW%", "percent of time it was reading or writing GPU memory", 3,
           lambda process: process.memory_bandwidth_percent, importance=6),
    Column("enc", "ENC", "video encoder utilization, percent", 3,
           lambda process: process.encoder_percent, importance=4),
    Column("dec", "DEC", "video decoder utilization, percent", 3,
           lambda process: process.decoder_percent, importance=3),
    Column("cpu", "CPU%", "CPU utilization; 100 is one core", 4,
           of_host=lambda facts: facts.cpu_percent, importance=12),
    Column("host_mem", "HOST", "resident host memory (RSS)", 6,
           of_host=lambda facts: facts.host_memory_bytes, importance=9),
    Column("threads", "THR", "number of threads", 5,
           of_host=lambda facts: facts.threads, importance=1),
    Column("state", "S", "R running, S sleeping, D waiting in the kernel, T stopped, Z zombie", 1,
           of_host=lambda facts: facts.state, right=False, descending=False, importance=5),
    Column("age", "AGE", "time since the process started", 5, importance=10),
    Column("where", "WHERE", "container, Slurm job, systemd unit, tmux session or terminal it runs in", 14,
           right=False, descending=False, importance=8),
    Column("command", "COMMAND", "command line; Left and Right scroll it", 20,
           of_host=lambda facts: facts.command, right=False, descending=False, importance=ESSENTIAL),
)  # fmt: skip
COLUMNS: Final[Mapping[str, Column]] = {column.id: column for column in _COLUMNS}
