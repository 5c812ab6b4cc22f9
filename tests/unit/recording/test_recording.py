"""Recordings: what is read is what was recorded, whatever becomes of the recorder, the disk and the file."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gputop.model import Gpu, GpuProcess, HostFacts, ProcessKey, Severity, Snapshot, Xid, replace
from gputop.outputs import recorder as recorder_module
from gputop.outputs.recorder import Recorder, RecordingError, Rotation, rotated
from gputop.recording.container import NotARecording
from gputop.recording.lines import BadLine, LineReader, LineWriter
from gputop.recording.reading import Recording, describe
from gputop.recording.tape import Tape
from gputop.sources.simulated import SCENARIOS
from tests.recorded import EPOCH, life, record

ROOT = Path(__file__).resolve().parents[3]


def everything(path: Path) -> list[Snapshot]:
    """All snapshots of a recording, as a player steps through them."""
    with Recording.open(path) as recording:
        cursor = recording.cursor()
        found = [cursor.snapshot()]
        while cursor.step(1):
            found.append(cursor.snapshot())
        return found


@pytest.fixture
def short_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "GROUP_RECORDS", 5)


# ------------------------------------------------------------------- what is read


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_simulated_machine_comes_back_exactly(name: str, tmp_path: Path, short_groups: None) -> None:
    count = 8 if name in ("crowd", "thousand") else 30
    joined = {"lost-gpu": 16.0, "busy-oom": 60.0}.get(name, 0.0)
    snapshots = list(life(name, count, interval=1.0, joined=joined))
    record(tmp_path / "file", snapshots)
    found = everything(tmp_path / "file")
    assert found == snapshots
    assert repr(found) == repr(snapshots)  # 1 is not 1.0
    if name == "lost-gpu":
        assert len({gpu.error for snapshot in found for gpu in snapshot.gpus}) == 2
    if name == "mig":
        assert any(gpu.mig for gpu in found[0].gpus)


_finite = st.floats(allow_nan=False)
st.register_type_strategy(float, _finite)
_processes = st.lists(
    st.builds(
        GpuProcess,
        pid=st.integers(1, 4),
        gpu_uuid=st.sampled_from("ab"),
        host=st.none() | st.builds(HostFacts, key=st.builds(ProcessKey, st.integers(1, 4), st.none() | st.integers())),
    ),
    max_size=4,
).map(tuple)
_gpus = st.lists(st.from_type(Gpu), max_size=2).map(tuple)
_snapshots = st.lists(st.builds(Snapshot, taken_at=_finite, gpus=_gpus, processes=_processes), min_size=1, max_size=4)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking examples this large takes minutes
)
@given(_snapshots)
def test_any_snapshot_of_the_model_comes_back_exactly(snapshots: list[Snapshot]) -> None:
    """Every field of every dataclass, in any order of GPUs and processes: a field that is added to the model and
    cannot be recorded fails here."""
    writer, reader = LineWriter(), LineReader()
    for snapshot in snapshots:
        reader.read(writer.line(snapshot))
        assert reader.snapshot() == snapshot


def test_a_process_that_dies_while_the_driver_lists_it(tmp_path: Path) -> None:
    alive = SMALL[1]
    dead = dataclasses.replace(
        alive, taken_at=EPOCH + 9, processes=(dataclasses.replace(alive.processes[0], host=None, exists=False),)
    )
    snapshots = [alive, dead, dataclasses.replace(alive, taken_at=EPOCH + 10)]
    record(tmp_path / "file", snapshots)
    assert everything(tmp_path / "file") == snapshots


def test_hostile_text_is_no_line_of_its_own(tmp_path: Path) -> None:
    nasty = 'a"b\\ \x1b[2J\r\n{"whole":true}\u202e\u2028\x00é🙂'
    gpu = Gpu(0, "GPU-1", nasty, EPOCH, error=nasty, notes=(nasty,))
    host = HostFacts(ProcessKey(7, 9), EPOCH, command=nasty)
    process = GpuProcess(7, "GPU-1", "C", host=host)
    snapshots = [Snapshot(EPOCH + n, gpus=(gpu,), processes=(process,) * n, problems=(nasty,)) for n in range(3)]
    record(tmp_path / "file", snapshots)
    assert everything(tmp_path / "file") == snapshots


def test_rows_that_did_not_change_are_the_same_objects() -> None:
    writer, reader = LineWriter(), LineReader()
    first, second = life("crowd", 2, interval=0.5)
    reader.read(writer.line(first))
    before = reader.snapshot()
    reader.read(writer.line(dataclasses.replace(second, processes=first.processes[1:])))
    assert all(a is b for a, b in zip(before.processes[1:], reader.snapshot().processes, strict=True))


def test_not_known_in_numbers_is_recorded_too() -> None:
    reader = LineReader()
    reader.read(LineWriter().line(Snapshot(EPOCH, gpus=(Gpu(0, "a", "b", EPOCH, power_watts=math.nan),))))
    watts = reader.snapshot().gpus[0].power_watts
    assert watts is not None and math.isnan(watts)


def test_a_field_renamed_since_the_first_recordings_keeps_its_key() -> None:
    """Older recordings are read, and an older gputop reads ours."""
    gpu = Gpu(0, "a", "b", EPOCH, xids=(Xid(EPOCH, 79, "GPU has fallen off the bus", Severity.CRITICAL),))
    line = LineWriter().line(Snapshot(EPOCH, gpus=(gpu,)))
    assert b'"words":"GPU has fallen off the bus"' in line and b'"message"' not in line
    reader = LineReader()
    reader.read(line)
    assert reader.snapshot().gpus == (gpu,)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{}", b"[]", b"null", b"\xff", b"{" * 5000, b'{"taken_at":null,"whole":true}',
        b'{"taken_at":1,"whole":true,"gpus":7}', b'{"taken_at":1}',
        b'{"taken_at":1,"whole":true,"gpus":{"splice":[0,0,1],"uuid":["a","b"]}}',
        b'{"taken_at":1,"whole":true,"processes":{"pid":{"rows":[3],"values":[1]}}}',
    ],
)  # fmt: skip
def test_a_line_that_is_none_is_said_to_be_none(line: bytes) -> None:
    with pytest.raises(BadLine):
        LineReader().read(line)


def test_fields_of_a_later_gputop_are_passed_over() -> None:
    (snapshot,) = life("", 1)
    content = json.loads(LineWriter().line(snapshot))
    content["gpus"]["colour"] = ["green", "blue"]
    content["host"]["flavour"] = "mint"
    content["moon"] = 7
    reader = LineReader()
    reader.read(json.dumps(content).encode())
    assert reader.snapshot() == snapshot


# ------------------------------------------------------------------------ the file


def test_the_file_is_zstandard_with_json_lines(tmp_path: Path, short_groups: None) -> None:
    snapshots = list(life("", 12))
    record(tmp_path / "file", snapshots)
    with (tmp_path / "file").open("rb") as file:
        text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["taken_at"] for line in lines] == [snapshot.taken_at for snapshot in snapshots]
    assert [n for n, line in enumerate(lines) if line.get("whole")] == [0, 5, 10]


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    record(tmp_path / "file", list(life("", 1)))
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_a_recording_is_continued(tmp_path: Path, short_groups: None) -> None:
    snapshots = list(life("", 14))
    record(tmp_path / "file", snapshots[:7])
    record(tmp_path / "file", snapshots[7:])
    assert everything(tmp_path / "file") == snapshots


def test_two_recorders_do_not_write_to_one_file(tmp_path: Path) -> None:
    first = Recorder(tmp_path / "file")
    with pytest.raises(RecordingError, match="another gputop is recording"):
        Recorder(tmp_path / "file")
    first.write(*life("", 1))
    with Recording.open(tmp_path / "file") as recording:
        assert "still being recorded" in recording.remarks[0]
    first.close()
    with Recording.open(tmp_path / "file") as recording:
        assert recording.remarks == ()


SMALL = [
    Snapshot(
        EPOCH + n,
        gpus=(Gpu(0, "GPU-1", "H200", EPOCH + n, power_watts=100.0 + n),),
        processes=(GpuProcess(7, "GPU-1", "C", memory_bytes=n, host=HostFacts(ProcessKey(7, 9), EPOCH)),) * (n % 3),
    )
    for n in range(12)
]


def cut_off(tmp_path: Path, step: int = 1) -> Iterator[tuple[Path, int]]:
    """A recording of SMALL, cut off after each number of bytes."""
    record(tmp_path / "whole", SMALL)
    content = (tmp_path / "whole").read_bytes()
    for length in range(0, len(content), step):
        path = tmp_path / "cut"
        path.write_bytes(content[:length])
        yield path, length


def test_cut_off_anywhere_all_whole_records_are_read(tmp_path: Path, short_groups: None) -> None:
    most = 0
    for path, length in cut_off(tmp_path):
        try:
            found = everything(path)
        except NotARecording:
            assert most == 0
            continue
        assert found == SMALL[: len(found)]
        assert len(found) >= most, f"fewer records in {length} bytes than in less"
        most = len(found)
    assert most == 12


def test_cut_off_anywhere_it_can_be_continued(tmp_path: Path, short_groups: None) -> None:
    last = dataclasses.replace(SMALL[0], taken_at=EPOCH + 1000)
    for path, length in cut_off(tmp_path, step=5):
        try:
            before = everything(path)
        except NotARecording:
            before = []
        try:
            record(path, [last])
        except RecordingError:
            assert not before and path.stat().st_size == length  # it was not even clear that it is a recording
            continue
        assert everything(path) == [*before, last]
        with path.open("rb") as file:  # a proper file again
            zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
        with Recording.open(path) as recording:
            assert recording.remarks == ()


def test_a_damaged_byte_costs_no_more_than_its_group(tmp_path: Path, short_groups: None) -> None:
    snapshots = list(life("", 15))
    record(tmp_path / "whole", snapshots)
    content = (tmp_path / "whole").read_bytes()
    chance = random.Random(5)
    with Recording.open(tmp_path / "whole") as recording:
        begin = recording.groups[0].offset
    for _ in range(100):
        at = chance.randrange(begin, len(content))
        damaged = bytearray(content)
        damaged[at] ^= 1 << chance.randrange(8)
        (tmp_path / "damaged").write_bytes(damaged)
        found = everything(tmp_path / "damaged")
        assert all(snapshot in snapshots for snapshot in found), "what is read was never recorded"
        assert len(found) >= 10, f"byte {at}"


def test_zeros_at_the_end_as_a_power_cut_leaves_them(tmp_path: Path) -> None:
    snapshots = list(life("", 6))
    recorder = Recorder(tmp_path / "file")
    for snapshot in snapshots:
        recorder.write(snapshot)
    (tmp_path / "copy").write_bytes((tmp_path / "file").read_bytes() + bytes(9000))
    recorder.close()
    assert everything(tmp_path / "copy") == snapshots
    record(tmp_path / "copy", [dataclasses.replace(snapshots[0], taken_at=EPOCH + 99)])
    assert len(everything(tmp_path / "copy")) == 7


# ------------------------------------------------------------------- foreign files


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"#!/bin/sh\necho hello, this is a script that is long enough\n", "not a recording"),
        (zstandard.compress(b"hello" * 100), "not a recording"),
        (b"\x5e\x2a\x4d\x18" + bytes(60), "not a recording"),
        (bytes(5000), "not a recording"),
    ],
)
def test_a_foreign_file_is_said_to_be_one_and_left_alone(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(NotARecording, match=words):
        Recording.open(path)
    if content:
        with pytest.raises(RecordingError, match="nothing was changed"):
            Recorder(path)
    assert path.read_bytes() == content


def test_a_later_version_asks_for_an_update(tmp_path: Path) -> None:
    record(tmp_path / "file", list(life("", 1)))
    content = bytearray((tmp_path / "file").read_bytes())
    content[24] = 9
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(NotARecording, match=r"version 9.*update"):
        Recording.open(tmp_path / "file")


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", tmp_path / "missing"):
        with pytest.raises(NotARecording):
            Recording.open(path)
    for path in (tmp_path, tmp_path / "fifo", tmp_path / "no" / "folder"):
        with pytest.raises(RecordingError):
            Recorder(path)


# -------------------------------------------------------------- killed, full, rotated

WRITE = """
import sys
from pathlib import Path
from gputop.outputs.recorder import Recorder
from gputop.model import replace
from tests.recorded import life
recorder = Recorder(Path(sys.argv[1]))
first = float(sys.argv[2])
snapshots = list(life("8xh200", 20))
n = 0
while True:
    recorder.write(replace(snapshots[n % 20], taken_at=first + n))
    n += 1
    print(n, flush=True)
