"""The ``[[alarms]]`` of the settings file behind the dashboard: told on the bus, and nothing else is done about them.

Commands, webhooks and logs are `gputop watch`'s: with several dashboards open they would come several times.
"""

from __future__ import annotations

from collections.abc import Callable

from gputop.alarms.condition import Condition, host_pids
from gputop.alarms.conditions import ConditionError, parse_rule
from gputop.alarms.engine import Alarms
from gputop.model.selection import only
from gputop.sampling.bus import Bus
from gputop.sampling.messages import SnapshotTaken
from gputop.sampling.poller import Poller
from gputop.settings import Settings


def watch(settings: Settings, poller: Poller, bus: Bus, exists: Callable[[int], bool | None]) -> tuple[str, ...]:
    """Look at every snapshot on *bus* from now on. Returns what is wrong with the alarms, in words."""
    conditions: dict[str, Condition] = {}
    problems = []
    for rule in settings.alarms:
        try:
            condition = parse_rule(rule)
        except ConditionError as error:
            problems.append(f"alarms: {error}")
        else:
            conditions[condition.text] = condition
    poller.want("alarms", host_pids(conditions.values()))
    alarms = Alarms(conditions.values(), exists)

    def look(message: object) -> None:
        if isinstance(message, SnapshotTaken) and not poller.released:  # handles let go of by hand: nothing is lost
            for event in alarms.look(only(message.snapshot, settings.gpus)[0]):
                bus.publish(event)

    if conditions:
        bus.subscribe(SnapshotTaken, look, every=True)
    return tuple(problems)
