"""`gputop`, the real program, in a terminal of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.driver import SimulatedDriver
from tests.pty.terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
GPUTOP = [sys.executable, "-m", "gputop"]
MAIN = "import sys; from gputop.cli import main; sys.exit(main())"

#: What a developer's own shell must not decide.
_DROPPED = (
    *("SIMNVML_", "XDG_", "TMUX", "STY", "LC_", "COLUMNS", "LINES", "NO_COLOR", "COLORTERM"),
    *("PYTEST_", "PYTHON", "TEXTUAL"),
)


class Start(Protocol):
    def __call__(
        self,
        *arguments: str,
        columns: int = 120,
        rows: int = 40,
        driver: SimulatedDriver | None = None,
        env: Mapping[str, str] | None = None,
        settings: str | None = None,
        drawn: str | None = "",
        prefix: tuple[str, ...] = (),
        before: str = "",
        **more: Any,
    ) -> Terminal: ...


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """gputop's home directory: empty."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def settings_file(home: Path) -> Path:
    return home / "config" / "gputop" / "config.toml"


@pytest.fixture
def gputop(home: Path, settings_file: Path) -> Iterator[Start]:
    """Starts ``gputop ARGUMENTS``, on *driver* where one is given, and waits until all of the screen is drawn, or until
    it shows *drawn* (None: does not wait).

    *settings* is the content of its settings file, *prefix* a command that runs it (``setpriv ...``), *before* Python
    that runs before it in its process.
    """
    started: list[Terminal] = []

    def start(
        *arguments: str,
        columns: int = 120,
        rows: int = 40,
        driver: SimulatedDriver | None = None,
        env: Mapping[str, str] | None = None,
        settings: str | None = None,
        drawn: str | None = "",
        prefix: tuple[str, ...] = (),
        before: str = "",
        **more: Any,
    ) -> Terminal:
        if settings is not None:
            settings_file.parent.mkdir(parents=True, exist_ok=True)
            settings_file.write_text(settings)
        if driver is not None:
            driver.settle()
        program = [sys.executable, "-c", f"{before}\n{MAIN}"] if before else GPUTOP
        terminal = Terminal(
            [*prefix, *program, *arguments],
            columns=columns,
            rows=rows,
            env={**environment(home), **(_only_driver(driver) if driver is not None else {}), **(env or {})},
            **more,
        )
        started.append(terminal)
        if drawn is not None:
            terminal.wait_for(drawn or (lambda: drawn_whole(terminal)))
        return terminal

    yield start
    for terminal in started:
        terminal.close()
    for terminal in started:
        assert b"Traceback" not in terminal.raw, terminal.raw.decode(errors="replace")[-4000:]


class Worker:
    """A real process to look at and to kill; reaped as soon as it ends."""

    def __init__(self, code: str, *arguments: str | bytes, **options: Any) -> None:
        text = f"import sys, time\n{code}\nprint('ready', flush=True)\ntime.sleep(600)\n"
        self.process = subprocess.Popen([sys.executable, "-c", text, *arguments], stdout=subprocess.PIPE, **options)
        assert self.process.stdout is not None and self.process.stdout.readline() == b"ready\n"
        self.pid = self.process.pid
        self._reaper = threading.Thread(target=self.process.wait, daemon=True)
        self._reaper.start()

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    def ended_by(self, seconds: float = 10) -> int | None:
        """The signal that ended it, negative as in subprocess; None while it lives."""
        self._reaper.join(seconds)
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self._reaper.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


class StartWorker(Protocol):
    def __call__(self, code: str = "", *arguments: str | bytes, **options: Any) -> Worker: ...


@pytest.fixture
def worker() -> Iterator[StartWorker]:
    """Starts processes that run *code* and then sleep."""
    started: list[Worker] = []

    def start(code: str = "", *arguments: str | bytes, **options: Any) -> Worker:
        started.append(Worker(code, *arguments, **options))
        return started[-1]

    yield start
    for process in started:
        process.close()


def drawn_whole(terminal: Terminal) -> bool:
    """Whether the footer is where it belongs, or there is too little room and the screen says so."""
    columns, rows = terminal.size
    if columns < 60 or rows < 12:
        return terminal.text().strip()[:1] in ("t", "…")  # too small
    return terminal.lines()[-1].startswith(" F1")


def cursor_line(terminal: Terminal) -> str:
    """The text of the line the cursor is on, told by its background; empty where there is none."""
    from gputop.ui.toolkit.palette import DARK

    background = DARK.variables["block-cursor-background"].lstrip("#")
    for cells in terminal.cells():
        if sum(cell.bg == background for cell in cells) > len(cells) // 2:
            return "".join(cell.data for cell in cells)
    return ""


def environment(home: Path) -> dict[str, str]:
    """A true colour terminal in a UTF-8 locale."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    return {
        **kept,
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "PYTHONPATH": str(ROOT),
    }


def _only_driver(driver: SimulatedDriver) -> dict[str, str]:
    return {name: driver.env[name] for name in driver.env if name == "LD_LIBRARY_PATH" or name.startswith("SIMNVML_")}
