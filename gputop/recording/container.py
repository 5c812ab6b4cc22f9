"""The file a recording is in: groups of lines, each a Zstandard frame that begins with a whole snapshot, each followed
by a footer that says what is in it and where the footer before is.

Header and footers are *skippable frames* (RFC 8878, 3.1.2), so the file as a whole is Zstandard: ``zstdcat FILE``
prints its lines. A record is flushed as whole blocks and written by one write(2): what a killed recorder leaves can be
read up to its last record, and :func:`mend` makes a proper end of it.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import zstandard

VERSION: Final = 1
_HEADER_MAGIC: Final = 0x184D2A5E
_FOOTER_MAGIC: Final = 0x184D2A5F
_FRAME_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_SIGNATURE: Final = b"gputop recording"
_HEADER: Final = struct.Struct("<II16sH")  # magic, size of the rest, signature, version; then JSON
_FOOTER: Final = struct.Struct("<II8sQQIIddII")  # see Footer; the last field is the CRC-32 of those before it
_FOOTER_SIGNATURE: Final = b"gputop/1"
_HEADER_MAX_BYTES: Final = 64 * 1024
_LEVEL: Final = 3
_WINDOW_LOG: Final = 20  # 1 MiB: a few whole snapshots of a crowded machine; more costs memory only
_LAST_BLOCK: Final = b"\x01\x00\x00"  # an empty block that ends a frame (RFC 8878, 3.1.1.2)
_GROUP_MAX_BYTES: Final = 512 * 1024**2  # of one group, unpacked: a file that says more is no recording of ours
_GROUP_LEAST_BYTES: Final = 16 * 1024**2  # what a group may hold however small it is packed
_GROUP_MAX_RATIO: Final = 300  # and times its packed size: idle machines reach some tens
_CHUNK_BYTES: Final = 1024**2


class NotARecording(Exception):
    """The file is something else, or of a later version. ``str()`` says so in words."""


class LineGroup(NamedTuple):
    """Records between two whole snapshots, the first of them included."""

    offset: int  # of its frame in the file
    length: int  # bytes of the frame
    records: int
    first_at: float  # recorded times, epoch seconds
    last_at: float
    crc: int | None  # of the frame; None where no footer tells


# --------------------------------------------------------------------------- header


def header(facts: dict[str, Any]) -> bytes:
    """The file's first bytes. *facts* is for people: the host, when it began, which gputop."""
    rest = json.dumps(facts).encode("ascii")
    return _HEADER.pack(_HEADER_MAGIC, _HEADER.size - 8 + len(rest), _SIGNATURE, VERSION) + rest


def read_header(descriptor: int) -> tuple[int, dict[str, Any]]:
    """(where the first group begins, facts). Raises NotARecording."""
    start = os.pread(descriptor, _HEADER.size, 0)
    if not start:
        raise NotARecording("the file is empty")
    whole = start + bytes(_HEADER.size - len(start))
    magic, size, signature, version = _HEADER.unpack(whole)
    known = struct.pack("<I", _HEADER_MAGIC) + start[4:8] + _SIGNATURE
    if len(start) < _HEADER.size and known.startswith(start):
        raise NotARecording("a recording that ends within its first bytes: nothing was recorded")
    if magic != _HEADER_MAGIC or signature != _SIGNATURE:
        raise NotARecording("not a recording of gputop's")
    if version > VERSION:
        raise NotARecording(f"a recording of version {version}; this gputop reads up to version {VERSION}: update it")
    rest = os.pread(descriptor, min(size, _HEADER_MAX_BYTES) - (_HEADER.size - 8), _HEADER.size)
    if len(rest) < size - (_HEADER.size - 8):
        raise NotARecording("a recording that ends within its first bytes: nothing was recorded")
    try:
        facts = json.loads(rest)
    except ValueError:
        facts = None
    if not isinstance(facts, dict):
        raise NotARecording("a recording whose header is damaged")
    return 8 + size, facts


# -------------------------------------------------------------------------- footers


class _Footer(NamedTuple):
    offset: int  # of the footer itself
    group: LineGroup
    previous: int  # offset of the footer before, 0: none


