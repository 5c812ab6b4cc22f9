"""The terminal's side of a pty: answers to a program's questions, and what its output looks like on a screen."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import pyte

Chunk = tuple[float, bytes]  # when it was read (CLOCK_MONOTONIC), what

BURST = 0.008  # seconds: output closer together than this is one paint

QUERY = re.compile(
    rb"\x1b\[(?P<da>[>=]?)0?c|\x1b\[(?P<dsr>\??[56])n|(?P<version>\x1b\[>0?q)|\x1b\[(?P<mode>\??\d+)\$p"
    rb"|\x1bP(?P<dcs>[+$])q[^\x1b]*\x1b\\|\x1b\](?P<color>1[0-2]);\?(?:\x07|\x1b\\)|\x1b\[(?P<size>1[468])t"
)
UNFINISHED = re.compile(rb"\x1b(?:\[[0-9;?<=>$]*|[P_^\]][^\x1b\x07]*\x1b?)?\Z")
# What pyte would print or misread: device control, operating system and private strings.
STRIP = re.compile(rb"\x1b[P_^][^\x1b]*\x1b\\|\x1b\][^\x1b\x07]*(?:\x07|\x1b\\)|\x1b\[[<=>][0-9;]*[A-Za-z]")


class Answers:
    """Answers what a program asks its terminal, as a present-day terminal does."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows, self.rest = columns, rows, b""

    def to(self, data: bytes) -> bytes:
        data = self.rest + data
        tail = UNFINISHED.search(data[-256:])
        self.rest = tail.group() if tail else b""
        return b"".join(self._answer(match) for match in QUERY.finditer(data))

    def _answer(self, match: re.Match[bytes]) -> bytes:
        asked = {k: v.decode() for k, v in match.groupdict().items() if v is not None}
        if "da" in asked:
            return {"": b"\x1b[?62;22c", ">": b"\x1b[>41;390;0c", "=": b"\x1bP!|00000000\x1b\\"}[asked["da"]]
        if "dsr" in asked:
            return b"\x1b[0n" if asked["dsr"][-1] == "5" else b"\x1b[1;1R"
        if "version" in asked:
            return b"\x1bP>|Bench(1)\x1b\\"
        if "mode" in asked:  # synchronized output is known, other modes are not
            return f"\x1b[{asked['mode']};{2 if asked['mode'] == '?2026' else 0}$y".encode()
        if "dcs" in asked:
            return f"\x1bP0{asked['dcs']}r\x1b\\".encode()
        if "color" in asked:
            colour = "0000/0000/0000" if asked["color"] == "11" else "ffff/ffff/ffff"
            return f"\x1b]{asked['color']};rgb:{colour}\x1b\\".encode()
        sizes = {
            "14": f"\x1b[4;{self.rows * 16};{self.columns * 8}t",
            "16": "\x1b[6;16;8t",
            "18": f"\x1b[8;{self.rows};{self.columns}t",
        }
        return sizes[asked["size"]].encode()


class _Screen(pyte.Screen):
    """With REP, SU and SD too."""

    last = " "

    def draw(self, data: str) -> None:
        if data:
            self.last = data[-1]
        super().draw(data)

    def repeat(self, count: int = 1) -> None:
        self.draw(self.last * (count or 1))

    def scroll_up(self, count: int = 1) -> None:
        self._scroll(count or 1, self.index, bottom=True)

    def scroll_down(self, count: int = 1) -> None:
        self._scroll(count or 1, self.reverse_index, bottom=False)

    def _scroll(self, count: int, move: Any, bottom: bool) -> None:
        top, end = self.margins or (0, self.lines - 1)
        keep, self.cursor.y = self.cursor.y, end if bottom else top
        for _ in range(count):
            move()
        self.cursor.y = keep

    def set_mode(self, *modes: int, **more: Any) -> None:
        super().set_mode(*modes, **more)
        if more.get("private") and 1049 in modes:
            self.erase_in_display(2)


class _Stream(pyte.Stream):
    csi: ClassVar = dict(pyte.Stream.csi, b="repeat", S="scroll_up", T="scroll_down")
    events = pyte.Stream.events | {"repeat", "scroll_up", "scroll_down"}


def _plain_only(method: Any) -> Any:
    return lambda *a, private=False, **more: None if private else method(*a, **more)


class Emulator:
    """A screen that is fed a program's output."""

    def __init__(self, columns: int, rows: int) -> None:
        self.screen = _Screen(columns, rows)
        for name in set(_Stream.csi.values()) - {"set_mode", "reset_mode"}:
            setattr(self.screen, name, _plain_only(getattr(self.screen, name)))
        self._stream = _Stream(self.screen)
        self._stream.use_utf8 = False  # so that the line drawing character set works
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = b""

    def feed(self, data: bytes) -> None:
        data = self._rest + data
        tail = UNFINISHED.search(data[-4096:])
        self._rest = tail.group() if tail else b""
        self._stream.feed(self._decode(STRIP.sub(b"", data[: len(data) - len(self._rest)])))

    @property
    def lines(self) -> list[str]:
        return list(self.screen.display)

    def backgrounds(self) -> tuple[object, ...]:
        """The most frequent background of each line: it tells which row is highlighted."""
        out = []
        for y in range(self.screen.lines):
            cells = Counter((cell.bg, cell.reverse) for cell in self.screen.buffer[y].values())
            out.append(cells.most_common(1)[0][0] if cells else None)
        return tuple(out)


def bursts(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Output that came together, joined: (time of its end, bytes)."""
    last, parts = 0.0, []
    for t, data in chunks:
        if parts and t - last > BURST:
            yield last, b"".join(parts)
            parts = []
        parts.append(data)
        last = t
    if parts:
        yield last, b"".join(parts)
