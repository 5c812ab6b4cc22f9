"""Signals to simulated processes (:class:`gputop.signals.protocol.Signals`). No real process is ever touched."""

from __future__ import annotations

import signal
from collections.abc import Collection

from gputop.model import ProcessKey
from gputop.signals.protocol import Outcome, ProcessHandle, Result, Target
from gputop.signals.scope import RelatedProcesses, related_among
from gputop.sources.simulated.host import SimulatedHost
from gputop.sources.simulated.machine import SimulatedWorld
from gputop.sources.simulated.population import SimulatedProcess


class SimulatedHandle:
    """One simulated process: a pid that is reused later is another one."""

    def __init__(self, world: SimulatedWorld, process: SimulatedProcess, target: Target) -> None:
        self.target = target
        self._world = world
        self._process = process

    def send(self, signal: int) -> Result:
        process = self._process
        with self._world.lock:
            t = self._world.now()
            if t >= process.ends_at:
                return Result(self.target, Outcome.ALREADY_GONE, f"{process.pid} is already gone")
            if process.uid == 0:
                message = f"not permitted: {process.pid} belongs to root; ask an administrator, or use sudo"
                return Result(self.target, Outcome.NOT_PERMITTED, message)
            self._world.signal(process, signal)
            return Result(self.target, Outcome.SENT, f"{_name(signal)} sent to {process.pid}{self._waits(signal)}")

    def _waits(self, number: int) -> str:
        process = self._process
        if process.stuck:
            return ": it is stuck in the driver (state D) and dies when that call returns"
        if process.pending == number and number:
            return ": pending, because the process is stopped (state T): SIGCONT delivers it, SIGKILL works now"
        return ""

    def exited(self) -> bool:
        with self._world.lock:
            return self._world.now() >= self._process.ends_at

    def stuck_in(self) -> str | None:
        with self._world.lock:
            stuck = self._process.stuck and self._world.now() < self._process.ends_at
        return "os_acquire_rwlock_read [nvidia]" if stuck else None

    def close(self) -> None:
        """Nothing to close."""


class SimulatedSignals:
    """The way to end simulated processes."""

    def __init__(self, world: SimulatedWorld, host: SimulatedHost) -> None:
        self._world, self._host = world, host

    def open(self, target: Target) -> ProcessHandle | Result:
        pid, ticks = target.key
        with self._world.lock:
            t = self._world.now()
            population = self._world.population
            process = population.alive(pid, t)
            if process is None:
                holders = population.holders(pid, t)
                message = f"{pid} is already gone"
                if holders:
                    names = ", ".join(str(holder.pid) for holder in holders)
                    message += f"; its GPU memory is held by {names}, which inherited it: end those"
                return Result(target, Outcome.ALREADY_GONE, message)
            if ticks is not None and ticks != process.start_ticks:
                return Result(target, Outcome.PID_REUSED, f"{pid} is another process now: nothing sent")
            return SimulatedHandle(self._world, process, target)

    def related(self, of: Collection[ProcessKey]) -> RelatedProcesses:
        with self._world.lock:
            t = self._world.now()
            living = [p for p in self._world.population.processes.values() if p.started <= t < p.ends_at]
            return related_among([self._host.facts_of(process, t) for process in living], of)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