def footer(group: LineGroup, previous: int) -> bytes:
    packed = _FOOTER.pack(
        _FOOTER_MAGIC, _FOOTER.size - 8, _FOOTER_SIGNATURE, group.offset, previous, group.length, group.records,
        group.first_at, group.last_at, group.crc or 0, 0,
    )[:-4]  # fmt: skip
    return packed + struct.pack("<I", zlib.crc32(packed))


def _footer_at(descriptor: int, offset: int) -> _Footer | None:
    """The footer at *offset*; None where there is none, or it is damaged."""
    packed = os.pread(descriptor, _FOOTER.size, offset) if offset > 0 else b""
    if len(packed) < _FOOTER.size or zlib.crc32(packed[:-4]) != struct.unpack("<I", packed[-4:])[0]:
        return None
    magic, _, signature, at, previous, length, records, first_at, last_at, crc, _ = _FOOTER.unpack(packed)
    if magic != _FOOTER_MAGIC or signature != _FOOTER_SIGNATURE or at + length != offset or previous >= offset:
        return None
    return _Footer(offset, LineGroup(at, length, records, first_at, last_at, crc), previous)


def _last_footer(descriptor: int, begin: int, end: int) -> _Footer | None:
    """The last whole footer between *begin* and *end*, found by its signature."""
    found = _footer_at(descriptor, end - _FOOTER.size)
    if found is not None:
        return found
    mark = struct.pack("<II", _FOOTER_MAGIC, _FOOTER.size - 8) + _FOOTER_SIGNATURE
    while end > begin:
        start = max(begin, end - _CHUNK_BYTES)
        chunk = os.pread(descriptor, end - start, start)
        at = chunk.rfind(mark)
        while at >= 0:
            found = _footer_at(descriptor, start + at)
            if found is not None:
                return found
            at = chunk.rfind(mark, 0, at + len(mark) - 1)
        end = start + len(mark) - 1 if start > begin else begin
    return None


# ---------------------------------------------------------------------------- index


@dataclass(frozen=True, slots=True)
class Index:
    """What is in a file. ``damage`` says in words what of it cannot be read, None where all can."""

    facts: dict[str, Any]
    groups: list[LineGroup]
    end: int  # bytes up to here are whole
    last_footer: int  # offset, 0: none
    open_group: LineGroup | None  # the last one, where it has no footer; it is in groups too
    damage: str | None


def read_index(descriptor: int, size: int) -> Index:
    """Find the groups of a file of *size* bytes, from its end: a footer leads to the one before. Raises
    NotARecording."""
    begin, facts = read_header(descriptor)
    groups: list[LineGroup] = []
    damage = None
    last = found = _last_footer(descriptor, begin, size)
    after_footers = begin if last is None else last.offset + _FOOTER.size
    while found is not None:
        groups.append(found.group)
        if found.group.offset == begin:
            break
        before = _footer_at(descriptor, found.previous) if found.previous else None
        if before is None:
            before = _last_footer(descriptor, begin, found.group.offset)
        if before is None or before.offset + _FOOTER.size != found.group.offset:
            damage = "a part in its middle is damaged"
        found = before
    groups.reverse()
    lines, good = salvage(_read(descriptor, after_footers, size - after_footers))
    tail = _group_of(lines, after_footers, good)
    if tail is not None:
        groups.append(tail)
    end = after_footers + (good if tail is not None else 0)
    if size > end:
        damage = damage or f"its last {size - end} bytes are no whole record"
    return Index(facts, groups, end, 0 if last is None else last.offset, tail, damage)


def _group_of(lines: list[bytes], offset: int, length: int) -> LineGroup | None:
    times = []
    for line in lines:
        try:
            times.append(json.loads(line)["taken_at"] + 0.0)
        except (ValueError, KeyError, TypeError):
            break
    return LineGroup(offset, length, len(times), times[0], times[-1], None) if times else None


def _read(descriptor: int, offset: int, length: int) -> bytes:
    parts = []
    while length > 0:
        part = os.pread(descriptor, length, offset)
        if not part:
            break
        parts.append(part)
        offset, length = offset + len(part), length - len(part)
    return b"".join(parts)