"""


def test_a_killed_recorder_loses_no_record_it_had_written(tmp_path: Path) -> None:
    chance = random.Random(17)
    recorded = 0
    for round_ in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITE, str(tmp_path / "file"), str(EPOCH + 10_000 * round_)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert child.stdout is not None
        told = 0
        for _ in range(chance.randrange(1, 400)):
            told = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        told = max([told, *map(int, child.stdout.read().split())])
        child.wait()
        child.stdout.close()
        found = everything(tmp_path / "file")
        assert recorded + told <= len(found) <= recorded + told + 1  # one may have been written and not told
        assert found[-1].taken_at == EPOCH + 10_000 * round_ + len(found) - recorded - 1
        assert all(len(snapshot.gpus) == 8 for snapshot in found)
        recorded = len(found)


def gputop(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gputop", *arguments],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50, **more,
    )  # type: ignore[call-overload,no-any-return]  # fmt: skip


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", disk], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_ends_it_in_words_with_an_intact_file(small_disk: Path) -> None:
    done = gputop("record", str(small_disk / "file"), "--demo=thousand", "-d", "100ms", "--for", "40s")
    assert done.returncode == 1
    assert "the disk is full" in done.stderr and "are intact" in done.stderr
    assert "Traceback" not in done.stderr
    found = everything(small_disk / "file")
    assert f"The {len(found)} records" in done.stderr
    assert gputop("replay", str(small_disk / "file"), "--info").returncode == 0


def test_a_file_too_large_ends_it_in_words_with_an_intact_file(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = gputop("record", str(tmp_path / "file"), "--demo=8xh200", "-d", "100ms", "--for", "40s", preexec_fn=limit)
    assert done.returncode == 1 and "too large" in done.stderr
    with Recording.open(tmp_path / "file") as recording:
        assert recording.remarks[:1] in ((), ("Its recorder was killed.",))  # room for a footer, or not
        assert f"The {recording.records} records" in done.stderr


def test_rotation_by_size_loses_nothing_and_keeps_to_the_size(tmp_path: Path) -> None:
    snapshots = list(life("8xh200", 80))
    recorder = record(tmp_path / "file", snapshots, rotation=Rotation(bytes_=20_000))
    parts = [*rotated(tmp_path / "file"), tmp_path / "file"]
    assert len(parts) > 2
    assert all(part.stat().st_size <= 20_000 for part in parts)
    assert [snapshot for part in parts for snapshot in everything(part)] == snapshots
    assert recorder.records == 80


def test_rotation_by_age_and_keeping_the_newest(tmp_path: Path) -> None:
    for name in ("file.bak", "file.20200101-000000.txt", "file2.20200101-000000"):
        (tmp_path / name).write_text("mine")
    snapshots = list(life("", 70, interval=1.0))
    record(tmp_path / "file", snapshots, rotation=Rotation(seconds=10, keep=2))
    parts = [*rotated(tmp_path / "file"), tmp_path / "file"]
    assert [len(everything(part)) for part in parts] == [10, 10, 10]
    assert everything(parts[0])[0] == snapshots[40]
    assert sum(path.read_bytes() == b"mine" for path in tmp_path.iterdir()) == 3


def test_record_and_replay_from_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    done = gputop("record", str(path), "--demo", "-d", "100ms", "--for", "1s", "--gpus", "1")
    assert done.returncode == 0, done.stderr
    assert "recording" in done.stderr and f"{path}" in done.stderr
    found = everything(path)
    assert found and all(len(snapshot.gpus) == 1 for snapshot in found)
    info = gputop("replay", str(path), "--info")
    facts = dict(line.split(None, 1) for line in info.stdout.splitlines())
    assert facts["host"] == "gpu01" and facts["records"] == str(len(found))
    foreign = gputop("replay", str(ROOT / "README.md"), "--info")
    assert foreign.returncode == 1 and "not a recording" in foreign.stderr
    assert gputop("replay", str(path)).returncode == 2  # no terminal
    assert gputop("record", str(path), "--keep", "3").returncode == 2
    assert gputop("record", str(path), "--rotate", "3 bananas").returncode == 2


def test_recording_needs_no_screen() -> None:
    code = (
        "import sys, gputop.commands.record, gputop.outputs.recorder, gputop.sampling.poller;"
        "assert not {'textual', 'rich', 'plotext'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


# ------------------------------------------------------------------------- the tape


def test_a_tape_keeps_the_newest_exactly_in_the_memory_it_was_given() -> None:
    tape = Tape(60_000)
    snapshots = list(life("8xh200", 150))
    for snapshot in snapshots:
        tape.add(snapshot)
    times = tape.times()
    assert 10 < len(times) < 150
    assert times == [snapshot.taken_at for snapshot in snapshots[-len(times) :]]
    for snapshot in snapshots[-len(times) :]:
        assert tape.snapshot(snapshot.taken_at) == snapshot
    assert tape.snapshot(times[3] + 0.2) == snapshots[-len(times) + 3]
    assert tape.snapshot(0.0) == snapshots[-len(times)]


def test_a_machine_too_large_for_a_tape_is_not_kept() -> None:
    tape = Tape(2000)
    for snapshot in life("crowd", 3):
        tape.add(snapshot)
    assert tape.times() == [] and tape.snapshot(EPOCH) is None


def test_a_clock_set_back_leaves_the_tape_in_order() -> None:
    tape = Tape()
    first, second, third = life("", 3)
    for snapshot in (second, first, third):
        tape.add(snapshot)
    assert tape.times() == [second.taken_at, third.taken_at]


def test_a_tape_goes_on_after_the_clock_was_set_back_by_an_hour() -> None:
    tape = Tape()
    before, *after = life("", 3)
    after = [replace(snapshot, taken_at=snapshot.taken_at - 3600) for snapshot in after]
    for snapshot in (before, *after):
        tape.add(snapshot)
    assert tape.times() == [snapshot.taken_at for snapshot in after]
    assert tape.snapshot(after[1].taken_at) == after[1]


# ------------------------------------------------------------- the clock is set back


@pytest.fixture
def set_back(tmp_path: Path) -> Path:
    """20 records a second apart; before the eleventh the clock was set back by an hour."""
    snapshots = list(life("", 20, interval=1.0))
    record(tmp_path / "file", [*snapshots[:10], *(replace(s, taken_at=s.taken_at - 3600) for s in snapshots[10:])])
    return tmp_path / "file"


def test_a_recording_across_a_clock_set_back_opens_at_its_first_record(set_back: Path) -> None:
    with Recording.open(set_back) as recording:
        cursor = recording.cursor()
        cursor.seek(recording.first_at)
        assert cursor.number == 0


def test_every_record_across_a_clock_set_back_can_be_reached(set_back: Path) -> None:
    with Recording.open(set_back) as recording:
        cursor, reached = recording.cursor(), []
        at = recording.first_at
        while at <= recording.last_at:
            cursor.seek(at)
            reached.append(cursor.number)
            at += 1
        assert reached == list(range(20))
        assert cursor.snapshot().taken_at == EPOCH + 19 - 3600  # shown with the time its clock had


def test_a_time_after_the_clock_was_set_back_is_found(set_back: Path) -> None:
    with Recording.open(set_back) as recording:
        cursor = recording.cursor()
        for clock, number in ((EPOCH + 3, 3), (EPOCH + 13 - 3600, 13)):
            cursor.seek(recording.counted_on(clock))
            assert cursor.number == number


def test_what_info_says_of_a_clock_set_back(set_back: Path) -> None:
    with Recording.open(set_back) as recording:
        assert recording.last_at - recording.first_at == 19
        assert "was set back" in describe(recording)["remarks"]


def test_elapsed_time_in_a_recording_goes_on_although_the_clock_was_set_back(set_back: Path) -> None:
    steady = [snapshot.steady_at for snapshot in everything(set_back)]
    assert [after - before for before, after in pairwise(steady)] == [1.0] * 19


def test_a_clock_set_back_by_little_begins_a_group_too(tmp_path: Path) -> None:
    snapshots = list(life("", 20, interval=1.0))
    record(tmp_path / "file", [*snapshots[:10], *(replace(s, taken_at=s.taken_at - 5) for s in snapshots[10:])])
    with Recording.open(tmp_path / "file") as recording:
        assert [group.records for group in recording.groups] == [10, 10]
