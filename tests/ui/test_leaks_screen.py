"""F8: suspects, evidence, tags, and who F9 is about."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from gputop.leaks.holders.holder import HeldDevice, Holder, HolderScan
from gputop.leaks.report import Cause, DeadPid, HolderEvidence, LeakReport, UnattributedMemory
from gputop.model import Finding, LeakVerdict, ProcessKey, Verdict, replace
from gputop.model.owner import Owner
from gputop.settings import DEFAULTS, Settings
from gputop.signals.scope import SignalScope
from gputop.ui.gpus.why_screen import WhyScreen
from gputop.ui.kill.screen import KillScreen
from gputop.ui.leaks import screen as leaks_screen
from gputop.ui.leaks.screen import LeaksScreen
from gputop.ui.toolkit.glyphs import ASCII
from tests.ui.screens import TORN_KEYS, VIEW, flat, monitor_of, showing, until
from tests.unit.ui.process_data import GIB, TAKEN_AT, facts, gpu, process, snapshot

GPU0, GPU1 = gpu(0).uuid, gpu(1).uuid
HOLDERS = [facts(pid, command="python ddp.py", user="cv", group_id=50211) for pid in (50377, 50378)]
DEAD_PID = DeadPid(
    50211, ((GPU1, 38 * GIB),), TAKEN_AT, facts(50211, command="python ddp.py", user="cv"), True, scanned=True,
    holders=tuple(
        HolderEvidence(Holder(one, (HeldDevice("/dev/nvidia1", 1, (41,)),)), HeldDevice("/dev/nvidia1", 1, (41,)),
             "process group 50211", True)
        for one in HOLDERS
    ),
)  # fmt: skip
LEAK = LeakVerdict(
    Verdict.LEAK, ProcessKey(50211, None), DEAD_PID.memory,
    (Finding("R1", "the driver lists 50211 with 38.0 GiB, but no such process exists; it died 02:58:10"),),
    ("a large context takes seconds to be torn down",), DEAD_PID.targets, TAKEN_AT, "cv", "python ddp.py",
)  # fmt: skip
IDLE = LeakVerdict(
    Verdict.IDLE, process(50400).key, ((GPU0, 80 * GIB),), (Finding("R9", "idle for 2 h 13 min; SM 0 %"),),
    ("a server that waits for requests",), (process(50400).key,), TAKEN_AT - 7980, "ml", "python serve.py",
)  # fmt: skip
UNATTRIBUTED = UnattributedMemory(GPU0, 3 * GIB, TAKEN_AT, (
    Cause("MPS", "the MPS service runs (77) and holds its clients' memory", "echo quit | nvidia-cuda-mps-control", 2),
    Cause("managed memory", "cudaMallocManaged pages belong to no process", "look at torch.cuda.memory_stats", 1),
))  # fmt: skip
SCAN = HolderScan(TAKEN_AT, 0.04, (), 412, (("root", 37),))
REPORT = LeakReport(
    TAKEN_AT, (LEAK, IDLE), dead_pids=(DEAD_PID,), unattributed=(UNATTRIBUTED,), scan=SCAN,
    owners={IDLE.process: Owner(where="unit serve.service", stop_with="systemctl stop serve.service")},
)  # fmt: skip
SNAPSHOT = snapshot(process(50400, 0, 80), replace(process(50211, 1, 38), host=None, exists=False))


class Signals:
    def __init__(self) -> None:
        self.held: list[int] = []

    def open(self, target: Any) -> Any:
        from gputop.signals.protocol import Outcome, Result

        self.held.append(target.key.pid)
        return Result(target, Outcome.REFUSED, "not in a test")

    def related(self, of: Any) -> Any:
        from gputop.signals.scope import RelatedProcesses

        return RelatedProcesses()


def screen(
    report: LeakReport = REPORT, signals: Any = None, settings: Settings = DEFAULTS
) -> Callable[[], LeaksScreen]:
    return lambda: LeaksScreen(monitor_of(SNAPSHOT, settings=settings, signals=signals, report=report))


async def test_worst_first_with_what_each_would_free_and_why() -> None:
    async with showing(screen(), (120, 40)) as (app, _):
        lines = app.text().splitlines()
        assert "1 LEAK 38.0G" in lines[0] and "1 IDLE 80.0G" in lines[0] and "412 processes inspected" in lines[0]
        assert lines[2].split()[:3] == ["▸", "LEAK", "38.0G"]
        assert "IDLE 2h13m" in lines[3] and "80.0G" in lines[3]
        assert "UNATTRIBUTED" in lines[4] and "3.0G" in lines[4] and "MPS?" in lines[4]
        text = flat(app.text())
        assert "R1 the driver lists 50211" in text and "unless a large context" in text
        assert "50377 python ddp.py (cv) holds /dev/nvidia1 (fd 41): process group 50211" in text
        assert "kill 50377, 50378: press F9" in text


async def test_unattributed_memory_is_a_card_of_causes_and_what_to_do_and_never_a_leak() -> None:
    async with showing(screen(), (100, 30)) as (app, pilot):
        await pilot.press("end")
        text = flat(app.text())
        assert "3.0G on GPU 0, in use since" in text and "likely MPS: the MPS service runs (77)" in text
        assert "→ echo quit | nvidia-cuda-mps-control" in text and "possible managed memory" in text


def held_by(*pids: int, benign: int = 0) -> UnattributedMemory:
    """3 GiB of nobody in the driver's list, with these holding the GPU open."""
    device = (HeldDevice("/dev/nvidia0", 0, (41,)),)
    holders = [Holder(facts(pid, command=f"python worker.py {pid}", user="cv"), device) for pid in pids]
    holders += [Holder(facts(benign, command="nvtop", user="ml"), device, "a monitor")] if benign else []
    return replace(UNATTRIBUTED, holders=tuple(holders))


