"""What the `/` prompt asks of processes, in the grammar of gputop/filters/.

Words are looked for in command, user, name and pid, all of them, in any case. ``user:ml``, ``gpu:0``, ``pid:41``,
``type:C``, ``command:train`` and ``mem>10G`` (also sm, bw, enc, dec, cpu, host) ask for a field; ``!`` before a term
asks for its opposite. What is unknown passes neither ``mem>10G`` nor ``!mem>10G``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gputop.filters.comparison import comparison_of
from gputop.filters.errors import FilterError
from gputop.filters.field import unknown_field
from gputop.filters.gpu_fields import GPU_FIELDS
from gputop.filters.process_fields import PROCESS_FIELDS, has_kind, pids_of
from gputop.filters.terms import Grammar, Term
from gputop.model import GpuProcess, HostFacts

#: Whether a GPU's share of a process passes; or the process as a whole, given what is known of it by the host and the
#: memory in bytes of the GPUs it is on; or the text in which words are looked for.
PartTest = Callable[[GpuProcess], bool]
ProcessTest = Callable[[GpuProcess, HostFacts | None, int | None], bool]
WordTest = Callable[[str], bool]

_GRAMMAR: Final = Grammar(("user", "gpu", "pid", "type", "command"), PROCESS_FIELDS, GPU_FIELDS)
_BARE_SIZE_UNIT: Final = "MiB"  # as in every GPU tool
_UUID_LEAST: Final = 4  # characters of a UUID; less is half-typed


@dataclass(frozen=True, slots=True)
class ProcessFilter:
    """A parsed filter. Terms that make no sense (yet) are in ``problems``, in words, and hide nothing."""

    text: str = ""
    user: str | None = None  # exactly this one
    kind: str | None = None  # "C", "G" or "M"
    part_tests: tuple[PartTest, ...] = ()
    process_tests: tuple[ProcessTest, ...] = ()
    word_tests: tuple[WordTest, ...] = ()
    problems: tuple[str, ...] = ()
    reads_host: bool = False  # asks for what the host says, so it wants that of every process

    @classmethod
    def parse(cls, text: str, user: str | None = None, kind: str | None = None) -> ProcessFilter:
        part_tests: list[PartTest] = []
        process_tests: list[ProcessTest] = []
        word_tests: list[WordTest] = []
        problems: list[str] = []
        reads_host = user is not None
        if kind is not None:
            part_tests.append(lambda part: kind.upper() in part.kind.split("+"))
        if user is not None:
            process_tests.append(lambda _process, host, _capacity: host is not None and host.user == user)
        terms = list(_GRAMMAR.terms(text))
        for position, term in enumerate(terms):
            try:
                if term.is_comparison:
                    test, from_host = _compares(term)
                    process_tests.append(test)
                    reads_host |= from_host
                elif term.name == "gpu":
                    part_tests.append(_on_gpu(term))
                elif term.name == "type":
                    part_tests.append(has_kind(term))
                elif term.name:
                    process_tests.append(_TEXT_TESTS[term.name](term))
                    reads_host = True
                elif not _joins(terms, position):
                    word_tests.append(_has_word(term))
                    reads_host = True
            except FilterError as error:
                problems.append(f"{term.text}: {error}")
        return cls(
            text, user, kind, tuple(part_tests), tuple(process_tests), tuple(word_tests), tuple(problems), reads_host
        )

    def __bool__(self) -> bool:
        """Whether anything can be hidden."""
        return bool(self.part_tests or self.process_tests or self.word_tests)

    def keeps_part(self, part: GpuProcess) -> bool:
        return all(test(part) for test in self.part_tests)

    def keeps(self, process: GpuProcess, facts: HostFacts | None, capacity: int | None, text: str) -> bool:
        """Whether *process*, summed over the GPUs that are kept, passes. *capacity*: their memory in bytes; *text* is
        that of :func:`text_of`, needed where there are word tests."""
        for test in self.process_tests:  # plain loops: this is asked of every process, every tick
            if not test(process, facts, capacity):
                return False
        for word_test in self.word_tests:
            if not word_test(text):
                return False
        return True

    @property
    def label(self) -> str:
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


def _compares(term: Term) -> tuple[ProcessTest, bool]:
    """The test, and whether it needs what the host says."""
    field = PROCESS_FIELDS.get(term.name)
    if field is not None:
        return comparison_of(term, field, _BARE_SIZE_UNIT).test(), field.from_host
    if GPU_FIELDS.get(term.name) is not None:
        raise FilterError(f"{term.name} is a GPU's, not a process's", term.position)
    raise unknown_field(term.name, (PROCESS_FIELDS,), term.position)


def _joins(terms: list[Term], position: int) -> bool:
    """Whether a word between two comparisons is ``and``, as in a condition; all terms must pass anyway. Raises
    FilterError for ``or``."""
    neighbours = terms[position - 1 : position] + terms[position + 1 : position + 2]
    word = terms[position].text.lower()
    if word not in ("and", "or") or [term.is_comparison for term in neighbours] != [True, True]:
        return False
    if word == "or":
        raise FilterError("'or' is not supported: all terms must match", terms[position].position)
    return True


def _has_word(term: Term) -> WordTest:
    needle, wanted = term.value.casefold(), not term.negated
    if not needle:
        raise FilterError("a word is missing after it", term.position)
    return lambda text: (needle in text) is wanted


def _on_gpu(term: Term) -> PartTest:
    values, wanted = tuple(value.casefold() for value in term.values), not term.negated
    indices = {int(value) for value in values if value.isascii() and value.isdecimal() and len(value) < 8}
    prefixes = tuple(value.removeprefix("gpu-") for value in values if not (value.isdecimal() and len(value) < 8))
    if any(len(prefix) < _UUID_LEAST for prefix in prefixes):
        raise FilterError("not an index or the beginning of a UUID", term.position)

    def test(part: GpuProcess) -> bool:
        uuid = part.gpu_uuid.lower().removeprefix("gpu-")
        return (part.gpu_index in indices or uuid.startswith(prefixes)) is wanted

    return test


def _owned_by(term: Term) -> ProcessTest:
    """The beginning of a value will do, so that a half-typed one finds the whole."""
    values, wanted = tuple(value.casefold() for value in term.values), not term.negated

    def test(_process: GpuProcess, host: HostFacts | None, _capacity: int | None) -> bool:
        user = None if host is None else host.user
        return user is not None and user.casefold().startswith(values) is wanted

    return test


def _has_pid(term: Term) -> ProcessTest:
    values, wanted = pids_of(term), not term.negated
    return lambda process, _host, _capacity: str(process.pid).startswith(values) is wanted


def _runs(term: Term) -> ProcessTest:
    if not term.value:
        raise FilterError("a value is missing", term.position)
    needle, wanted = term.value.casefold(), not term.negated

    def test(_process: GpuProcess, host: HostFacts | None, _capacity: int | None) -> bool:
        command = None if host is None else host.command or host.name
        return command is not None and (needle in command.casefold()) is wanted

    return test


_TEXT_TESTS: Final = {"user": _owned_by, "pid": _has_pid, "command": _runs}
