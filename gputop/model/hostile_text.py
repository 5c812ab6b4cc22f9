"""Text from outside (process names, command lines, files…) made safe to show anywhere, once, as it comes in."""

from __future__ import annotations

from typing import Final

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def _hostile() -> dict[int, str]:
    """Characters that a terminal obeys or that turn the text around it about."""
    table = {c: REPLACEMENT for c in (*range(0x20), *range(0x7F, 0xA0))}  # C0, DEL, C1: ESC among them
    table |= {c: REPLACEMENT for c in (0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}  # bidi
    table |= {c: "" for c in (*range(0x200B, 0x2010), 0x00AD, 0x2060, 0xFEFF, *range(0xFE00, 0xFE10))}  # no width
    table |= {c: REPLACEMENT for c in range(0xD800, 0xE000)}  # lone surrogates
    table |= {c: " " for c in (0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x2028, 0x2029)}
    return table


_HOSTILE: Final = _hostile()


def clean_text(text: str | bytes, limit: int = 4096) -> str:
    """*text* from outside (process names, command lines, file names…) made safe to show anywhere.

    Bytes are read as UTF-8. Control characters, bidirectional marks and lone surrogates become
    U+FFFD, line breaks and tabs a space; characters without width are dropped, since terminals
    disagree about them. At most *limit* characters are kept.
    """
    if isinstance(text, bytes):
        text = text[: limit * 4].decode("utf-8", "replace")
    text = text[:limit]
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_HOSTILE)
