"""What a source of readings is: the protocol, one GPU's reading, and the error that concerns the whole machine.

A source knows *how* to read; the poller knows *when*. All methods may block in the driver, so they are called from
the poller's daemon threads and nowhere else. A reading that fails for one GPU is a :class:`~gputop.model.Gpu` that
says so in ``error``; only what fails for the whole machine is raised, as :class:`SourceError`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

from gputop.model import Driver, Gpu, GpuProcess

_RETRYING: Final = re.compile("; (reconnecting|looking for it again|trying again)")


def asked_once(message: str) -> str:
    """What a source says of an error, for one who asks once: without what it goes on to do about it."""
    return _RETRYING.sub("", message)


class SourceError(Exception):
    """No GPU can be read at all. ``str()`` says the cause, what was looked for and what to try.

    ``exit_status`` is for the command line: 3 no library, 4 driver not loaded, 5 driver/library mismatch,
    6 no permission, 7 no GPUs, 8 anything else. ``transient`` says whether trying again may help.
    """

    def __init__(self, message: str, exit_status: int = 8, transient: bool = True) -> None:
        super().__init__(message)
        self.exit_status = exit_status
        self.transient = transient


@dataclass(frozen=True, slots=True)
class Reading:
    """One GPU and the processes on it, as the fast tier reads them."""

    gpu: Gpu
    processes: tuple[GpuProcess, ...] = ()  # host is None: the poller adds it


class Source(Protocol):
    """What the poller asks of a source. GPUs are addressed by slot: their position when counted last."""

    name: str

    def open(self) -> Driver:
        """Connect. Raises SourceError. May be called again after close()."""
        ...

    def count(self) -> int:
        """How many GPUs the driver counts now (bounds the slots). Raises SourceError."""
        ...

    def read(self, slot: int) -> Reading:
        """The fast tier of one GPU, with what the other tiers found last. Takes well under a millisecond on a healthy
        driver; never raises for a fault of that GPU alone. Raises SourceError when the driver as a whole is gone."""
        ...

    def read_medium(self, slot: int) -> None:
        """At most once a second: per-process utilization, the blocking PCIe call where nothing else exists."""
        ...

    def read_slow(self, slot: int) -> None:
        """Every 5 to 30 s: limits, ECC, remapped rows, links, margins, MIG instances; tries a failed GPU again."""
        ...

    def wait_events(self, timeout: float) -> None:
        """Wait up to *timeout* seconds for Xid events and keep them for the next readings."""
        ...

    def close(self) -> None:
        """Let go of the driver and all its handles. Never called while a thread is inside the driver."""
        ...
