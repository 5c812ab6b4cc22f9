"""F9: what it says, and that nothing is sent but what was chosen."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Collection
from typing import Any

import pytest

from gputop.leaks.report import LeakReport
from gputop.model import GpuProcess, ProcessKey, Snapshot, clean_text, replace
from gputop.model.owner import Owner
from gputop.sampling.bus import Bus
from gputop.settings import DEFAULTS, Settings
from gputop.signals import timeouts
from gputop.signals.protocol import Outcome, Result, Signals, Target
from gputop.signals.scope import RelatedProcesses
from gputop.signals.sender import ProcSignals
from gputop.ui.kill.screen import KillScreen
from gputop.ui.kill.targets import KillRequest
from gputop.ui.toolkit.glyphs import ASCII
from tests.ui.screens import TORN_KEYS, VIEW, HandFed, flat, monitor_of, showing, until
from tests.unit.children import child, key_of
from tests.unit.ui.process_data import gpu, process


class Machine:
    """Hand-made snapshots and targets of the processes in it; signals are recorded and obeyed."""

    def __init__(self, *processes: GpuProcess, obeys: bool = True) -> None:
        self.processes = list(processes)
        self.sent: list[tuple[int, int]] = []
        self.refusals: dict[int, tuple[Outcome, str]] = {}
        self.obeys = obeys
        self.slow: threading.Event | None = None

    def snapshot(self) -> Snapshot:
        now = time.time()
        used = [sum(p.memory_bytes or 0 for p in self.processes if p.gpu_index == n) for n in (0, 1)]
        gpus = tuple(replace(gpu(n), read_at=now, memory_used_bytes=used[n]) for n in (0, 1))
        return Snapshot(now, gpus=gpus, processes=tuple(self.processes))

    def targets(self) -> list[Target]:
        found = {p.key: p for p in self.processes}
        return [
            Target(key, p.host and p.host.user, p.host and p.host.command, p.memory_bytes, (p.gpu_uuid,))
            for key, p in found.items()
        ]

    def open(self, target: Target) -> Any:
        if self.slow is not None:
            self.slow.wait(20)
        if target.key.pid in self.refusals:
            return Result(target, *self.refusals[target.key.pid])
        return _Hold(self, target)

    def related(self, of: Collection[ProcessKey]) -> RelatedProcesses:
        return RelatedProcesses()

    def screen(
        self,
        settings: Settings = DEFAULTS,
        hidden: tuple[Target, ...] = (),
        signals: Signals | None = None,
        report: LeakReport | None = None,
    ) -> KillScreen:
        monitor = monitor_of(settings=settings, signals=signals or self, report=report, sampler=_Sampler(self))
        return KillScreen(monitor, KillRequest(tuple(self.targets()), hidden=hidden))


class _Sampler(HandFed):
    """The newest snapshot is what the machine is like now."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(Bus())
        self.machine = machine

    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__("machine").snapshot() if name == "latest" else super().__getattribute__(name)


class _Hold:
    def __init__(self, machine: Machine, target: Target) -> None:
        self.machine, self.target = machine, target

    def send(self, number: int) -> Result:
        pid = self.target.key.pid
        self.machine.sent.append((pid, number))
        if self.machine.obeys or number == signal.SIGKILL:
            self.machine.processes = [p for p in self.machine.processes if p.pid != pid]
        return Result(self.target, Outcome.SENT, f"signal {number} sent")

    def exited(self) -> bool:
        return all(p.pid != self.target.key.pid for p in self.machine.processes)

    def stuck_in(self) -> str | None:
        return None

    def close(self) -> None: ...


async def ready(screen: KillScreen) -> None:
    await until(lambda: not screen._busy, "the holds")


async def test_dialog_names_pid_user_age_command_memory_and_total() -> None:
    machine = Machine(process(41832, 0, 81.2, user="ml", command="python train.py"), process(500, 1, 8, user="cv"))
    async with showing(machine.screen) as (app, _):
        await ready(app.over)
        text = app.text()
    for words in ("41832", "ml", "python train.py", "81.2G", "500", "cv", "8.0G", "Would free 89.2G"):
        assert words in text
    assert "GPU 0 81.2G" in text and "GPU 1 8.0G" in text


async def test_process_on_two_gpus_is_one_target_with_both_amounts() -> None:
    machine = Machine(process(7, 0, 8), process(7, 1, 9))
    async with showing(machine.screen) as (app, _):
        assert "8.0G" in app.text() and "9.0G" in app.text() and "Would free 17.0G" in app.text()


