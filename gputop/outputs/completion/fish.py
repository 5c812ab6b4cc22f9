"""Completion for fish 3 and later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gputop.outputs.completion import FILE, LIST, WORDS, Command, Option

_HEAD: Final = """\
# fish completion of gputop; made by `gputop completion fish`

function __gputop_list # these words, behind the last comma of the current one
    set -l token (string replace -r '^--?[a-z-]+=' '' -- (commandline -ct))
    set -l head (string match -r '.*,' -- $token)
    for word in $argv
        echo "$head$word"
    end
end

function __gputop_command # whether the command is this one
    set -l tokens (commandline -opc)
    test (count $tokens) -gt 1; and test $tokens[2] = $argv[1]
end
"""


def script(commands: Sequence[Command]) -> str:
    return _HEAD + "".join(f"{line}\n" for line in _lines(commands))


def _lines(commands: Sequence[Command]) -> Iterator[str]:
    names = " ".join(command.name for command in commands if command.name)
    yield ""
    yield "function __gputop_itself # whether there is no command"
    yield "    set -l tokens (commandline -opc)"
    yield f"    test (count $tokens) -lt 2; or not contains -- $tokens[2] {names}"
    yield "end"
    yield ""
    yield "complete -c gputop -f"
    for command in commands:
        condition = f"__gputop_command {command.name}" if command.name else "__gputop_itself"
        start = f"complete -c gputop -n {_quoted(condition)}"
        if command.name:
            first = "test (count (commandline -opc)) -lt 2"
            yield f"complete -c gputop -n {_quoted(first)} -a {command.name} -d {_quoted(command.help)}"
        for option in command.options:
            yield f"{start} {_option(option)} -d {_quoted(option.help)}"
        if command.operand is not None and command.operand.kind == FILE:
            yield f"{start} -F"
        elif command.operand is not None and command.operand.kind == WORDS:
            yield f"{start} -a {_quoted(' '.join(command.operand.words))}"


def _option(option: Option) -> str:
    parts = []
    for name in option.names:
        bare = name.lstrip("-")
        parts.append(f"-l {bare}" if name.startswith("--") else f"-s {bare}" if len(bare) == 1 else f"-o {bare}")
    value = option.value
    if value is not None:
        words = " ".join(value.words)
        if value.kind == FILE:
            parts.append("-r -F")
        elif value.kind == LIST:
            parts.append(f"-x -a {_quoted(f'(__gputop_list {words})')}")
        elif value.kind == WORDS:
            parts.append(f"{'' if value.optional else '-x '}-a {_quoted(words)}")
        elif not value.optional:
            parts.append("-x")
    return " ".join(parts)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
