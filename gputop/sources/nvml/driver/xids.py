"""What the driver's Xid codes mean (NVIDIA's Xid catalogue), and how bad each is."""

from __future__ import annotations

from typing import Final

from gputop.model import Severity, Xid

_I, _W, _C = Severity.INFO, Severity.WARNING, Severity.CRITICAL

_MEANING: Final = {
    8: ("GPU stopped processing: a kernel ran too long", _W),
    13: ("graphics engine exception: usually a program's fault", _W),
    31: ("GPU memory page fault: a program used an illegal address", _W),
    32: ("invalid or corrupted push buffer", _W),
    38: ("driver firmware error", _C),
    43: ("GPU stopped processing: usually a program's fault", _W),
    44: ("graphics engine fault during a context switch", _W),
    45: ("a program's work was cleaned up: expected after a kill", _I),
    48: ("double-bit ECC error: reset the GPU", _C),
    61: ("internal microcontroller warning", _C),
    62: ("internal microcontroller halted: reset the GPU", _C),
    63: ("a memory row was remapped or a page retired", _I),
    64: ("remapping a memory row failed: reset the GPU; have it serviced if it recurs", _C),
    68: ("video decoder exception", _W),
    69: ("graphics engine class error", _W),
    74: ("NVLink error", _C),
    79: ("GPU has fallen off the bus: reset it or reboot", _C),
    92: ("high rate of single-bit ECC errors", _I),
    94: ("contained memory error: only the program that hit it is terminated", _W),
    95: ("uncontained memory error: reset the GPU", _C),
    109: ("context switch timed out", _W),
    119: ("the GPU System Processor (GSP) does not respond: reset the GPU", _C),
    120: ("error in the GPU System Processor (GSP): reset the GPU", _C),
    121: ("C2C link error", _C),
    123: ("power management unit does not respond", _C),
    136: ("link training failed", _C),
    137: ("NVLink fault: a program used an illegal remote address", _W),
    140: ("unrecovered ECC error: reset the GPU", _C),
    143: ("GPU initialization failed", _C),
    144: ("NVLink: SAW error", _C),
    145: ("NVLink: RLW error", _C),
    149: ("NVLink: NETIR error", _C),
    154: ("recovery action changed: see the GPU's details", _W),
    157: ("memory could not be cleaned", _W),
}


def xid(code: int, at: float, where: str = "", steady: float | None = None) -> Xid:
    """An Xid that arrived at *at* (epoch seconds), *steady* by the steady clock; *where* names a MIG instance."""
    message, severity = _MEANING.get(code, ("see NVIDIA's Xid catalogue", Severity.WARNING))
    return Xid(at=at, code=code, message=f"{where}: {message}" if where else message, severity=severity, steady=steady)