async def test_enter_at_once_cancels() -> None:
    machine = Machine(process(10))
    async with showing(machine.screen) as (app, pilot):
        await ready(app.over)
        assert "▸ Cancel" in app.text()
        await pilot.press("enter")
        await pilot.pause()
        assert app.over is None and app.results == [None]
    assert machine.sent == []


async def test_letters_of_torn_escape_sequences_send_nothing() -> None:
    machine = Machine(process(10))
    for letters in (TORN_KEYS[1:], TORN_KEYS):
        async with showing(machine.screen) as (app, pilot):
            await ready(app.over)
            await pilot.press(*letters)
            if app.over is not None:
                assert "▸ Cancel" in app.text()
                await pilot.press("enter")
    assert machine.sent == []


@pytest.mark.parametrize("key", ["k", "t", "i"])
async def test_key_held_down_sends_nothing(key: str) -> None:
    machine = Machine(process(10))
    async with showing(machine.screen) as (app, pilot):
        await ready(app.over)
        await pilot.press(*[key] * 8)
        assert "▸ Cancel" not in app.text()
        await pilot.press("escape")
    assert machine.sent == []


@pytest.mark.parametrize(("keys", "number"), [("t", 15), ("k", 9), ("i", 2)])
async def test_letter_goes_to_a_signal_and_enter_sends_it(keys: str, number: int) -> None:
    machine = Machine(process(10))
    async with showing(machine.screen) as (app, pilot):
        await ready(app.over)
        await pilot.press(keys, "enter")
        await until(lambda: machine.sent, "the signal")
    assert machine.sent == [(10, number)]


@pytest.mark.parametrize(("typed", "number"), [("usr1", 10), ("10", 10), ("19", 19), ("SIGHUP", 1), ("rtmin+3", 37)])
async def test_any_signal_by_name_or_real_number(typed: str, number: int) -> None:
    machine = Machine(process(10), obeys=False)
    async with showing(machine.screen) as (app, pilot):
        await ready(app.over)
        await pilot.press("end", "enter", *("plus" if c == "+" else c for c in typed), "enter")
        await pilot.pause()
        assert machine.sent == [], "taking it over sends nothing yet"
        await pilot.press("enter")
        await until(lambda: machine.sent, "the signal")
    assert machine.sent == [(10, number)]


async def test_unknown_signal_is_explained_in_place() -> None:
    machine = Machine(process(10))
    async with showing(machine.screen) as (app, pilot):
        await ready(app.over)
        await pilot.press("end", "enter", "9", "9", "enter")
        assert "'99' is not a signal" in app.text()
        await pilot.press("escape", "escape")
    assert machine.sent == []


async def test_outcome_is_live_and_stays_as_a_toast() -> None:
    machine = Machine(process(10, 1, 37.9), obeys=False)
    async with showing(machine.screen) as (app, pilot):
        await ready(app.over)
        await pilot.press("t", "enter")
        await until(lambda: "still running after 1 s" in app.text(), "the seconds to be counted")
        machine.processes.clear()
        await until(lambda: "released 37.9G on GPU 1" in app.text(), "the memory")
        assert "▸ Close" in app.text()
        await pilot.press("enter")
        await pilot.pause()
        assert app.over is None
        assert "10: exited" in app.notices()[0] and "released 37.9G" in app.notices()[0]


async def test_survivor_is_offered_sigkill_and_close_keeps_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "OFFER_SIGKILL_SECONDS", 0.3)
    machine = Machine(process(10), obeys=False)
    async with showing(machine.screen) as (app, pilot):
        await ready(app.over)
        await pilot.press("t", "enter")
        await until(lambda: "SIGKILL" in app.text(), "the offer")
        assert "▸ Close" in app.text()
        assert machine.sent == [(10, 15)], "nothing is sent by itself"
        await pilot.press("down", "enter")
        await until(lambda: len(machine.sent) == 2, "the second signal")
        await until(lambda: "after SIGKILL" in app.text(), "its end")
    assert machine.sent == [(10, 15), (10, 9)]


async def test_refusals_are_shown_at_once_and_the_others_get_the_signal() -> None:
    machine = Machine(process(10), process(11))
    machine.refusals[10] = Outcome.NOT_PERMITTED, "owned by root: run gputop as that user or with sudo"
    async with showing(machine.screen) as (app, pilot):
        await ready(app.over)
        assert "owned by root" in app.text()
        await pilot.press("t", "enter")
        await until(lambda: machine.sent, "the signal")
    assert machine.sent == [(11, 15)]


