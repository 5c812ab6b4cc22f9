"""Which of the user's alarms are raised now, for the remarks on the GPUs' panels; and what is announced of them."""

from __future__ import annotations

import asyncio
from typing import Final

from gputop.sampling.bus import Bus
from gputop.sampling.messages import AlarmCleared, AlarmDetails, AlarmRaised, Announced

ANNOUNCED_AT_ONCE: Final = 3  # more are told in one


class RaisedAlarms:
    """Hears of alarms on the bus, and publishes :class:`Announced` there."""

    def __init__(self, bus: Bus) -> None:
        self.by_gpu: dict[str, tuple[str, ...]] = {}  # conditions, by the GPU's UUID
        self._bus = bus
        self._raised: dict[tuple[str, str], AlarmDetails] = {}
        self._unannounced: list[tuple[str, bool]] = []
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
        if not self._unannounced:
            asyncio.get_running_loop().call_soon(self._announce)  # after all of this reading
        self._unannounced.append((f"{alarm.message}  [{alarm.rule}]", isinstance(message, AlarmRaised)))

    def _announce(self) -> None:
        unannounced, self._unannounced = self._unannounced, []
        for bad, kind in ((True, "Alarm"), (False, "Cleared")):
            texts = [text for text, is_bad in unannounced if is_bad == bad]
            if len(texts) > ANNOUNCED_AT_ONCE:
                texts = [f"{texts[0]}, and {len(texts) - 1} more"]
            for text in texts:
                self._bus.publish(Announced(f"{kind}: {text}", bad))
