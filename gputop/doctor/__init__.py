"""What may keep gputop from working here, looked at piece by piece.

Nothing that tells who or where one is goes into it: it is meant to be pasted into an issue.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gputop import locations
from gputop.model import clean_text

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. *fix* says what to do about it, where anything is to be done."""

    topic: str
    status: str  # OK, WARN or FAIL
    message: str
    fix: str = ""


def scrub(findings: Iterable[Check]) -> list[Check]:
    """*findings* without the home directory, the user's and the machine's name, fit for any terminal."""
    hidden = [(str(home), "~") for home in (locations.home(),) if home is not None and len(str(home)) > 1]
    nodename = os.uname().nodename
    hidden += [(name, "HOST") for name in (nodename, nodename.partition(".")[0]) if len(name) > 2]
    user = os.environ.get("USER") or os.environ.get("LOGNAME") or ""
    hidden += [(user, "USER")] if len(user) > 2 and user != "root" else []

    def clean(text: str) -> str:
        for secret, stand_in in hidden:
            text = re.sub(rf"(?<![\w-]){re.escape(secret)}(?![\w-])", stand_in, text)
        return clean_text(text, 1000)

    return [Check(f.topic, f.status, clean(f.message), clean(f.fix)) for f in findings]
