"""A process that uses gputop.torch_monitor: its memory told apart on the screen, and asked for a snapshot by key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gputop.model import GpuProcess, Snapshot, TorchAnswer, TorchDevice, TorchPhase, TorchReport, replace
from gputop.torch_monitor import runtime_directory
from gputop.ui.gpus.parts import GpuDrawing, memory_bar
from gputop.ui.gpus.remarks import memory_parts, memory_remark
from gputop.ui.gpus.why_screen import WhyScreen
from gputop.ui.processes.details_screen import ProcessScreen
from gputop.ui.torch_live.ask_screen import TorchAskScreen, is_file_of
from tests.ui.screens import TORN_KEYS, VIEW, flat, monitor_of, showing, strike, take, until
from tests.ui.test_help_screen import whole_text
from tests.unit.ui.process_data import GIB, TAKEN_AT, gpu, process

DEVICE = TorchDevice(
    0,
    uuid=gpu(0).uuid,
    allocated_bytes=40 * GIB,
    reserved_bytes=60 * GIB,
    active_bytes=40 * GIB,
    inactive_split_bytes=2 * GIB,
    retries=3,
    peak_bytes=55 * GIB,
    step_peak_bytes=50 * GIB,
    phases=(TorchPhase("forward", 0.2, 50 * GIB, 10 * GIB), TorchPhase("backward", 0.3, 45 * GIB, -10 * GIB)),
)
REPORT = TorchReport(TAKEN_AT - 1, "2.11.0", "native", 1200, 0.5, devices=(DEVICE,), labels=(("epoch", "3"),))


def training(**changes: Any) -> GpuProcess:
    return process(4711, 0, 64, torch=replace(REPORT, **changes), uid=changes.pop("uid", 1000))


def taken(*processes: GpuProcess) -> Snapshot:
    full = replace(gpu(0), memory_used_bytes=65 * GIB, memory_reserved_bytes=GIB, memory_free_bytes=74 * GIB)
    return Snapshot(TAKEN_AT, gpus=(full,), processes=processes)


# -- the GPU's bar


def test_the_gpus_bar_tells_cached_from_live_and_says_what_could_be_released() -> None:
    snapshot = taken(training())
    parts = memory_parts(snapshot.gpus[0], snapshot.processes, TAKEN_AT)
    assert parts is not None
    assert (parts.cached, parts.releasable, parts.used) == (20 * GIB, 18 * GIB, 65 * GIB)
    text = "".join(span for span, _ in memory_bar(GpuDrawing(snapshot.gpus[0], parts, None, TAKEN_AT), 140, VIEW))
    assert (text.count("█"), text.count("▓"), len(text)) == (45, 20, 140)
    remark = memory_remark(snapshot.gpus[0], parts, None, VIEW.settings)
    assert remark is not None
    assert remark.message == "18.0G cached, could be released"


def test_what_was_told_long_ago_does_not_split_the_bar() -> None:
    snapshot = taken(training(written_at=TAKEN_AT - 600))
    parts = memory_parts(snapshot.gpus[0], snapshot.processes, TAKEN_AT)
    assert parts is not None
    assert parts.cached == 0


def test_a_report_that_claims_more_than_the_gpu_has_stays_within_the_bar() -> None:
    lying = replace(DEVICE, reserved_bytes=1 << 49, active_bytes=0)
    snapshot = taken(training(devices=(lying,)))
    parts = memory_parts(snapshot.gpus[0], snapshot.processes, TAKEN_AT)
    assert parts is not None
    assert parts.cached <= parts.live
    for cells in (1, 7, 140):
        line = memory_bar(GpuDrawing(snapshot.gpus[0], parts, None, TAKEN_AT), cells, VIEW)
        assert sum(len(span) for span, _ in line) == cells


# -- the process's details


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_the_details_tell_live_cached_and_outside_torch(size: tuple[int, int]) -> None:
    row = training()
    snapshot = taken(row)
    async with showing(lambda: ProcessScreen(monitor_of(snapshot), row), size) as (app, _):
        await until(lambda: "PyTorch on GPU 0" in app.text(), "its part")
        text = flat(whole_text(app))
    for words in ("live 40.0G", "cached 20.0G", "outside torch 4.0G", "55.0G", "3: the cache was flushed", "forward",
                  "50.0G peak, +10.0G kept", "-10.0G kept", "epoch 3", "up to 18.0G", "2.11.0, as cuda:0"):  # fmt: skip
        assert words in text


async def test_a_report_of_another_gpu_is_not_taken_for_this_ones() -> None:
    row = training(devices=(replace(DEVICE, uuid="GPU-elsewhere"),))
    snapshot = taken(row)
    async with showing(lambda: ProcessScreen(monitor_of(snapshot), row)) as (app, _):
        await until(lambda: "but not this GPU" in flat(app.text()), "that")


async def test_an_old_report_says_its_age() -> None:
    row = training(written_at=TAKEN_AT - 300)
    snapshot = taken(row)
    async with showing(lambda: ProcessScreen(monitor_of(snapshot), row)) as (app, _):
        await until(lambda: "reported 5m00 ago" in app.text(), "the age")


# -- asked


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The runtime directory, with the process's report in it."""
    import os

    monkeypatch.setattr(runtime_directory, "candidates", lambda uid: [str(tmp_path / "gputop")])
    real = runtime_directory.open_directory
    monkeypatch.setattr(runtime_directory, "open_directory", lambda path, uid: real(path, os.getuid()))
    real_write = runtime_directory.write
    monkeypatch.setattr(runtime_directory, "write", lambda d, name, value, owner=None: real_write(d, name, value))
    (tmp_path / "gputop").mkdir(mode=0o700)
    (tmp_path / "gputop" / "4711.json").write_text("{}")
    return tmp_path / "gputop"


