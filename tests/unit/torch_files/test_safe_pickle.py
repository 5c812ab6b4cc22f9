"""Hostile, damaged and foreign files: nothing of them is run, nothing hangs, memory stays bounded, and one sentence
says what is wrong."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import pickletools
import random
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop import units
from gputop.torch_files.safe_pickle import UnreadableFile, load_plain
from gputop.torch_files.snapshot.memory_snapshot import open_snapshot
from tests.unit.torch_files import allocator_simulator as sim


def small_snapshot() -> Any:
    allocator = sim.Allocator()
    sim.training(allocator, steps=1, layers=1)
    return sim.snapshot(allocator)


def complaint(path: Path) -> str:
    """What is said of a file that cannot be read: one clear sentence."""
    with pytest.raises(UnreadableFile) as caught:
        open_snapshot(path)
    words = str(caught.value)
    assert words and "\n" not in words and "Traceback" not in words and words.isprintable() and len(words) < 300
    return words


class Call:
    """Pickles as a call of *function*."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> Any:
        return self.function, self.arguments


def opcodes(*parts: bytes) -> bytes:
    return b"\x80\x04" + b"".join(parts) + b"."


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def attacks(mark: str) -> dict[str, bytes]:
    """Pickles that would leave the file *mark* behind if anything of them ran."""
    command = f"touch {mark}"
    touch = text(command)
    return {
        "reduce": pickle.dumps(Call(os.system, command)),
        "protocol 2": pickle.dumps(Call(os.system, command), 2),
        "inside a snapshot": pickle.dumps({"segments": [], "device_traces": [[Call(os.system, command)]]}),
        "global": opcodes(b"cposix\nsystem\n", touch, b"\x85R"),
        "stack global": opcodes(text("posix"), text("system"), b"\x93", touch, b"\x85R"),
        "inst": opcodes(b"(", touch, b"iposix\nsystem\n"),
        "obj": opcodes(b"(cposix\nsystem\n", touch, b"o"),
        "newobj": opcodes(b"csubprocess\nPopen\n", text("sh"), b"\x85\x81"),
        "newobj_ex": opcodes(b"csubprocess\nPopen\n", b")", b"}", b"\x92"),
        "build": opcodes(b"}", b"cposix\nsystem\n", touch, b"\x86b"),
        "builtins eval": opcodes(b"cbuiltins\neval\n", text(f"open({mark!r}, 'w')"), b"\x85R"),
        "extension": opcodes(b"\x82\x01", touch, b"\x85R"),
        "persistent id": opcodes(text("x"), b"Q"),
        "persistent id in text": opcodes(b"Pos.system\n"),
        "next buffer": opcodes(b"\x97"),
        "bytearray reduce": pickle.dumps({"segments": bytearray(5)}, 4),
    }


