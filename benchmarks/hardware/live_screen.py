"""A program in a pty whose screen can be read, waited for, resized and kept while it runs."""

from __future__ import annotations

import fcntl
import re
import struct
import termios
import time
from pathlib import Path

import machine
from session import Session
from terminal import Emulator

KEYS = {
    "F1": b"\x1bOP", "F2": b"\x1bOQ", "F7": b"\x1b[18~", "F9": b"\x1b[20~", "Esc": b"\x1b", "Enter": b"\r",
    "Down": b"\x1b[B", "Left": b"\x1b[D", "Right": b"\x1b[C", "Tab": b"\t", "End": b"\x1b[F", "Ctrl+L": b"\x0c",
}  # fmt: skip
ANSI = {"black": 0, "red": 1, "green": 2, "brown": 3, "blue": 4, "magenta": 5, "cyan": 6, "white": 7}
SETTLE = 0.4  # seconds from a key to the screen being kept


class LiveScreen(Session):
    """*folder* is where `keep` puts screens, as text and with colours (``cat`` shows those)."""

    def __init__(self, command: list[str], setup: machine.RealMachine, folder: Path) -> None:
        super().__init__(command, setup, Path("/dev/null"))
        self._folder, self._kept = folder, 0
        self._emulator, self._fed = Emulator(setup.columns, setup.rows), 0
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def lines(self) -> list[str]:
        for _, data in self.chunks[self._fed :]:
            self._emulator.feed(data)
        self._fed = len(self.chunks)
        return [line.rstrip() for line in self._emulator.lines]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, pattern: str, seconds: float) -> re.Match[str] | None:
        """Until the screen shows *pattern*; None: it did not in time."""
        until = time.monotonic() + seconds
        while True:
            if found := re.search(pattern, self.text):
                return found
            if time.monotonic() > until or not self.pump(0.05):
                return None

    def press(self, *keys: str, settle: float = SETTLE) -> None:
        """Names of KEYS, or text to type."""
        for key in keys:
            self.send(KEYS.get(key, key.encode()))
            self.pump(settle)

    def resize(self, columns: int, rows: int) -> None:
        self._emulator, self._fed = Emulator(columns, rows), len(self.chunks)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.pump(0.8)
        self.press("Ctrl+L")

    def keep(self, name: str) -> None:
        lines = self.lines
        self._kept += 1
        size = f"{self._emulator.screen.columns}x{self._emulator.screen.lines}"
        file = self._folder / f"{self._kept:02}-{name}-{size}"
        file.with_suffix(".txt").write_text("\n".join(lines) + "\n")
        file.with_suffix(".ans").write_text(self._coloured())

    def _coloured(self) -> str:
        screen, out = self._emulator.screen, []
        for y in range(screen.lines):
            style = ""
            for x in range(screen.columns):
                cell = screen.buffer[y][x]
                wanted = ";".join(["0", *_colour(cell.fg, 38), *_colour(cell.bg, 48), *_attributes(cell)])
                out.append(cell.data if wanted == style else f"\x1b[{wanted}m{cell.data}")
                style = wanted
            out.append("\x1b[0m\n")
        return "".join(out)


def _attributes(cell: object) -> list[str]:
    codes = {"bold": "1", "italics": "3", "underscore": "4", "reverse": "7"}
    return [code for name, code in codes.items() if getattr(cell, name)]


def _colour(name: str, base: int) -> list[str]:
    """SGR of pyte's names and RRGGBB."""
    if name == "default":
        return []
    if re.fullmatch("[0-9a-f]{6}", name):
        return [str(base), "2", *(str(int(name[i : i + 2], 16)) for i in (0, 2, 4))]
    bright = name.startswith("bright")
    return [str(base - 8 + 60 * bright + ANSI.get(name.removeprefix("bright"), 7))]