# ---------------------------------------------------------------------------- groups


def read_lines(descriptor: int, group: LineGroup) -> list[bytes]:
    """The lines of a group. Raises NotARecording where they are damaged."""
    frame = _read(descriptor, group.offset, group.length)
    if group.crc is not None and (len(frame) < group.length or zlib.crc32(frame) != group.crc):
        raise NotARecording(f"{group.records} records are damaged")
    lines, _ = salvage(frame)
    return lines[: group.records]


def salvage(frame: bytes) -> tuple[list[bytes], int]:
    """(whole lines, bytes of *frame* that hold them) of a frame that may end anywhere, even in zeros or worse."""
    if not frame.startswith(_FRAME_MAGIC):
        return [], 0
    try:
        at = zstandard.frame_header_size(frame)
        unpack = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        text = [unpack.decompress(frame[:at])]
    except zstandard.ZstdError:
        return [], 0
    total, good, good_parts, last = 0, 0, 0, False
    most = min(_GROUP_MAX_BYTES, max(_GROUP_LEAST_BYTES, _GROUP_MAX_RATIO * len(frame)))
    while not last and at + 3 <= len(frame) and total < most:
        block = int.from_bytes(frame[at : at + 3], "little")
        last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        after = at + 3 + (1 if kind == 1 else size)  # a block of kind 1 is one byte, repeated
        if kind == 3 or block == 0 or after > len(frame):  # reserved; never written (a hole in the file); torn
            break
        try:
            text.append(unpack.decompress(frame[at:after]))
        except zstandard.ZstdError:
            break
        total, at = total + len(text[-1]), after
        if text[-1].endswith(b"\n") or (last and good_parts == len(text) - 1):
            good, good_parts = at, len(text)
    return b"".join(text[:good_parts]).splitlines(), good


class GroupWriter:
    """Makes the bytes of one group: feed it lines, then end it."""

    def __init__(self, offset: int) -> None:
        parameters = zstandard.ZstdCompressionParameters.from_level(
            _LEVEL, window_log=_WINDOW_LOG, write_content_size=0, write_checksum=0
        )
        self._packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        self.offset, self.length, self.records = offset, 0, 0
        self.first_at = self.last_at = 0.0
        self._crc = 0

    def record(self, line: bytes) -> bytes:
        """What is to be written for *line*; :meth:`written` says when it was."""
        return self._packer.compress(line) + self._packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)

    def written(self, packed: bytes, at: float) -> None:
        if not self.records:
            self.first_at = at
        self.last_at = at
        self.records += 1
        self._count(packed)

    def _count(self, packed: bytes) -> None:
        self.length += len(packed)
        self._crc = zlib.crc32(packed, self._crc)

    def end(self, previous_footer: int) -> bytes:
        """The last block and the footer."""
        self._count(_LAST_BLOCK)
        group = LineGroup(self.offset, self.length, self.records, self.first_at, self.last_at, self._crc)
        return _LAST_BLOCK + footer(group, previous_footer)


def mend(descriptor: int, index: Index) -> int:
    """Make a proper end of a file whose recorder was killed: cut off what is no whole record, end the last frame.
    Returns the offset of the last footer. Raises OSError."""
    os.ftruncate(descriptor, index.end)
    group = index.open_group
    if group is None:
        return index.last_footer
    frame = _read(descriptor, group.offset, group.length)
    if not _is_ended(frame):
        frame += _LAST_BLOCK
    at = group.offset + len(frame)
    ended = group._replace(length=len(frame), crc=zlib.crc32(frame))
    tail = frame[group.length :] + footer(ended, index.last_footer)
    if os.pwrite(descriptor, tail, index.end) < len(tail):
        raise OSError(28, os.strerror(28))
    return at


def _is_ended(frame: bytes) -> bool:
    """Whether the frame has its last block."""
    at = zstandard.frame_header_size(frame)
    while at + 3 <= len(frame):
        block = int.from_bytes(frame[at : at + 3], "little")
        at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
        if block & 1:
            return True
    return False
