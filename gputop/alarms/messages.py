"""What is said of an alarm."""

from __future__ import annotations

from gputop.alarms.condition import Condition, Growth, Scope, Threshold
from gputop.alarms.evaluation import Observation
from gputop.alarms.metrics import GROWTH
from gputop.sampling.messages import AlarmDetails
from gputop.text import shorten
from gputop.units import short_duration


def alarm(condition: Condition, subject: str, seen: Observation, message: str) -> AlarmDetails:
    """*message* about *seen*, as the bus carries it."""
    first = next((n for n, value in enumerate(seen.values) if value is not None), None)
    value = unit = None
    if first is not None:
        clause = condition.clauses[first]
        value, unit = seen.values[first], clause.unit.key if isinstance(clause, Threshold) else GROWTH.key
    code = None if seen.xid is None else seen.xid.code
    return AlarmDetails(condition.text, subject, message, seen.gpu, seen.process, value, unit, code)


def what_is_so(condition: Condition, seen: Observation, held: float = 0.0) -> str:
    """``GPU 0 (NVIDIA H200): memory 92%, for 10 s``."""
    if condition.scope is Scope.GONE:
        return seen.message
    said = seen.message or " and ".join(
        clause.describe(value)
        for clause, value in zip(condition.clauses, seen.values, strict=True)
        if isinstance(clause, Threshold | Growth) and value is not None
    )
    return f"{who(seen)}: {said}" + (f", for {short_duration(held)}" if held else "")


def not_known(condition: Condition, seen: Observation) -> str:
    return f"{who(seen)}: cannot tell whether {condition.text}: {seen.reason or 'not known yet'}"


def who(seen: Observation) -> str:
    """``GPU 0 (NVIDIA H200)``, ``pid 41832 (ml, python train.py) on GPU 0``."""
    gpu, process = seen.gpu, seen.process
    if process is None:
        return "this machine" if gpu is None else f"GPU {gpu.index} ({gpu.name})"
    host = process.host
    known = () if host is None else (host.user, shorten(host.command or host.name or "", 60))
    owner = ", ".join(part for part in known if part)
    return f"pid {process.pid}{f' ({owner})' if owner else ''} on GPU {process.gpu_index}"
