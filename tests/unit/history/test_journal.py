"""What happened while nobody looked: events and the processes that exited, as a user reads them."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.history.journal import EventKind, Journal, JournalEvent
from gputop.model import Gpu, GpuProcess, Severity, Snapshot, Xid, replace
from gputop.settings import DEFAULTS, Settings, Thresholds
from tests.unit.ui.process_data import GIB, TAKEN_AT, facts, gpu, process


class Story:
    """Snapshots one after the other, a second apart unless told otherwise."""

    def __init__(self, settings: Settings = DEFAULTS) -> None:
        self.journal, self.settings, self.at = Journal(), settings, 0.0

    def see(self, *processes: GpuProcess, after: float = 1.0, **gpu_values: Any) -> list[JournalEvent]:
        """What was new."""
        before = len(self.journal.events)
        self.at += after
        used = {"memory_used_bytes": sum(p.memory_bytes or 0 for p in processes if p.gpu_index == 0)} | gpu_values
        seen = replace(gpu(0), read_at=TAKEN_AT + self.at, **used)
        self.journal.observe(Snapshot(TAKEN_AT + self.at, gpus=(seen, gpu(1)), processes=processes), self.settings)
        return list(self.journal.events)[before:]


def test_what_was_there_at_the_start_is_no_news() -> None:
    assert Story().see(process(1), process(2)) == []


def test_start_and_exit_with_peak_and_life_span() -> None:
    story = Story()
    story.see(process(1))
    (start,) = story.see(process(1), process(2, gib=1, start_time=TAKEN_AT, command="python b.py", user="cv"))
    assert start.kind is EventKind.START and start.message == "2 python b.py (cv) started on GPU 0"
    story.see(process(1), process(2, gib=1.5, start_time=TAKEN_AT, command="python b.py", user="cv"))
    (end,) = story.see(process(1), after=60)
    assert end.kind is EventKind.EXIT
    assert end.message.startswith("2 python b.py (cv) exited after 1m03; peak 1.5G on GPU 0")
    (gone,) = story.journal.exited
    assert gone.process.memory_bytes == 1.5 * GIB and gone.exited_at == TAKEN_AT + story.at
    assert gone.lived == pytest.approx(63)


def test_out_of_memory_death_names_how_full_it_was_and_the_biggest_then() -> None:
    story = Story()
    story.see(process(1, gib=100, user="ml"), process(2, gib=39, user="cv"))
    end = next(event for event in story.see(process(1, gib=100, user="ml")) if event.kind is EventKind.EXIT)
    assert "GPU 0 was 99 % full, the biggest beside it: 1 (ml) with 100.0G" in end.message


def test_dead_pid_that_keeps_its_memory_is_told_when_it_dies_and_when_it_is_freed() -> None:
    story = Story()
    story.see(process(7, gib=38))
    (dead,) = story.see(process(7, gib=38, host=None, exists=False))
    died_at = TAKEN_AT + story.at
    assert dead.kind is EventKind.DEAD and "the driver still lists it with 38.0G" in dead.message
    (freed,) = story.see()
    assert freed.kind is EventKind.FREED and "38.0G" in freed.message
    (gone,) = story.journal.exited
    assert gone.process.pid == 7 and gone.exited_at == died_at and gone.process.memory_bytes == 38 * GIB


def test_dead_pid_that_nobody_saw_alive_has_not_exited_when_its_memory_is_back() -> None:
    story = Story()
    story.see(process(7, gib=38, host=None, exists=False))
    (freed,) = story.see()
    assert freed.kind is EventKind.FREED and not story.journal.exited


def test_loading_in_many_steps_is_one_jump_and_a_slow_rise_is_none() -> None:
    story = Story()
    story.see(process(1, gib=1))
    for gib in (3, 6, 6.5, 9):
        story.see(process(1, gib=gib))
    (jump,) = story.journal.events
    assert jump.kind is EventKind.JUMP and "+8.0G on GPU 0 (1.0G to 9.0G)" in jump.message
    story = Story()
    for step in range(30):
        story.see(process(1, gib=1 + step * 0.5))
    assert not story.journal.events


def test_freeing_is_a_jump_of_its_own() -> None:
    story = Story()
    for gib in (1, 9, 2):
        story.see(process(1, gib=gib))
    up, down = story.journal.events
    assert "+8.0G on GPU 0" in up.message and "-7.0G on GPU 0" in down.message


def test_reused_pid_is_an_exit_and_a_start() -> None:
    story = Story()
    story.see(process(5))
    kinds = [event.kind for event in story.see(process(5, start_ticks=9999))]
    assert kinds == [EventKind.EXIT, EventKind.START]


def test_facts_that_come_late_make_no_second_process() -> None:
    story = Story()
    story.see()
    story.see(process(5, host=None))
    assert story.see(process(5)) == []


def test_lost_gpu_takes_no_process_with_it() -> None:
    story = Story()
    story.see(process(1))
    (lost,) = story.see(error="fell off the bus")
    assert lost.kind is EventKind.LOST and lost.severity is Severity.CRITICAL
    (back,) = story.see(process(1))
    assert back.kind is EventKind.BACK


def test_exit_while_its_gpu_was_late_is_told_when_the_gpu_answers() -> None:
    story, stays = Story(), process(2)
    story.see(process(1), stays)
    assert story.see(stays, late=True) == []
    (end,) = story.see(stays)  # nothing has changed since, but that the GPU answers
    assert end.kind is EventKind.EXIT and end.message.startswith("1 ")
    assert story.see(stays) == []


def test_xid_throttling_and_thresholds() -> None:
    story = Story(DEFAULTS.changed(threshold_temperature=Thresholds(70, 80)))
    story.see()
    (xid,) = story.see(xids=(Xid(TAKEN_AT, 31, "page fault", Severity.WARNING),))
    assert xid.message == "GPU 0: Xid 31: page fault" and xid.at == TAKEN_AT
    (held,) = story.see(event_reasons_mask=0x40, xids=(Xid(TAKEN_AT, 31, "page fault", Severity.WARNING),))
    assert held.kind is EventKind.THROTTLE and "HW thermal" in held.message
    assert story.see(event_reasons_mask=0x40) == [], "it goes on"
    story.see()
    assert story.see(event_reasons_mask=0x40) == [], "it flaps"
    (hot,) = story.see(temperature_celsius=75)
    assert hot.message == "GPU 0: temperature 75°C, the limit is 70°C" and hot.severity is Severity.WARNING
    assert story.see(temperature_celsius=69) == [], "within the hysteresis"
    (cool,) = story.see(temperature_celsius=60)
    assert "below 70°C again" in cool.message


def test_unknown_values_make_no_events() -> None:
    story = Story()
    story.see(process(1, gib=None))
    story.see(process(1, gib=5))
    story.see(process(1, gib=None), memory_used_bytes=None)
    assert not story.journal.events


def test_memory_of_the_journal_is_bounded() -> None:
    story = Story()
    story.see()
    for pid in range(2, 3000, 2):
        story.see(process(pid))
    assert len(story.journal.events) == 1000 and len(story.journal.exited) == 256


def test_names_from_outside_are_only_shown() -> None:
    story = Story()
    story.see()
    (start,) = story.see(replace(process(3), host=facts(3, command="[bold]x" * 50, user="u")))
    assert len(start.message) < 100 and "[bold]x" in start.message


def test_gpus_of_a_snapshot_may_come_and_go() -> None:
    journal = Journal()
    one: tuple[Gpu, ...] = (gpu(0),)
    journal.observe(Snapshot(TAKEN_AT, gpus=one, processes=(process(1),)), DEFAULTS)
    journal.observe(Snapshot(TAKEN_AT + 1, gpus=(), processes=()), DEFAULTS)
    assert [event.kind for event in journal.events] == [EventKind.EXIT]


def test_a_gpu_that_is_full_is_an_event_of_its_own() -> None:
    story = Story()
    total = gpu(0).memory_total_bytes or 0
    story.see(process(1))
    (full,) = story.see(process(1), memory_used_bytes=int(total * 0.99))
    assert full.kind is EventKind.FULL and full.severity is Severity.CRITICAL
    assert full.message.startswith("GPU 0 is full: ") and full.gpu_index == 0
