"""Colours, characters and modes: no more of them than the terminal and the user want."""

from __future__ import annotations

import re

import pytest

from tests.pty.conftest import Start
from tests.pty.terminal import Terminal

_SGR = re.compile(rb"\x1b\[([\d;]*)m")


def _colours(terminal: Terminal) -> set[str]:
    """Kinds of colour codes that were written: "16", "256", "rgb"."""
    kinds = set()
    for match in _SGR.finditer(bytes(terminal.raw)):
        codes = iter(int(code or 0) for code in match[1].split(b";"))
        for code in codes:
            if code in (38, 48):
                kinds.add({5: "256", 2: "rgb"}[next(codes)])
                break
            if 30 <= code <= 37 or 40 <= code <= 47 or 90 <= code <= 97 or 100 <= code <= 107:
                kinds.add("16")
    return kinds


def _through_the_screens(terminal: Terminal) -> None:
    screens = {"F2": "Every", "F9": "Cancel", "F1": "Every day", "enter": "GPU memory", "F6": "Sort by"}
    for key, shows in (*screens.items(), ("/", "Filter:"), ("ctrl+p", "Search for")):
        terminal.press(key)
        terminal.wait_for(shows)
        if key == "F2":
            terminal.press("left")
            terminal.wait_for("Saved in")  # a toast
        terminal.press("down", "esc")
        terminal.wait_gone(shows)
    terminal.press("c", "t", "space", "p")
    terminal.wait_for("PAUSED")


@pytest.mark.parametrize(
    ("arguments", "env"),
    [(("--no-color",), {}), ((), {"NO_COLOR": "1"})],
    ids=["--no-color", "NO_COLOR"],
)
def test_without_colours_there_is_no_colour_code_at_all(
    gputop: Start, arguments: tuple[str, ...], env: dict[str, str]
) -> None:
    terminal = gputop("--demo=hot", *arguments, env=env, columns=140)
    _through_the_screens(terminal)
    assert _colours(terminal) == set()
    assert any(b"7" in match[1].split(b";") for match in _SGR.finditer(bytes(terminal.raw))), "and nothing is marked"


def test_an_empty_no_color_means_nothing(gputop: Start) -> None:
    assert _colours(gputop("--demo", env={"NO_COLOR": ""})) == {"rgb"}


@pytest.mark.parametrize(
    ("term", "colorterm", "kinds"),
    [
        ("xterm-256color", "truecolor", {"rgb"}),
        ("tmux-256color", "", {"256", "16"}),  # a colour that is one of the 16 may be written as such
        ("xterm", "", {"16"}),
        ("screen", "", {"16"}),
        ("linux", "", {"16"}),
    ],
)
def test_no_more_colours_than_the_terminal_has(gputop: Start, term: str, colorterm: str, kinds: set[str]) -> None:
    terminal = gputop("--demo=hot", env={"TERM": term, "COLORTERM": colorterm})
    _through_the_screens(terminal)
    written = _colours(terminal)
    assert written and written <= kinds


# ----------------------------------------------------------------------------------------- characters

ASCII = {
    "--ascii": (("--ascii",), {}),
    "LANG=C": ((), {"LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}),
    "PYTHONIOENCODING": ((), {"PYTHONIOENCODING": "ascii"}),
    "the Linux console": ((), {"TERM": "linux"}),
}


@pytest.mark.parametrize(("arguments", "env"), ASCII.values(), ids=ASCII)
def test_where_only_ascii_works_nothing_else_is_written(
    gputop: Start, arguments: tuple[str, ...], env: dict[str, str]
) -> None:
    terminal = gputop("--demo=hostile", *arguments, env=env, columns=140)
    _through_the_screens(terminal)
    terminal.press("p", "F7", "F7")
    terminal.wait_quiet(0.05)
    odd = [byte for byte in terminal.raw if byte >= 0x80]
    assert not odd, re.findall(rb"[^\x80-\xff]{0,30}[\x80-\xff]+", bytes(terminal.raw))[:5]
    assert b"\\u" not in terminal.raw and b"\\x" not in terminal.raw


def test_ascii_can_be_asked_for_in_f2_and_it_can_be_taken_back(gputop: Start) -> None:
    terminal = gputop("--demo", "--ascii")
    assert terminal.text().isascii()
    again = gputop("--demo")
    assert "─" in again.text()
    again.press("F2")
    again.wait_for("Draw with")
    again.press("down", "down", "down", "down", "down", "right", "right")
    again.wait_for("[ASCII]")
    again.press("esc")
    again.wait_for(lambda: again.text().isascii())


def test_the_text_is_the_same_in_every_kind_of_colour(gputop: Start) -> None:
    def words(terminal: Terminal) -> list[str]:
        return [line.split()[0:3] for line in terminal.lines() if re.match(r" . +\d+ +\d{5} ", line)]  # type: ignore[misc]

    first = words(gputop("--demo"))
    assert first
    for env in ({"NO_COLOR": "1"}, {"TERM": "xterm", "COLORTERM": ""}):
        assert words(gputop("--demo", env=env)) == first
