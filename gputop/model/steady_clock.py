"""Elapsed time is not told by the wall clock: that may be set, by hand or by NTP."""

from __future__ import annotations

import time


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # as CLOCK_MONOTONIC, and goes on while the machine sleeps


_BOOTED_AT = time.time() - _since_boot()


def steady_time() -> float:
    """Epoch seconds by the clock as it was when gputop was started, whatever is set since."""
    return _BOOTED_AT + _since_boot()
