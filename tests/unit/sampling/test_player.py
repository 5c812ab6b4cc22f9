"""The player: a recording in the poller's place, moved by whoever looks at it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gputop.history.gpu_history import History
from gputop.model import ProcessKey, Snapshot, replace
from gputop.outputs import recorder as recorder_module
from gputop.recording.reading import Recording
from gputop.recording.when import parse_when
from gputop.sampling import sampler
from gputop.sampling.bus import Bus
from gputop.sampling.player import SPEEDS, Player
from tests.recorded import EPOCH, life, record

COUNT = 90


def until(condition: Callable[[], object], what: str, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.005)


@pytest.fixture
def snapshots() -> list[Snapshot]:
    return list(life("lost-gpu", COUNT, interval=1.0))


@pytest.fixture
def player(tmp_path: Path, snapshots: list[Snapshot], monkeypatch: pytest.MonkeyPatch) -> Iterator[Player]:
    """Paused at the first record."""
    monkeypatch.setattr(recorder_module, "GROUP_RECORDS", 16)
    record(tmp_path / "file", snapshots)
    player = Player(Recording.open(tmp_path / "file"), Bus())
    player.playing = False
    player.start()
    until(lambda: not player.playing and player._history_due is None, "it to be paused")
    yield player
    player.stop()
    player.join(10)


def shown(player: Player) -> Snapshot:
    assert player.latest is not None
    return player.latest


def test_it_can_stand_in_for_the_poller(player: Player) -> None:
    taker: sampler.Sampler = player
    taker.want("table", None)
    taker.interval = 3.0
    assert taker.interval == 1.0  # what was recorded was recorded
    assert not taker.released


def test_any_time_is_shown_as_it_was(player: Player, snapshots: list[Snapshot]) -> None:
    for second in (40, 3, 89, 15, 16, 0, 31):
        player.seek(EPOCH + second + 0.4)
        until(lambda second=second: shown(player).taken_at == EPOCH + second, f"second {second}")
        assert shown(player) == snapshots[second]
        assert player.position == second
    player.seek(0.0)
    until(lambda: player.position == 0, "the first record")
    player.seek(4e9)
    until(lambda: player.position == COUNT - 1, "the last record")
    assert player.is_at_end


def test_steps_go_through_every_record_in_both_directions(player: Player, snapshots: list[Snapshot]) -> None:
    for n in range(1, 40):
        player.step(1)
        until(lambda n=n: shown(player) == snapshots[n], f"record {n}")
    for n in range(38, -1, -1):
        player.step(-1)
        until(lambda n=n: shown(player) == snapshots[n], f"record {n}")
    player.step(-1)
    player.step(1)
    until(lambda: shown(player) == snapshots[1], "the first record to stay the first one")


def test_the_history_is_that_of_the_time_shown(player: Player, snapshots: list[Snapshot]) -> None:
    def curve(history: History) -> list[tuple[float, float]]:
        track = history.track(snapshots[0].gpus[0].uuid)
        return [] if track is None else list(track.fine.since("power", 0.0))

    for second in (70, 20, 55):
        player.seek(EPOCH + second)
        until(lambda second=second: curve(player.history)[-1:] and curve(player.history)[-1][0] == EPOCH + second
              and player._history_due is None, "the curve")  # fmt: skip
        expected = History()
        for snapshot in snapshots[: second + 1]:
            expected.add(snapshot)
        assert curve(player.history) == curve(expected)
    player.step(1)
    until(lambda: curve(player.history)[-1][0] == EPOCH + 56, "the curve to go on")
    assert len(curve(player.history)) == 57


def test_it_plays_as_fast_as_it_is_told_and_stops_at_the_end(player: Player) -> None:
    player.speed = 20.0
    player.seek(EPOCH + 50)
    until(lambda: player.at == EPOCH + 50, "the seek")
    started = time.monotonic()
    player.playing = True
    until(lambda: player.is_at_end and not player.playing, "the end")
    assert time.monotonic() - started > 39 / 20 * 0.8
    player.playing = True  # from the beginning again
    until(lambda: player.position < 20, "the beginning")


def test_speeds_have_ends(player: Player) -> None:
    for _ in range(20):
        player.faster(1)
    assert player.speed == SPEEDS[-1] == 100
    for _ in range(20):
        player.faster(-1)
    assert player.speed == SPEEDS[0] == 0.1
    player.speed = 1000.0
    assert player.speed == 100


def test_a_hole_in_the_recording_is_not_waited_for(tmp_path: Path) -> None:
    first = list(life("", 3))
    later = [*life("", 6)][3:]
    from gputop.model import replace

    record(tmp_path / "file", [*first, *(replace(s, taken_at=s.taken_at + 7200) for s in later)])
    player = Player(Recording.open(tmp_path / "file"), Bus(), speed=5)
    player.start()
    until(lambda: player.is_at_end, "the end, two hours later", seconds=30)
    player.stop()


def test_details_are_those_of_the_recording(player: Player, snapshots: list[Snapshot]) -> None:
    process = next(process for process in snapshots[0].processes if process.host is not None)
    details = player.details(process.key)
    assert details is not None and details.facts == process.host and details.problems
    assert player.details(ProcessKey(process.pid, 1)) is None


FIRST = time.mktime((2026, 11, 29, 22, 0, 0, 0, 0, -1))
LAST = FIRST + 5 * 3600
NOW = FIRST + 3600


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("22:30", 1800), ("22:30:05", 1805), ("1:15", 3 * 3600 + 900), ("2026-11-30 00:00", 7200), ("11-30 0:30", 9000),
        ("+5m", 3900), ("-30s", 3570), ("-1h", 0), ("50%", 9000), ("0%", 0), ("100%", 5 * 3600), (" 22:30 ", 1800),
        ("2026-11-30T01:00:00.5", 3 * 3600 + 0.5), ("21:00", -3600), ("2026-11-30", 7200),
    ],
)  # fmt: skip
def test_times_as_people_type_them(text: str, seconds: float) -> None:
    assert parse_when(text, FIRST, LAST, NOW) == FIRST + seconds


@pytest.mark.parametrize("text", ["", "noon", "25:00", "12:60", "+5", "120%", "x%", "2026-13-01", "1-1-1 1:1", "٣:٠٠"])
def test_what_is_no_time_is_said_in_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_when(text, FIRST, LAST, NOW)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Summer time ends on 2026-10-25 at 03:00, which is 02:00 then."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


AUTUMN = 1_792_888_200.0  # 2026-10-25 00:30 UTC, 02:30 in Berlin for the first time


@pytest.mark.usefixtures("berlin")
def test_a_time_in_the_hour_that_comes_twice_is_the_first_one_within_the_recording() -> None:
    first, second = AUTUMN + 1795, AUTUMN + 1795 + 3600
    assert parse_when("02:59:55", AUTUMN, AUTUMN + 7200, AUTUMN) == first
    assert parse_when("02:59:55", AUTUMN + 3600, AUTUMN + 7200, AUTUMN + 3600) == second
    assert parse_when("2026-10-25 02:59:55", AUTUMN + 3600, AUTUMN + 7200, AUTUMN + 3600) == second


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("02:59:55+02:00", 1795), ("02:59:55+01:00", 1795 + 3600), ("01:00Z", 1800), ("2026-10-25T01:00:00Z", 1800),
        ("2026-10-25 02:59:55 +0100", 1795 + 3600), ("20:30-04:00", 0),
    ],
)  # fmt: skip
def test_a_time_with_an_offset_from_utc(text: str, seconds: float) -> None:
    assert parse_when(text, AUTUMN, AUTUMN + 7200, AUTUMN) == AUTUMN + seconds


@pytest.mark.parametrize("text", ["12:00+25:00", "12:00+1", "12:00 EST"])
def test_an_offset_that_is_none_is_said_in_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_when(text, FIRST, LAST, NOW)


def test_shift_left_comes_back_over_a_clock_set_back(tmp_path: Path, snapshots: list[Snapshot]) -> None:
    moved = [replace(s, taken_at=s.taken_at - 3600) for s in snapshots[20:40]]
    record(tmp_path / "file", [*snapshots[:20], *moved])
    player = Player(Recording.open(tmp_path / "file"), Bus())
    player.playing = False
    player.seek(player.recording.last_at)
    player.start()
    until(lambda: player.position == 39, "the last record")
    player.skip(-30)
    until(lambda: player.position == 9, "the record 30 s before")
    player.stop()
