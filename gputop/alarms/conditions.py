"""What an alarm waits for, as people write it.

    memory > 90%                              of any GPU; also bytes: memory > 120GiB
    gpu:0 temperature >= 85C for 30s clear 80C
    memory grows > 1GiB/10min
    process memory > 20GiB                    of any process on a GPU
    user:ml command:train.py memory > 40GiB
    idle > 30min and memory > 1GiB            of any process: both must hold
    pid 1234 gone · process vllm gone · gpu lost · xid · xid 48,79

``for TIME`` at the end: it must have held that long. ``clear LEVEL`` after a comparison: where the alarm clears, 3 % of
the level below it (above, for ``<``) unless told. There is no "or": write two conditions.
"""

from __future__ import annotations

import enum
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from gputop import units
from gputop.alarms.metrics import BYTES, QUANTITIES, SECONDS, AlarmMetric, MetricUnit, shown_size, shown_time, unit_of
from gputop.model import Gpu, GpuProcess, clean_text
from gputop.settings import AlarmRule

CLEAR_SHARE: Final = 0.03  # of the level: how far it must fall back before the alarm clears
LONGEST: Final = 200  # characters of a condition


class ConditionError(ValueError):
    """The condition is not one; ``str()`` says why, and what would be."""


class Scope(enum.Enum):
    """What a condition is asked of."""

    GPU = "gpu"
    PROCESS = "process"
    XID = "xid"
    GONE = "gone"


#: What the signs mean.
TESTS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """``memory > 90% clear 85%``, levels in *unit*."""

    quantity: AlarmMetric
    unit: MetricUnit
    sign: str
    level: float
    clear: float

    def read(self, gpu: Gpu, process: GpuProcess | None) -> float | None:
        """The value now; None where it is not known. Of what the watch keeps (idle time) it is asked there."""
        if process is not None:
            return self.quantity.process[self.unit.key](process, gpu)
        return self.quantity.gpu[self.unit.key](gpu)

    def holds(self, value: float) -> bool:
        return TESTS[self.sign](value, self.level)

    def still(self, value: float) -> bool:
        """Whether a raised alarm stays so."""
        return TESTS[self.sign](value, self.clear)

    def words(self, value: float) -> str:
        return f"{self.quantity.words} {self.unit.show(value)}"

    def clear_words(self) -> str:
        return f"clears at {self.unit.show(self.clear)}"


@dataclass(frozen=True, slots=True)
class Growth:
    """``memory grows > 1GiB/10min``: what is compared is the trend over *window* seconds, in bytes per window."""

    level: float
    clear: float
    window: float

    def holds(self, value: float) -> bool:
        return value > self.level

    def still(self, value: float) -> bool:
        return value > self.clear

    def words(self, value: float) -> str:
        per = shown_time(self.window)
        return f"memory {'grows' if value >= 0 else 'shrinks'} {shown_size(abs(value))} in {per}"

    def clear_words(self) -> str:
        return f"clears at {shown_size(self.clear)} in {shown_time(self.window)}"


@dataclass(frozen=True, slots=True)
class GpuLostCondition:
    """``gpu lost``: an error in its readings, not there any more, or without an answer for some time."""


@dataclass(frozen=True, slots=True)
class XidSeen:
    """``xid 48,79``; None: any."""

    codes: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class ProcessGone:
    """``pid 1234 gone`` or ``process vllm gone``: no such process on this machine's GPUs."""

    pid: int | None = None
    name: str | None = None


Clause = Comparison | Growth | GpuLostCondition | XidSeen | ProcessGone