@pytest.mark.parametrize("name", attacks("").keys())
def test_nothing_in_a_pickle_is_executed(name: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    path = tmp_path / "evil.pickle"
    path.write_bytes(attacks(str(mark))[name])
    words = complaint(path)
    assert not mark.exists()
    if name not in ("next buffer", "extension", "build"):
        assert "refused" in words
    path.write_bytes(gzip.compress(attacks(str(mark))[name]))
    complaint(path)
    assert not mark.exists()


def entry() -> bytes:
    """Opcodes of a trace entry."""
    return b"}(" + text("action") + text("alloc") + text("addr") + b"K\x05" + text("size") + b"K\x05u"


def segment() -> bytes:
    """Opcodes of a segment of a thousand blocks."""
    block = b"}(" + text("size") + b"K\x05" + text("state") + text("inactive") + b"u"
    return b"}(" + text("blocks") + b"](" + block * 1000 + b"eu"


def bombs() -> dict[str, bytes]:
    return {
        "memo index": opcodes(b"Nr" + struct.pack("<I", 2**31 - 1)),
        "memo index of 4 GB": opcodes(b"Nr" + struct.pack("<I", 60_000_000)),
        "memo index in text": opcodes(b"Np99999999999\n"),
        "length of a string": opcodes(b"\x8d" + struct.pack("<Q", 2**40)),
        "length of bytes": opcodes(b"\x8e" + struct.pack("<Q", 2**40)),
        "length of a bytearray": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".",
        "length of a frame": opcodes(b"\x95" + struct.pack("<Q", 2**62)),
        "length beyond 63 bits": opcodes(b"\x8d" + struct.pack("<Q", 2**64 - 1)),
        "length of a long": opcodes(b"\x8b" + struct.pack("<i", 2**31 - 1)),
        "negative length": opcodes(b"\x8b" + struct.pack("<i", -5)),
        "doubling tuples": opcodes(b"N" + b"\x94h\x00h\x00\x86" * 60),
        "lists in lists": opcodes(b"]" * 3_000_000 + b"a" * 2_999_999),
        "tuples in tuples": opcodes(b"N" + b"\x85" * 3_000_000),
        "deep tuple as a key": opcodes(b"}" + b"N" + b"\x85" * 3_000_000 + b"Ns"),
        "deep tuple in a snapshot": opcodes(
            b"}" + text("segments") + b"]s" + text("device_traces") + b"](" + b"N" + b"\x85" * 2_000_000 + b"es"
        ),
        "a list in itself": opcodes(b"]\x94h\x00a"),
        "segments in themselves": opcodes(b"}" + text("segments") + b"]\x94h\x00as"),
        "the same trace a million times": opcodes(
            b"}" + text("segments") + b"]s" + text("device_traces") + b"](](" + entry() * 5000 + b"e\x94"
            b"h\x00" * 1 + b"h\x00" * 1_000_000 + b"es"
        ),
        "the same segment a million times": opcodes(
            b"}" + text("segments") + b"](" + segment() + b"\x94" + b"h\x00" * 1_000_000 + b"es"
        ),
        "no stop": b"\x80\x04" + b"]0" * 100_000,
    }


@pytest.mark.parametrize("name", bombs().keys())
def test_bombs_end_in_a_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.pickle"
    path.write_bytes(bombs()[name])
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    complaint(path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert after <= max(before, units.GIB // 1024)


def test_a_gzip_bomb_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pickle.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b"\x80\x04\x8d" + struct.pack("<Q", 2**40))
        for _ in range(120):
            file.write(bytes(1 << 20))
    complaint(path)


def test_truncated_at_every_offset(tmp_path: Path) -> None:
    """In this process, for speed: nothing here can harm it."""
    for protocol in (2, 4, 5):
        whole = pickle.dumps(small_snapshot(), protocol)
        step = max(1, len(whole) // 1500)
        for end in [*range(0, 200), *range(200, len(whole), step)]:
            with pytest.raises(UnreadableFile):
                load_plain(io.BufferedReader(io.BytesIO(whole[:end])))  # type: ignore[arg-type]
    path = tmp_path / "cut.pickle"
    for end in (1, 2, 40, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert "ends too early" in complaint(path) or end <= 2


def test_damaged_bytes_never_end_in_anything_but_words(tmp_path: Path) -> None:
    """Bits flipped and pieces swapped; each file through the child, as a user would have it."""
    whole = pickle.dumps(small_snapshot(), 4)
    path = tmp_path / "damaged.pickle"
    for seed in range(15):
        random_ = random.Random(seed)
        data = bytearray(whole)
        for _ in range(random_.choice((1, 3, 30))):
            data[random_.randrange(2, len(data))] = random_.randrange(256)
        if seed % 5 == 0:
            a, b = sorted(random_.sample(range(2, len(data)), 2))
            data[2:a], data[a:b] = data[a:b], data[2:a]
        path.write_bytes(data)
        words = "fine"
        try:
            open_snapshot(path)
        except UnreadableFile as error:
            words = str(error)
        assert words and "\n" not in words


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"PK\x03\x04 a checkpoint", "torch.save"),
        (b"SQLite format 3\0", "SQLite"),
        (b'{"traceEvents": []}', "torch-trace"),
        (b"<!DOCTYPE html>", "web page"),
        (b"hello, world", "not a pickle"),
        (b"\x80\x09.", "protocol 9"),
        (b"\x1f\x8b\x08\x00" + bytes(6) + b"\xff" * 50, "gzip"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0), "torch-trace"),
        (pickle.dumps(5), "an int"),
        (pickle.dumps("x"), "a str"),
        (pickle.dumps(None), "None"),
        (pickle.dumps({"epoch": 1, "lr": 2}), "dict with epoch, lr"),
        (pickle.dumps([1, 2]), "not a memory snapshot"),
        (pickle.dumps({"segments": 5}), "not a memory snapshot"),
        (pickle.dumps({"segments": [], "device_traces": [5]}), "not a memory snapshot"),
        (pickle.dumps({"segments": [], "device_traces": [[5]]}), "not of a memory snapshot"),
        (pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "addr": 2**70}]]}), "not of a memory"),
        (pickle.dumps({"segments": [{"blocks": [{"size": "x", "state": "inactive"}]}]}), "not of a memory"),
        (pickle.dumps({"segments": [{"blocks": [{}]}]}), "not of a memory"),
    ],
)
def test_foreign_files_are_named(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert words in complaint(path)


def test_what_is_not_an_ordinary_file_is_not_read(tmp_path: Path) -> None:
    assert "directory" in complaint(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    started = time.monotonic()
    assert "ordinary" in complaint(tmp_path / "fifo")
    assert "ordinary" in complaint(Path("/dev/zero"))
    assert time.monotonic() - started < 20
    assert "No such file" in complaint(tmp_path / "missing")


def test_modules_in_the_working_directory_are_not_imported(tmp_path: Path) -> None:
    """A directory of snapshots may hold a file called pickle.py."""
    for name in ("pickle.py", "json.py", "array.py", "mmap.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    path = tmp_path / "good.pickle"
    path.write_bytes(sim.dumps(small_snapshot()))
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if p]; from pathlib import Path;"
        "from gputop.torch_files.snapshot.memory_snapshot import open_snapshot;"
        f"print(open_snapshot(Path({str(path)!r})).entries)"
    )
    root = str(Path(__file__).resolve().parents[3])
    env = {**os.environ, "PYTHONPATH": root}
    out = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, env=env, check=True)
    assert out.returncode == 0 and not (tmp_path / "ran").exists()


def test_the_child_is_ended_when_the_reader_gives_up(tmp_path: Path) -> None:
    path = tmp_path / "good.pickle"
    path.write_bytes(sim.dumps(small_snapshot()))

    def stop(what: str, share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_snapshot(path, stop)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_real_snapshots_hold_no_opcode_that_is_refused() -> None:
    names = {opcode.name for opcode, _, _ in pickletools.genops(pickle.dumps(small_snapshot(), 4))}
    assert not names & {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "PERSID", "BINPERSID"}
