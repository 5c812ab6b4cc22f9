"""A file that the user names for output: what is in it already and was not written by us stays."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gputop.commands.shared.refusal import Refusal
from gputop.model import clean_text

_HEAD_BYTES: Final = 4096


def must_not_replace_others(path: Path, is_ours: Callable[[bytes], bool], kind: str) -> None:
    """Raises Refusal where *path* is a file that is not empty and *is_ours* does not know its first bytes as those of a
    *kind* of ours: `--flamegraph a.pickle b.pickle` would replace a snapshot."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise Refusal(f"{clean_text(str(path), 500)}: {error.strerror or error}") from None
    if head and not is_ours(head):
        raise Refusal(f"{clean_text(str(path), 500)} exists and is not {kind}: it is left as it is. Name a new file")


def is_text(head: bytes) -> bool:
    """Whether bytes at the beginning of a file are UTF-8 text."""
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4 and b"\0" not in head  # cut inside a character
    return b"\0" not in head
