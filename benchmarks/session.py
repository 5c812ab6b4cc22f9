"""One program on a pty of its own, on the simulated driver."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import termios
import time
from dataclasses import dataclass, field
from pathlib import Path

import places
from terminal import Answers, Chunk

H200 = {"SIMNVML_GPM": "1", "SIMNVML_NAME": "NVIDIA H200", "SIMNVML_MEM_MIB": "143771"}


@dataclass
class Setup:
    """The machine a program finds, and its terminal."""

    gpus: int = 8
    procs: int = 8
    refresh: float = 0.5
    columns: int = 200
    rows: int = 60
    term: str = "xterm-256color"
    h200: bool = False  # an H200 whose calls cost what a real one's do
    scenario: str = ""  # more lines for the simulated driver
    env: dict[str, str] = field(default_factory=dict)
    settings: str | None = None  # gputop's config.toml

    def command(self, command: list[str]) -> list[str]:
        """With {refresh} (seconds), {ds} (tenths), {ms} filled in."""
        values = {"{refresh}": self.refresh, "{ds}": self.refresh * 10, "{ms}": self.refresh * 1000}
        for name, value in values.items():
            command = [word.replace(name, f"{value:g}") for word in command]
        return command

    def base_scenario(self) -> str:
        return ((places.HERE / "h200-costs.faults").read_text() if self.h200 else "") + self.scenario

    def environment(self, folder: Path, pids: Path) -> dict[str, str]:
        """An empty home in `folder`, none of the caller's terminal, locale or settings."""
        dropped = ("SIMNVML_", "XDG_", "TMUX", "STY", "LC_", "VIRTUAL_ENV", "COLUMNS", "LINES", "NO_COLOR", "PYTHON")
        env = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        config = folder / "home" / ".config" / "gputop"
        config.mkdir(parents=True, exist_ok=True)
        if self.settings is not None:
            (config / "config.toml").write_text(self.settings)
        set_scenario(folder, self.base_scenario())
        path = os.environ.get("LD_LIBRARY_PATH")
        return {
            **env,
            "TERM": self.term,
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
            "HOME": str(folder / "home"),
            "PYTHONPATH": str(places.ROOT),
            "LD_LIBRARY_PATH": f"{places.library()}:{path}" if path else str(places.library()),
            "SIMNVML_GPUS": str(self.gpus),
            "SIMNVML_PROCS": str(self.procs),
            "SIMNVML_PIDS": str(pids),
            "SIMNVML_BEACON": "1",
            "SIMNVML_COUNT": str(folder / "%p.count"),
            "SIMNVML_SCENARIO": str(folder / "scenario"),
            **(H200 if self.h200 else {}),
            **self.env,
        }


def set_scenario(folder: Path, text: str) -> None:
    (folder / "scenario.new").write_text(text)
    (folder / "scenario.new").rename(folder / "scenario")


class Session:
    """A running program. Its output is read by `pump` and kept in `chunks`; as a context manager it is ended."""

    def __init__(self, command: list[str], setup: Setup, pids: Path) -> None:
        self.setup = setup
        self.folder = places.run_folder()
        self.chunks: list[Chunk] = []
        self.status: int | None = None
        self._answers = Answers(setup.columns, setup.rows)
        environment = setup.environment(self.folder, pids)
        self.started = time.monotonic()
        self.pid, self._master = _spawn(setup.command(command), environment, setup.columns, setup.rows)

    def scenario(self, more: str) -> None:
        """What the simulated driver does from now on, besides what the setup says."""
        set_scenario(self.folder, self.setup.base_scenario() + more)

    def pump(self, seconds: float) -> bool:
        """Read for that long, answering the program's questions. False: it has ended."""
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            if left <= 0:
                return True
            if not select.select([self._master], [], [], left)[0]:
                continue
            try:
                data = os.read(self._master, 65536)
            except OSError:  # nobody has the other side open any more
                return False
            self.chunks.append((time.monotonic(), data))
            reply = self._answers.to(data)
            if reply:
                self.send(reply)

    def arrow(self, direction: str) -> float:
        """Press an arrow key, coded as the program has asked for (DECCKM)."""
        written = b"".join(data for _, data in self.chunks)
        application = written.rfind(b"\x1b[?1h") > written.rfind(b"\x1b[?1l")
        return self.send((b"\x1bO" if application else b"\x1b[") + {"up": b"A", "down": b"B"}[direction])

    def send(self, data: bytes) -> float:
        """Type; the time when it was typed."""
        with contextlib.suppress(OSError):
            os.write(self._master, data)
        return time.monotonic()

    def ended(self) -> bool:
        if self.status is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def wait_end(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self.ended() and time.monotonic() < until:
            if not self.pump(0.005):
                time.sleep(0.001)
        return self.ended()

    def stop(self) -> None:
        """q, then SIGTERM, then SIGKILL."""
        if not self.ended():
            self.send(b"q")
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.wait_end(1.5):
                break
            os.kill(self.pid, number)
        self.wait_end(5)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        os.close(self._master)
        shutil.rmtree(self.folder, ignore_errors=True)


def _spawn(command: list[str], env: dict[str, str], columns: int, rows: int) -> tuple[int, int]:
    """Run a command as the leader of a session of its own on a new pty: (pid, master)."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            for descriptor in range(3):
                os.dup2(slave, descriptor)
            os.closerange(3, 256)
            os.execvpe(command[0], command, env)
        except OSError as e:
            os.write(2, f"cannot run {command[0]}: {e}\r\n".encode())
        finally:
            os._exit(127)
    os.close(slave)
    return pid, master
