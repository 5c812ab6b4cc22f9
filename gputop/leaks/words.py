"""Times and sizes as the sentences of verdicts have them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gputop import units


def clock(at: float) -> str:
    """ "02:58:10" of today, with the date of another day."""
    local = time.localtime(at)
    today = time.localtime()
    same_day = (local.tm_year, local.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M:%S" if same_day else "%b %d %H:%M", local)


def span(seconds: float) -> str:
    """ "42 s", "13 min", "2 h 13 min", "3 d 4 h"."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def amount(bytes_: int | None) -> str:
    """ "38.0 GiB", "612 MiB"; "an unknown amount" of None."""
    if bytes_ is None:
        return "an unknown amount"
    return f"{bytes_ / units.GIB:.1f} GiB" if bytes_ >= units.GIB else f"{bytes_ / units.MIB:.0f} MiB"


def plural(count: int, one: str) -> str:
    return f"{count} {one}" if count == 1 else f"{count} {one}es" if one.endswith("ss") else f"{count} {one}s"


def descriptors(numbers: Sequence[int]) -> str:
    """ "fd 41", "fd 11, 12, 13 and 20 more" (CUDA opens a device two dozen times); "mapped" where there is none."""
    if not numbers:
        return "mapped"
    more = f" and {len(numbers) - 3} more" if len(numbers) > 3 else ""
    return f"fd {', '.join(map(str, numbers[:3]))}{more}"