async def test_f9_on_memory_of_nobody_listed_is_about_those_who_hold_it() -> None:
    """Three living processes hold it and the driver lists none of them (PaddleOCR#2074): F9 did nothing, silently."""
    report = replace(REPORT, unattributed=(held_by(701, 702, 703, benign=704),))
    signals = Signals()
    async with showing(screen(report, signals=signals), (120, 40)) as (app, pilot):
        await pilot.press("end")
        text = flat(app.text())
        assert all(f"{pid} python worker.py {pid} (cv) holds /dev/nvidia0" in text for pid in (701, 702, 703))
        assert "704 nvtop (ml) holds /dev/nvidia0: a monitor" in text and "kill 701, 702, 703" in text
        await pilot.press("f9")
        await pilot.pause()
        kill = app.screen
        assert isinstance(kill, KillScreen) and kill.scope is SignalScope.HOLDERS
        assert [termination.target.key.pid for termination in kill.terminations.all] == [701, 702, 703]


async def test_every_holder_of_many_can_be_seen() -> None:
    report = replace(REPORT, unattributed=(held_by(*range(701, 731)),))
    async with showing(screen(report), (100, 24)) as (app, pilot):
        await pilot.press("end")
        seen = ""
        for _ in range(20):
            seen += flat(app.text())
            await pilot.press("pagedown")
        assert all(f"worker.py {pid}" in seen for pid in range(701, 731))


async def test_f9_on_memory_that_nobody_is_known_to_hold_says_so() -> None:
    async with showing(screen(signals=Signals()), (100, 30)) as (app, pilot):
        await pilot.press("end", "f9")
        await until(lambda: any("No process is known to hold this GPU open" in said for said in app.notices()), "it")


async def test_a_gpu_that_is_busy_with_nobody_frees_nothing_and_w_is_about_it() -> None:
    """100 % and 0 MiB for days read "FREES 0M", and `w` on it opened another GPU."""
    busy = UnattributedMemory(GPU1, 0, TAKEN_AT - 3 * 86400, UNATTRIBUTED.causes, busy=True)
    async with showing(screen(replace(REPORT, unattributed=(busy,))), (120, 30)) as (app, pilot):
        await pilot.press("end")
        text = flat(app.text())
        assert "BUSY — 1" in text and "busy with no listed process" in text and "0M" not in text
        await pilot.press("w")
        await pilot.pause()
        assert isinstance(app.screen, WhyScreen) and app.screen.uuid == GPU1


async def test_supervisors_command_is_told() -> None:
    async with showing(screen(), (100, 30)) as (app, pilot):
        await pilot.press("down")
        assert "systemctl stop serve.service" in app.text()


