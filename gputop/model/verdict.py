"""What is thought of a process that holds GPU memory."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from gputop.model.process import ProcessKey


class Verdict(enum.IntEnum):
    """What is thought of a process that holds GPU memory, the worst last (docs/leak-rules.md)."""

    NOTE = 0  # worth knowing, no reproach: an orphan that does its work
    IDLE = 1  # holds memory and does nothing; never called a leak
    SUSPECT = 2
    STUCK = 3  # no signal helps, or only some time
    LEAK = 4  # nobody who could use the memory is left


class Finding(NamedTuple):
    """A rule that holds, and the evidence for it as a sentence with its figures and times."""

    rule: str  # "R1" to "R12"
    evidence: str


@dataclass(frozen=True, slots=True)
class LeakVerdict:
    """A verdict on one process (or, with start ticks None, on a pid that only the driver knows), over all its GPUs."""

    verdict: Verdict
    process: ProcessKey
    memory: tuple[tuple[str, int | None], ...]  # (GPU's UUID, bytes that its end would free), the largest first
    findings: tuple[Finding, ...]  # the rule that decides first
    doubts: tuple[str, ...]  # what would make it wrong
    targets: tuple[ProcessKey, ...]  # whom to end to free the memory: itself, or those who hold a dead pid's
    since: float | None = None  # since when it is so, epoch seconds, as far as gputop knows
    user: str | None = None
    command: str | None = None

    @property
    def memory_bytes(self) -> int | None:
        """Over all GPUs; None where the driver says of none."""
        known = [bytes_ for _, bytes_ in self.memory if bytes_ is not None]
        return sum(known) if known else None

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(finding.rule for finding in self.findings))