async def test_nothing_is_asked_before_a_line_is_chosen_and_the_first_is_cancel(place: Path) -> None:
    row = training()
    async with showing(lambda: TorchAskScreen(monitor_of(taken(row)), row)) as (app, _):
        assert "Write a snapshot" in app.text()
        assert "sizes only" in flat(app.text())
        strike(app.over, "enter")
        await until(lambda: app.over is None, "the dialog to close")
    assert list(place.glob("*.ask")) == []


async def test_keys_that_a_torn_escape_sequence_leaves_ask_for_nothing(place: Path) -> None:
    row = training()
    async with showing(lambda: TorchAskScreen(monitor_of(taken(row)), row)) as (app, _):
        strike(app.over, *[key for key in TORN_KEYS if key != "escape"])
    assert list(place.glob("*.ask")) == []


async def test_a_snapshot_is_asked_for_and_its_path_handed_on(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    row = training(recording=True)
    row = replace(row, host=replace(row.host, uid=os.getuid()))
    monitor = monitor_of(taken(row))
    written = tmp_path / "asked.pickle"
    written.write_bytes(b"x")
    async with showing(lambda: TorchAskScreen(monitor, row)) as (app, _):
        assert "with lines of code" in flat(app.text())
        strike(app.over, "down", "enter")
        await until(lambda: list(place.glob("*.ask")), "the request")
        request = json.loads((place / "4711.ask").read_text())
        assert (request["action"], request["pid"], request["start_ticks"]) == ("dump", *row.key)
        assert "answers at its next step" in flat(app.text())
        answer = TorchAnswer(request["id"], "written", str(written))
        take(monitor, taken(replace(row, torch=replace(REPORT, answers=(answer,)))))
        await until(lambda: app.results == [written], "the path")


async def test_a_refusal_of_the_process_is_shown_in_its_words(place: Path) -> None:
    row = training()
    monitor = monitor_of(taken(row))
    async with showing(lambda: TorchAskScreen(monitor, row)) as (app, _):
        strike(app.over, "down", "down", "enter")
        await until(lambda: list(place.glob("*.ask")), "the request")
        request = json.loads((place / "4711.ask").read_text())
        assert request["action"] == "record"
        answer = TorchAnswer(request["id"], "record failed: torch 1.12 cannot record allocation history")
        take(monitor, taken(replace(row, torch=replace(REPORT, answers=(answer,)))))
        await until(lambda: "cannot record" in flat(app.text()), "its words")


async def test_a_process_that_is_not_ours_cannot_be_asked_and_it_says_so(place: Path) -> None:
    (place / "4711.json").unlink()
    row = training()
    async with showing(lambda: TorchAskScreen(monitor_of(taken(row)), row)) as (app, _):
        strike(app.over, "down", "enter")
        await until(lambda: "only its user and root" in flat(app.text()), "the reason")


async def test_a_process_that_ends_meanwhile_is_said_to_be_gone(place: Path) -> None:
    row = training()
    monitor = monitor_of(taken(row))
    async with showing(lambda: TorchAskScreen(monitor, row)) as (app, _):
        strike(app.over, "down", "enter")
        take(monitor, taken())
        await until(lambda: "is gone" in app.text(), "the news")


def test_only_a_plain_file_of_its_user_is_opened(tmp_path: Path) -> None:
    import os

    fine = tmp_path / "fine"
    fine.write_text("x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(fine)
    assert is_file_of(fine, os.getuid())
    for path in (tmp_path / "pipe", tmp_path / "link", tmp_path / "none", Path("/dev/null"), Path("a\0b")):
        assert not is_file_of(path, os.getuid())
    assert not is_file_of(fine, os.getuid() + 1)


# -- why


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_why_tells_the_ladder(size: tuple[int, int]) -> None:
    snapshot = taken(training())
    uuid = snapshot.gpus[0].uuid
    async with showing(lambda: WhyScreen(monitor_of(snapshot), uuid), size) as (app, _):
        await until(lambda: "Whose memory" in app.text(), "the page")
        text = flat(whole_text(app))
    for words in ("live 40.0G", "torch.cuda.empty_cache()", "expandable_segments:True", "What to do next"):
        assert words in text
