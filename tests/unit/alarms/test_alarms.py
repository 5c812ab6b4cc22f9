"""Alarms: raised once and cleared once, whatever the readings do in between."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.alarms.conditions import parse
from gputop.alarms.engine import Alarms, Event, once
from gputop.model import Gpu, GpuProcess, Severity, Xid
from gputop.sampling.messages import AlarmCleared, AlarmRaised, AlarmUnclear
from tests.unit.sampling.snapshots import GIB, START, gpu, process, snapshot

KIND = {AlarmRaised: "raised", AlarmCleared: "cleared"}


def kind(event: Event) -> str:
    if isinstance(event, AlarmUnclear):
        return "known" if event.over else "unclear"
    return KIND[type(event)]


class Story:
    """Looks at one snapshot after the other, half a second apart."""

    def __init__(self, *conditions: str, exists: dict[int, bool] | None = None) -> None:
        self.alarms = Alarms([parse(text) for text in conditions], (exists or {}).get)
        self.at = -0.5
        self.events: list[tuple[float, str]] = []
        self.words: list[str] = []

    def look(
        self, *gpus: Gpu, processes: Iterable[GpuProcess] = (), times: int = 1, problems: tuple[str, ...] = ()
    ) -> list[str]:
        """The same reading *times* over. Returns what came of it."""
        came = []
        for _ in range(times):
            self.at += 0.5
            for event in self.alarms.look(snapshot(self.at, gpus, processes, problems=problems)):
                came.append(kind(event))
                self.events.append((self.at, kind(event)))
                self.words.append(event.alarm.message)
        return came

    def memory(self, *percents: float | None) -> list[str]:
        came = []
        for value in percents:
            used = None if value is None else round(value * 1.4 * GIB)
            came += self.look(gpu(memory_used_bytes=used))
        return came


# ------------------------------------------------------------------- level, time, hysteresis


def test_an_alarm_is_raised_once_and_cleared_once() -> None:
    story = Story("memory > 90%")
    assert story.memory(80, 91, 95, 99, 91) == ["raised"]
    assert story.memory(60, 50, 60) == ["cleared"]
    assert story.memory(95) == ["raised"]
    assert story.words[0] == "GPU 0 (NVIDIA H200): memory 91%"


def test_a_value_that_flaps_about_the_level_does_not_ring_again_and_again() -> None:
    story = Story("memory > 90% clear 85%")
    assert story.memory(91, *[89, 91] * 50, 86, 90, 85.1) == ["raised"]
    assert story.memory(85, 89, 85) == ["cleared"]


def test_it_must_hold_for_its_time_without_a_break() -> None:
    story = Story("memory > 90% for 3s")
    assert story.memory(*[91] * 6) == []  # 2.5 s
    assert story.memory(80, *[91] * 6) == []
    assert story.memory(91) == ["raised"]
    assert story.words == ["GPU 0 (NVIDIA H200): memory 91%, for 3 s"]


def test_a_low_value_can_be_the_alarm() -> None:
    story = Story("utilization < 5% for 1s")
    assert story.look(gpu(utilization_gpu_percent=2), times=3) == ["raised"]
    assert story.look(gpu(utilization_gpu_percent=5), times=3) == []  # clears at 5.15
    assert story.look(gpu(utilization_gpu_percent=6), times=3) == ["cleared"]


def test_all_parts_of_a_condition_must_hold() -> None:
    story = Story("memory > 40% and temperature > 80C")
    assert story.look(gpu()) == []
    assert story.look(gpu(temperature_celsius=81)) == ["raised"]
    assert story.words == ["GPU 0 (NVIDIA H200): memory 50% and temperature 81°C"]
    assert story.look(gpu(temperature_celsius=81, memory_used_bytes=0)) == ["cleared"]


def test_each_gpu_has_its_own_alarm() -> None:
    story = Story("temperature > 80C")
    hot = {"temperature_celsius": 90}
    assert story.look(gpu(0, **hot), gpu(1)) == ["raised"]
    assert story.look(gpu(0, **hot), gpu(1, **hot)) == ["raised"]
    assert story.look(gpu(0), gpu(1, **hot)) == ["cleared"]


def test_a_gpu_filter_means_that_gpu_also_when_it_gets_another_index() -> None:
    story = Story("gpu:0 temperature > 80C")
    assert story.look(gpu(0), gpu(1, temperature_celsius=90)) == []
    assert story.look(replace(gpu(1, temperature_celsius=90), index=0)) == []
    assert story.look(gpu(0, temperature_celsius=90)) == ["raised"]


def test_a_clock_that_was_set_or_a_machine_that_slept_counts_for_nothing() -> None:
    story = Story("memory > 90% for 60s")
    story.memory(95)
    story.at += 8 * 3600
    assert story.memory(95) == []
    story.at -= 16 * 3600
    assert story.memory(95) == []
    assert story.memory(*[95] * 119) == ["raised"]


# ------------------------------------------------------------------------------ gaps


def test_a_gap_neither_raises_nor_clears() -> None:
    story = Story("memory > 90%")
    assert story.memory(None, None) == []
    assert story.memory(95, None, None, 95, None) == ["raised"]
    assert story.memory(50) == ["cleared"]


def test_the_time_of_a_gap_does_not_count() -> None:
    story = Story("memory > 90% for 3s")
    story.memory(*[95] * 4)  # 1.5 s
    assert story.memory(*[None] * 20) == []
    assert story.memory(*[95] * 3) == []  # 2.5 s: 1.5 and, after the gap, 1
    assert story.memory(95) == ["raised"]


def test_a_gap_of_half_a_minute_is_reported_once() -> None:
    story = Story("memory > 90%")
    story.memory(95)
    assert story.memory(*[None] * 59) == []
    assert story.memory(*[None] * 100) == ["unclear"]
    assert "cannot tell whether memory > 90%: memory is not reported" in story.words[-1]
    assert story.memory(95) == ["known"]
    assert story.memory(*[None] * 60) == ["unclear"]
    assert story.memory(50) == ["known", "cleared"]


def test_a_share_of_a_power_limit_that_is_missing_is_not_blamed_on_the_power() -> None:
    """`power > 90%` said that power is not told where only the limit was."""
    for known, said in [
        ({"power_watts": 300.0, "power_limit_watts": None}, "the power limit is not reported"),
        ({"power_watts": None, "power_limit_watts": 700.0}, "power is not reported"),
    ]:
        _, unclear = once([parse("power > 90%")], snapshot(0, [gpu(**known)]), {}.get)
        assert [alarm.message.rpartition(": ")[2] for alarm in unclear] == [said]
    unsized = process(1, gpu(memory_total_bytes=None))
    _, unclear = once([parse("process memory > 90%")], snapshot(0, [gpu(memory_total_bytes=None)], [unsized]), {}.get)
    assert unclear[0].message.endswith("the size of the GPU's memory is not reported")


def test_several_gpus_of_one_condition() -> None:
    story = Story("gpu:0,2 temperature > 80C")
    hot = {"temperature_celsius": 90}
    assert story.look(gpu(0, **hot), gpu(1, **hot), gpu(2, **hot)) == ["raised", "raised"]
    assert story.alarms.unknown_gpus(snapshot(0, [gpu(0)])) == ["2"]


def test_a_late_gpu_keeps_its_alarm_whatever_its_old_values_are() -> None:
    story = Story("memory > 90%")
    story.memory(95)
    stale = gpu(late=True, memory_used_bytes=0)
    assert story.look(stale, times=40) == []
    assert story.memory(50) == ["cleared"]


def test_a_sleeping_gpu_is_nothing_to_report() -> None:
    story = Story("memory > 90%", "gpu lost")
    assert story.look(gpu(asleep=True, memory_used_bytes=None, error="asleep"), times=100) == []


# ------------------------------------------------------------------------ GPU loss


def test_a_lost_gpu_freezes_its_alarms_until_it_is_back() -> None:
    story = Story("memory > 90%", "gpu lost")
    story.memory(95)
    lost = gpu(memory_used_bytes=None, error="GPU is lost: reboot")
    assert story.look(lost, times=10) == ["raised"]
    assert story.words[-1] == "GPU 0 (NVIDIA H200): GPU is lost: reboot"
    assert story.look(times=10) == []  # not counted any more
    assert story.memory(95) == ["cleared"]
    assert story.words[-1] == "GPU 0 (NVIDIA H200): it is back"
    assert story.memory(50) == ["cleared"]


def test_a_gpu_that_the_driver_does_not_count_any_more_is_lost() -> None:
    story = Story("gpu lost")
    story.look(gpu(0), gpu(1))
    assert story.look(gpu(0), times=5) == ["raised"]
    assert story.words == ["GPU 1 (NVIDIA H200): it is no longer there"]
    assert story.look(gpu(0), gpu(1)) == ["cleared"]


def test_a_gpu_without_an_answer_is_lost_after_a_while() -> None:
    story = Story("gpu lost")
    story.look(gpu())
    assert story.look(gpu(at=START, late=True), times=18) == []
    assert story.look(gpu(at=START, late=True), times=18) == ["raised"]
    assert story.look(gpu()) == ["cleared"]


def test_a_gpu_that_had_no_uuid_yet_is_the_same_when_it_has_one() -> None:
    story = Story("gpu lost")
    assert story.look(gpu(uuid="slot:0", error="no answer yet")) == ["raised"]
    assert story.look(gpu()) == ["cleared"]
    assert story.look(gpu(), times=10) == []


def test_the_whole_driver_gone_loses_all_gpus() -> None:
    story = Story("gpu lost")
    story.look(gpu(0), gpu(1))
    assert story.look(gpu(0, error="driver gone"), gpu(1, error="driver gone")) == ["raised", "raised"]


# ------------------------------------------------------------------------- processes


def test_each_process_has_its_own_alarm_and_its_end_clears_it() -> None:
    story = Story("process memory > 20GiB")
    big = {"memory_bytes": 30 * GIB}
    assert story.look(gpu(), processes=[process(1), process(2, **big), process(3, **big)]) == ["raised", "raised"]
    assert story.words[0] == "pid 2 (ml, python train.py 2) on GPU 0: memory 30 GiB"
    assert story.look(gpu(), processes=[process(1), process(3, **big)]) == ["cleared"]
    assert story.words[-1].endswith("the process is gone")
    assert story.look(gpu(), processes=[process(1), process(3)]) == ["cleared"]


def test_another_process_with_the_same_pid_is_another_alarm() -> None:
    story = Story("process memory > 20GiB")
    assert story.look(gpu(), processes=[process(2, started=7, memory_bytes=30 * GIB)]) == ["raised"]
    assert story.look(gpu(), processes=[process(2, started=9, memory_bytes=30 * GIB)]) == ["cleared", "raised"]


def test_facts_that_come_late_do_not_make_another_process() -> None:
    story = Story("process memory > 20GiB")
    assert story.look(gpu(), processes=[process(2, started=None, memory_bytes=30 * GIB)]) == ["raised"]
    assert story.look(gpu(), processes=[process(2, started=9, memory_bytes=30 * GIB)], times=3) == []


def test_processes_of_a_gpu_that_cannot_be_read_are_not_taken_for_ended() -> None:
    story = Story("process memory > 20GiB")
    story.look(gpu(), processes=[process(2, memory_bytes=30 * GIB)])
    assert story.look(gpu(error="lost"), times=10) == []
    assert story.look(gpu(), processes=[process(2, memory_bytes=30 * GIB)]) == []
    assert story.look(gpu()) == ["cleared"]


def test_a_process_on_two_gpus_or_instances_is_two_alarms() -> None:
    story = Story("process memory > 5GiB")
    assert story.look(gpu(0), gpu(1), processes=[process(2, gpu(0)), process(2, gpu(1))]) == ["raised", "raised"]
    instances = [process(2, gpu_instance_id=n, compute_instance_id=0) for n in (1, 2)]
    assert Story("process memory > 5GiB").look(gpu(), processes=instances) == ["raised", "raised"]


def test_filters_by_user_and_command() -> None:
    story = Story("user:ml memory > 5GiB", "command:serve.py memory > 5GiB")
    other = process(2)
    assert other.host is not None
    other = replace(other, host=replace(other.host, user="cv", command="python serve.py"))
    assert story.look(gpu(), processes=[process(1), other]) == ["raised", "raised"]
    assert [words[:5] for words in story.words] == ["pid 1", "pid 2"]


def test_idle_but_holding_memory() -> None:
    story = Story("idle > 1min and memory > 1GiB")
    idle = {"sm_percent": 0}
    both = [process(1, **idle), process(2, memory_bytes=GIB // 2, **idle)]
    assert story.look(gpu(), processes=both, times=121) == []
    assert story.look(gpu(), processes=both) == ["raised"]
    assert story.words == ["pid 1 (ml, python train.py 1) on GPU 0: idle 60.5 s and memory 10 GiB"]
    assert story.look(gpu(), processes=[process(1)]) == ["cleared"]
    assert story.look(gpu(), processes=[process(1, **idle)], times=121) == []


def test_idle_time_stands_still_while_it_cannot_be_told() -> None:
    story = Story("idle > 1min")
    story.look(gpu(), processes=[process(1, sm_percent=0)], times=100)  # 49.5 s
    assert story.look(gpu(), processes=[process(1, sm_percent=None)], times=200) == []
    assert story.look(gpu(error="lost"), times=50) == []
    assert story.look(gpu(), processes=[process(1, sm_percent=0)], times=22) == []
    assert story.look(gpu(), processes=[process(1, sm_percent=0)], times=2) == ["raised"]


def test_on_a_gpu_that_does_nothing_every_process_is_idle() -> None:
    story = Story("idle > 1min")
    assert story.look(gpu(utilization_gpu_percent=0), processes=[process(1, sm_percent=None)], times=130) == ["raised"]


# ---------------------------------------------------------------------- gone, Xid


def test_a_pid_that_goes() -> None:
    there = {5: True}
    story = Story("pid 5 gone", exists=there)
    assert story.look(gpu(), processes=[process(5)], times=3) == []
    assert story.look(gpu(), times=3) == []  # left the GPU, lives on
    del there[5]
    there[5] = False
    assert story.look(gpu(), times=3) == ["raised"]
    assert story.words == ["pid 5 is gone"]


def test_a_pid_that_was_reused_is_gone() -> None:
    story = Story("pid 5 gone", exists={5: True})
    story.look(gpu(), processes=[process(5, started=7)])
    assert story.look(gpu(), processes=[process(5, started=9)], times=3) == ["raised"]


def test_a_dead_pid_that_holds_memory_is_gone_and_that_is_told() -> None:
    story = Story("pid 5 gone", exists={5: False})
    story.look(gpu(), processes=[process(5)])
    assert story.look(gpu(), processes=[process(5, started=None, exists=False)]) == ["raised"]
    assert story.words == ["pid 5 is gone, but 10 GiB is still held in its name"]


def test_a_name_that_goes_and_comes_back() -> None:
    story = Story("process train.py gone")
    assert story.look(gpu(), processes=[process(5)]) == []
    assert story.look(gpu(error="lost"), times=3) == []  # perhaps it runs there
    assert story.look(gpu()) == ["raised"]
    assert story.words == ["process train.py is gone"]
    assert story.look(gpu(), processes=[process(6)]) == ["cleared"]


def test_each_xid_code_is_one_alarm_that_ends_by_itself() -> None:
    story = Story("xid", "xid 48,79")
    first = Xid(START + 1, 31, "page fault", Severity.WARNING)
    story.at = 1.0
    assert story.look(gpu(xids=(first,)), times=10) == ["raised"]
    lost = Xid(START + 8, 79, "fallen off the bus", Severity.CRITICAL)
    story.at = 8.0
    assert story.look(gpu(xids=(first, lost), error="lost"), times=10) == ["raised", "raised"]
    assert story.words[-1] == "GPU 0 (NVIDIA H200): Xid 79: fallen off the bus"
    story.at = 603.0
    assert story.look(gpu(xids=(first, lost))) == ["cleared"]
    story.at = 610.0
    assert story.look(gpu()) == ["cleared", "cleared"]


# ----------------------------------------------------------------------------- growth


def leak(story: Story, seconds: int, start: float, per_minute: float) -> list[str]:
    came = []
    for n in range(2 * seconds):
        came += story.look(gpu(memory_used_bytes=round((start + per_minute * n / 120) * GIB)))
    return came


def test_memory_that_grows_steadily_is_noticed_and_its_end_too() -> None:
    story = Story("memory grows > 1GiB/2min")
    assert leak(story, 58, 20, 1.0) == []  # half of the window is needed
    assert leak(story, 60, 21, 1.0) == ["raised"]
    assert "memory grows 2 GiB in 2 min" in story.words[0]
    assert leak(story, 240, 22, 0.0) == ["cleared"]


def test_the_start_of_a_job_and_a_sawtooth_are_no_growth() -> None:
    story = Story("memory grows > 1GiB/2min")
    leak(story, 120, 5, 0.0)
    assert leak(story, 10, 5, 360.0) == []  # 60 GiB in 10 s
    assert leak(story, 240, 65, 0.0) == []
    for _ in range(30):
        assert leak(story, 5, 65, 60.0) == []
        assert leak(story, 5, 70, -60.0) == []


def test_growth_of_one_process() -> None:
    story = Story("process memory grows > 1GiB/1min")
    came = []
    for n in range(240):
        grown = process(1, memory_bytes=round((10 + n / 60) * GIB))
        came += story.look(gpu(), processes=[grown, process(2)])
    assert came == ["raised"]
    assert story.words[0].startswith("pid 1 ")


# ---------------------------------------------------------------- whatever happens

READING = st.sampled_from(["low", "between", "high", "unknown", "lost", "late", "away"])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(READING, st.integers(1, 80)), max_size=25), st.sampled_from([0, 2, 30]))
def test_raised_and_cleared_take_turns_and_only_known_values_do_it(story_of: list[tuple[str, int]], hold: int) -> None:
    made = {
        "low": [gpu(memory_used_bytes=50 * GIB)],
        "between": [gpu(memory_used_bytes=123 * GIB)],  # 87.9 %
        "high": [gpu(memory_used_bytes=130 * GIB)],
        "unknown": [gpu(memory_used_bytes=None)],
        "lost": [gpu(memory_used_bytes=None, error="lost")],
        "late": [gpu(late=True, memory_used_bytes=0)],
        "away": [],
    }
    story = Story(f"memory > 90% clear 85%{f' for {hold}s' if hold else ''}")
    raised = False
    for reading, times in story_of:
        for came in story.look(*made[reading], times=times):
            if came == "raised":
                assert reading == "high" and not raised
                raised = True
            elif came == "cleared":
                assert reading == "low" and raised
                raised = False
    assert bool(story.alarms.raised) == raised


def test_looking_once() -> None:
    conditions = [parse("memory > 40%"), parse("temperature > 90C"), parse("pid 9 gone")]
    holding, unclear = once(conditions, snapshot(0, [gpu()]), {9: True}.get)
    assert [alarm.message for alarm in holding] == ["GPU 0 (NVIDIA H200): memory 50%"] and not unclear
    holding, unclear = once(conditions[1:2], snapshot(0, [gpu(temperature_celsius=None)]), {}.get)
    assert not holding and "temperature is not reported" in unclear[0].message
    holding, unclear = once([parse("process memory > 1GiB")], snapshot(0, [gpu(error="lost")]), {}.get)
    assert not holding and len(unclear) == 1


def test_looking_once_at_a_sleeping_gpu_is_not_to_say_that_nothing_holds() -> None:
    asleep = gpu(asleep=True, memory_used_bytes=None)
    holding, unclear = once([parse("memory > 90%")], snapshot(0, [asleep]), {}.get)
    assert not holding
    assert [alarm.message for alarm in unclear] == [
        "GPU 0 (NVIDIA H200): cannot tell whether memory > 90%: the GPU is asleep and is not woken up to be read"
    ]
    assert once([parse("gpu lost"), parse("process memory > 1GiB")], snapshot(0, [asleep]), {}.get) == ([], [])


@pytest.mark.parametrize("text", ["xid", "idle > 1min", "memory grows > 1GiB/10min"])
def test_what_one_look_cannot_tell(text: str) -> None:
    assert parse(text).needs_time


def test_a_clock_set_forward_makes_no_alarm_of_a_moment() -> None:
    alarms = Alarms([parse("memory > 90% for 3s")])
    full = [gpu(memory_used_bytes=round(91 * 1.4 * GIB))]
    taken = [(0.0, 0.0), (0.5, 0.5), (5.0, 1.0), (5.5, 1.5)]  # by the wall clock, which is set; and by a steady one
    assert not [event for at, steady in taken for event in alarms.look(replace(snapshot(at, full), steady=steady))]
