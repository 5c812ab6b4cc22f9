"""The language of the `/` prompt.

Words are looked for in command, user, name and pid, all of them, in any case. ``user:ml``, ``gpu:0``, ``pid:41``,
``type:C`` and ``mem>10G`` (also sm, bw, enc, dec, cpu, host) ask for a field; ``!`` before a term turns it about.
What is unknown passes neither ``mem>10G`` nor ``!mem>10G``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from gputop import units
from gputop.model import GpuProcess, HostFacts

HELP: Final = "words · user:NAME · gpu:0,1 · pid:N · type:C · mem>10G · sm>50 · cpu>50 · !word"

#: Whether a GPU's share of a process passes; or the process as a whole, given the text to look for words in.
PartTest = Callable[[GpuProcess], bool]
ProcessTest = Callable[[GpuProcess, HostFacts | None, str], bool]

_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_MEASURE_TERM: Final = re.compile(r"(mem|sm|bw|enc|dec|cpu|host)(>=|<=|>|<)(.*)", re.IGNORECASE | re.DOTALL)
_FIELD_TERM: Final = re.compile(r"(user|gpu|pid|type):(.*)", re.IGNORECASE | re.DOTALL)
_UUID_LEAST: Final = 4  # characters of a UUID; less is half-typed


class _Measure(NamedTuple):
    of: Callable[[GpuProcess, HostFacts | None], float | None]
    parse: Callable[[str], float]
    example: str


def _parse_percent(text: str) -> float:
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


_MEASURES: Final = {
    "mem": _Measure(lambda process, _: process.memory_bytes, units.parse_size, "10G"),
    "sm": _Measure(lambda process, _: process.sm_percent, _parse_percent, "50"),
    "bw": _Measure(lambda process, _: process.memory_bandwidth_percent, _parse_percent, "50"),
    "enc": _Measure(lambda process, _: process.encoder_percent, _parse_percent, "50"),
    "dec": _Measure(lambda process, _: process.decoder_percent, _parse_percent, "50"),
    "cpu": _Measure(lambda _, facts: None if facts is None else facts.cpu_percent, _parse_percent, "50"),
    "host": _Measure(lambda _, facts: None if facts is None else facts.host_memory_bytes, units.parse_size, "10G"),
}


@dataclass(frozen=True, slots=True)
class ProcessFilter:
    """A parsed filter. Terms that make no sense (yet) are in ``problems``, in words, and hide nothing."""

    text: str = ""
    user: str | None = None  # exactly this one
    kind: str | None = None  # "C", "G" or "M"
    part_tests: tuple[PartTest, ...] = ()
    process_tests: tuple[ProcessTest, ...] = ()
    problems: tuple[str, ...] = ()
    reads_host: bool = False  # asks for what the host says, so it wants that of every process

    @classmethod
    def parse(cls, text: str, user: str | None = None, kind: str | None = None) -> ProcessFilter:
        part_tests: list[PartTest] = []
        process_tests: list[ProcessTest] = []
        problems: list[str] = []
        reads_host = user is not None
        if kind is not None:
            part_tests.append(_has_kind((kind.upper(),)))
        if user is not None:
            process_tests.append(_belongs_to(user))
        for term in text.split():
            wanted = not term.startswith("!")
            body = term.removeprefix("!")
            try:
                if not body:
                    raise ValueError("what not?")
                if measure := _MEASURE_TERM.fullmatch(body):
                    process_tests.append(_compares(measure[1].lower(), measure[2], measure[3], wanted))
                    reads_host |= measure[1].lower() in ("cpu", "host")
                elif (field := _FIELD_TERM.fullmatch(body)) and field[1].lower() in ("gpu", "type"):
                    name, values = field[1].lower(), _values(field[2])
                    part_test = _on_gpu(values) if name == "gpu" else _has_kind(tuple(map(str.upper, values)))
                    part_tests.append(part_test if wanted else _not(part_test))
                else:
                    process_tests.append(_process_term(field, body, wanted))
                    reads_host = True
            except ValueError as error:
                problems.append(f"{term}: {error}")
        return cls(text, user, kind, tuple(part_tests), tuple(process_tests), tuple(problems), reads_host)

    def __bool__(self) -> bool:
        """Whether anything can be hidden."""
        return bool(self.part_tests or self.process_tests)

    def keeps_part(self, part: GpuProcess) -> bool:
        return all(test(part) for test in self.part_tests)

    def keeps(self, process: GpuProcess, facts: HostFacts | None, text: str) -> bool:
        """Whether *process*, summed over the GPUs that are kept, passes; *text* is that of :func:`text_of`."""
        return all(test(process, facts, text) for test in self.process_tests)

    @property
    def words(self) -> str:
        """What is being filtered for, as the user would write it; empty where nothing is."""
        given = (
            self.text.strip(),
            f"user {self.user}" if self.user is not None else "",
            {"C": "compute only", "G": "graphics only"}.get(self.kind or "", self.kind or ""),
        )
        return " · ".join(part for part in given if part)


def text_of(pid: int, facts: HostFacts | None) -> str:
    """What words are looked for in."""
    return str(pid) if facts is None else f"{facts.command}\n{facts.name}\n{facts.user}\n{pid}".casefold()


def _values(text: str) -> tuple[str, ...]:
    values = tuple(value for value in text.casefold().split(",") if value)
    if not values:
        raise ValueError("a value is missing")
    return values


def _on_gpu(values: tuple[str, ...]) -> PartTest:
    indices = {int(value) for value in values if value.isascii() and value.isdecimal() and len(value) < 8}
    prefixes = tuple(value.removeprefix("gpu-") for value in values if not (value.isdecimal() and len(value) < 8))
    if any(len(prefix) < _UUID_LEAST for prefix in prefixes):
        raise ValueError("neither an index nor the first characters of a UUID")
    return lambda part: part.gpu_index in indices or part.gpu_uuid.lower().removeprefix("gpu-").startswith(prefixes)


def _has_kind(kinds: tuple[str, ...]) -> PartTest:
    wanted = {kind for value in kinds for kind in value.split("+")}
    if not wanted <= {"C", "G", "M"}:
        raise ValueError("the types are C (compute), G (graphics) and M (MPS)")
    return lambda part: not wanted.isdisjoint(part.kind.split("+"))


def _not(test: PartTest) -> PartTest:
    return lambda part: not test(part)


def _compares(name: str, sign: str, limit_text: str, wanted: bool) -> ProcessTest:
    measure, compare = _MEASURES[name], _COMPARE[sign]
    if not limit_text:
        raise ValueError(f"a value is missing, such as {name}{sign}{measure.example}")
    limit = measure.parse(limit_text)

    def test(process: GpuProcess, facts: HostFacts | None, _: str) -> bool:
        value = measure.of(process, facts)
        return value is not None and compare(value, limit) is wanted

    return test


def _belongs_to(user: str) -> ProcessTest:
    return lambda _process, facts, _text: facts is not None and facts.user == user


def _process_term(field: re.Match[str] | None, word: str, wanted: bool) -> ProcessTest:
    """``user:`` and ``pid:`` take the beginning of a value, so that a half-typed one finds the whole; else a word."""
    if field is None:
        needle = word.casefold()
        return lambda _process, _facts, text: (needle in text) is wanted
    values = _values(field[2])
    if field[1].lower() == "pid":
        if not all(value.isascii() and value.isdecimal() for value in values):
            raise ValueError("not a process id")
        return lambda process, _facts, _text: str(process.pid).startswith(values) is wanted

    def owned(_process: GpuProcess, facts: HostFacts | None, _text: str) -> bool:
        user = facts.user if facts is not None else None
        return user is not None and user.casefold().startswith(values) is wanted

    return owned
