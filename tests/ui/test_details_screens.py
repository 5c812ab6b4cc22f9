"""Enter: details of a process and of a GPU, live, complete, and unknown as unknown."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from gputop.history.detail_history import MOST_PROCESSES, DetailHistory
from gputop.model import Gpu, GpuProcess, MigInstance, Severity, Snapshot, Xid, clean_text, replace
from gputop.procfs.host_reader import ProcessDetails
from gputop.sampling.snapshot_builder import SnapshotBuilder, assemble
from gputop.settings import DEFAULTS, Settings
from gputop.signals.protocol import Target
from gputop.sources.simulated import simulated_machine
from gputop.ui.gpus.details_screen import GpuScreen
from gputop.ui.kill.screen import KillScreen
from gputop.ui.processes.details_screen import ProcessScreen
from gputop.ui.toolkit.glyphs import ASCII
from tests.ui.screens import TORN_KEYS, VIEW, flat, monitor_of, showing, take, until
from tests.ui.test_help_screen import whole_text
from tests.unit.ui.process_data import GIB, TAKEN_AT, facts, gpu, process


class Machine:
    """The simulated machine, and the monitor of it."""

    def __init__(self, name: str = "", settings: Settings = DEFAULTS, read_only: bool = False) -> None:
        self.now = 1_800_000_000.0
        self.simulated = simulated_machine(name, clock=lambda: self.now, started_before=600)
        self.driver = self.simulated.source.open()
        signals = None if read_only else self.simulated.signals
        self.monitor = monitor_of(settings=settings, signals=signals, details=self.simulated.host.details)
        self._assembler = SnapshotBuilder()
        self.tick()

    @property
    def latest(self) -> Snapshot:
        assert self.monitor.latest is not None
        return self.monitor.latest

    def tick(self, seconds: float = 1.0) -> None:
        self.now += seconds
        source, host = self.simulated.source, self.simulated.host
        readings = [source.read(slot) for slot in range(source.count())]
        pids = [p.pid for reading in readings for p in reading.processes]
        known = host.read(pids)
        exists = {pid: host.exists(pid) for pid in pids}
        take(
            self.monitor,
            assemble(self.now, readings, known, exists, assembler=self._assembler, driver=self.driver),
        )

    def largest(self) -> GpuProcess:
        return max((p for p in self.latest.processes if p.host is not None), key=lambda p: p.memory_bytes or 0)

    def process_screen(self) -> ProcessScreen:
        return ProcessScreen(self.monitor, self.largest())

    def gpu_screen(self, index: int = 0) -> GpuScreen:
        return GpuScreen(self.monitor, self.latest.gpus[index].uuid)


# ------------------------------------------------------------------- a process


@pytest.mark.parametrize("size", [(80, 24), (60, 12), (200, 60)])
async def test_process_is_told_whole(size: tuple[int, int]) -> None:
    machine = Machine()
    for _ in range(20):
        machine.tick()
    row = machine.largest()
    details = machine.simulated.host.details(row.key)
    assert details is not None and details.executable and details.cwd and details.environment
    async with showing(machine.process_screen, size) as (app, _pilot):
        await until(lambda: app.over._details is not None, "the host's answer")
        text = flat(whole_text(app)).replace(" ", "")
    command = "".join((details.facts.command or "").split())
    assert command in text
    for words in (str(row.pid), details.executable, details.cwd, details.environment[0][0], "Parents", "ago"):
        assert "".join(words.split()) in text


async def test_process_details_follow_the_snapshots() -> None:
    machine = Machine()
    row = machine.largest()
    async with showing(machine.process_screen) as (app, _):
        grown = [replace(p, memory_bytes=12345 * 1024**2) if p.row == row.row else p for p in machine.latest.processes]
        take(machine.monitor, replace(machine.latest, processes=tuple(grown)))
        await until(lambda: "12.1G" in app.text(), "the new figure")


async def test_process_that_exited_is_said_to_be_gone_and_when() -> None:
    machine = Machine()
    row = machine.largest()
    async with showing(machine.process_screen) as (app, _):
        await until(lambda: app.over._details is not None, "the host's answer")
        hold = machine.simulated.signals.open(Target(row.key))
        hold.send(9)  # type: ignore[union-attr]
        for _ in range(5):
            machine.tick()
        await until(lambda: "Exited: noticed at" in app.text(), "the news", 10)


async def test_pid_reused_is_not_shown_as_the_same_process() -> None:
    snapshot = Snapshot(TAKEN_AT, gpus=(gpu(0),), processes=(process(10, start_ticks=77, command="stranger"),))
    known = process(10, command="mine")

    def make() -> ProcessScreen:
        return ProcessScreen(monitor_of(snapshot), known)

    async with showing(make) as (app, _pilot):
        await until(lambda: "no longer has this process" in app.text(), "the host's answer")
        text = whole_text(app)
        assert "mine" in text and "stranger" not in text


async def test_dead_pid_that_the_driver_lists_says_who_holds_the_memory() -> None:
    dead = replace(process(10, 0, 38), host=None, exists=False)
    snapshot = Snapshot(TAKEN_AT, gpus=(gpu(0),), processes=(dead,))
    async with showing(lambda: ProcessScreen(monitor_of(snapshot), dead)) as (app, _):
        await until(lambda: "still lists it with 38.0G" in " ".join(app.text().split()), "the explanation")


async def test_keys_answer_while_the_host_hangs() -> None:
    answer = threading.Event()
    row = process(10)
    snapshot = Snapshot(TAKEN_AT, gpus=(gpu(0),), processes=(row,))

    def fetch(key: Any) -> ProcessDetails | None:
        answer.wait(20)
        return None

    async with showing(lambda: ProcessScreen(monitor_of(snapshot, details=fetch), row)) as (app, pilot):
        await pilot.press("down")
        assert "Process 10" in app.text()
        await pilot.press("escape")
        await pilot.pause()
        assert app.over is None
    answer.set()


async def test_kill_from_the_details_names_this_process() -> None:
    machine = Machine()
    row = machine.largest()
    async with showing(machine.process_screen) as (app, pilot):
        await pilot.press("k")
        await pilot.pause()
        assert isinstance(app.screen, KillScreen)
        assert [one.target.key for one in app.screen.terminations.all] == [row.key]


async def test_read_only_has_no_way_to_kill() -> None:
    machine = Machine(read_only=True)
    async with showing(machine.process_screen) as (app, pilot):
        await pilot.press("k", "f9")
        assert isinstance(app.screen, ProcessScreen) and "kill" not in app.text()


async def test_hostile_details_neither_crash_nor_reach_the_terminal() -> None:
    bad = clean_text("\x1b]0;x\x07[/nope] 漢字" * 40 + "🧨\u202e" * 20)
    told = ProcessDetails(
        facts(10, command=bad, user=bad, name=bad),
        cwd=bad,
        executable=bad,
        ancestors=tuple(facts(n, command=bad, user=bad) for n in range(60)),
        children=tuple(facts(n, command=bad) for n in range(60)),
        environment=(("SLURM_JOB_NAME", bad), ("EMPTY", "")),
        nvidia_devices=(bad,),
        cgroup=bad,
        problems=(bad,),
    )
    row = process(10, command=bad, user=bad, name=bad)
    snapshot = Snapshot(TAKEN_AT, gpus=(gpu(0),), processes=(row,))
    for size in ((80, 24), (60, 12), (200, 60)):
        for glyphs in (VIEW.glyphs, ASCII):
            settings = DEFAULTS.changed(ascii=glyphs is ASCII)
            make = partial(ProcessScreen, monitor_of(snapshot, settings=settings, details=lambda key: told), row)
            async with showing(make, size) as (app, _):
                await until(lambda: app.over._details is not None, "the host's answer")
                assert "\x1b" not in whole_text(app)


# ----------------------------------------------------------------------- a GPU


@pytest.mark.parametrize("scenario", ["", "mig", "laptop", "lost-gpu", "8xh200"])
@pytest.mark.parametrize("size", [(80, 24), (60, 12), (200, 60)])
async def test_every_gpu_of_every_machine_can_be_looked_at(scenario: str, size: tuple[int, int]) -> None:
    machine = Machine(scenario)
    for _ in range(5):
        machine.tick()
    for index, shown in list(enumerate(machine.latest.gpus))[:2]:
        async with showing(partial(machine.gpu_screen, index), size) as (app, _):
            text = whole_text(app)
        assert shown.uuid in text and f"GPU {shown.index}" in text


async def test_gpu_details_follow_the_snapshots() -> None:
    machine = Machine()
    async with showing(machine.gpu_screen) as (app, _):
        changed = replace(machine.latest.gpus[0], utilization_gpu_percent=77)
        take(machine.monitor, replace(machine.latest, gpus=(changed, *machine.latest.gpus[1:])))
        await until(lambda: "77%" in app.text(), "the new figure")


async def test_gpu_of_which_nothing_is_known_shows_dashes_and_no_zero() -> None:
    bare = Gpu(0, "GPU-00000000-bare", "NVIDIA Unknown", TAKEN_AT)
    snapshot = Snapshot(TAKEN_AT, gpus=(bare,))
    async with showing(lambda: GpuScreen(monitor_of(snapshot), bare.uuid), (80, 100)) as (app, _pilot):
        lines = app.text().splitlines()
    told = {line.split("  ")[0].strip(): line for line in lines if "  " in line.strip()}
    for label in ("utilization", "total", "free", "SM", "draw", "link", "ECC", "corrected", "serial", "reasons"):
        assert "—" in told[label] and "0" not in told[label], told[label]


def _changed(**values: Any) -> Callable[[], GpuScreen]:
    changed = replace(gpu(0), **values)
    snapshot = Snapshot(TAKEN_AT + 9, gpus=(changed,))
    return lambda: GpuScreen(monitor_of(snapshot), changed.uuid)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"error": "GPU is lost: it fell off the bus"}, "GPU is lost: it fell off the bus"),
        ({"late": True}, "Stale for 9 s"),
        ({"asleep": True}, "Asleep, and left asleep"),
        ({"notes": ("persistence mode is off",)}, "persistence mode is off"),
        ({"xids": (Xid(TAKEN_AT, 79, "fell off the bus", Severity.CRITICAL),)}, "79   fell off the bus"),
        ({"event_reasons_mask": 0x44}, "HW thermal (critical), power cap"),
        ({"event_reasons_mask": 0}, "nothing holds the clocks down"),
    ],
)
async def test_trouble_is_told_in_words(values: dict[str, Any], words: str) -> None:
    async with showing(_changed(**values)) as (app, _pilot):
        assert words in whole_text(app)


async def test_torn_letters_do_nothing_in_the_details() -> None:
    machine = Machine()
    for make in (machine.process_screen, machine.gpu_screen):
        async with showing(make) as (app, pilot):
            before = app.text()
            await pilot.press(*TORN_KEYS[1:])
            assert app.text() == before


# --------------------------------------------------------------- what is kept


def test_only_the_largest_processes_are_followed_and_the_gone_are_dropped() -> None:
    past = DetailHistory()
    many = tuple(process(n + 1, 0, n + 1) for n in range(MOST_PROCESSES + 10))
    past.add(Snapshot(TAKEN_AT, gpus=(gpu(0),), processes=many))
    assert past.memory(many[0].row) is None
    ring = past.memory(many[-1].row)
    assert ring is not None and list(ring.last(1)) == [float(many[-1].memory_bytes or 0)]
    past.add(Snapshot(TAKEN_AT + 2, gpus=(gpu(0),), processes=many[:1]))
    assert past.memory(many[-1].row) is None and past.memory(many[0].row) is not None


def test_event_reasons_of_a_moment_are_not_lost_in_a_bucket_and_gaps_are_unknown() -> None:
    past = DetailHistory()
    for seconds, mask in ((0, 0x4), (0.5, 0x40), (6, 0x1), (7, None)):
        shown = replace(gpu(0), event_reasons_mask=mask)
        past.add(Snapshot(TAKEN_AT + seconds, gpus=(shown,)))
    assert past.reasons[gpu(0).uuid].last(4) == [0x44, -1, -1, 0x1]


async def test_memory_of_a_process_on_a_mig_instance_is_of_that_instances() -> None:
    instance = MigInstance("MIG-1", 1, 0, "3g.71gb", memory_total_bytes=70 * GIB)
    whole = replace(gpu(0), mig=(instance,))
    row = process(10, gib=50, gpu_instance_id=1, compute_instance_id=0)
    shot = Snapshot(TAKEN_AT, gpus=(whole,), processes=(row,))
    async with showing(lambda: ProcessScreen(monitor_of(shot), row), (120, 30)) as (app, _):
        assert "of 70.0G" in app.text() and "of 140" not in app.text()


async def test_details_of_an_earlier_time_say_so_and_ask_nobody() -> None:
    row = process(10, gib=50)
    shot = Snapshot(TAKEN_AT, gpus=(gpu(0),), processes=(row,))
    async with showing(lambda: ProcessScreen(monitor_of(shot), row, shot), (120, 30)) as (app, pilot):
        assert "as it was at" in app.text() and "available live only" in app.text()
        await pilot.press("k")
        assert "Send a signal" not in app.text() and "Gone" not in app.text()
    async with showing(lambda: GpuScreen(monitor_of(shot), gpu(0).uuid, shot), (120, 30)) as (app, _):
        assert "as it was at" in app.text()
