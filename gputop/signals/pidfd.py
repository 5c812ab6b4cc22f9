"""pidfds (Linux 5.3): a descriptor means one process for ever, where its pid may be given to another one.

Python has them since 3.9, unless it was built on old kernel headers, as the standalone Pythons of uv and Conda's are:
then the system calls are made by number. Where the kernel has none, :func:`open_pidfd` raises :class:`NoPidfd`.
"""

from __future__ import annotations

import errno
import os
import select
import signal
from collections.abc import Callable
from typing import Final

_PIDFD_SEND_SIGNAL: Final = 424  # the same number on every architecture Linux runs GPUs on
_PIDFD_OPEN: Final = 434


class NoPidfd(Exception):
    """This kernel has no pidfds, or a sandbox forbids them."""


def open_pidfd(pid: int) -> int:
    """A new descriptor of the process, to be closed.

    Raises NoPidfd; ProcessLookupError where there is no such process; OSError (EINVAL, or ENOENT since Linux 6.9) where
    *pid* is a thread but not a process.
    """
    call: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    try:
        return call(pid) if call is not None else _system_call(_PIDFD_OPEN, pid, 0)
    except OSError as error:
        # The kernel itself never answers EPERM here; the system call filters of older container engines do.
        if error.errno in (errno.ENOSYS, errno.EPERM):
            raise NoPidfd from error
        raise


def send_signal(pidfd: int, number: int) -> None:
    """Send, or with 0 only check whether it may be sent. Raises NoPidfd (a sandbox that has half of
    them), ProcessLookupError, PermissionError, OSError."""
    call: Callable[[int, int], None] | None = getattr(signal, "pidfd_send_signal", None)
    try:
        if call is not None:
            call(pidfd, number)
        else:
            _system_call(_PIDFD_SEND_SIGNAL, pidfd, number, None, 0)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise NoPidfd from error
        raise


def has_exited(pidfd: int) -> bool:
    """Whether the process has exited with all its threads; whether its parent has reaped it does not matter."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _system_call(number: int, *arguments: int | None) -> int:
    import ctypes  # on few Pythons only

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    converted = [None if argument is None else ctypes.c_long(argument) for argument in arguments]
    result: int = libc.syscall(ctypes.c_long(number), *converted)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))  # becomes ProcessLookupError, PermissionError…
    return result
