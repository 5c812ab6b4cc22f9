"""What became of processes that were sent a signal: exited? gone from the driver's list? memory back?

Pure bookkeeping over handles and snapshots, without a screen. The screen calls, in this order and as often as it likes:
:meth:`Terminations.open_handles` and :meth:`Terminations.send` (they may block: not on the event loop), then
:meth:`Terminations.watch` and :meth:`Terminations.look` until nothing is pending, at last
:meth:`Terminations.close`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gputop.model import (
    Gpu,
    GpuProcess,
    HostFacts,
    ProcessKey,
    Snapshot,
    memory_by_gpu,
    memory_by_pid,
    steady_time,
    used_minus_listed,
)
from gputop.signals import timeouts
from gputop.signals.audit_log import ActionLog
from gputop.signals.memory_reclaim import HeldMemory, MemoryReclaim, respawned
from gputop.signals.names import signal_name
from gputop.signals.protocol import Outcome, ProcessHandle, Result, Signals, Target
from gputop.signals.termination_state import TERMINATION_SIGNALS, ProcessTermination, TerminationState
from gputop.signals.terminations_text import TerminationsText

_BACK: Final = 0.2  # share of a process's memory that may stay unaccounted for (others come and go meanwhile)
_PENDING: Final = (TerminationState.WAITING, TerminationState.RUNNING, TerminationState.EXITED)


class Terminations(TerminationsText):
    """Several processes that are being ended."""

    def __init__(
        self,
        targets: Sequence[Target],
        snapshot: Snapshot | None,
        clock: Callable[[], float] = time.monotonic,
        steady: Callable[[], float] = steady_time,
        *,
        facts: Mapping[ProcessKey, HostFacts] | None = None,
        held: Sequence[HeldMemory] = (),
        log: ActionLog | None = None,
    ) -> None:
        """*facts* of targets that are on no GPU; *held*: memory of dead pids that the targets keep; *log*: every
        signal is written there."""
        self.all = [ProcessTermination(target, facts=(facts or {}).get(target.key)) for target in targets]
        self.held = tuple(held)
        self.log = log
        self.names: dict[str, str] = {}  # GPU's UUID -> "GPU 1"
        self._clock, self._steady = clock, steady
        self._before: dict[str, int | None] = {}  # GPU's UUID -> bytes nobody accounted for when the signal was sent
        self._at_first = snapshot
        self._told: set[ProcessKey] = set()  # of whom the log has the outcome
        self._first_sent = self._last_exit = 0.0
        if snapshot is not None:
            for termination in self.all:
                self._freeze(termination, snapshot)
            self.names = {gpu.uuid: f"GPU {gpu.index}" for gpu in snapshot.gpus}
            self._before = {gpu.uuid: _unattributed(gpu, snapshot) for gpu in snapshot.gpus}
        uuids = {uuid for termination in self.all for uuid in termination.memory}
        self.reclaim = MemoryReclaim(uuids | {uuid for one in self.held for uuid in one.memory})

    def adopt(self, targets: Sequence[Target], facts: Mapping[ProcessKey, HostFacts]) -> None:
        """More targets, which appeared meanwhile; :meth:`open_handles` opens them."""
        self.all += [ProcessTermination(target, facts=facts.get(target.key)) for target in targets]

    @staticmethod
    def _freeze(termination: ProcessTermination, snapshot: Snapshot) -> None:
        rows = [process for process in snapshot.processes if process.key == termination.target.key]
        for process in rows:
            termination.facts = process.host or termination.facts
        termination.memory.update(memory_by_gpu(rows))
        for uuid in termination.target.gpu_uuids:
            termination.memory.setdefault(uuid, None)

    # ------------------------------------------------------------------- asking

    @property
    def pending(self) -> bool:
        """Whether something may still change by itself."""
        return any(termination.state in _PENDING for termination in self.all) or self.awaits_held_memory

    @property
    def awaits_held_memory(self) -> bool:
        """Whether memory of a dead pid is due to come back: all its holders have ended."""
        if (
            not self.held
            or not self._last_exit
            or self.those(TerminationState.WAITING, TerminationState.READY, TerminationState.RUNNING)
        ):
            return False
        late = self._steady() - self._last_exit > timeouts.MEMORY_BACK_SECONDS
        return not late and not all(one.released for one in self.held)

    @property
    def kept(self) -> list[int]:
        """Pids that ended, or were dead before, and whose memory is still used by others."""
        if self.awaits_held_memory or not self._last_exit:
            return []
        dead = [one.pid for one in self.held if not one.released]
        return dead + [
            termination.target.key.pid for termination in self.those(TerminationState.KEPT) if termination.listed
        ]

    @property
    def sent(self) -> bool:
        """Whether a signal reached somebody."""
        return any(termination.number is not None for termination in self.all)

    @property
    def survivors(self) -> list[ProcessTermination]:
        """Those that were asked to end and did not within the grace time, though not by SIGKILL."""
        now = self._clock()
        return [
            termination
            for termination in self.those(TerminationState.RUNNING)
            if termination.number in TERMINATION_SIGNALS - {signal.SIGKILL}
            and now - termination.sent_at >= timeouts.OFFER_SIGKILL_SECONDS
        ]

    def freed_by_gpu(self, terminations: Sequence[ProcessTermination]) -> dict[str, int]:
        """Bytes that *terminations* hold, by GPU's UUID; unknown ones are left out."""
        total: dict[str, int] = {}
        for termination in terminations:
            for uuid, bytes_ in termination.memory.items():
                if bytes_ is not None:
                    total[uuid] = total.get(uuid, 0) + bytes_
        for one in self.held:
            for uuid, bytes_ in one.memory.items():
                if bytes_ is not None and (
                    one.released or not all(e.state is TerminationState.RELEASED for e in terminations)
                ):
                    total[uuid] = total.get(uuid, 0) + bytes_
        return total

    # ------------------------------------------------------------------- acting

    def open_handles(self, signals: Signals) -> None:
        """Open a handle of each. May block."""
        for termination in self.those(TerminationState.WAITING):
            held = signals.open(termination.target)
            if isinstance(held, Result):
                termination.result = held
                termination.state = (
                    TerminationState.GONE if held.outcome is Outcome.ALREADY_GONE else TerminationState.REFUSED
                )
                self._write("hold", termination, held)
            else:
                termination.handle, termination.state = held, TerminationState.READY

    def send(
        self, number: int, to: Sequence[ProcessTermination] | None = None, snapshot: Snapshot | None = None
    ) -> None:
        """Send signal *number* to *to* (None: to all that are held and run). *snapshot* is what memory is compared
        with afterwards. May block."""
        chosen = self.those(TerminationState.READY, TerminationState.RUNNING) if to is None else to
        if snapshot is not None:
            self.reclaim.begin(snapshot)
        if snapshot is not None and not self.those(TerminationState.EXITED):
            self._before = {gpu.uuid: _unattributed(gpu, snapshot) for gpu in snapshot.gpus}
        for termination in chosen:
            if termination.handle is not None:
                self._send(termination, termination.handle, number)

    def _send(self, termination: ProcessTermination, handle: ProcessHandle, number: int) -> None:
        at, steady = self._clock(), self._steady()
        result = handle.send(number)
        termination.result = result
        self._first_sent = self._first_sent or steady
        self._write(signal_name(number), termination, result)
        if result.outcome is Outcome.SENT:
            termination.number, termination.sent_at, termination.sent_steady = number, at, steady
            termination.sent_wall = time.time()
            termination.state = TerminationState.RUNNING
            stopped = termination.facts is not None and termination.facts.state == "T"
            if stopped and number in TERMINATION_SIGNALS - {signal.SIGKILL}:
                termination.continued = handle.send(signal.SIGCONT).outcome is Outcome.SENT
        elif result.outcome is Outcome.ALREADY_GONE and termination.number is None:
            termination.state = TerminationState.GONE
        elif result.outcome is not Outcome.ALREADY_GONE:
            termination.state = TerminationState.REFUSED

    def watch(self) -> None:
        """See who has exited. Does not block."""
        for termination in self.those(TerminationState.READY, TerminationState.RUNNING):
            handle = termination.handle
            if handle is None or not handle.exited():
                waited = self._clock() - termination.sent_at
                late = termination.number == signal.SIGKILL and waited >= timeouts.STUCK_SECONDS
                termination.stuck_in = handle.stuck_in() if late and handle is not None else None
                continue
            termination.exited_at, termination.exited_steady = self._clock(), self._steady()
            self._last_exit = termination.exited_steady
            termination.state = TerminationState.EXITED if termination.number is not None else TerminationState.GONE

    def look(self, snapshot: Snapshot) -> None:
        """See in *snapshot* whose memory is back."""
        for termination in self.those(TerminationState.EXITED, TerminationState.KEPT):
            termination.listed = False
            unreaped_by = getattr(termination.handle, "unreaped_by", None)
            termination.unreaped_by = unreaped_by() if unreaped_by is not None else None
            for uuid, held in termination.memory.items():
                if uuid not in termination.back and self._is_back(termination, uuid, held, snapshot):
                    termination.back.add(uuid)
            if termination.back.issuperset(termination.memory):
                reads = [gpu.steady_at for gpu in snapshot.gpus if gpu.uuid in termination.memory]
                termination.back_after = max(0.0, max(reads, default=snapshot.steady_at) - termination.sent_steady)
                termination.state = TerminationState.RELEASED
            elif self._clock() - termination.exited_at >= timeouts.MEMORY_BACK_SECONDS:
                termination.state = TerminationState.KEPT
            self._see_respawn(termination, snapshot)
        if self._first_sent:
            self.reclaim.look(snapshot, self._first_sent)
        if self._last_exit and not self.those(TerminationState.RUNNING):
            for one in self.held:
                one.look(snapshot, self._last_exit, self._first_sent)
        for termination in self.those(TerminationState.RELEASED, TerminationState.KEPT):
            if termination.target.key not in self._told and termination.state is not TerminationState.KEPT:
                self._told.add(termination.target.key)
                self._write("released", termination, None)

    def _see_respawn(self, termination: ProcessTermination, snapshot: Snapshot) -> None:
        if termination.respawned is None and termination.facts is not None and self._at_first is not None:
            known = {process.key for process in self._at_first.processes}
            termination.respawned = respawned(termination.facts, termination.sent_steady, known, snapshot.processes)

    def _write(self, action: str, termination: ProcessTermination, result: Result | None) -> None:
        if self.log is None:
            return
        target = termination.target
        self.log.write(
            action,
            pid=target.key.pid,
            start_ticks=target.key.start_ticks,
            user=target.user,
            command=target.command,
            gpu_memory_bytes=termination.memory_bytes,
            outcome=result.outcome.name.lower() if result is not None else None,
            words=result.message if result is not None else f"memory back after {termination.back_after:.1f} s",
        )

    def _is_back(self, termination: ProcessTermination, uuid: str, held: int | None, snapshot: Snapshot) -> bool:
        gpu = snapshot.gpu(uuid)
        if gpu is None or gpu.error is not None or gpu.late or gpu.steady_at < termination.exited_steady:
            return False
        if any(process.gpu_uuid == uuid and _is_same(process, termination) for process in snapshot.processes):
            termination.listed = True
            return False
        if gpu.processes_error is not None:
            return False  # not to be listed says nothing
        before, after = self._before.get(uuid), _unattributed(gpu, snapshot)
        if held is None or before is None or after is None:
            return True  # the driver gives no figures: not listed any more is all that can be seen
        return after - before <= held * _BACK

    def close(self) -> None:
        """Close all handles."""
        for termination in self.all:
            if termination.handle is not None:
                termination.handle.close()
                termination.handle = None


def _is_same(process: GpuProcess, termination: ProcessTermination) -> bool:
    """Whether a listed pid may still be the one that exited. A dead pid has no start time any more."""
    if process.pid != termination.target.key.pid:
        return False
    return process.host is None or process.key == termination.target.key


def _unattributed(gpu: Gpu, snapshot: Snapshot) -> int | None:
    """What of *gpu* no listed process accounts for now; only compared with itself at another moment."""
    return used_minus_listed(gpu, memory_by_pid(row for row in snapshot.processes if row.gpu_uuid == gpu.uuid))