async def test_f9_on_a_dead_pid_is_about_those_who_keep_its_memory() -> None:
    signals = Signals()
    async with showing(screen(signals=signals), (120, 40)) as (app, pilot):
        await pilot.press("f9")
        await pilot.pause()
        kill = app.screen
        assert isinstance(kill, KillScreen) and kill.scope is SignalScope.HOLDERS
        assert [termination.target.key.pid for termination in kill.terminations.all] == [50377, 50378]
        text = app.text()
        assert "38.0G of dead pid 50211 on GPU 1: freed once all of these exit" in text


async def test_one_key_tags_all_leaks_of_mine_and_f9_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks_screen, "own_name", lambda: "cv")
    other = replace(LEAK, process=process(900).key, user="ml", targets=(process(900).key,))
    report = replace(REPORT, verdicts=(LEAK, other, IDLE))
    signals = Signals()
    async with showing(screen(report, signals=signals), (120, 40)) as (app, pilot):
        await pilot.press("a", "down", "f9")
        await pilot.pause()
        assert isinstance(app.screen, KillScreen)
        assert {termination.target.key.pid for termination in app.screen.terminations.all} == {50377, 50378}, (
            "not the other user's"
        )


async def test_nothing_of_mine_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks_screen, "own_name", lambda: "nobody-here")
    async with showing(screen(), (100, 30)) as (app, pilot):
        await pilot.press("a")
        assert "None of the LEAKs is of user nobody-here" in app.notices()[0]


async def test_cursor_stays_on_its_entry_when_a_worse_one_comes() -> None:
    make = screen()
    async with showing(make, (100, 30)) as (app, pilot):
        await pilot.press("down")
        worse = replace(LEAK, process=ProcessKey(60000, None), memory=((GPU0, 90 * GIB),))
        report = replace(REPORT, verdicts=(worse, LEAK, IDLE))
        app.over.monitor.take_report(report)
        await until(lambda: "60000" in app.text(), "the new one")
        line = next(line for line in app.text().splitlines() if line.startswith("▸"))
        assert "50400" in line


async def test_read_only_sends_nothing_and_torn_keys_do_nothing() -> None:
    async with showing(screen(), (100, 30)) as (app, pilot):
        await pilot.press("f9")
        assert "--read-only" in app.notices()[0]
        await pilot.press(*TORN_KEYS[1:])
        assert app.over is not None and "*" not in app.text()


async def test_no_leak_is_said_and_what_is_not_sure_too() -> None:
    report = LeakReport(TAKEN_AT, unsure=("37 of root not permitted: run gputop as root",))
    async with showing(screen(report), (80, 24)) as (app, _):
        text = flat(app.text())
        assert "No leak found" in text and "Not sure: 37 of root not permitted: run gputop as root" in text


async def test_a_dead_pid_that_is_not_judged_yet_is_not_kept_quiet_about() -> None:
    async with showing(screen(LeakReport(TAKEN_AT, dead_pids=(DEAD_PID,))), (60, 24)) as (app, _):
        text = flat(app.text())
        assert "No leak found" in text and f"{DEAD_PID.pid} is dead and still listed" in text


@pytest.mark.parametrize("size", [(80, 24), (60, 12), (200, 60)])
@pytest.mark.parametrize("glyphs", [VIEW.glyphs, ASCII])
async def test_every_size_and_hostile_names(size: tuple[int, int], glyphs: Any) -> None:
    names = ["[/x] [bold]", "漢字" * 60, "a" * 500, "🧨" * 40]
    many = tuple(replace(IDLE, process=ProcessKey(n, n), command=name, user=name) for n, name in enumerate(names * 8))
    async with showing(
        screen(replace(REPORT, verdicts=many), settings=DEFAULTS.changed(ascii=glyphs is ASCII)), size
    ) as (app, pilot):
        await pilot.press("end", "up", "pagedown", "home", "space")
        assert app.text()


def test_owner_of_a_sudo_session_is_who_called_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "ml")
    assert leaks_screen.own_name() == "ml"
    monkeypatch.delenv("SUDO_USER")
    assert leaks_screen.own_name() and (os.geteuid() != 0 or leaks_screen.own_name() == "root")
