"""Pickles from anywhere, read without running anything.

A pickle is a program. A memory snapshot needs none of it: real ones hold dicts, lists, tuples, strings, numbers and
None. So the unpickler here admits no globals and no persistent ids, which leaves nothing to call; what is left are
files that exhaust memory or crash the interpreter (a memo index of 2³¹ is 34 GB, a tuple nested a million deep ends the
stack), and these meet a child process that may use memory in proportion to the bytes it has read, and no more.

The child also digests what it read (``digest``) and hands back columns of numbers in a file without a name: sending a
million dicts home would take longer than reading them.
"""

from __future__ import annotations

import gc
import gzip
import importlib
import io
import json
import os
import pickle
import resource
import select
import signal
import stat
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

from gputop import units
from gputop.torch_files.archives import packed_as

Progress = Callable[[str, float], None]
"""Told what is being done and how much of it is done, 0 to 1."""

BASE_BYTES: Final = 512 * units.MIB  # address space for the interpreter and the smallest file
BYTES_PER_BYTE: Final = 16  # of a pickle whose every frame is a dict of its own; shared ones need four
CPU_SECONDS: Final = 30.0
CPU_SECONDS_PER_BYTE: Final = 0.5 / units.MIB  # a busy machine needs 0.1
_GZIP: Final = b"\x1f\x8b"
#: Bytes of a snapshot in a byte of its gzip, at most: real ones have 2 to 20, a bomb has 1000.
_BYTES_PER_ZIPPED_BYTE: Final = 64
_LEAST_UNZIPPED_BYTES: Final = 8 * units.MIB  # whatever the gzip's size
_CHUNK: Final = units.MIB
_SILENCE_SECONDS: Final = 600.0  # seconds after which a reader that is stopped or starved is given up
_REPORT_SECONDS: Final = 0.05  # seconds between two progress reports
_ALLOWED: Final = "dicts, lists, tuples, strings, numbers and None"


class UnreadableFile(Exception):
    """A file that is not what it should be. ``str()`` is one sentence for the user, without the file's name."""


class _Refused(pickle.UnpicklingError):
    pass


