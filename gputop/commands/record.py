"""Record this machine's GPUs and processes to a file, for `gputop replay`.

The file grows by a record at every reading until Ctrl+C or SIGTERM. If it is there and a recording, it is continued.
Whatever ends the recorder, what it wrote before can be replayed.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gputop import units
from gputop.commands.common import Refusal, add_source_options, as_setting, machine_of, only_asked, settings_of

if TYPE_CHECKING:
    from gputop.model import Snapshot
    from gputop.outputs.recorder import Recorder

FAILED: Final = 1
FIRST_READING: Final = 5.0  # seconds

PIDS_A_SECOND: Final = 128  # of which /proc is read; of 512 processes each is every 4 s

LEAST_BYTES: Final = 64 * 1024
LEAST_SECONDS: Final = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a new file, or a recording to continue")
    parser.add_argument(
        "-d",
        "--refresh",
        metavar="TIME",
        type=as_setting("refresh"),
        help="time between readings, with its unit: 500ms, 2s (100ms to 60s)",
    )
    parser.add_argument("--for", dest="duration", metavar="TIME", type=duration, help="end after that time: 90s, 8h")
    parser.add_argument(
        "--rotate",
        metavar="SIZE|AGE",
        type=rotation,
        help="begin a new file before this one is larger (100MB, 1G) or older (30m, 1h, 1d), or either (100MB,1h); "
        "the one before is then called FILE.YYYYmmdd-HHMMSS, by the time it began",
    )
    parser.add_argument("--keep", metavar="N", type=_count, help="with --rotate: remove all but the N newest of those")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but what went wrong")
    parser.add_argument("--config", metavar="PATH", type=Path, help="settings file instead of the usual one")
    add_source_options(parser)


def run(options: argparse.Namespace) -> int:
    from gputop.outputs.recorder import Recorder, RecordingError, Rotation

    if options.keep is not None and options.rotate is None:
        raise Refusal("--keep needs --rotate")
    bytes_, seconds = options.rotate or (None, None)
    rotation = Rotation(bytes_, seconds, options.keep)
    settings, _, problems = settings_of(options)
    for problem in problems:
        print(f"gputop record: settings: {problem}", file=sys.stderr)
    machine = machine_of(options)
    try:
        return _Session(options, settings, machine).run(lambda: Recorder(options.file, rotation))
    except RecordingError as error:
        raise Refusal(str(error), FAILED) from None


class _Session:
    """One run of the poller, the event loop and the recorder."""

    def __init__(self, options: argparse.Namespace, settings: Any, machine: Any) -> None:
        from gputop.bus import Bus
        from gputop.history import NoHistory
        from gputop.poller import Poller

        self._options, self._settings = options, settings
        self._bus = Bus()
        self._poller = Poller(machine.source, machine.host, self._bus, settings.refresh, NoHistory())
        self._recorder: Recorder | None = None
        self._failure: Exception | None = None
        self._lost = 0

    def run(self, make: Any) -> int:
        import asyncio
        import signal

        from gputop.bus import SnapshotTaken

        loop = asyncio.new_event_loop()
        self._bus.attach(loop)
        self._bus.subscribe(SnapshotTaken, self._take, every=True)
        self._loop = loop
        self._poller.start()
        first = self._poller.wait_for_first(FIRST_READING)
        if self._poller.error is not None:
            raise self._poller.error
        if first is not None:
            only_asked(first, self._options, self._settings)
        recorder = self._recorder = make()
        self._say(
            f"recording {_what(first)} every {self._settings.refresh:g} s to {recorder.path}; "
            f"{'Ctrl+C ends it' if self._options.duration is None else 'Ctrl+C ends it sooner'}"
        )
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, loop.stop)
        if self._options.duration is not None:
            loop.call_later(self._options.duration, loop.stop)
        try:
            loop.run_forever()
        finally:
            self._poller.stop()
            recorder.close()
        if self._failure is not None:
            raise self._failure
        self._say(f"{recorder.records} records, {recorder.bytes_ / 1e6:.2f} MB")
        if self._lost:
            print(f"gputop record: {self._lost} readings were lost: the disk was too slow", file=sys.stderr)
        return 0

    def _take(self, message: Any) -> None:
        """A snapshot, or word that some were lost."""
        from gputop.bus import MessagesLost
        from gputop.selection import only

        if isinstance(message, MessagesLost):
            self._lost += message.count
            return
        if self._failure is not None or self._recorder is None:
            return
        snapshot = message.snapshot
        if self._settings.gpus:
            chosen = only(snapshot, self._settings.gpus)[0]
            snapshot = chosen if chosen.gpus else snapshot  # none of those chosen is here (any more)
        self._want(snapshot)
        try:
            self._recorder.write(snapshot)
        except Exception as error:  # raised again by run(), out of the event loop
            self._failure = error
            self._loop.stop()

    def _want(self, snapshot: Snapshot) -> None:
        """Have the host's side of the processes read anew, of no more than so many a second, in turns."""
        pids = sorted({process.pid for process in snapshot.processes})
        turns = -(-len(pids) // PIDS_A_SECOND)
        self._poller.want("record", pids[int(snapshot.taken_at) % turns :: turns] if turns > 1 else None)

    def _say(self, words: str) -> None:
        if not self._options.quiet:
            print(f"gputop record: {words}", file=sys.stderr, flush=True)


def _what(snapshot: Snapshot | None) -> str:
    if snapshot is None:
        return "GPUs (the driver has not answered yet)"
    count = len(snapshot.gpus)
    return f"{count} GPU{'s' * (count != 1)} of {snapshot.host.name or 'this machine'}"


# ------------------------------------------------------------------------- arguments


def duration(text: str) -> float:
    """Seconds of ``90s``, ``30m``, ``1.5h``, ``2d``. Raises ArgumentTypeError."""
    days = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*d\s*", text)
    try:
        seconds = float(days[1]) * 86400 if days else units.parse_interval(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90s, 30m, 8h or 2d") from None
    if not seconds:
        raise argparse.ArgumentTypeError(f"{text!r} is no time at all")
    return seconds


def rotation(text: str) -> tuple[int | None, float | None]:
    """(bytes, seconds) of ``100MB``, ``1h`` or ``100MB,1h``: minutes are a small m. Raises ArgumentTypeError."""
    bytes_: int | None = None
    seconds: float | None = None
    for part in text.split(","):
        if re.search(r"[KMGTB]", part) and bytes_ is None:
            try:
                bytes_ = units.parse_size(part)
            except ValueError as error:
                raise argparse.ArgumentTypeError(str(error)) from None
        elif seconds is None:
            seconds = duration(part)
        else:
            raise argparse.ArgumentTypeError(f"{text!r}: at most one size (100MB) and one age (1h)")
    if bytes_ is not None and bytes_ < LEAST_BYTES:
        raise argparse.ArgumentTypeError(f"{text}: files of less than {LEAST_BYTES // 1024} KiB are no use")
    if seconds is not None and seconds < LEAST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text}: files of less than {LEAST_SECONDS:g} s are no use")
    return bytes_, seconds


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of files")
    return int(text)
