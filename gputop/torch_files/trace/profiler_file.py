"""Files that torch's profiler wrote, as bytes: gzip or not, from a pipe too, as far as they can be read."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final

from gputop.torch_files.archives import packed_as

CHUNK_BYTES: Final = 1 << 21  # bytes
_PIECE_BYTES: Final = 1 << 16  # bytes that are unpacked at once
#: Bytes of a trace in a byte of its gzip, at most: real ones have some 20, a bomb has 1000.
_BYTES_PER_ZIPPED_BYTE: Final = 128
_LEAST_UNZIPPED_BYTES: Final = 1 << 24  # whatever the gzip's size
_GZIP: Final = b"\x1f\x8b"

Progress = Callable[[float], None]


class UnreadableTrace(Exception):
    """``str()`` is one sentence about what is wrong with the file."""


class ProfilerFile:
    """The bytes of a file, without gzip where it is that. ``problem`` tells why they end before the file's end."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and UnreadableTrace for what has no end."""
        self._file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        os.set_blocking(self._file.fileno(), True)  # a pipe may make us wait, one without a writer may not
        facts = os.fstat(self._file.fileno())
        if not stat.S_ISREG(facts.st_mode) and not stat.S_ISFIFO(facts.st_mode):
            self._file.close()
            raise UnreadableTrace("it is not an ordinary file")
        self.problem: str | None = None
        self._size = facts.st_size
        self._rest = self._file.read(CHUNK_BYTES)  # read, and not given out yet
        packed = packed_as(self._rest[:512])
        if packed is not None:
            self._file.close()
            raise UnreadableTrace(f"it is {packed}: unpack it, and name the .json or .json.gz that is in it")
        self._inflate = zlib.decompressobj(31) if self._rest.startswith(_GZIP) else None
        self._unzipped, self._read = 0, len(self._rest)  # bytes
        self._first: bytes | None = None

    def __enter__(self) -> ProfilerFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def share(self) -> float:
        """How much of the file was read, 0 to 1; of a pipe 0."""
        return min(1.0, self._file.tell() / self._size) if self._size else 0.0

    def head(self) -> bytes:
        """The first bytes, which are read again."""
        if self._first is None:
            self._first = self._next()
        return self._first

    def read(self) -> bytes:
        """The next bytes; none at the end."""
        first, self._first = self._first, None
        return self._next() if first is None else first

    def _next(self) -> bytes:
        while self.problem is None:
            data, self._rest = self._rest, b""
            if not data:
                data = self._file.read(CHUNK_BYTES)
                self._read += len(data)
            if self._inflate is None:
                return data
            if self._inflate.eof:  # another member may follow
                data = data.lstrip(b"\0")
                data += self._file.read(1) if len(data) == 1 else b""
                if data and not data.startswith(_GZIP):
                    self.problem = "something else follows its gzip data"
                elif data:
                    self._inflate = zlib.decompressobj(31)
            if not data:
                if not self._inflate.eof:
                    self.problem = "its gzip data ends too early"
                return b""
            found = self._inflated(data)
            self._unzipped += len(found)
            if self._unzipped > max(_LEAST_UNZIPPED_BYTES, _BYTES_PER_ZIPPED_BYTE * max(self._size, self._read)):
                self.problem = (
                    f"its gzip data unpacks to more than {_BYTES_PER_ZIPPED_BYTE} times its size, as a bomb's"
                )
            if found:
                return found
        return b""

    def _inflated(self, data: bytes) -> bytes:
        """What can be unpacked of *data*, piece by piece: of a damaged one what is before."""
        assert self._inflate is not None
        found = bytearray()
        try:
            while data and not self._inflate.eof and len(found) < CHUNK_BYTES:
                found += self._inflate.decompress(data, _PIECE_BYTES)
                data = self._inflate.unconsumed_tail
            self._rest = data or self._inflate.unused_data
        except zlib.error:
            self.problem = "its gzip data is damaged"
        return bytes(found)
