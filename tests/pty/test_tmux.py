"""In tmux, where most sessions over SSH live: keys arrive, the window is resized, and the pane is left clean."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pty.conftest import GPUTOP, environment
from tests.pty.terminal import PATIENCE


class Tmux:
    """A server of its own with one pane."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._socket, self._env = folder / "tmux", env
        self.run("new-session", "-d", "-x", "120", "-y", "40", "bash --norc --noprofile")
        self.run("set-option", "-s", "escape-time", "10")

    def run(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self._socket), "-f", "/dev/null", *arguments]
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def screen(self) -> str:
        return self.run("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def wait_for(self, what: str | Callable[[str], object]) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            screen = self.screen()
            if what in screen if isinstance(what, str) else what(screen):
                return
            assert time.monotonic() < end, f"{what!r} is not on the screen:\n{screen}"
            time.sleep(0.05)

    def close(self) -> None:
        self.run("kill-server")


@pytest.fixture
def tmux(home: Path, tmp_path: Path) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("no tmux")
    env = environment(home)
    del env["COLORTERM"]  # as over SSH
    made = Tmux(tmp_path, env | {"PS1": "ready> "})
    yield made
    made.close()


def test_keys_resizing_and_the_end_in_tmux(tmux: Tmux) -> None:
    tmux.press(f"PS1='ready> '; {shlex.join(GPUTOP)} --demo", "Enter")
    tmux.wait_for("Quit")
    assert tmux.run("display-message", "-p", "#{alternate_on}").strip() == "1"
    for key, shows in (
        ("F1", "Every day"),
        ("F2", "Refresh ─"),
        ("F3", "Filter:"),
        ("F6", "Sort by"),
        ("F9", "Cancel"),
    ):
        tmux.press(key)
        tmux.wait_for(shows)
        tmux.press("Escape")
        tmux.wait_for(lambda screen, shows=shows: shows not in screen)
    tmux.press("F5")
    tmux.press("End")
    tmux.run("resize-window", "-x", "80", "-y", "24")
    tmux.wait_for(lambda screen: screen.rstrip().splitlines()[-1].startswith(" F1Help"))
    tmux.press("F10")
    tmux.wait_for(lambda screen: re.search(r"ready> *$", screen.rstrip()))
    assert "SIMULATED" not in tmux.screen()
    state = tmux.run("display-message", "-p", "#{alternate_on}#{mouse_any_flag}#{cursor_flag}#{keypad_cursor_flag}")
    assert state.strip() == "0010"
