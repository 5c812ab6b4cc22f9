"""The terminal the dashboard would draw on, and the settings file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gputop import locations, settings_file
from gputop.doctor import FAIL, OK, WARN, Check
from gputop.procfs.stat import read_stat
from gputop.text import unicode_works

SMALLEST: Final = (60, 12)
USUAL: Final = (80, 24)


def terminal() -> Iterator[Check]:
    """Stdin and stderr, which the dashboard uses; stdout may be piped into a file for the issue."""
    term = os.environ.get("TERM", "")
    interactive = sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()
    if not interactive:
        words = "stdin or stderr is not a terminal: the dashboard cannot run here, but `gputop --once` can"
        yield Check("terminal", WARN, words, "use `ssh -t`, or `docker run -it`")
    if term in ("", "dumb", "unknown"):
        fix = "set TERM=xterm-256color if the terminal supports it"
        yield Check("terminal", FAIL if interactive else WARN, f"TERM is {term or 'not set'}", fix)
    else:
        yield Check("terminal", OK, f"TERM={term}")
    if interactive:
        yield _size()
    yield _colors(term)
    yield _encoding()
    yield from _between()


def _size() -> Check:
    try:
        columns, rows = os.get_terminal_size(sys.stdin.fileno())
    except OSError:
        return Check("size", WARN, "the terminal does not report its size", "`stty cols 120 rows 40`")
    words = f"{columns}×{rows}"
    if columns < SMALLEST[0] or rows < SMALLEST[1]:
        return Check("size", FAIL, f"{words}: too small", f"at least {SMALLEST[0]}×{SMALLEST[1]}")
    if columns < USUAL[0] or rows < USUAL[1]:
        return Check("size", WARN, f"{words}: not everything fits", f"{USUAL[0]}×{USUAL[1]} or more")
    return Check("size", OK, words)


def _colors(term: str) -> Check:
    if os.environ.get("NO_COLOR"):
        return Check("colours", OK, "none: NO_COLOR is set")
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return Check("colours", OK, "16 million (COLORTERM)")
    if "256color" in term or term.endswith("-direct"):
        return Check("colours", OK, "256; set COLORTERM=truecolor if the terminal supports it")
    return Check("colours", WARN, "16: TERM allows no more", "set TERM=xterm-256color if the terminal supports it")


def _encoding() -> Check:
    if unicode_works(sys.stdout):
        return Check("encoding", OK, "UTF-8")
    if os.environ.get("TERM") == "linux":
        return Check("encoding", OK, "the Linux console: ASCII is used")
    name = getattr(sys.stdout, "encoding", None) or "none"
    return Check("encoding", WARN, f"{name}: ASCII is used", "LC_ALL=C.UTF-8")


def _between() -> Iterator[Check]:
    """What stands between gputop and the terminal."""
    if os.environ.get("TMUX"):
        fix = '`set -as terminal-features ",*:RGB"` in tmux.conf gives all colours'
        plain = os.environ.get("COLORTERM") != "truecolor"
        yield Check("tmux", OK, "inside tmux", fix if plain else "")
    if os.environ.get("STY"):
        words = "inside GNU screen: up to version 4 only 256 colours"
        yield Check("screen", OK, words, "`truecolor on` in .screenrc (version 5), or tmux")
    if b"mosh-server" in _ancestors():
        yield Check("mosh", OK, "over mosh: only 256 colours before version 1.4, and no scrollback")
    elif os.environ.get("SSH_CONNECTION"):
        yield Check("ssh", OK, "over SSH")


def _ancestors() -> Iterator[bytes]:
    """The names (comm) of the processes this one descends from."""
    pid = os.getppid()
    for _ in range(64):
        stat = read_stat(f"/proc/{pid}/stat")
        if stat is None:
            return
        yield stat.comm
        pid = stat.parent_pid


def settings(path: Path | None = None) -> Iterator[Check]:
    """The settings file, and what is wrong in it."""
    try:
        path = path or locations.settings_file()
    except ImportError as error:  # told among the versions too
        yield Check("settings", WARN, f"cannot be located: {error}", f"`pip install {error.name}`")
        return
    except locations.NoHome as error:
        reason, _, fix = str(error.strerror).rpartition(": ")
        yield Check(
            "settings", WARN, f"{reason}: changes made with F2 are lost on exit", f"{fix}, or use `--config PATH`"
        )
        return
    where = locations.short(path)
    _, problems = settings_file.load(path)
    for problem in problems:
        yield Check("settings", WARN, problem, "fix it with F2 or in an editor")
    folder = path if path.exists() else next((parent for parent in path.parents if parent.exists()), path)
    if not os.access(folder, os.W_OK):
        words = f"{where} is not writable: changes made with F2 are lost on exit"
        yield Check("settings", WARN, words, "use `--config PATH`, or set XDG_CONFIG_HOME")
    elif not problems:
        yield Check("settings", OK, where if path.exists() else f"{where} does not exist: defaults are used")
