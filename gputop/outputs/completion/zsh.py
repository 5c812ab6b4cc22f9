"""Completion for zsh, by its _arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputop.outputs.completion import FILE, LIST, WORDS, Command, Option, Value


def script(commands: Sequence[Command]) -> str:
    return "".join(f"{line}\n" for line in _lines(commands))


def _lines(commands: Sequence[Command]) -> Iterator[str]:
    yield "#compdef gputop"
    yield "# zsh completion of gputop; made by `gputop completion zsh`"
    yield ""
    for command in commands:
        yield f"{_function(command)}() {{"
        yield "    _arguments -S : \\"
        for option in command.options:
            for spec in _specs(option):
                yield f"        {spec} \\"
        if command.operand is not None:
            yield f"        {_quoted(f'*:{command.operand.name}:{_action(command.operand)}')} \\"
        yield "        && return"
        yield "}"
        yield ""
    yield "_gputop() {"
    yield "    local -a commands=("
    for command in commands:
        if command.name:
            yield f"        {_quoted(f'{command.name}:{command.help}')}"
    yield "    )"
    yield "    case $words[2] in"
    for command in commands:
        if command.name:
            yield f"        {command.name}) if (( CURRENT > 2 )); then"
            yield f"            shift words; (( CURRENT-- )); {_function(command)}; return"
            yield "        fi ;;"
    yield "    esac"
    yield "    (( CURRENT == 2 )) && [[ $PREFIX != -* ]] && _describe -t commands command commands"
    yield "    _gputop_itself"
    yield "}"
    yield ""
    yield 'if [[ $funcstack[1] == _gputop ]]; then _gputop "$@"; else compdef _gputop gputop; fi'


def _function(command: Command) -> str:
    return f"_gputop_{command.name.replace('-', '_') or 'itself'}"


def _specs(option: Option) -> Iterator[str]:
    """One for each of its names; each rules the others out."""
    others = f"({' '.join(option.names)})" if len(option.names) > 1 else ""
    words = option.help.replace("\\", "").replace("[", "\\[").replace("]", "\\]")
    value = option.value
    for name in option.names:
        takes = ""
        if value is not None:
            colon = "::" if value.optional else ":"
            takes = f"{colon}{value.name.replace(':', ' ')}:{_action(value)}"
        equals = "=" if value is not None and name.startswith("--") else ""
        yield _quoted(f"{others}{name}{equals}[{words}]{takes}")


def _action(value: Value) -> str:
    words = " ".join(value.words)
    return {FILE: "_files", WORDS: f"({words})", LIST: f"_sequence compadd - {words}"}.get(value.kind, "")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