class PlainUnpickler(pickle.Unpickler):
    """Builds plain data only: whatever would import, call or resolve anything is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise _Refused(f"it asks for {str(module)[:60]}.{str(name)[:60]}; a snapshot holds nothing but {_ALLOWED}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise _Refused(f"it refers to objects outside itself; a snapshot holds nothing but {_ALLOWED}")


def load_plain(file: BinaryIO) -> Any:
    """The plain data pickled in *file* (which should have ``peek``: without it protocol 2 is read byte by byte).

    Raises UnreadableFile. Nothing in the file is executed, but it may still use up memory or end the interpreter:
    files that are not trusted are read with :func:`digest`.
    """
    try:
        return PlainUnpickler(file).load()
    except UnreadableFile:
        raise
    except _Refused as refusal:
        raise UnreadableFile(f"refused: {refusal}") from None
    except EOFError:
        raise UnreadableFile("it ends too early: the dump did not finish, or was cut short in copying") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UnreadableFile(f"its gzip data is damaged ({_plain_words(error)})") from None
    except pickle.UnpicklingError as error:
        words = _plain_words(error)
        if "truncated" in words or "ran out of" in words:
            raise UnreadableFile("it ends too early: the dump did not finish, or was cut short in copying") from None
        raise UnreadableFile(f"it is not a pickle, or a damaged one ({words})") from None
    except MemoryError:
        raise UnreadableFile(
            "refused: it asks for far more memory than its bytes can fill (damaged, or made to exhaust this machine)"
        ) from None
    except OSError as error:
        raise UnreadableFile(f"it cannot be read: {error.strerror or error}") from None
    except Exception as error:  # a damaged pickle raises nearly anything: KeyError, TypeError, AttributeError…
        raise UnreadableFile(f"it is not a pickle, or a damaged one ({_plain_words(error)})") from None


def _plain_words(error: BaseException) -> str:
    words = "".join(c if c.isascii() and c.isprintable() else "?" for c in str(error)[:160])
    return words or type(error).__name__


# --------------------------------------------------------------------------------- parent


def digest(path: Path, digester: str, progress: Progress | None = None) -> BinaryIO:
    """Read the pickle at *path* (plain or gzip) in a child and have it digested there.

    *digester* is ``"module:function"`` under gputop: ``function(data, out, progress)`` writes to the binary file
    *out*, which is returned, open at its start. Raises UnreadableFile in words; :class:`KeyboardInterrupt` and any
    exception of *progress* end the child.
    """
    source = _open_regular(path)
    result: BinaryIO = os.fdopen(_nameless_file(), "w+b")
    try:
        _run_child(source, result, digester, progress)
    except BaseException:
        result.close()
        raise
    finally:
        os.close(source)
    result.seek(0)
    return result


def _open_regular(path: Path) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO must not make us wait
    except OSError as error:
        raise UnreadableFile(error.strerror or str(error)) from None
    facts = os.fstat(fd)
    words = None
    if stat.S_ISDIR(facts.st_mode):
        words = "it is a directory: name the files in it"
    elif not stat.S_ISREG(facts.st_mode):
        words = "it is not an ordinary file"
    elif not facts.st_size:
        words = "it is empty: the dump did not finish"
    if words is None:
        words = foreign(os.pread(fd, 512, 0))
    if words is not None:
        os.close(fd)
        raise UnreadableFile(words)
    return fd


def foreign(head: bytes) -> str | None:
    """What a file that begins with *head* is, in words, if it is surely not a pickle."""
    packed = packed_as(head)
    if packed is not None:
        checkpoint = " (a checkpoint of torch.save() is one too, and no memory snapshot)" if "zip a" in packed else ""
        return f"it is {packed}: unpack it, and name the snapshot that is in it{checkpoint}"
    if head.startswith(b"SQLite format 3"):
        return "it is a SQLite database, not a memory snapshot"
    plain = head.lstrip()
    if plain.startswith((b"<!", b"<html", b"<HTML")):
        return "it is a web page, not a memory snapshot"
    if plain.startswith((b'{"', b"{\n", b"{ ", b'[{"', b"[\n", b"[[")):
        return "it is JSON, not a memory snapshot (profiler traces: gputop torch-trace)"
    if head.startswith(_GZIP):
        return None
    if head[:1] == b"\x80" and len(head) > 1 and not 2 <= head[1] <= pickle.HIGHEST_PROTOCOL:
        return f"it is a pickle of protocol {head[1]}; 2 to {pickle.HIGHEST_PROTOCOL} can be read"
    if head[:1] != b"\x80":
        return "it is not a pickle of protocol 2 or later"
    return None


def _nameless_file() -> int:
    try:
        return os.memfd_create("gputop-snapshot", os.MFD_CLOEXEC)
    except OSError:
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())


_START: Final = (
    "import sys; sys.path.append(sys.argv[1]); from gputop.torch_files import safe_pickle; safe_pickle.child()"
)


def _run_child(source: int, result: BinaryIO, digester: str, progress: Progress | None) -> None:
    root = str(Path(__file__).resolve().parents[2])
    arguments = [root, str(source), str(result.fileno()), digester]
    process = subprocess.Popen(
        # -I -S: neither the working directory nor site-packages nor PYTHON* variables decide what is imported
        [sys.executable, "-I", "-S", "-c", _START, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(source, result.fileno()),
    )
    assert process.stdout is not None and process.stderr is not None
    answer: dict[str, Any] | None = None
    try:
        for line in _lines(process.stdout):
            message = json.loads(line)
            if "done" in message or "error" in message:
                answer = message
            elif progress is not None:
                progress(message["what"], message["share"])
        status = process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        errors = process.stderr.read()
        process.stdout.close()
        process.stderr.close()
    if answer is None:
        raise UnreadableFile(_how_it_ended(status, errors))
    if "error" in answer:
        raise UnreadableFile(answer["error"])


def _lines(pipe: Any) -> Iterator[bytes]:
    """Lines as they come; a child that neither works nor speaks is bounded by its CPU limit, a stopped one by us."""
    rest = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], _SILENCE_SECONDS)
        if not ready:
            raise UnreadableFile("its reader has said nothing for ten minutes: given up")
        data = os.read(pipe.fileno(), 65536)
        if not data:
            return
        *whole, rest = (rest + data).split(b"\n")
        yield from whole


def _how_it_ended(status: int, errors: bytes) -> str:
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return "reading it took too much time or memory: given up"
    if status < 0:
        return f"its reader crashed (signal {-status}): the file is damaged or made to do harm; nothing of it was run"
    last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if "MemoryError" in last:
        return "refused: it needs more memory than a file of its size should (damaged, or made to exhaust this machine)"
    return f"its reader failed: {''.join(c if c.isprintable() else '?' for c in last[:200]) or f'status {status}'}"


# ---------------------------------------------------------------------------------- child


def child() -> NoReturn:
    """What the child does: read, digest, answer on stdout, and end without tidying a million dicts away."""
    source, result, digester = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    gc.disable()  # nothing here is garbage; looking for some takes longer than the reading
    total = os.fstat(source).st_size
    zipped = os.pread(source, 2, 0) == _GZIP
    most = max(_LEAST_UNZIPPED_BYTES, total * _BYTES_PER_ZIPPED_BYTE) if zipped else total
    _limit(most)
    report = _Report()
    try:
        module, _, function = digester.partition(":")
        digest_it = getattr(importlib.import_module(module), function)
        data = load_plain(_opened(source, zipped, total, most, report))
        with os.fdopen(os.dup(result), "wb", buffering=_CHUNK) as out:
            digest_it(data, out, report)
        answer = {"done": True}
    except UnreadableFile as error:
        answer = {"error": str(error)}  # type: ignore[dict-item]
    except MemoryError:
        answer = {"error": "it needs more memory than is allowed for a file of its size"}  # type: ignore[dict-item]
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        words = f"it is a pickle, but not of a memory snapshot ({type(error).__name__}: {_plain_words(error)})"
        answer = {"error": words}  # type: ignore[dict-item]
    os.write(1, json.dumps(answer).encode() + b"\n")
    os._exit(0)


class _Report:
    """Progress lines on stdout, not too many."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, what: str, share: float) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _REPORT_SECONDS
            try:
                os.write(1, json.dumps({"what": what, "share": round(share, 4)}).encode() + b"\n")
            except BrokenPipeError:
                os._exit(1)  # nobody waits for the answer any more