async def test_nothing_can_be_chosen_where_all_are_refused() -> None:
    machine = Machine(process(10))
    machine.refusals[10] = Outcome.PID_REUSED, "pid 10 was reused and is now 'cron': nothing sent"
    async with showing(machine.screen) as (app, pilot):
        await ready(app.over)
        await pilot.pause(0.2)
        text = app.text()
        assert "pid 10 was reused" in text and "SIGTERM" not in text and "▸ Close" in text


async def test_tagged_but_hidden_ones_are_named_and_left_out() -> None:
    machine = Machine(process(10))
    hidden = (Target(ProcessKey(50211, 1), "cv", "ddp.py --x"),)
    async with showing(lambda: machine.screen(hidden=hidden)) as (app, pilot):
        await ready(app.over)
        assert "hidden by the filter: 50211 ddp.py" in app.text()
        await pilot.press("t", "enter")
        await until(lambda: machine.sent, "the signal")
    assert machine.sent == [(10, 15)]


async def test_warnings_about_strangers_and_stopped_processes() -> None:
    machine = Machine(process(10, user="cv", uid=4_000_000, state="T"))
    async with showing(machine.screen) as (app, _):
        await ready(app.over)
        await until(lambda: "another user's process, owned by cv" in app.text(), "the warning")
        assert "stopped" in app.text()


@pytest.mark.parametrize("size", [(80, 24), (60, 12), (200, 60)])
@pytest.mark.parametrize("glyphs", [VIEW.glyphs, ASCII])
async def test_hostile_names_neither_crash_nor_widen_the_box(size: tuple[int, int], glyphs: Any) -> None:
    names = ["[/x] [bold]", "漢字" * 60, "\x1b]0;owned\x07\u202e", "a" * 500, "e\u0301" * 30, "🧨" * 40]
    names = [clean_text(name) for name in names]
    machine = Machine(*(process(n + 1, command=name, user=name) for n, name in enumerate(names)))
    async with showing(lambda: machine.screen(DEFAULTS.changed(ascii=glyphs is ASCII)), size) as (app, pilot):
        await ready(app.over)
        lines = app.text().splitlines()
        assert {lines[0][0], lines[-1][0]} <= set(glyphs.corners)
        assert all(line[-1] == glyphs.side for line in lines[1:-1])
        assert "Cancel" in app.text() and "SIGTERM" in app.text()
        assert "\x1b" not in app.text()
        if size[1] == 12:
            assert "more lines" in app.text().replace("~", "…")
            await pilot.press(*["pagedown"] * 50)
            assert "more lines" not in app.text()


async def test_keys_answer_while_the_holds_block() -> None:
    machine = Machine(process(10))
    machine.slow = threading.Event()
    async with showing(machine.screen) as (app, pilot):
        await pilot.press("t", "enter")
        assert machine.sent == [] and "checking the process" in app.text()
        await pilot.press("escape")
        await pilot.pause()
        assert app.over is None
        machine.slow.set()
    assert machine.sent == []


async def test_mouse_needs_a_click_to_choose_and_another_to_send() -> None:
    machine = Machine(process(10))
    async with showing(machine.screen) as (app, pilot):
        await ready(app.over)
        row = next(n for n, line in enumerate(app.text().splitlines()) if "SIGTERM" in line)
        await pilot.click("LineWidget", offset=(10, row))
        assert machine.sent == []
        await pilot.click("LineWidget", offset=(10, row))
        await until(lambda: machine.sent, "the signal")
    assert machine.sent == [(10, 15)]


# ------------------------------------------------------------ real processes


def _real(pid: int, key: ProcessKey | None = None) -> Machine:
    key = key or key_of(pid)
    machine = Machine(replace(process(pid), host=None))
    host = process(pid).host
    assert host is not None
    machine.processes = [process(pid, 0, 5, host=replace(host, key=key))]
    return machine


