"""Which remark stands beside a GPU: a driver's clock reasons come and go with every reading, and what is read must
stand still."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gputop.model import Severity
from gputop.ui.gpus.remarks import Remark

HOLD_SECONDS: Final = 5.0
_NEVER: Final = float("-inf")


class Badge:
    """One place for a remark. What stands there, or nothing, stands for HOLD_SECONDS at least, and a remark for so long
    after it was true last. Only a warning replaces what is less bad at once, and what is over for certain
    (``lasting`` is False) goes at once."""

    def __init__(self) -> None:
        self._shown: Remark | None = None
        self._since = self._true_at = self._now = _NEVER  # when it came, when it was true last, the newest reading

    def remark(self, true: Sequence[Remark], now: float) -> Remark | None:
        """What to show at *now* (epoch seconds) of what is *true* then. Where time goes back, it begins anew."""
        if now < self._now:
            self._shown, self._since = None, _NEVER
        self._now = now
        shown = self._shown
        worst = max(true, key=lambda remark: remark.severity, default=None)
        same = None if shown is None else next((remark for remark in true if remark.subject == shown.subject), None)
        if same is not None:
            self._shown, self._true_at = same, now  # its figures may count
        if worst is not None and (shown is None or worst.severity > (same or shown).severity):
            if worst.severity >= Severity.WARNING or now - self._since >= HOLD_SECONDS:
                self._change(worst)
        elif shown is not None and same is None:
            over = now - max(self._since, self._true_at) >= HOLD_SECONDS
            if over or not shown.lasting:
                self._change(worst)
        return self._shown

    def _change(self, remark: Remark | None) -> None:
        self._shown, self._since, self._true_at = remark, self._now, self._now