def _limit(file_bytes: int) -> None:
    """What the child may use; its address space grows with the bytes that were read (see _Source)."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_within(BASE_BYTES, most), most))
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    seconds = int(CPU_SECONDS + file_bytes * CPU_SECONDS_PER_BYTE)
    resource.setrlimit(resource.RLIMIT_CPU, (_within(seconds, most), most))


def _within(value: int, most: int) -> int:
    return value if most == resource.RLIM_INFINITY else min(value, most)


class _Source(io.RawIOBase):
    """The bytes of the pickle, counted: so much memory may be used as these bytes can need."""

    def __init__(self, file: BinaryIO, place: Callable[[], int], total: int, most: int, report: _Report) -> None:
        self._file, self._place, self._total, self._report = file, place, total, report
        self._most_bytes = most
        self._read = 0
        _, self._most = resource.getrlimit(resource.RLIMIT_AS)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = int(self._file.readinto(buffer))  # type: ignore[attr-defined]
        self._read += count
        if self._read > self._most_bytes:
            raise UnreadableFile(
                f"refused: its gzip data unpacks to more than {_BYTES_PER_ZIPPED_BYTE} times its size, which no "
                "snapshot does and a bomb does"
            )
        allowed = BASE_BYTES + BYTES_PER_BYTE * self._read
        resource.setrlimit(resource.RLIMIT_AS, (_within(allowed, self._most), self._most))
        self._report("reading", min(1.0, self._place() / self._total))
        return count


def _opened(fd: int, zipped: bool, total: int, most: int, report: _Report) -> BinaryIO:
    raw = os.fdopen(fd, "rb", buffering=0)
    file: Any = gzip.GzipFile(fileobj=io.BufferedReader(raw, _CHUNK)) if zipped else raw
    reader = io.BufferedReader(_Source(file, raw.tell, total, most, report), _CHUNK)
    try:
        words = foreign(reader.peek(512)[:512])
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableFile(f"its gzip data is damaged ({_plain_words(error)})") from None
    if words is not None:
        raise UnreadableFile(words)
    return reader
