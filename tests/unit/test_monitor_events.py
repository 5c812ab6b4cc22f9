"""A leak that was found, and an alarm, were no events."""

from __future__ import annotations

import asyncio

from gputop.history.journal import EventKind
from gputop.leaks.report import LeakReport
from gputop.model import LeakVerdict, ProcessKey, Snapshot, Verdict
from gputop.sampling.messages import AlarmCleared, AlarmDetails, AlarmRaised
from tests.ui.screens import monitor_of
from tests.unit.ui.process_data import GIB, TAKEN_AT, gpu


def leak(pid: int) -> LeakVerdict:
    memory = ((gpu(1).uuid, int(38 * GIB)),)
    return LeakVerdict(Verdict.LEAK, ProcessKey(pid, None), memory, (), (), (), user="cv", command="python ddp.py")


async def test_a_leak_found_is_an_event_once() -> None:
    monitor = monitor_of(Snapshot(TAKEN_AT, gpus=(gpu(0), gpu(1))))
    monitor.attach(asyncio.get_running_loop())
    for n in range(3):
        monitor.take_report(LeakReport(TAKEN_AT + n, verdicts=(leak(50211),)))
        await asyncio.sleep(0.02)
    (event,) = monitor.journal.events
    assert event.kind is EventKind.LEAK and event.at == TAKEN_AT
    assert event.message == "50211 python ddp.py (cv): 38.0G on GPU 1 that nobody uses"


async def test_an_alarm_is_an_event() -> None:
    monitor = monitor_of()
    monitor.attach(asyncio.get_running_loop())
    alarm = AlarmDetails("temperature > 80", gpu(0).uuid, "GPU 0 is at 83 °C", gpu(0))
    monitor.bus.publish(AlarmRaised(TAKEN_AT, alarm))
    monitor.bus.publish(AlarmCleared(TAKEN_AT + 5, alarm))
    await asyncio.sleep(0.05)
    raised, cleared = monitor.journal.events
    assert raised.kind is cleared.kind is EventKind.ALARM and raised.at == TAKEN_AT and raised.gpu_index == 0
    assert raised.message == "GPU 0 is at 83 °C  [temperature > 80]" and cleared.message.startswith("cleared: ")
