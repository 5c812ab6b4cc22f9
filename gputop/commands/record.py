"""Record this machine's GPUs and processes to a file, for `gputop replay`.

The file grows by a record at every reading until Ctrl+C or SIGTERM. If it is there and a recording, it is continued.
Whatever ends the recorder, what it wrote before can be replayed.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gputop import units
from gputop.commands.shared.headless import Headless, say
from gputop.commands.shared.machine import machine_of, only_asked
from gputop.commands.shared.options import add_source_options, as_setting, whole_number
from gputop.commands.shared.refusal import Refusal
from gputop.commands.shared.settings import settings_of
from gputop.model.selection import only

if TYPE_CHECKING:
    from gputop.model import Snapshot
    from gputop.outputs.recorder import Recorder

FAILED: Final = 1

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
    parser.add_argument(
        "--keep", metavar="N", type=whole_number, help="with --rotate: remove all but the N newest of those"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but what went wrong")
    parser.add_argument("--config", metavar="PATH", type=Path, help="settings file instead of the usual one")
    add_source_options(parser)


def run(options: argparse.Namespace) -> int:
    from gputop.outputs.recorder import Recorder, RecordingError, Rotation

    if options.keep is not None and options.rotate is None:
        raise Refusal("--keep needs --rotate")
    bytes_, seconds = options.rotate or (None, None)
    settings, _, problems = settings_of(options)
    for problem in problems:
        say(f"settings: {problem}")
    headless = Headless(machine_of(options), settings.refresh, ())
    first = headless.start()
    if first is not None:
        only_asked(first, options, settings)
    try:
        recorder = Recorder(options.file, Rotation(bytes_, seconds, options.keep))
        if not options.quiet:
            until = "until Ctrl+C"
            if options.duration is not None:
                until = f"for {options.duration:g} s, or {until}"
            say(f"recording {_what(first)} every {settings.refresh:g} s to {options.file} {until}")
        try:
            headless.run(_Turns(headless, recorder, settings.gpus).record, options.duration)
        finally:
            recorder.close()
    except RecordingError as error:
        raise Refusal(str(error), FAILED) from None
    if not options.quiet:
        say(f"{recorder.records} records, {recorder.bytes_ / 1e6:.2f} MB")
    return 0


class _Turns:
    """Records snapshots, and has the host's side of their processes read anew: in turns, so many a second."""

    def __init__(self, headless: Headless, recorder: Recorder, gpus: tuple[str, ...]) -> None:
        self._headless, self._recorder, self._gpus = headless, recorder, gpus
        self._second = 0

    def record(self, snapshot: Snapshot) -> None:
        second = int(snapshot.taken_at)
        if second != self._second:
            self._second = second
            pids = sorted({process.pid for process in snapshot.processes})
            turns = -(-len(pids) // PIDS_A_SECOND)
            self._headless.poller.want("headless", pids[second % turns :: turns] if turns > 1 else None)
        if self._gpus:
            chosen = only(snapshot, self._gpus)[0]
            snapshot = chosen if chosen.gpus else snapshot  # as it is while none of those chosen is here
        self._recorder.write(snapshot)


def _what(snapshot: Snapshot | None) -> str:
    if snapshot is None:
        return "GPUs (the driver has not answered yet)"
    return f"{units.plural(len(snapshot.gpus), 'GPU')} of {snapshot.host.name or 'this machine'}"


# ------------------------------------------------------------------------- arguments


def duration(text: str) -> float:
    """As :func:`gputop.units.parse_duration`. Raises ArgumentTypeError."""
    try:
        return units.parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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
