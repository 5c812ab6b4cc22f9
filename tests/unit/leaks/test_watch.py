"""The watch: it thinks in its own thread, scans only where there is something to explain, and never blocks anybody."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable, Iterator

import pytest

from gputop.leaks.finder import SCAN_SECONDS, LeakFinder
from gputop.leaks.holders.holder import HolderScan
from gputop.leaks.process_context import ProcessContext
from gputop.leaks.report import LeakReport
from gputop.leaks.watch import LeakWatch
from gputop.model import HostFacts, ProcessKey, Snapshot, Verdict
from gputop.model.owner import Owner
from gputop.sampling.snapshot_builder import assemble
from gputop.settings import Settings
from gputop.signals.protocol import Result, Target
from gputop.sources.simulated import SimulatedMachine, simulated_machine
from tests.unit.children import wait_for

SETTINGS = Settings()


class Demo:
    """A simulated machine on a clock of the test's own, and who asks it how often."""

    def __init__(self, name: str) -> None:
        self.time = 1_800_000_000.0
        self.machine: SimulatedMachine = simulated_machine(name, clock=lambda: self.time)
        self.machine.source.open()
        self.scans: list[bool] = []
        self.asked: list[int] = []
        self.finder = LeakFinder(self, clock=lambda: self.time)

    def snapshot(self, after: float = 0.0) -> Snapshot:
        self.time += after
        source, host = self.machine.source, self.machine.host
        readings = [source.read(slot) for slot in range(source.count())]
        pids = {process.pid for reading in readings for process in reading.processes}
        facts = dict(host.read(pids))
        exists = {pid: host.exists(pid) for pid in pids if pid not in facts}
        return assemble(self.time, readings, facts, exists, host=host.machine())

    def step(self, after: float = 1.0, scan_now: bool = False) -> LeakReport:
        return self.finder.step(self.snapshot(after), SETTINGS, scan_now)

    # the investigator, counted

    def context(self, facts: HostFacts) -> ProcessContext | None:
        self.asked.append(facts.key.pid)
        return self.machine.investigator.context(facts)

    def owner(self, facts: HostFacts) -> Owner:
        return self.machine.investigator.owner(facts)

    def scan(self, with_maps: bool = False) -> HolderScan:
        self.scans.append(with_maps)
        return self.machine.investigator.scan(with_maps)

    def is_alive(self, key: ProcessKey) -> bool:
        return self.machine.investigator.is_alive(key)

    def forget(self, living: Iterable[ProcessKey]) -> None:
        self.machine.investigator.forget(living)


def test_a_healthy_machine_is_never_scanned() -> None:
    demo = Demo("h200")
    for _ in range(120):
        report = demo.step()
    assert demo.scans == [] and report.scan is None
    assert report.those(Verdict.LEAK, Verdict.SUSPECT, Verdict.STUCK) == ()


def test_a_dead_pid_is_scanned_for_at_once_and_then_less_and_less_often() -> None:
    demo = Demo("leak")
    assert len(demo.step().dead_pids) == 2 and demo.scans == [False]
    for _ in range(int(sum(SCAN_SECONDS)) + 5):
        demo.step()
    assert len(demo.scans) == 1 + len(SCAN_SECONDS)


def test_a_scan_on_demand_reads_maps_too() -> None:
    demo = Demo("h200")
    report = demo.step(scan_now=True)
    assert demo.scans == [True] and report.scan is not None and report.scan.with_maps


def test_the_demos_dead_pids_name_their_holders_and_what_frees_them() -> None:
    demo = Demo("leak")
    demo.step()
    report = demo.step(6.0)
    leaks = report.those(Verdict.LEAK)
    assert [verdict.process.pid for verdict in leaks] == [61_020, 58_377], "the largest first"
    assert [len(verdict.targets) for verdict in leaks] == [4, 2]
    assert report.verdict_of(leaks[0].targets[0]) is leaks[0], "a holder's verdict is its dead pid's"
    assert report.owners[leaks[0].targets[0]].where, "and who it is, is known"
    assert [verdict.rules for verdict in report.those(Verdict.SUSPECT)] == [("R4", "R5")]


def test_when_the_holders_are_ended_the_report_is_clean() -> None:
    demo = Demo("leak")
    demo.step()
    for verdict in demo.step(6.0).those(Verdict.LEAK):
        for key in verdict.targets:
            hold = demo.machine.signals.open(Target(key))
            assert not isinstance(hold, Result)
            hold.send(signal.SIGKILL)
    demo.step(2.0)
    report = demo.step(2.0)
    assert report.dead_pids == () and report.those(Verdict.LEAK) == ()


