"""What became of processes that were sent a signal, as sentences for the user."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from gputop import units
from gputop.signals.memory_reclaim import HeldMemory, MemoryReclaim
from gputop.signals.names import signal_name
from gputop.signals.termination_state import TERMINATION_SIGNALS, ProcessTermination, TerminationState


class TerminationsText:
    """The part of :class:`gputop.signals.terminations.Terminations` that speaks."""

    all: list[ProcessTermination]
    names: dict[str, str]
    reclaim: MemoryReclaim
    _clock: Callable[[], float] = time.monotonic
    _last_exit: float = 0.0

    @property
    def awaits_held_memory(self) -> bool:
        raise NotImplementedError

    def those(self, *states: TerminationState) -> list[ProcessTermination]:
        return [termination for termination in self.all if termination.state in states]

    def freed_by_gpu(self, terminations: Sequence[ProcessTermination]) -> dict[str, int]:
        raise NotImplementedError

    def held_message(self, one: HeldMemory, unit: str = "GiB") -> str:
        """How far it is with the memory of a dead pid."""
        said = f"{units.size(one.memory_bytes, unit)} of dead pid {one.pid} on {self._where(one.memory)}"
        if one.released:
            return f"{said}: released in {units.elapsed(one.back_after)}"
        if self.awaits_held_memory:
            return f"{said}: waiting for the driver to release it"
        return f"{said}: still held by other processes" if self._last_exit else f"{said}: freed once all of these exit"

    def reclaim_messages(self, unit: str = "GiB") -> list[str]:
        """By how much used memory dropped, for each GPU where it did."""
        return self.reclaim.messages(lambda uuid: self.names.get(uuid, uuid), unit)

    def message(self, termination: ProcessTermination, unit: str = "GiB") -> str:
        """How far it is with *termination*, for the user; empty while nothing is to be said."""
        result = termination.result
        match termination.state:
            case TerminationState.WAITING:
                return "checking the process…"
            case TerminationState.READY:
                guarded = getattr(termination.handle, "guarded", True)
                return "" if guarded else "no pidfd on this kernel: only its start time protects against a reused pid"
            case TerminationState.REFUSED:
                return result.message if result is not None else "nothing sent"
            case TerminationState.GONE:
                return result.message if result is not None else "exited on its own, nothing sent"
            case TerminationState.RUNNING:
                return self._running(termination)
        after = units.elapsed(termination.exited_at - termination.sent_at)
        said = f"exited {after} after {signal_name(termination.number or 0)}"
        if termination.unreaped_by is not None:
            said += f" (a zombie: its parent {termination.unreaped_by} has not reaped it)"
        if termination.respawned is not None:
            said += f"; restarted as pid {termination.respawned.key.pid} by pid {termination.respawned.parent_pid}"
        memory = units.size(termination.memory_bytes, unit)
        where = self._where(termination.memory)
        if termination.state is TerminationState.EXITED:
            return f"{said}; waiting for its {memory} on {where}" if termination.memory else said
        if termination.state is TerminationState.RELEASED:
            if not termination.memory:
                return said
            if termination.memory_bytes is None:
                return f"{said}; no longer on {where}"
            return f"{said}; released {memory} on {where} in {units.elapsed(termination.back_after)}"
        left = [uuid for uuid in termination.memory if uuid not in termination.back]
        if termination.listed:
            return f"{said}, but {self._where(left)} still lists it: other processes hold its memory"
        return f"{said}, but its memory on {self._where(left)} has not been released"

    def _running(self, termination: ProcessTermination) -> str:
        name = signal_name(termination.number or 0)
        waited = int(self._clock() - termination.sent_at)
        if termination.stuck_in is not None:
            return (
                f"SIGKILL sent, but it has been stuck in the kernel (state D) for {waited} s, in "
                f"{termination.stuck_in}: it cannot die until the driver returns; reset the GPU or reboot"
            )
        if termination.continued:
            said = f"{name} and SIGCONT sent (it was stopped)"
        else:
            said = termination.result.message if termination.result is not None else f"{name} sent"
        if termination.number not in TERMINATION_SIGNALS:
            return said
        return f"{said}; still running after {waited} s" if waited else f"{said}; still running"

    def _where(self, uuids: Mapping[str, object] | Sequence[str]) -> str:
        return ", ".join(self.names.get(uuid, uuid) for uuid in uuids)

    def summary(self, unit: str = "GiB") -> str:
        """One sentence over all of them, for a toast."""
        if len(self.all) == 1:
            return f"{self.all[0].target.key.pid}: {self.message(self.all[0], unit) or 'nothing sent'}"
        counts = {
            "still running": len(self.those(TerminationState.RUNNING)),
            "exited": len(self.those(TerminationState.EXITED, TerminationState.RELEASED)),
            "exited, but their memory is still in use": len(self.those(TerminationState.KEPT)),
            "already gone": len(self.those(TerminationState.GONE)),
            "not signaled": len(self.those(TerminationState.REFUSED, TerminationState.READY, TerminationState.WAITING)),
        }
        said = ", ".join(f"{count} {label}" for label, count in counts.items() if count)
        freed = sum(self.freed_by_gpu(self.those(TerminationState.RELEASED)).values())
        return f"{len(self.all)} processes: {said}" + (f"; released {units.size(freed, unit)}" if freed else "")
