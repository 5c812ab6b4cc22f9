"""What the kill dialog says about its targets, as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from gputop import units
from gputop.model import ProcessKey
from gputop.model.owner import Owner
from gputop.signals.kill_warnings import kill_warnings
from gputop.signals.protocol import Target
from gputop.signals.termination_state import ProcessTermination, TerminationState
from gputop.signals.terminations import Terminations
from gputop.text import fit, width, wrap
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.palette import gpu_role
from gputop.ui.toolkit.view import View

_STYLES: Final = {
    TerminationState.WAITING: "dim",
    TerminationState.READY: "warning",
    TerminationState.REFUSED: "critical",
    TerminationState.GONE: "dim",
    TerminationState.RUNNING: "warning",
    TerminationState.EXITED: "text",
    TerminationState.RELEASED: "good",
    TerminationState.KEPT: "critical",
}


class KillText:
    """The lines on *terminations* at *now* (epoch seconds, for ages)."""

    def __init__(
        self, terminations: Terminations, view: View, now: float, owners: Mapping[ProcessKey, Owner] | None = None
    ) -> None:
        self.terminations, self.view, self._now = terminations, view, now
        self._owners = owners or {}
        warned = [words for one in terminations.all for words in self._all_warnings(one)]
        self._shared = {words: count for words, count in Counter(warned).items() if count > 1}

    def header(self, cells: int) -> Line:
        return ((_columns(cells, "PID", "USER", "AGE", "GPU", "MEMORY", "COMMAND"), "dim"),)

    def about(self, termination: ProcessTermination, cells: int) -> list[Line]:
        """The lines on one target: who it is, what it holds, what is to be known, what became of it."""
        facts, target = termination.facts, termination.target
        now = self._now
        born = facts.start_time if facts is not None else None
        age = units.duration(now - born if born is not None else None)
        holds = [(self.terminations.names.get(uuid, "GPU ?"), bytes_) for uuid, bytes_ in termination.memory.items()]
        name, bytes_ = holds[0] if holds else ("", None)
        text = _columns(
            cells,
            str(target.key.pid),
            target.user or units.UNKNOWN,
            age,
            name.removeprefix("GPU "),
            self.view.memory(bytes_) if holds else "",
            target.command or units.UNKNOWN,
        )
        lines: list[Line] = [((text[:_BEFORE_COMMAND], "title"), (text[_BEFORE_COMMAND:], "text"))]
        for name, bytes_ in holds[1:]:
            more = _columns(cells, "", "", "", name.removeprefix("GPU "), self.view.memory(bytes_), "")
            lines.append(((more, "title"),))
        indent = " " * 8
        for words in self._warnings(termination):
            lines += [((f"{indent}▲ " if not n else f"{indent}  ", "warning+b"), (part, "warning"))
                      for n, part in enumerate(wrap(words, cells - 10))]  # fmt: skip
        words = self.terminations.message(termination, self.view.settings.memory_unit)
        style, sign = _STYLES[termination.state], "✓ " if termination.state is TerminationState.RELEASED else "→ "
        if words:
            lines += [((f"{indent}{sign}" if not n else f"{indent}  ", style), (part, style))
                      for n, part in enumerate(wrap(words, cells - 10))]  # fmt: skip
        owner = self._owners.get(target.key)
        if termination.respawned is not None and owner is not None and owner.stop_with is not None:
            lines.append(((f"{indent}  {owner.stop_with} stops it for good", "accent"),))
        return lines

    def _warnings(self, termination: ProcessTermination) -> list[str]:
        """What could go wrong with this one; what several have in common is said once, by :meth:`total`."""
        return [words for words in self._all_warnings(termination) if words not in self._shared]

    def _all_warnings(self, termination: ProcessTermination) -> list[str]:
        """What could go wrong, as far as it can be seen before anything is sent."""
        facts = termination.facts
        if facts is None or termination.state is not TerminationState.READY:
            return []
        return kill_warnings(facts, self._owners.get(termination.target.key))

    def total(self, cells: int) -> list[Line]:
        terminations = self.terminations
        done = terminations.those(TerminationState.RELEASED)
        finished = terminations.sent and done and not terminations.pending
        chosen = (
            done
            if finished
            else terminations.those(
                TerminationState.WAITING,
                TerminationState.READY,
                TerminationState.RUNNING,
                TerminationState.EXITED,
                TerminationState.RELEASED,
            )
        )
        by_gpu = terminations.freed_by_gpu(chosen)
        said: list[Line] = []
        for words, count in self._shared.items():
            whose = "all" if count == len(terminations.all) else str(count)
            said += [(("▲ " if not n else "  ", "warning+b"), (part, "warning"))
                     for n, part in enumerate(wrap(f"{whose}: {words}", cells - 2))]  # fmt: skip
        for one in terminations.held:
            style = "good" if one.released else "dead"
            said += [((part, style),) for part in wrap(
                terminations.held_message(one, self.view.settings.memory_unit), cells)]  # fmt: skip
        said += [((words, "good"),) for words in terminations.reclaim_messages(self.view.settings.memory_unit)]
        if not by_gpu:
            return said
        label = "Released " if chosen is done else "To be freed " if terminations.sent else "Would free "
        spans: list[Span] = [(label, "dim"), (self.view.memory(sum(by_gpu.values())), "title+b")]
        if len(by_gpu) > 1 or len(terminations.all) > 1:
            for uuid, bytes_ in by_gpu.items():
                name = terminations.names.get(uuid, "GPU ?")
                index = name.removeprefix("GPU ")
                role = gpu_role(int(index)) if index.isdecimal() else "text"
                spans += [(" · ", "faint"), (name, role), (f" {self.view.memory(bytes_)}", "text")]
        return [*said, tuple(spans)]

    def left_out(self, hidden: Sequence[Target], cells: int) -> list[Line]:
        if not hidden:
            return []
        names = ", ".join(f"{t.key.pid} {(t.command or '').split(' ')[0]}".strip() for t in hidden)
        said = f"Not included, tagged but hidden by the filter: {names}"
        return [((part, "dim"),) for part in wrap(said, cells)]


_BEFORE_COMMAND: Final = 8 + 9 + 6 + 4 + 8 + 1


def _columns(cells: int, pid: str, user: str, age: str, gpu: str, memory: str, command: str) -> str:
    text = fit(pid, 7, right=True) + " " + fit(user, 8) + " " + fit(age, 5, right=True) + " "
    text += fit(gpu, 3, right=True) + " " + fit(memory, 7, right=True) + "  "
    return text + fit(command, max(0, cells - width(text)))
