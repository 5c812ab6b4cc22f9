"""Completion for bash 4.4 and later; it needs no bash-completion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gputop.outputs.completion import FILE, LIST, WORDS, Command, Value

_HEAD: Final = """\
# bash completion of gputop; made by `gputop completion bash`

_gputop_words() { # of these words those that begin as the current one does
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}

_gputop_list() { # the same behind the last comma
    local head=
    [[ $cur == *,* ]] && head=${cur%,*},
    mapfile -t COMPREPLY < <(compgen -P "$head" -W "$1" -- "${cur##*,}")
    compopt -o nospace
}

_gputop_files() {
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    compopt -o filenames
}

_gputop() {
    local cur=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD-1]} command=
    COMPREPLY=()
    if [[ $cur == = ]]; then # --option=
        cur=
    elif [[ $option == = ]]; then # --option=beginning
        option=${COMP_WORDS[COMP_CWORD-2]}
    fi
"""


def script(commands: Sequence[Command]) -> str:
    return _HEAD + "".join(f"{line}\n" for line in _body(commands))


def _body(commands: Sequence[Command]) -> Iterator[str]:
    names = [command.name for command in commands if command.name]
    yield f"    if (( COMP_CWORD > 1 )) && [[ ' {' '.join(names)} ' == *\" ${{COMP_WORDS[1]}} \"* ]]; then"
    yield "        command=${COMP_WORDS[1]}"
    yield "    fi"
    yield '    case "$command $option" in'
    for command in commands:
        for option in command.options:
            if option.value is not None:
                patterns = "|".join(f"'{command.name} {name}'" for name in option.names)
                unless = "[[ $cur == -* ]] || { " if option.value.optional else ""
                until = "; }" if unless else ""
                done = " return;" if not unless else " [[ -n ${COMPREPLY[*]} ]] && return;"
                yield f"        {patterns}) {unless}{_complete(option.value)}{until};{done};"
    yield "    esac"
    yield "    case $command in"
    for command in commands:
        options = " ".join(name for option in command.options for name in option.names)
        yield f"        '{command.name}') [[ $cur == -* ]] && _gputop_words '{options}' && return"
        if command.name:
            yield f"            {_complete(command.operand)} ;;"
        else:
            yield f"            (( COMP_CWORD == 1 )) && _gputop_words '{' '.join(names)}' ;;"
    yield "    esac"
    yield "}"
    yield ""
    yield "complete -F _gputop gputop"


def _complete(value: Value | None) -> str:
    if value is None:
        return ":"
    words = " ".join(value.words)
    return {FILE: "_gputop_files", WORDS: f"_gputop_words '{words}'", LIST: f"_gputop_list '{words}'"}.get(
        value.kind, ":"
    )
