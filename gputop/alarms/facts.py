"""What commands, webhooks and logs are told of an event, and its line for people."""

from __future__ import annotations

import datetime
from typing import Any, Final

from gputop import units
from gputop.alarms.engine import Event
from gputop.sampling.messages import AlarmCleared, AlarmRaised, AlarmUnclear

#: Columns of the log, and names of what a webhook and (as GPUTOP_…) a command are given.
FACTS: Final = (
    "time",
    "at",
    "host",
    "event",
    "alarm",
    "text",
    "gpu_index",
    "gpu_uuid",
    "gpu_name",
    "pid",
    "user",
    "command",
    "value",
    "unit",
    "xid",
)


def facts(event: Event, host: str) -> dict[str, Any]:
    """*event* on the machine *host*, by :data:`FACTS`; None where something does not apply or is not known."""
    alarm = event.alarm
    gpu, process = alarm.gpu, alarm.process
    known: dict[str, Any] = dict.fromkeys(FACTS)
    known.update(time=_iso(event.at), at=event.at, host=host, event=_kind(event), alarm=alarm.rule, text=alarm.message)
    known.update(value=alarm.value, unit=alarm.unit, xid=alarm.xid)
    if gpu is not None:
        known.update(gpu_index=gpu.index, gpu_uuid=gpu.uuid, gpu_name=gpu.name)
    if process is not None:
        known["pid"] = process.pid
        if process.host is not None:
            known.update(user=process.host.user, command=process.host.command)
    return known


def line(event: Event) -> str:
    """*event* for people: ``2026-11-30 12:08:31 RAISED  GPU 0 (NVIDIA H200): memory 92%  [memory > 90%]``."""
    return f"{units.timestamp(event.at)} {_kind(event).upper():<7} {event.alarm.message}  [{event.alarm.rule}]"


def _kind(event: Event) -> str:
    if isinstance(event, AlarmUnclear):
        return "known" if event.over else "unclear"
    return {AlarmRaised: "raised", AlarmCleared: "cleared"}[type(event)]


def _iso(at: float) -> str:
    return datetime.datetime.fromtimestamp(at).astimezone().isoformat(timespec="milliseconds")
