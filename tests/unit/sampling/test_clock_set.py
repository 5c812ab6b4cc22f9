"""The wall clock is set, by hand or by NTP: what has been so for how long is told by a clock that nobody sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gputop.alarms.condition import Condition
from gputop.alarms.conditions import parse
from gputop.alarms.evaluation import Evaluation
from gputop.leaks.report import LeakReport
from gputop.leaks.text import as_json
from gputop.model import Gpu, Severity, Snapshot, Xid, replace
from gputop.outputs import json_lines
from gputop.outputs.prometheus import SnapshotCollector, XidCounts
from gputop.outputs.recorder import Recorder, Rotation
from gputop.outputs.table import render
from gputop.recording.lines import LineReader, LineWriter
from gputop.settings import DEFAULTS
from gputop.signals.memory_reclaim import MemoryReclaim
from gputop.ui.gpus.remarks import remarks

HOUR = 3600.0
NOW = 1_700_000_000.0


def _gpu(age: float, wall: float = NOW, **more: Any) -> Gpu:
    """Read *age* seconds before NOW by the steady clock, when the wall clock said *wall*."""
    return Gpu(0, "GPU-0", "H200", wall, steady=NOW - age, **more)


def _snapshot(gpu: Gpu, wall: float = NOW, **more: Any) -> Snapshot:
    return Snapshot(wall, gpus=(gpu,), steady=NOW, **more)


@pytest.mark.parametrize("set_by", [-HOUR, HOUR])
def test_a_gpu_that_is_late_for_a_second_is_not_lost_and_one_for_a_minute_is(set_by: float) -> None:
    evaluation = Evaluation(_condition("gpu lost"), lambda pid: True)
    for age, lost in ((1.0, False), (60.0, True)):
        gpu = _gpu(age, wall=NOW - age, late=True)  # read before the clock was set
        ((_, seen),) = evaluation.of(_snapshot(gpu, wall=NOW + set_by))
        assert seen.holds is lost


@pytest.mark.parametrize("set_by", [-HOUR, HOUR])
def test_an_xid_is_as_old_as_it_is(set_by: float) -> None:
    evaluation = Evaluation(_condition("xid"), lambda pid: True)
    for age, fresh in ((10.0, True), (2 * HOUR, False)):
        xid = Xid(NOW - age, 79, "fell off the bus", Severity.CRITICAL, steady=NOW - age)
        snapshot = _snapshot(_gpu(0.0, xids=(xid,)), wall=NOW + set_by)
        ((_, seen),) = evaluation.of(snapshot)
        assert seen.holds is fresh
    assert not any("Xid 79" in str(remark) for remark in remarks(snapshot.gpus[0], DEFAULTS, snapshot.steady_at))


def _condition(text: str) -> Condition:
    return parse(text)


def test_an_xid_that_comes_after_the_clock_was_set_back_is_counted() -> None:
    counts = XidCounts()
    first = Xid(NOW, 79, "x", Severity.CRITICAL, steady=NOW)
    second = Xid(NOW - HOUR, 79, "x", Severity.CRITICAL, steady=NOW + 5)
    counts.add(_snapshot(_gpu(0.0, xids=(first,))))
    counts.add(_snapshot(_gpu(0.0, xids=(first, second))))
    assert counts.counts == {("GPU-0", 79): 2}


@pytest.mark.parametrize("set_by", [-HOUR, HOUR])
def test_the_exporter_is_not_stale_because_the_clock_was_set(set_by: float) -> None:
    snapshot = _snapshot(_gpu(0.0), wall=NOW + set_by)
    assert SnapshotCollector(lambda: snapshot, XidCounts(), clock=lambda: NOW + 1).current() is snapshot
    assert SnapshotCollector(lambda: snapshot, XidCounts(), clock=lambda: NOW + HOUR).current() is None


def test_the_table_says_values_are_old_only_where_they_are() -> None:
    for age, old in ((1.0, False), (60.0, True)):
        gpu = _gpu(age, wall=NOW, memory_used_bytes=1, memory_total_bytes=2)
        text = render(_snapshot(gpu, wall=NOW + HOUR), DEFAULTS, width=120)
        assert ("the values above are" in text) is old


def test_memory_comes_back_after_the_time_it_took() -> None:
    reclaim = MemoryReclaim(["GPU-0"])
    reclaim.begin(_snapshot(_gpu(10.0, memory_used_bytes=10)))
    reclaim.look(_snapshot(_gpu(2.0, wall=NOW - HOUR, memory_used_bytes=4)), sent_at=NOW - 5)
    assert reclaim.by_gpu["GPU-0"].bytes == 6 and reclaim.by_gpu["GPU-0"].after == pytest.approx(3.0)


def test_a_recording_is_put_aside_by_its_age(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.gputop", Rotation(seconds=100.0))
    for n, wall in enumerate((NOW, NOW - HOUR, NOW + HOUR)):
        recorder.write(Snapshot(wall, gpus=(_gpu(0.0),), steady=NOW + n))
    assert len(list(tmp_path.iterdir())) == 1
    recorder.write(Snapshot(NOW + 5, gpus=(_gpu(0.0),), steady=NOW + 101))
    recorder.close()
    assert len(list(tmp_path.iterdir())) == 2


def test_taken_at_in_json_is_when_the_clock_says_it_was() -> None:
    snapshot = _snapshot(_gpu(0.0), wall=NOW + HOUR)
    assert json.loads(as_json(LeakReport(snapshot.steady_at), snapshot))["taken_at"] == NOW + HOUR


def test_the_steady_clock_is_neither_recorded_nor_in_json() -> None:
    xid = Xid(NOW, 79, "x", Severity.CRITICAL, steady=NOW - 3)
    snapshot = _snapshot(_gpu(1.0, xids=(xid,)))
    line = LineWriter().line(snapshot, whole=True)
    assert b"steady" not in line
    assert "steady" not in json_lines.as_json(snapshot)
    reader = LineReader()
    reader.read(line)
    again = reader.snapshot()
    assert again == snapshot and again.gpus[0].steady is None
    assert replace(snapshot, steady=None) == snapshot