@dataclass(frozen=True, slots=True)
class Filters:
    """Which GPUs and processes a condition is about; None: all."""

    gpu: str | None = None
    user: str | None = None
    command: str | None = None

    def let_through(self, process: GpuProcess) -> bool:
        host = process.host
        if self.user is not None and (host is None or host.user != self.user):
            return False
        return self.command is None or (host is not None and self.command in (host.command or host.name or ""))


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition, parsed. All *clauses* must hold, for *hold_seconds*."""

    text: str
    scope: Scope
    clauses: tuple[Clause, ...]
    filters: Filters = Filters()
    hold_seconds: float = 0.0

    @property
    def needs_time(self) -> bool:
        """Whether it cannot be told from one look."""
        return any(
            isinstance(clause, Growth | XidSeen) or (isinstance(clause, Comparison) and clause.quantity.timed)
            for clause in self.clauses
        )

    @property
    def host_pids(self) -> tuple[int, ...] | None:
        """The processes of which fresh facts of /proc are needed; None: all."""
        pids = []
        for clause in self.clauses:
            if isinstance(clause, ProcessGone):
                if clause.pid is None:
                    return None
                pids.append(clause.pid)
            elif isinstance(clause, Comparison) and clause.quantity.needs_host:
                return None
        return tuple(pids)


def host_pids(conditions: Iterable[Condition]) -> tuple[int, ...] | None:
    """The processes of which *conditions* need fresh facts of /proc; None: all."""
    found: list[int] = []
    for condition in conditions:
        pids = condition.host_pids
        if pids is None:
            return None
        found += pids
    return tuple(found)


# ---------------------------------------------------------------------------- parsing

_COMPARISON: Final = re.compile(r"(?P<name>[a-z ]*?)\s*(?P<sign>>=|<=|>|<)\s*(?P<value>[^<>=]+)", re.IGNORECASE)
_GROWTH: Final = re.compile(r"(?:memory\s+)?grows\s*>\s*(?P<size>[^<>=/]+)/(?P<time>[^<>=/]+)", re.I)
_FILTER: Final = re.compile(r"(gpu|user|command):(\"[^\"]*\"|\S+)\s*", re.IGNORECASE)
_FOR: Final = re.compile(r"\s+for\s+(?P<time>\d[\w. ]*)$", re.IGNORECASE)
_CLEAR: Final = re.compile(r"\s+clear\s+(?P<level>\S.*)$", re.IGNORECASE)

EXAMPLES: Final = (
    "memory > 90%, temperature > 85C, process memory > 20GiB, memory grows > 1GiB/10min, "
    "idle > 30min and memory > 1GiB, pid 1234 gone, gpu lost, xid 79"
)


def parse(text: str, hold_seconds: float | None = None, clear: str | None = None) -> Condition:
    """The condition *text* says. *hold_seconds* and *clear* are for what it does not say itself.

    Raises ConditionError in words.
    """
    whole = " ".join(clean_text(text, LONGEST + 1).split())
    try:
        return _parse(whole, hold_seconds, clear)
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
    if len(whole) > LONGEST:
        raise ValueError(f"longer than {LONGEST} characters")
    rest = whole
    if match := _FOR.search(rest):
        hold_seconds, rest = units.parse_interval(match["time"]), rest[: match.start()]
    elif hold_seconds:
        whole += f" for {shown_time(hold_seconds).replace(' ', '')}"
    if (gone := _gone(rest)) is not None:
        if clear is not None:
            raise ValueError("there is no level to clear at")
        return Condition(whole, Scope.GONE, (gone,), hold_seconds=hold_seconds or 0.0)
    filters, rest, of_process = _filters(rest)
    lowered = rest.lower()
    if lowered in ("gpu lost", "lost") or re.fullmatch(r"xid(\s+[\d,\s]+)?", lowered):
        if of_process or clear is not None:
            raise ValueError("this is asked of a GPU, and has no level")
        lost = not lowered.startswith("xid")
        clause: Clause = GpuLostCondition() if lost else XidSeen(_codes(lowered))
        return Condition(whole, Scope.GPU if lost else Scope.XID, (clause,), filters, hold_seconds or 0.0)
    if re.search(r"\sor\s", lowered):
        raise ValueError("there is no or: give two conditions")
    parts = re.split(r"\s+and\s+", rest, flags=re.IGNORECASE)
    names = [match["name"].lower() if (match := _COMPARISON.match(part)) else "" for part in parts]
    of_process = of_process or any(name in QUANTITIES and not QUANTITIES[name].gpu for name in names)
    clauses = [_clause(part, of_process) for part in parts]
    if clear is not None:
        clauses = _with_clear(clauses, parts, clear)
    return Condition(whole, Scope.PROCESS if of_process else Scope.GPU, tuple(clauses), filters, hold_seconds or 0.0)


def _gone(text: str) -> ProcessGone | None:
    match = re.fullmatch(r"(pid|process)\s+(\S.*?)\s+gone", text, re.IGNORECASE)
    if match is None:
        return None
    if match[1].lower() == "process":
        return ProcessGone(name=match[2].strip('"'))
    if not re.fullmatch(r"[1-9]\d{0,9}", match[2], re.ASCII):
        raise ValueError(f"{match[2]!r} is not a pid")
    return ProcessGone(pid=int(match[2]))


def _filters(text: str) -> tuple[Filters, str, bool]:
    """The filters at the beginning, the rest, and whether it is about processes."""
    filters, of_process = Filters(), False
    while True:
        if match := _FILTER.match(text):
            filters = replace(filters, **{match[1].lower(): match[2].strip('"')})
            of_process = of_process or match[1].lower() != "gpu"
            text = text[match.end() :]
        elif match := re.match(r"process\s+", text, re.IGNORECASE):
            of_process, text = True, text[match.end() :]
        else:
            return filters, text, of_process


def _codes(text: str) -> frozenset[int] | None:
    codes = [int(word) for word in re.findall(r"\d+", text)]
    return frozenset(codes) or None


def _clause(text: str, of_process: bool) -> Comparison | Growth:
    clear = None
    if match := _CLEAR.search(text):
        clear, text = match["level"], text[: match.start()]
    if match := _GROWTH.fullmatch(text):
        return _growth(match["size"], match["time"], clear)
    match = _COMPARISON.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not understood. Examples: {EXAMPLES}")
    quantity = _quantity(match["name"].lower().strip(), of_process)
    unit = unit_of(quantity, match["value"], of_process)
    level, sign = unit.parse(match["value"]), match["sign"]
    return Comparison(quantity, unit, sign, level, _clear_level(unit, sign, level, clear))


def _quantity(name: str, of_process: bool) -> AlarmMetric:
    quantity = QUANTITIES.get(name)
    if quantity is None:
        import difflib

        if name.startswith("process "):
            raise ValueError("process goes to the beginning, and is for all of it")
        close = difflib.get_close_matches(name, QUANTITIES, 1)
        hint = f" (is {close[0]} meant?)" if close else f"; there are {', '.join(QUANTITIES)}"
        raise ValueError(f"{name or 'nothing'}: no such quantity{hint}")
    if of_process and not quantity.process:
        raise ValueError(f"{quantity.words} is a GPU's, not a process's")
    return quantity


def _growth(size: str, time: str, clear: str | None) -> Growth:
    window = units.parse_interval(time if re.match(r"\s*[\d.]", time) else f"1{time.strip()}")
    if not 60 <= window <= 86400:
        raise ValueError(f"{shown_time(window)}: a trend is told over 1 min to 24 h")
    level = BYTES.parse(size)
    cleared = BYTES.parse(clear.split("/")[0]) if clear is not None else level / 2
    if cleared > level:
        raise ValueError("it would clear above its level")
    return Growth(level, cleared, window)


def _clear_level(unit: MetricUnit, sign: str, level: float, text: str | None) -> float:
    upwards = sign.startswith(">")
    if text is None:
        share = 0.0 if unit is SECONDS else CLEAR_SHARE
        return level * (1 - share if upwards else 1 + share)
    clear = unit.parse(text)
    if (clear > level) if upwards else (clear < level):
        raise ValueError(f"it would clear at {unit.show(clear)}, {'above' if upwards else 'below'} {unit.show(level)}")
    return clear


def _with_clear(clauses: list[Comparison | Growth], parts: list[str], clear: str) -> list[Comparison | Growth]:
    """*clear* put where no level is given: that must be one clause only."""
    silent = [n for n, part in enumerate(parts) if not _CLEAR.search(part)]
    if not silent:
        return clauses
    if len(silent) > 1:
        raise ValueError(f"which level is {clear} for? Write it into the condition: {parts[0]} clear {clear}")
    clause = clauses[silent[0]]
    if isinstance(clause, Growth):
        new: Comparison | Growth = replace(clause, clear=BYTES.parse(clear.split("/")[0]))
    else:
        try:
            new = replace(clause, clear=_clear_level(clause.unit, clause.sign, clause.level, clear))
        except ValueError as error:
            raise ValueError(f"{error}; write it into the condition: {parts[silent[0]]} clear LEVEL") from None
    return [*clauses[: silent[0]], new, *clauses[silent[0] + 1 :]]
