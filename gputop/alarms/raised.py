"""The user's alarms on the dashboard: a remark on the GPU's panel as long as one is raised, and a toast when it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gputop.sampling.bus import Bus
from gputop.sampling.messages import AlarmCleared, AlarmDetails, AlarmRaised

TOASTS_AT_ONCE: Final = 3  # more are told in one


class RaisedAlarms:
    """Hears of alarms on the bus. *tell* is given a sentence and whether it is bad news."""

    def __init__(self, bus: Bus, tell: Callable[[str, bool], None]) -> None:
        self.by_gpu: dict[str, tuple[str, ...]] = {}  # conditions, by the GPU's UUID
        self._tell = tell
        self._raised: dict[tuple[str, str], AlarmDetails] = {}
        self._untold: list[tuple[str, bool]] = []
        bus.subscribe(AlarmRaised, self._hear, every=True)
        bus.subscribe(AlarmCleared, self._hear, every=True)

    def _hear(self, message: object) -> None:
        if not isinstance(message, AlarmRaised | AlarmCleared):
            return  # MessagesLost: the poller goes on, and so does the next one
        alarm = message.alarm
        if isinstance(message, AlarmRaised):
            self._raised[alarm.rule, alarm.subject] = alarm
        else:
            self._raised.pop((alarm.rule, alarm.subject), None)
        by_gpu: dict[str, dict[str, None]] = {}
        for raised in self._raised.values():
            if raised.gpu is not None:
                by_gpu.setdefault(raised.gpu.uuid, {})[raised.rule] = None
        self.by_gpu = {uuid: tuple(rules) for uuid, rules in by_gpu.items()}
        if not self._untold:
            asyncio.get_running_loop().call_soon(self._tell_all)  # after all of this reading
        self._untold.append((f"{alarm.message}  [{alarm.rule}]", isinstance(message, AlarmRaised)))

    def _tell_all(self) -> None:
        untold, self._untold = self._untold, []
        for bad, kind in ((True, "Alarm"), (False, "Cleared")):
            texts = [text for text, is_bad in untold if is_bad == bad]
            if len(texts) > TOASTS_AT_ONCE:
                texts = [f"{texts[0]}, and {len(texts) - 1} more"]
            for text in texts:
                self._tell(f"{kind}: {text}", bad)