async def test_real_process_ends_and_is_said_to_have_ended() -> None:
    with child() as running:
        machine = _real(running.pid)
        signals = ProcSignals()
        signals._refuse_if_no_device = lambda handle: None  # type: ignore[method-assign]  # it holds no GPU, here or anywhere

        async with showing(lambda: machine.screen(signals=signals)) as (app, pilot):
            await ready(app.over)
            threading.Thread(target=running.wait, daemon=True).start()  # its parent reaps it: a zombie has not ended
            await pilot.press("t", "enter")
            await until(lambda: "after SIGTERM; waiting for its 5.0G" in app.text(), "the end")
            machine.processes.clear()
            await until(lambda: "released 5.0G on GPU 0" in app.text(), "the memory")
        assert running.wait(5) == -signal.SIGTERM


async def test_reused_pid_gets_nothing() -> None:
    with child() as running:
        real = key_of(running.pid)
        assert real.start_ticks is not None
        machine = _real(running.pid, ProcessKey(running.pid, real.start_ticks - 5))

        async with showing(lambda: machine.screen(signals=ProcSignals())) as (app, pilot):
            await ready(app.over)
            assert "was reused" in app.text() and "nothing sent" in app.text()
            await pilot.press("t", "enter")
        assert running.poll() is None


# ---------------------------------------------------------------- in good order


async def test_end_sends_sigterm_counts_down_and_sends_sigkill_to_what_is_left() -> None:
    machine = Machine(process(10), obeys=False)
    async with showing(lambda: machine.screen(DEFAULTS.changed(kill_grace=1))) as (app, pilot):
        await ready(app.over)
        await pilot.press("e", "enter")
        await until(lambda: "SIGKILL to those left in" in app.text(), "the countdown")
        assert machine.sent == [(10, 15)]
        await until(lambda: "after SIGKILL" in app.text(), "its end")
    assert machine.sent == [(10, 15), (10, 9)]


async def test_closing_stops_the_countdown() -> None:
    machine = Machine(process(10), obeys=False)
    async with showing(lambda: machine.screen(DEFAULTS.changed(kill_grace=1))) as (app, pilot):
        await ready(app.over)
        await pilot.press("e", "enter")
        await until(lambda: "SIGKILL to those left in" in app.text(), "the countdown")
        assert "send nothing more" in app.text()
        await pilot.press("escape")
        await pilot.pause(1.5)
    assert machine.sent == [(10, 15)]


async def test_one_key_copies_the_command_of_whoever_would_start_it_again() -> None:
    machine = Machine(process(10))
    owner = Owner(where="docker 3fa9c81d02ab", stop_with="docker stop 3fa9c81d02ab")
    report = LeakReport(time.time(), owners={process(10).key: owner})

    async with showing(lambda: machine.screen(report=report), (100, 30)) as (app, pilot):
        await ready(app.over)
        assert "docker 3fa9c81d02ab may restart it: docker stop 3fa9c81d02ab stops it for good" in flat(app.text())
        await pilot.press("c")
        assert app.clipboard == "docker stop 3fa9c81d02ab" and "copied" in app.notices()[0]
    assert machine.sent == []


async def test_at_60x12_the_dialog_hides_pid_and_command() -> None:
    stranger = process(41832, 0, 81.2, user="ml", command="python train.py", uid=4321)
    machine = Machine(stranger)
    async with showing(machine.screen, (60, 12)) as (app, _):
        await ready(app.over)
        text = app.text()
        assert "41832" in text and "python train.py" in text and "81.2G" in text and "Would free" in text
        assert "another user's process" in text and "more lines" not in text


async def test_the_same_warning_stands_beside_every_target() -> None:
    machine = Machine(*(process(n, 0, 1, user="ml", uid=4321) for n in (11, 12, 13)))
    async with showing(machine.screen) as (app, _):
        await ready(app.over)
        assert app.text().count("another user's process, owned by ml") == 1
        assert "all: another user's process" in app.text()


async def test_the_title_says_that_a_signal_was_sent_long_after_all_is_over() -> None:
    machine = Machine(process(10, 1, 37.9))
    async with showing(machine.screen) as (app, pilot):
        await ready(app.over)
        await pilot.press("t", "enter")
        await until(lambda: "Done: 37.9G back" in app.text().splitlines()[0], "the title")


async def test_a_signal_is_no_event_until_the_dialog_is_closed() -> None:
    machine = Machine(process(10, 1, 37.9, command="python a.py"), obeys=False)
    async with showing(machine.screen) as (app, pilot):
        await ready(app.over)
        await pilot.press("t", "enter")
        await until(lambda: app.over.monitor.journal.events, "the event")
        assert app.over.monitor.journal.events[-1].message == "SIGTERM sent to 10 python a.py"
