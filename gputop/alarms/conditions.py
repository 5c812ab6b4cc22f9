"""Conditions as people write them, in the grammar of filters/.

    memory > 90%                              of any GPU; also bytes: memory > 120GiB, mem>120G
    gpu:0 temperature >= 85C clear 80C for 30s
    memory grows > 1GiB/10min
    process memory > 20GiB                    of any process on a GPU
    user:ml command:train.py memory > 40GiB
    idle > 30min and memory > 1GiB            of any process: both must hold
    pid 1234 gone · process vllm gone · gpu lost · xid · xid 48,79

``for TIME``: it must have held that long. ``clear LEVEL`` after a comparison: where the alarm clears, 3 % of the level
below it (above, for ``<``) unless told. There is no "or": write two conditions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from gputop import units
from gputop.alarms.condition import (
    Clause,
    Condition,
    GpuLostCondition,
    Growth,
    ProcessGone,
    Scope,
    Selection,
    Threshold,
    XidSeen,
)
from gputop.alarms.metrics import GPU_GROWTH, GPU_METRICS, PROCESS_GROWTH, PROCESS_METRICS
from gputop.filters.comparison import comparison_of
from gputop.filters.errors import FilterError
from gputop.filters.field import Field, unknown_field
from gputop.filters.process_fields import has_kind, pids_of
from gputop.filters.quantities import BYTES, SECONDS, Unit
from gputop.filters.terms import Grammar, Term
from gputop.model import GpuProcess, clean_text
from gputop.settings import AlarmRule
from gputop.units import short_duration

CLEAR_SHARE: Final = 0.03  # of the level: how far it must fall back before the alarm clears
LONGEST_CONDITION: Final = 200  # characters

EXAMPLES: Final = (
    "memory > 90%, temperature > 85C, process memory > 20GiB, memory grows > 1GiB/10min, "
    "idle > 30min and memory > 1GiB, pid 1234 gone, gpu lost, xid 79"
)

_GRAMMAR: Final = Grammar(("gpu", "user", "command", "pid", "type"), GPU_METRICS, PROCESS_METRICS)
_HOLD: Final = re.compile(r"\s+for\s+(?P<time>\d[\d.]*\s*[a-z]*)$", re.IGNORECASE)
_GONE: Final = re.compile(r"(?P<what>pid|process)\s+(?P<which>\S.*?)\s+gone", re.IGNORECASE)
_XID: Final = re.compile(r"xid(\s+[\d,\s]+)?", re.IGNORECASE)


class ConditionError(ValueError):
    """The condition is not one; ``str()`` says why, and what would be."""


def parse(text: str, hold_seconds: float | None = None, clear: str | None = None) -> Condition:
    """The condition *text* says. *hold_seconds* and *clear* are for what it does not say itself.

    Raises ConditionError in words.
    """
    whole = " ".join(clean_text(text, LONGEST_CONDITION + 1).split())
    try:
        return _parse(whole, hold_seconds, clear)
    except FilterError as error:
        where = f"at character {error.position + 1}: " if error.position else ""
        raise ConditionError(f"{whole!r}: {where}{error}") from None
    except ValueError as error:
        raise ConditionError(f"{whole!r}: {error}") from None


def parse_rule(rule: AlarmRule) -> Condition:
    """The condition of one ``[[alarms]]`` table of the settings file. Raises ConditionError in words."""
    try:
        hold = units.parse_interval(rule.hold) if rule.hold else None
    except ValueError as error:
        raise ConditionError(f"{rule.when!r}: for: {error}") from None
    return parse(rule.when, hold, rule.clear or None)


def _parse(whole: str, hold_seconds: float | None, clear: str | None) -> Condition:
    if not whole:
        raise ValueError(f"a condition is needed, such as {EXAMPLES}")
    if len(whole) > LONGEST_CONDITION:
        raise ValueError(f"longer than {LONGEST_CONDITION} characters")
    text = whole
    if match := _HOLD.search(whole):
        hold_seconds, text = units.parse_interval(match["time"]), whole[: match.start()]
    elif hold_seconds:
        whole += f" for {short_duration(hold_seconds).replace(' ', '')}"
    hold_seconds = hold_seconds or 0.0
    if match := _GONE.fullmatch(text):
        if clear is not None:
            raise ValueError("there is no level to clear")
        return Condition(whole, Scope.GONE, (_gone(match["what"], match["which"]),), hold_seconds=hold_seconds)
    parts = _Parts(_GRAMMAR.terms(text))
    selection, of_process = _selection(parts.selecting), parts.of_process
    if event := _event(parts):
        if of_process or clear is not None:
            raise ValueError("this is about a GPU and has no level")
        scope = Scope.XID if isinstance(event, XidSeen) else Scope.GPU
        return Condition(whole, scope, (event,), selection, hold_seconds)
    parts.refuse_words()
    parts.set_clear(clear)
    of_process = of_process or any(
        GPU_METRICS.get(term.name) is None and PROCESS_METRICS.get(term.name) is not None for term in parts.comparing
    )
    clauses = [_clause(*compared, of_process) for compared in zip(parts.comparing, parts.clears, strict=True)]
    return Condition(whole, Scope.PROCESS if of_process else Scope.GPU, tuple(clauses), selection, hold_seconds)


class _Parts:
    """The terms of a condition by what they do in it."""

    def __init__(self, terms: Iterator[Term]) -> None:
        self.selecting: list[Term] = []  # gpu:, user: and the like
        self.comparing: list[Term] = []
        self.clears: list[str | None] = []  # the level after "clear", by the comparison
        self.words: list[Term] = []  # what is none of these
        self.of_process = False
        clearing = False
        left = list(terms)
        for position, term in enumerate(left):
            word = term.text.lower() if not term.operator else ""
            last = position == len(left) - 1
            if term.operator == ":":
                self.selecting.append(term)
                self.of_process = self.of_process or term.name != "gpu"
            elif term.is_comparison:
                if term.name.startswith("process "):
                    self._process(term)
                self.comparing.append(term)
                self.clears.append(None)
            elif word == "process":
                self._process(term)
            elif word == "or" and self.comparing:
                raise FilterError("'or' is not supported: write two conditions", term.position)
            elif word == "and" and self.comparing and not last:
                pass  # all must hold anyway
            elif word == "clear" and self.comparing and not last:
                clearing = True
                continue
            elif clearing:
                self.clears[-1] = f"{self.clears[-1] or ''} {term.text}".strip()
                continue
            else:
                self.words.append(term)
            clearing = False

    def _process(self, term: Term) -> None:
        if self.comparing:
            raise FilterError("process goes at the beginning and applies to the whole condition", term.position)
        self.of_process = True

    def refuse_words(self) -> None:
        """Raise FilterError where something is no part of a condition, or nothing is compared."""
        if self.words:
            first = self.words[0]
            if first.text[0] in "<>":
                raise unknown_field("", (GPU_METRICS, PROCESS_METRICS), first.position)
            if self.comparing and first.text.lower() not in ("and", "clear", "for"):
                hint = f"; to search command lines, write command:{first.value}"
            else:
                hint = f". Examples: {EXAMPLES}"
            raise FilterError(f"{first.text!r} is not understood{hint}", first.position)
        if not self.comparing:
            raise ValueError(f"nothing is compared. Examples: {EXAMPLES}")

    def set_clear(self, clear: str | None) -> None:
        """Put *clear* where no level to clear at is given: that must be one comparison only."""
        silent = [n for n, level in enumerate(self.clears) if level is None]
        if clear is None or not silent:
            return
        if len(silent) > 1:
            first = self.comparing[silent[0]].text
            raise ValueError(f"which level is {clear} for? Write it into the condition: {first} clear {clear}")
        self.clears[silent[0]] = clear


def _gone(what: str, which: str) -> ProcessGone:
    if what.lower() == "process":
        return ProcessGone(name=which.strip('"'))
    if not re.fullmatch(r"[1-9]\d{0,9}", which, re.ASCII):
        raise ValueError(f"{which!r} is not a pid")
    return ProcessGone(pid=int(which))


def _event(parts: _Parts) -> GpuLostCondition | XidSeen | None:
    words = " ".join(term.text for term in parts.words).lower()
    if parts.comparing:
        return None
    if words in ("gpu lost", "lost"):
        return GpuLostCondition()
    if _XID.fullmatch(words):
        return XidSeen(frozenset(map(int, re.findall(r"\d+", words))) or None)
    return None


# -------------------------------------------------------------------------- selection


def _selection(terms: list[Term]) -> Selection:
    """Of two terms with one name the last counts, unless they exclude. Raises FilterError."""
    gpus: tuple[str, ...] = ()
    tests: list[Callable[[GpuProcess], bool]] = []
    for term in {term if term.negated else term.name: term for term in terms}.values():
        if term.name != "gpu":
            tests.append(_SELECTS[term.name](term))
        elif term.negated:
            raise FilterError("name the GPUs you mean: gpu:0,1", term.position)
        else:
            gpus = term.values
    return Selection(gpus, tuple(tests))


def _owned_by(term: Term) -> Callable[[GpuProcess], bool]:
    """Exactly this user, or one of these: nothing is half-typed here."""
    users, wanted = term.values, not term.negated

    def test(process: GpuProcess) -> bool:
        user = None if process.host is None else process.host.user
        return user is not None and (user in users) is wanted

    return test


def _runs(term: Term) -> Callable[[GpuProcess], bool]:
    if not term.value:
        raise FilterError("a value is missing", term.position)
    needle, wanted = term.value, not term.negated

    def test(process: GpuProcess) -> bool:
        host = process.host
        return host is not None and (needle in (host.command or host.name or "")) is wanted

    return test


def _has_pid(term: Term) -> Callable[[GpuProcess], bool]:
    pids, wanted = {int(pid) for pid in pids_of(term)}, not term.negated
    return lambda process: (process.pid in pids) is wanted


_SELECTS: Final = {"user": _owned_by, "command": _runs, "pid": _has_pid, "type": has_kind}


# ---------------------------------------------------------------------------- clauses


def _clause(term: Term, clear: str | None, of_process: bool) -> Clause:
    """Raises FilterError."""
    field: Field[...] | None = (PROCESS_METRICS if of_process else GPU_METRICS).get(term.name)
    if field is None:
        if GPU_METRICS.get(term.name) is not None:
            raise FilterError(f"{term.name} is a GPU's, not a process's", term.position)
        raise unknown_field(term.name, (GPU_METRICS, PROCESS_METRICS), term.position)
    try:
        if field in (GPU_GROWTH, PROCESS_GROWTH):
            return _growth(term, clear)
        compared = comparison_of(term, field)
        cleared = _clear_level(compared.unit, compared.operator, compared.level, clear)
    except FilterError:
        raise
    except ValueError as error:
        raise FilterError(str(error), term.position) from None
    return Threshold(field, compared.unit, compared.operator, compared.level, cleared)


def _growth(term: Term, clear: str | None) -> Growth:
    size, slash, time = term.value.partition("/")
    if term.operator != ">" or term.negated or not slash:
        raise ValueError("a trend is written memory grows > 1GiB/10min")
    window = units.parse_interval(time if re.match(r"\s*[\d.]", time) else f"1{time.strip()}")
    if not 60 <= window <= 86400:
        raise ValueError(f"{short_duration(window)}: a trend needs a window of 1 min to 24 h")
    level = BYTES.parse(size)
    cleared = BYTES.parse(clear.split("/")[0]) if clear is not None else level / 2
    if cleared > level:
        raise ValueError("it would clear above its level")
    return Growth(level, cleared, window)


def _clear_level(unit: Unit, operator: str, level: float, text: str | None) -> float:
    upwards = operator.startswith(">")
    if text is None:
        back = 0.0 if unit is SECONDS else abs(level) * CLEAR_SHARE
        return level - back if upwards else level + back
    clear = unit.parse(text)
    if (clear > level) if upwards else (clear < level):
        raise ValueError(f"it would clear at {unit.show(clear)}, {'above' if upwards else 'below'} {unit.show(level)}")
    return clear
