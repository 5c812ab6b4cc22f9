"""Completion and man page, made from the parsers: real shells complete, real viewers render, nothing is left out."""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from gputop.commands import COMMANDS, completion, man
from gputop.commands.shared.parsers import command_module, command_parser, main_parser
from gputop.outputs.completion import bash, describe, fish, zsh
from gputop.outputs.man_page import page

ROOT = Path(__file__).resolve().parents[3]
SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}

#: What is typed, and what it must complete to (all of it, or one of several).
TYPED = [
    ("gputop que", {"query"}),
    ("gputop --demo=lea", {"leak"}),
    ("gputop --print", {"--print-on-exit"}),
    ("gputop query --gpu index,memory.us", {"index,memory.used"}),
    ("gputop query --query-gpu=index,memory.us", {"index,memory.used"}),
    ("gputop query --compute-apps used", {"used_gpu_memory"}),
    ("gputop query --format csv,noh", {"csv,noheader", "csv,noheader,nounits"}),
    ("gputop query --help-f", {"--help-fields"}),
    ("gputop completion z", {"zsh"}),
    ("gputop replay SESSI", {"SESSION one.gputop", r"SESSION\ one.gputop"}),
    ("gputop --config SESSI", {"SESSION one.gputop", r"SESSION\ one.gputop"}),
]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The scripts as the command prints them, in files."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "SESSION one.gputop").touch()
    found = {}
    for shell in SHELLS:
        done = subprocess.run(
            [sys.executable, "-m", "gputop", "completion", shell], cwd=ROOT, capture_output=True, text=True, timeout=30
        )
        assert (done.returncode, done.stderr) == (0, "")
        found[shell] = folder / ("_gputop" if shell == "zsh" else f"gputop.{shell}")
        found[shell].write_text(done.stdout)
    return found


