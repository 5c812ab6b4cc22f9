"""A machine for tests of leaks: the simulated driver lists pids, the processes and what they hold are real.

A GPU's stand-in is the slave end of a pty: a character device of its own that any process can open, which the driver
takes for /dev/nvidia0. The driver gives memory back when no living process has it open.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from gputop.leaks.finder import LeakFinder
from gputop.leaks.proc_investigator import ProcInvestigator
from gputop.leaks.report import LeakReport
from gputop.model import LeakVerdict, Snapshot
from gputop.procfs.devices import NvidiaDevices
from gputop.procfs.proc_host_reader import ProcHostReader
from gputop.sampling.snapshot_builder import assemble
from gputop.settings import Settings
from gputop.sources.nvml import NvmlSource
from tests.driver import SimulatedDriver
from tests.unit.children import child, wait_for

MIB = 1024**2
CONTEXT = 5638 * MIB  # measured on an H200: a 5 GiB tensor, context included

#: Opens the GPU, forks sys.argv[2] children that inherit it, and tells their pids.
PARENT = """
import os, time
gpu = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
{before}
pids = []
for _ in range(int(sys.argv[2])):
    pid = os.fork()
    if not pid:
        {inside}
        time.sleep(600)
        os._exit(0)
    pids.append(pid)
ready()
print(*pids, flush=True)
time.sleep(600)
"""

#: Opens the GPU and waits.
USER = """
import os, time
gpu = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
"""


class Box:
    """The driver with one GPU of interest, gputop's reading of it, and a clock that can be put forward."""

    def __init__(self, driver: SimulatedDriver) -> None:
        self.driver = driver
        self._master, slave = os.openpty()
        self.device = os.ttyname(slave)
        self.number = os.fstat(slave).st_rdev
        os.close(slave)
        self.gpu = driver.gpu(0)
        self.gpu.no_processes()
        driver.load()
        self.source = NvmlSource()
        self.source.open()
        self.source.count()
        self.source.read(0)
        self.source.read_slow(0)
        self.reader = ProcHostReader()
        self.devices = NvidiaDevices(gpus={self.number: 0})  # the driver calls it /dev/nvidia0
        self.finder = LeakFinder(ProcInvestigator(self.reader.facts_of, devices=self.devices))
        self.later = 0.0  # seconds that the clock was put forward
        self.settings = Settings()

    def snapshot(self) -> Snapshot:
        readings = [self.source.read(0)]
        pids = {process.pid for process in readings[0].processes}
        facts = dict(self.reader.read(pids))
        exists = {pid: self.reader.exists(pid) for pid in pids if pid not in facts}
        return assemble(time.time() + self.later, readings, facts, exists, host=self.reader.machine())

    def look(self, later: float = 0.0, scan: bool = False) -> LeakReport:
        """A report, *later* seconds on."""
        self.later += later
        return self.finder.step(self.snapshot(), self.settings, scan)

    def until(self, condition: Callable[[Snapshot], bool], what: str) -> None:
        """Wait until the driver says so."""
        wait_for(lambda: condition(self.snapshot()), what)

    def listed(self) -> set[int]:
        return {process.pid for process in self.snapshot().processes}

    def used(self) -> int:
        used = self.snapshot().gpus[0].memory_used_bytes
        assert used is not None
        return used

    def lists(self, pid: int, memory: int = CONTEXT, **how: Any) -> None:
        """The driver lists *pid* as long as somebody has the GPU open."""
        self.gpu.process(pid, memory=memory, **(how or {"holds": self.device}))
        self.until(lambda snapshot: any(process.pid == pid for process in snapshot.processes), f"{pid} to be listed")

    def close(self) -> None:
        self.source.close()
        self.reader.close()
        os.close(self._master)

    @contextmanager
    def parent(
        self, children: int, before: str = "", inside: str = "", **options: Any
    ) -> Iterator[tuple[Any, list[int]]]:
        """A process that opened the GPU, did *before*, and its children that inherited it and do *inside*."""
        with ExitStack() as stack:
            process = stack.enter_context(
                child(PARENT.format(before=before, inside=inside), self.device, str(children), **options)
            )
            pids = [int(pid) for pid in process.stdout.readline().split()]
            stack.callback(end, *pids)
            yield process, pids

    @contextmanager
    def orphan(self, how: str = "", after: str = "", **options: Any) -> Iterator[int]:
        """The pid of a process with the GPU open whose parent is dead. The parent does *how* before it forks, the
        orphan does *after* before the parent ends."""
        code = ORPHAN.format(how=how, after=after)
        with child(code, self.device, **options) as process:
            assert process.stdout is not None
            pid = int(process.stdout.readline())
            process.wait()
            try:
                wait_for(lambda: not os.path.exists(f"/proc/{process.pid}"), "the parent to be gone")
                yield pid
            finally:
                end(pid)


ORPHAN = """
import os, signal, time
gpu = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
{how}
told, tell = os.pipe()
pid = os.fork()
if not pid:
    {after}
    os.write(tell, b"x")
    time.sleep(600)
    os._exit(0)
os.read(told, 1)
ready()
print(pid, flush=True)
os._exit(0)
"""


def end(*pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(running(pid) for pid in pids), "them to end")


def running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def rules(verdict: LeakVerdict | None) -> tuple[str, ...]:
    return verdict.rules if verdict is not None else ()


PYTHON = sys.executable
