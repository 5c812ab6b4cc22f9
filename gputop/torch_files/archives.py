"""Files that hold the one wanted, packed in a way that is not read here."""

from __future__ import annotations

from typing import Final

_PACKED: Final = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"BZh", "compressed with bzip2"),
    (b"\xfd7zXZ\x00", "compressed with xz"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
)


def packed_as(head: bytes) -> str | None:
    """How a file that begins with *head* is packed; None: not in a way known here, or as gzip."""
    if head[257:262] == b"ustar":
        return "a tar archive"
    return next((words for magic, words in _PACKED if head.startswith(magic)), None)
