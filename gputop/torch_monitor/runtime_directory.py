"""Where a monitored process and gputop meet: a directory of the user's own, a small file a process.

``PID.json`` is the process's report, ``PID.ask`` a request to it. Whoever may write there is the user (or root), so a
file is believed as far as it belongs to the process's own user; everything else about it is checked by its reader.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from typing import Any, Final

SCHEMA: Final = 1
MAX_BYTES: Final = 64 * 1024  # of a report: 8 devices with all their phases are 8 KB
ACTIONS: Final = ("dump", "record", "stop")


def candidates(uid: int) -> list[str]:
    """Directories that may hold *uid*'s files, the first choice first. None need exist."""
    found = []
    own = os.environ.get("XDG_RUNTIME_DIR")
    if uid == os.getuid() and own and os.path.isabs(own):
        found.append(f"{own}/gputop")
    found += [f"/run/user/{uid}/gputop", f"/tmp/gputop-{uid}"]
    return list(dict.fromkeys(found))


def open_directory(path: str, uid: int) -> int | None:
    """A descriptor of the directory, where it is *uid*'s alone; None otherwise, links included."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    facts = os.fstat(descriptor)
    if facts.st_uid == uid and not facts.st_mode & 0o077:
        return descriptor
    os.close(descriptor)
    return None


def own_directory() -> int | None:
    """A descriptor of this user's directory, made where it is not there; None where none can be had."""
    uid = os.getuid()
    for path in candidates(uid):
        with contextlib.suppress(OSError):
            os.mkdir(path, 0o700)
        descriptor = open_directory(path, uid)
        if descriptor is not None:
            return descriptor
    return None


def write(directory: int, name: str, value: Any, owner: int | None = None) -> None:
    """Put *value* as JSON into *directory* at once: who reads sees the old file or the new one. Raises OSError."""
    data = json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")
    if len(data) > MAX_BYTES:
        raise OSError(f"{name}: {len(data)} bytes are too many")
    temporary = f".{name}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=directory)  # of a process that died while writing
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        os.write(descriptor, data)
        if owner is not None and owner != os.geteuid():  # root asks somebody's process
            os.fchown(descriptor, owner, -1)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise
    finally:
        os.close(descriptor)


def read(directory: int, name: str, owner: int) -> tuple[Any, os.stat_result] | None:
    """The JSON in a regular file of *owner*'s in *directory*; None for whatever else is there."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != owner or facts.st_size > MAX_BYTES:
            return None
        return json.loads(os.read(descriptor, MAX_BYTES + 1)), facts
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(descriptor)


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat: with the pid, what identifies a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read(2048).rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