def test_processes_are_looked_at_at_once_and_again_after_ten_seconds() -> None:
    demo = Demo("h200")
    first = demo.step()
    assert first.owners.keys() == {p.key for p in demo.snapshot().processes if p.host is not None}
    count = len(demo.asked)
    for _ in range(8):
        demo.step()
    assert len(demo.asked) == count
    demo.step(3.0)
    assert len(demo.asked) > count


def test_an_idle_process_is_idle_after_the_settings_minutes_and_a_stopped_one_suspected() -> None:
    demo = Demo("leak")
    for _ in range(45):
        report = demo.step(60.0)
    verdicts = {verdict.command: verdict for verdict in report.verdicts}
    idle, stopped = verdicts["python server.py"], verdicts["python debug.py"]
    assert idle.verdict is Verdict.IDLE and idle.rules == ("R9",)
    assert stopped.verdict is Verdict.SUSPECT and stopped.rules[0] == "R6"
    assert "python finetune.py --lora" not in verdicts


def test_a_gap_gets_its_card_with_causes() -> None:
    demo = Demo("8xh200")
    for _ in range(8):
        report = demo.step()
    (card,) = report.unattributed
    assert card.bytes > 10 * 1024**3 and card.causes
    assert any("no listed process accounts for" in words for words in report.unsure)
    assert all(parts.unknown is None and parts.shared == 0 for parts in report.breakdowns)


def test_ranks_and_owners_of_the_demo() -> None:
    report = Demo("8xh200").step()
    assert {owner.rank for owner in report.owners.values() if owner.slurm_job == "91702"} == {0, 1, 2, 3, 4}
    places = {owner.where.partition(" ")[0] for owner in report.owners.values()}
    assert {"slurm", "unit", "jupyter", "tmux", "docker"} <= places


@pytest.fixture
def watched() -> Iterator[tuple[Demo, LeakWatch, list[LeakReport]]]:
    demo, reports = Demo("leak"), []  # type: tuple[Demo, list[LeakReport]]
    watch = LeakWatch(lambda: demo, SETTINGS, reports.append)
    watch.start()
    yield demo, watch, reports
    watch.stop()
    watch.join(5)
    assert not watch.is_alive()


def test_the_thread_reports_what_is_new_and_only_that(watched: tuple[Demo, LeakWatch, list[LeakReport]]) -> None:
    demo, watch, reports = watched
    watch.observe(demo.snapshot())
    wait_for(lambda: reports, "a report")
    assert watch.latest.dead_pids and reports[0].dead_pids
    watch.observe(demo.snapshot(6.0))
    wait_for(lambda: watch.latest.those(Verdict.LEAK), "verdicts")
    assert reports[-1] is watch.latest


def test_a_fault_is_told_and_the_watch_goes_on(watched: tuple[Demo, LeakWatch, list[LeakReport]]) -> None:
    demo, watch, _ = watched
    real = demo.scan
    demo.scan = None  # type: ignore[assignment,method-assign]
    watch.observe(demo.snapshot())
    wait_for(lambda: watch.latest.unsure, "a report")
    assert watch.latest.unsure[0].startswith("internal error: TypeError")
    demo.scan = real  # type: ignore[method-assign]
    watch.observe(demo.snapshot(1.0))
    wait_for(lambda: watch.latest.dead_pids, "the next report")


def test_whoever_feeds_the_thread_never_waits(watched: tuple[Demo, LeakWatch, list[LeakReport]]) -> None:
    demo, watch, _ = watched
    inside, go_on = threading.Event(), threading.Event()
    real = demo.scan

    def slow(with_maps: bool = False) -> HolderScan:
        inside.set()
        go_on.wait(20)
        return real(with_maps)

    demo.scan = slow  # type: ignore[method-assign]
    snapshot = demo.snapshot()
    watch.observe(snapshot)
    assert inside.wait(20)
    started = time.monotonic()
    for _ in range(1000):
        watch.observe(snapshot)
        watch.scan_now()
        assert watch.latest.dead_pids == ()
    assert time.monotonic() - started < 5
    go_on.set()
    wait_for(lambda: watch.latest.dead_pids, "the report")
