"""How bytes and times inside a process are written: unlike a GPU's, they may be few and short."""

from __future__ import annotations

from gputop import units


def size(bytes_: float | None) -> str:
    """At most 7 cells, binary prefixes: ``512B``, ``1.5K``, ``20.0M``, ``81.25G``; unknown is the dash."""
    if bytes_ is None:
        return units.UNKNOWN
    if abs(bytes_) < 1000:
        return f"{bytes_:.0f}B"
    for suffix, scale in (("K", units.KIB), ("M", units.MIB)):
        if abs(bytes_) < 999.95 * scale:
            return f"{bytes_ / scale:.1f}{suffix}"
    if abs(bytes_) < 999.995 * units.GIB:
        return f"{bytes_ / units.GIB:.2f}G"
    return f"{bytes_ / units.TIB:.2f}T"


def signed(bytes_: int) -> str:
    """A change of :func:`size`: ``+1.5K``, ``-20.0M``."""
    return f"+{size(bytes_)}" if bytes_ > 0 else size(bytes_)


def percent(part: float, whole: float) -> str:
    """What *part* is of *whole*: ``12.3%``; the dash where *whole* is 0."""
    return f"{100 * part / whole:.1f}%" if whole else units.UNKNOWN


def duration(microseconds: float) -> str:
    """How long an operation took, in at most 8 cells: ``412.0µs``, ``12.35ms``, ``3.20s``."""
    for suffix, scale in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= scale:
            return f"{microseconds / scale:.2f}{suffix}"
    return f"{microseconds:.1f}µs"


def milliseconds(nanoseconds: float) -> str:
    """A place on the time axis of a trace: ``1,234.567 ms``."""
    return f"{nanoseconds / 1e6:,.3f} ms"