def need(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_itself_finds_no_fault(scripts: dict[str, Path], shell: str) -> None:
    done = subprocess.run([need(shell), "-n", scripts[shell]], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("typed", "wanted"), TYPED)
def test_bash_completes(scripts: dict[str, Path], typed: str, wanted: set[str]) -> None:
    words = " ".join(shlex.quote(word) for word in typed.replace("=", " = ").split(" "))
    asked = f"""
        . {scripts["bash"]}
        compopt() {{ :; }}
        COMP_WORDS=({words}) COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
        _gputop
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        [need("bash"), "--norc", "-uc", asked], cwd=scripts["bash"].parent, capture_output=True, text=True, timeout=30
    )
    assert done.stderr == "" and set(done.stdout.splitlines()) and set(done.stdout.splitlines()) <= wanted


def test_a_tab_in_a_real_bash(scripts: dict[str, Path]) -> None:
    need("bash")
    child = pexpect.spawn(
        "bash", ["--norc", "--noprofile", "-i"], env={"TERM": "dumb", "PATH": "/usr/bin:/bin", "PS1": "ready> "},
        encoding="utf-8", timeout=15, dimensions=(40, 150),
    )  # fmt: skip
    child.sendline(f"bind 'set enable-bracketed-paste off'; . {scripts['bash']}; echo sour''ced")
    child.expect("sourced")
    child.send("gputop query --query-gpu=index,memory.to\t")
    child.expect("--query-gpu=index,memory.total")
    child.sendcontrol("u")
    child.send("gputop doc\t")
    child.expect("gputop doctor ")
    child.close(force=True)


@pytest.mark.parametrize(("typed", "wanted"), TYPED)
def test_fish_completes(scripts: dict[str, Path], typed: str, wanted: set[str]) -> None:
    done = subprocess.run(
        [need("fish"), "--no-config", "-c", f"source {scripts['fish']}; complete -C {shlex.quote(typed)}"],
        cwd=scripts["fish"].parent,
        capture_output=True,
        text=True,
        timeout=30,
    )
    found = {line.partition("\t")[0].rpartition("=")[2] for line in done.stdout.splitlines()}
    assert done.stderr == "" and found and found <= wanted


@pytest.fixture
def zsh_session(scripts: dict[str, Path]) -> Iterator[pexpect.spawn]:  # type: ignore[type-arg]
    need("zsh")
    child = pexpect.spawn(
        "zsh", ["-f", "-i"], env={"TERM": "dumb", "PATH": "/usr/bin:/bin", "HOME": str(scripts["zsh"].parent)},
        cwd=str(scripts["zsh"].parent), encoding="utf-8", timeout=20, dimensions=(60, 150),
    )  # fmt: skip
    child.sendline(f"unsetopt beep; autoload -U compinit; compinit -u -D; source {scripts['zsh']}; echo sour''ced")
    child.expect("sourced")
    yield child
    child.close(force=True)


def test_zsh_completes(zsh_session: pexpect.spawn) -> None:  # type: ignore[type-arg]
    for typed, wanted in TYPED:
        if len(wanted) > 1 and "SESSI" not in typed:
            continue
        zsh_session.send(f"{typed}\t")
        zsh_session.expect_exact(sorted(wanted))
        zsh_session.sendcontrol("u")


# ------------------------------------------------------------------------ nothing is left out


def all_parsers() -> dict[str, argparse.ArgumentParser]:
    parsers = {name: command_parser(name, command_module(name)) for name in COMMANDS}
    return {"": main_parser(), **parsers}


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_option_is_completed(scripts: dict[str, Path], shell: str) -> None:
    text = scripts[shell].read_text()
    for name, parser in all_parsers().items():
        assert name in text
        for option in (option for action in parser._actions for option in action.option_strings):
            bare = option.lstrip("-")
            assert option in text or f"-l {bare} " in text or f"-s {bare} " in text or f"-o {bare} " in text


def test_every_command_and_option_is_in_the_man_page() -> None:
    source = man.source()
    for name, parser in all_parsers().items():
        assert not name or f'.SS "gputop {name}"'.replace("-", r"\-") in source
        for option in (option for action in parser._actions for option in action.option_strings):
            assert option.replace("-", r"\-") in source


# -------------------------------------------------------------------------------- the man page


def render(source: str, tmp_path: Path, width: int = 100) -> str:
    """As a terminal shows it, without the overstriking of bold."""
    file = tmp_path / "gputop.1"
    file.write_text(source)
    if shutil.which("mandoc"):
        command = ["mandoc", "-T", "utf8", "-O", f"width={width}", str(file)]
    else:
        command = [need("man"), "-l", str(file)]
    done = subprocess.run(
        command, env={"PATH": "/usr/bin:/bin", "MANWIDTH": str(width), "LC_ALL": "C.UTF-8"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = []
    for character in done.stdout:
        if character == "\b":
            text.pop()
        else:
            text.append(character)
    return "".join(text)


def test_the_man_page_renders(tmp_path: Path) -> None:
    text = render(man.source(), tmp_path)
    words = " ".join(text.split())
    assert "gputop - which GPU is full" in words
    assert "--query-gpu FIELDS" in words and "-l, --loop [SECONDS]" in words
    for heading in ("SYNOPSIS", "OPTIONS", "COMMANDS", "EXIT STATUS", "ENVIRONMENT"):
        assert f"\n{heading}\n" in text
    assert "5 driver and library differ" in words
    assert "\\" not in text and "%(" not in text


def test_mandoc_finds_no_error() -> None:
    need("mandoc")
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning"], input=man.source(), capture_output=True, text=True, timeout=30
    )
    assert done.stdout + done.stderr == ""


def test_the_man_page_is_shown_on_a_terminal_and_written_into_a_pipe() -> None:
    need("man")
    child = pexpect.spawn(
        sys.executable, ["-m", "gputop", "man"], cwd=str(ROOT), encoding="utf-8", timeout=30, dimensions=(40, 100)
    )
    child.expect("gputop - which GPU|which GPU is full")
    child.send("q")
    child.close(force=True)
    done = subprocess.run([sys.executable, "-m", "gputop", "man"], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.stdout == man.source()


HOSTILE = """.SH it's a [trap]: "quoted" \\fB `id` $(id) %% – done"""


def test_no_words_of_a_help_text_break_what_is_made_of_them(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser("gputop x", description=HOSTILE, epilog=HOSTILE.replace("%", ""))
    parser.add_argument("--trap", metavar="A:B", help=HOSTILE)
    parser.add_argument("-t", help=HOSTILE, action="store_true")
    commands = [describe("", "", main_parser(), {}), describe("x", HOSTILE.replace("%%", "%"), parser, {})]
    for shell, generator in SHELLS.items():
        file = tmp_path / f"script.{shell}"
        file.write_text(generator.script(commands))
        if shutil.which(shell):
            done = subprocess.run([shell, "-n", file], capture_output=True, text=True, timeout=30)
            assert (done.returncode, done.stderr) == (0, ""), shell
    if shutil.which("mandoc"):
        text = " ".join(render(page("1", "2026-01-31", main_parser(), [("x", HOSTILE, parser)]), tmp_path, 200).split())
        assert text.count('.SH it\'s a [trap]: "quoted" \\fB `id` $(id)') >= 4


def test_an_unknown_shell_is_told() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gputop", "completion", "tcsh"], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2 and "bash" in done.stderr and "zsh" in done.stderr


def test_fields_and_demos_are_known_to_completion() -> None:
    known = completion._known()
    assert "memory.used" in known["gpu"][1] and "leak" in known["demo"][1]
