"""Every key does what the help says, as a terminal sends it; torn escape sequences do nothing."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputop.model.chart_metrics import CHART_METRICS
from tests.pty.conftest import Start, cursor_line
from tests.pty.terminal import KEYS, Terminal

TALL = 44  # rows: all of help's keys and a chart


@contextmanager
def _opened(terminal: Terminal, key: str, shows: str, close: str = "esc") -> Iterator[None]:
    """*key* opens a screen that shows *shows*; *close* leads back."""
    assert shows not in terminal.text()
    terminal.press(key)
    terminal.wait_for(shows)
    yield
    terminal.press(close)
    terminal.wait_gone(shows)


def test_every_screen_opens_with_its_key_and_its_twin_and_closes_again(gputop: Start) -> None:
    terminal = gputop("--demo", rows=TALL)
    for keys, shows in (
        (("F1", "?"), "Every day ─"),
        (("F2", "s"), "Refresh ─"),
        (("F3", "F4", "/"), "Filter:"),
        (("F6", "o"), "Sort by"),
        (("F9", "k"), "Send a signal"),
        (("enter",), "GPU memory ─"),
        (("ctrl+p",), "Search for commands"),
    ):
        for key in keys:
            with _opened(terminal, key, shows):
                pass
    for key, shows in (("F1", "Every day ─"), ("F2", "Refresh ─"), ("F6", "Sort by"), ("F9", "Send a signal")):
        for close in ("q", "F10"):  # leaves the screen, not the program
            with _opened(terminal, key, shows, close):
                pass
    assert terminal.process.poll() is None


def test_help_names_every_key(gputop: Start) -> None:
    from gputop.ui.keys import KEYS as ALL

    terminal = gputop("--demo", columns=100, rows=60)
    terminal.press("F1")
    terminal.wait_for("Every day ─")
    words = terminal.words()
    assert all(key.words in words for key in ALL)
    terminal.press("pgdn", "pgdn", "pgdn", "end")
    terminal.wait_for("HW slowdown")
    terminal.press("home")
    terminal.wait_for("Every day ─")


def test_the_tree_the_chart_the_pause_and_the_filters_by_key(gputop: Start) -> None:
    terminal = gputop("--demo=8xh200", rows=TALL)
    for key in ("F5", "t"):
        terminal.press(key)
        terminal.wait_for("parent of 5 processes")
        terminal.press(key)
        terminal.wait_gone("parent of 5 processes")

    terminal.wait_for(re.compile("GPU utilization .* memory used"))
    terminal.press("F7")
    terminal.wait_gone("memory used")
    first, *others = [metric.label for metric in CHART_METRICS.values()]
    terminal.wait_for(re.compile(f"^╭ {first}", re.M))
    for label in others:
        terminal.press("c")
        terminal.wait_for(re.compile(f"^╭ {label}", re.M))
    terminal.press("c")
    terminal.wait_gone(f"╭ {others[-1]}")
    terminal.press("c")
    terminal.wait_for(re.compile("GPU utilization .* memory used"))

    terminal.press("p")
    terminal.wait_for("PAUSED")
    terminal.wait_quiet(0.6)
    mark = terminal.mark()
    time.sleep(1.2)
    assert terminal.since(mark) == b"", "paused, and yet it draws"
    terminal.press("p")
    terminal.wait_gone("PAUSED")

    terminal.press("u")
    terminal.wait_for(re.compile(r"filter: user \w+"))
    terminal.press("u")
    terminal.wait_gone("filter: user")
    for words in ("compute only", "graphics only"):
        terminal.press("y")
        terminal.wait_for(words)
    terminal.press("y")
    terminal.wait_gone("graphics only")


def test_a_sample_now_does_not_wait_for_the_interval(gputop: Start) -> None:
    terminal = gputop("--demo", "-d", "60s", drawn="60 s")
    for key in ("r", "F11"):
        before = terminal.lines()[0]
        time.sleep(1.1)  # the header's clock
        terminal.press(key)
        terminal.wait_for(lambda before=before: terminal.lines()[0] != before, 5)


def test_the_handles_are_let_go_of_and_taken_again(gputop: Start) -> None:
    terminal = gputop("--demo", "-d", "250ms")
    assert "97" in terminal.text() or "%" in terminal.text()
    terminal.press("g")
    terminal.wait_for("GPU handles are released")
    assert "41832" not in terminal.text()
    terminal.press("g")
    terminal.wait_for("41832")
    terminal.wait_gone("▲ GPU handles are released")


def test_tab_goes_round_and_the_arrows_follow_it(gputop: Start) -> None:
    terminal = gputop("--demo", rows=TALL)
    assert cursor_line(terminal)
    terminal.press("tab")
    time.sleep(0.3)
    with _opened(terminal, "enter", "Load ─"):
        assert "GPU 0" in terminal.lines()[0]
    terminal.press("down", "right")
    with _opened(terminal, "enter", "Load ─"):
        assert "GPU 1" in terminal.lines()[0]
    terminal.press("shift+tab")
    with _opened(terminal, "enter", "GPU memory ─"):
        assert "Process 41832" in terminal.lines()[0]


# --------------------------------------------------------------------------------------- F2


def test_f2_and_one_more_key_make_it_500_ms(gputop: Start, settings_file: Path) -> None:
    terminal = gputop("--demo")
    assert re.search(r" 1 s ·", terminal.lines()[0])
    terminal.press("F2")
    terminal.wait_for("[1 s]")
    terminal.press("left")
    terminal.wait_for("[500 ms]")
    terminal.wait_for(re.compile(r"Saved in \S*gputop/config\.toml"))
    assert tomllib.loads(settings_file.read_text()) == {"refresh": "500ms"}
    terminal.press("esc")
    terminal.wait_for(re.compile(r"500 ms ·"))
    seen = time.monotonic()
    ticks = set()
    while time.monotonic() - seen < 3:
        ticks.add(terminal.mark())
        time.sleep(0.05)
    assert len(ticks) > 3, "the interval did not change"
    terminal.press("q")
    assert terminal.wait_end() == 0

    again = gputop("--demo")
    again.wait_for(re.compile(r"500 ms ·"))
    again.press("q")
    over = gputop("--demo", "-d", "2s")
    over.wait_for(re.compile(r" 2 s ·"))  # the command line wins …
    over.press("q")
    over.wait_end()
    assert tomllib.loads(settings_file.read_text()) == {"refresh": "500ms"}  # … and is not saved


def test_every_setting_shows_at_once_and_is_kept(gputop: Start, settings_file: Path) -> None:
    terminal = gputop("--demo", rows=50)
    terminal.press("F2")
    terminal.wait_for("[1 s]")
    terminal.press("enter")
    terminal.type("350ms")
    terminal.press("enter")
    terminal.wait_for("[350 ms]")
    terminal.press("enter")
    terminal.type("7h")
    terminal.press("enter")
    terminal.wait_for("is not between")  # and it is still being typed
    terminal.press("esc")
    terminal.wait_for("[350 ms]")
    terminal.press("down", "down", "right")  # theme, then degrees
    terminal.wait_for("[°F]")
    terminal.press("down", "right")
    terminal.wait_for("[MiB, always]")
    terminal.press("esc")
    terminal.wait_for(re.compile(r"1[34]\d°F"))
    terminal.wait_for(re.compile(r"\d{5,6} */ *143771"))
    saved = tomllib.loads(settings_file.read_text())
    assert saved == {"refresh": "350ms", "temperature_unit": "F", "memory_unit": "MiB"}
    terminal.press("F2")
    terminal.wait_for("[350 ms]")
    terminal.press("d")  # its default
    terminal.wait_for("[1 s]")
    terminal.press("end", "enter")
    terminal.wait_for("y: yes")
    terminal.press("enter")  # is not y
    terminal.press("enter")
    terminal.wait_for("y: yes")
    terminal.press("y")
    terminal.press("esc")
    terminal.wait_for(re.compile(r"\d\d°C"))
    assert tomllib.loads(settings_file.read_text()) == {}


def test_another_settings_file_is_used_where_it_is_asked_for(
    gputop: Start, settings_file: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.toml"
    other.write_text('temperature_unit = "F"\nsome_later_setting = 5\n')
    terminal = gputop("--demo", "--config", str(other))
    terminal.wait_for("°F")
    terminal.press("F2")
    terminal.wait_for("[1 s]")
    terminal.press("left")
    terminal.wait_for("Saved in")
    saved = tomllib.loads(other.read_text())
    assert saved == {"temperature_unit": "F", "some_later_setting": 5, "refresh": "500ms"}
    assert not settings_file.exists()


# --------------------------------------------------------------------------------- keys in bunches


def test_keys_that_arrive_in_one_bunch_act_one_after_the_other(gputop: Start, settings_file: Path) -> None:
    """As a slow link delivers them: each key goes to what the key before it opened."""
    terminal = gputop("--demo=8xh200", rows=50)
    terminal.send(b"/okt" + KEYS["backspace"] * 3 + b"axolotl\r")
    terminal.wait_for("filter: axolotl")
    assert "1 of 15 processes" in terminal.words() and "Sort by" not in terminal.text()
    terminal.send(b"/" + b"\x15" + b"user:ml\r" + b"/" + b" gpu:0\r" + KEYS["F2"] + KEYS["left"])
    terminal.wait_for("[500 ms]")
    terminal.press("esc")
    terminal.wait_for("filter: user:ml gpu:0")
    terminal.send(b"/\x15\rI" + b"/axo\rp" + KEYS["F9"] + b"k" + KEYS["home"])
    terminal.wait_for("Send a signal")
    terminal.wait_for("▸ Cancel")
    terminal.press("esc")
    terminal.wait_for("PAUSED")
    assert terminal.process.poll() is None


def test_a_filter_typed_blind_kills_nobody(gputop: Start) -> None:
    """``/kill`` and Enter at once: were the letters commands, this would be F9, SIGINT, send."""
    terminal = gputop("--demo", "-d", "200ms")
    for text in ("/kill\r", "/kt\r", "/k\r", "/k\x1b[B\r"):
        terminal.type(text)
        terminal.wait_for("no process matches the filter" if text == "/kill\r" else "filter:")
        terminal.press("/", "esc")
        terminal.wait_gone("filter:")
    assert "SIG" not in terminal.text() and "41832" in terminal.text()


def test_what_is_pasted_goes_where_the_key_before_it_led(gputop: Start) -> None:
    terminal = gputop("--demo=8xh200", rows=50)
    terminal.send(b"/\x1b[200~axolotl qk\x1b[201~")
    terminal.wait_for("no process matches the filter")
    terminal.press("esc")
    terminal.send(b"\x1b[200~qktF\x1b[201~")  # nobody asked for text: it is no row of commands
    time.sleep(0.5)
    assert terminal.process.poll() is None and "Send a signal" not in terminal.text()


# ------------------------------------------------------------------------ torn escape sequences

_SEQUENCES = [KEYS[name] for name in ("F1", "F2", "F3", "F4", "F5", "F9", "up", "down", "left", "right", "home", "end")]
_SEQUENCES += [b"\x1bO" + bytes([letter]) for letter in b"ABCDHF"]  # as in application mode
_SEQUENCES += [KEYS["pgup"], KEYS["delete"], b"\x1b[1;5A", b"\x1b[[B", b"\x1b[13~"]


def _state(terminal: Terminal) -> tuple[list[str], list[str]]:
    """What a key could have changed: the order of the processes; title, status and keys."""
    lines = terminal.lines()
    head = next(n for n, line in enumerate(lines) if "COMMAND" in line)
    rows = [line[:24] for line in lines[head + 1 : -2]]
    return rows, [re.sub(r"\d", "0", lines[0]), re.sub(r"[\d.]", "", lines[-2]), lines[-1][:50]]


AT_ONCE = {"ESCDELAY": "10"}  # ms: a busy machine shall not take torn parts for one sequence again


def test_torn_escape_sequences_change_nothing(gputop: Start, settings_file: Path) -> None:
    terminal = gputop("--demo", "-d", "60s", env=AT_ONCE)
    terminal.press("down", "down")
    terminal.wait_for("slurm 88123")  # whose processes are is found out a moment after the first picture
    terminal.wait_quiet()
    before, cursor = _state(terminal), cursor_line(terminal)
    for sequence in dict.fromkeys(_SEQUENCES):
        terminal.send_torn(sequence[:1], sequence[1:], gap=0.25)
    for sequence in (KEYS["F2"], KEYS["F9"], KEYS["up"]):
        terminal.send_torn(*(bytes([byte]) for byte in sequence), gap=0.25)
    terminal.wait_quiet()
    assert _state(terminal) == before
    assert cursor_line(terminal) == cursor
    assert not settings_file.exists()
    assert terminal.process.poll() is None


def test_a_slow_link_within_a_sequence_is_no_tear(gputop: Start) -> None:
    terminal = gputop("--demo", env={"ESCDELAY": "2000"})
    terminal.send_torn(b"\x1b", b"O", b"Q", gap=0.03)
    terminal.wait_for("Refresh ─")


@pytest.mark.parametrize(
    ("key", "shows"), [("F2", "Refresh ─"), ("F6", "Sort by"), ("F1", "Every day ─"), ("F9", "Send a signal")]
)
def test_a_torn_sequence_over_a_screen_closes_it_at_most(
    gputop: Start, settings_file: Path, key: str, shows: str
) -> None:
    terminal = gputop("--demo", "-d", "60s", env=AT_ONCE, rows=TALL)
    terminal.wait_for("slurm 88123")  # whose processes are is found out a moment after the first picture
    terminal.wait_quiet()
    before, cursor = _state(terminal), cursor_line(terminal)
    for name in ("F1", "F2", "F3", "F4", "up", "down", "left", "F5"):
        terminal.press(key)
        terminal.wait_for(shows)
        terminal.send_torn(*(bytes([byte]) for byte in KEYS[name]), gap=0.15)
        if shows in terminal.text():  # a busy machine has taken it for the key it was
            terminal.press("esc")
        terminal.wait_gone(shows)
    terminal.wait_quiet()
    assert _state(terminal) == before and cursor_line(terminal) == cursor
    assert not settings_file.exists()
