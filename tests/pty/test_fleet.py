"""``gputop fleet`` in a real terminal: it starts, walks, lends the terminal to ssh and ends cleanly."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.pty.conftest import Start


def test_the_list_opens_walks_and_quits(gputop: Start) -> None:
    terminal = gputop("fleet", "--demo", "3", drawn="1/3", columns=80, rows=24)
    terminal.press("Down", "Enter")
    terminal.wait_for("Who has which GPU")
    terminal.type("q")
    terminal.wait_for("2/3")
    terminal.type("q")
    assert terminal.wait_end() == 0
    terminal.assert_restored()


def test_o_lends_the_terminal_to_ssh_and_comes_back(gputop: Start, tmp_path: Path) -> None:
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\necho "gputop there"\nread line\n')
    ssh.chmod(0o755)
    path = f"{ssh.parent}{os.pathsep}{os.environ['PATH']}"
    terminal = gputop("fleet", "--demo", "3", drawn="1/3", columns=80, rows=24, env={"PATH": path})
    terminal.type("o")
    terminal.wait_for("gputop there")
    assert (tmp_path / "asked").read_text().split()[:2] == ["-t", "--"]
    terminal.press("Enter")
    terminal.wait_for("1/3")
    terminal.type("q")
    assert terminal.wait_end() == 0
    terminal.assert_restored()


def test_a_signal_restores_the_terminal(gputop: Start) -> None:
    terminal = gputop("fleet", "--demo", drawn="1/200")
    terminal.signal(signal.SIGTERM)
    assert terminal.wait_end() == 143
    terminal.assert_restored()
