"""The command cell: the program's name stands out of its arguments, and long ones scroll sideways."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from gputop import units
from gputop.text import cut, skip, width
from gputop.ui.processes.listing.row import ProcessRow
from gputop.ui.toolkit.cells import Span

_INTERPRETER: Final = re.compile(r"(python|pypy|bash|sh|zsh|perl|ruby|node|julia)[\d.]*")
#: Options of an interpreter and then its script, or ``-m`` and a module.
_SCRIPT: Final = re.compile(r"((?: +(?:-[XW] +\S+|-(?![cem])\S*))* +(?:-m +)?)([^-\s]\S*)(.*)", re.DOTALL)


@lru_cache(512)  # more than a terminal has rows
def command_spans(command: str) -> tuple[Span, ...]:
    """*command* without the directories of its program; of a script, its own name stands out."""
    program, space, rest = command.partition(" ")
    if program.startswith("["):  # no command line: a kernel thread, or one that may not be read
        return ((command, "dim"),)
    name = program.rpartition("/")[2] or program
    found = _SCRIPT.fullmatch(space + rest) if rest and _INTERPRETER.fullmatch(name) else None
    if found is None:
        return ((name, "text"), (space + rest, "dim")) if space else ((name, "text"),)
    directories, slash, script = found[2].rpartition("/")
    spans = ((name, "text"), (found[1], "dim"), (directories + slash, "dim"), (script, "text"), (found[3], "dim"))
    return tuple(span for span in spans if span[0])


def cell_spans(row: ProcessRow, unfolded: str = "▾ ", folded: str = "▸ ") -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """What stays in place of a row's command cell (branch, fold sign, state) and what scrolls."""
    fixed: list[Span] = []
    if row.branch:
        fixed.append((row.branch, "dim"))
    if row.folded is not None:
        fixed.append((folded if row.folded else unfolded, "accent"))
    if row.hidden:
        fixed.append((f"(+{row.hidden}) ", "dim"))
    if row.is_part:
        return tuple(fixed), ((f"on GPU {row.process.gpu_index}", "dim"),)
    if row.is_group:
        said: list[Span] = [(row.annotation.group, "title"), (f"  {units.plural(len(row.pids), 'process')}", "dim")]
        if row.annotation.remark:
            said.append((f"  ▲ {row.annotation.remark}", "warning"))
        return tuple(fixed), tuple(said)
    if row.is_launcher:
        return tuple(fixed), ((f"parent of {len(row.pids)} processes, uses no GPU itself", "dim"),)
    facts = row.facts
    if row.dead:
        held = row.annotation.held_by
        word = "zombie" if facts is not None and facts.is_zombie else "dead"
        fixed += (
            [(f"{word} ", "dead"), (f"← {held} ", "warning"), ("· ", "faint")] if held else [(f"({word}) ", "dead")]
        )
        command = (facts.command or facts.name) if facts is not None else row.annotation.command
        return tuple(fixed), ((command or "the driver lists it", "dead"),)
    if row.gone:
        command = (facts.command or facts.name) if facts is not None else None
        return ((f"exited {row.annotation.exited} ", "dim"),), ((command or units.UNKNOWN, "dim"),)
    if facts is None:
        unknown = "(host pid: not visible from here)" if row.process.exists is None else "…"
        return tuple(fixed), ((unknown, "dim"),)
    if label := facts.state_label:
        fixed.append((f"({label}) ", "warning"))
    return tuple(fixed), command_spans(facts.command or facts.name or "…")


def clip(spans: Iterable[Span], offset: int, cells: int, left: str = "‹", right: str = "›") -> list[Span]:
    """Exactly *cells* cells of *spans* from cell *offset* on; *left* and *right* mark what is cut away."""
    spans = tuple(spans)
    taken = sum(width(text) for text, _ in spans)
    if cells <= 0:
        return []
    result: list[Span] = []
    room = cells
    if offset and taken:
        result.append((left, "accent"))
        offset += 1
        room -= 1
    goes_on = taken - offset > room > 0
    room -= goes_on
    for text, role in spans:
        if room <= 0:
            break
        if offset:
            length = width(text)
            if length <= offset:
                offset -= length
                continue
            text = skip(text, offset)
            offset = 0
        length = width(text)
        if length > room:
            text = cut(text, room)
            length = room
        if text:
            result.append((text, role))
        room -= length
    if room > 0:
        result.append((" " * room, "dim"))
    if goes_on:
        result.append((right, "accent"))
    return result


def spans_width(spans: Iterable[Span]) -> int:
    return sum(width(text) for text, _ in spans)
