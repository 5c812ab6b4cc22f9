"""The dashboard on a recording of `gputop record`.

p pauses, `,` and `.` step, Shift+Left and Shift+Right skip 10 s, < and > change the speed, g goes to a time.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from gputop.commands.shared.options import add_screen_options, as_setting
from gputop.commands.shared.output import print_out
from gputop.commands.shared.refusal import Refusal
from gputop.commands.shared.settings import settings_of

UNREADABLE: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="what `gputop record` wrote")
    parser.add_argument("--at", metavar="TIME", help="begin there: 12:03, '2026-11-30 12:03', +5m from its start, 50%%")
    parser.add_argument("--speed", metavar="N", type=_speed, default=1.0, help="0.1 to 100 times as fast (default: 1)")
    parser.add_argument("--paused", action="store_true", help="begin paused")
    parser.add_argument("--info", action="store_true", help="say what is in it, and exit")
    parser.add_argument(
        "--gpus",
        metavar="LIST",
        type=as_setting("gpus", lambda text: [name.strip() for name in text.split(",") if name.strip()]),
        help="only these GPUs: indices, UUIDs or PCI ids",
    )
    add_screen_options(parser.add_argument_group("viewer"))


def run(options: argparse.Namespace) -> int:
    from gputop.recording.container import NotARecording
    from gputop.recording.reading import Recording, describe

    try:
        with Recording.open(options.file) as recording:
            start = recording.first_at
            if options.at is not None:
                try:
                    start = recording.when(options.at, recording.first_at)
                except ValueError as error:
                    raise Refusal(f"--at: {error}") from None
            if options.info:
                facts = describe(recording).items()
                width = max(len(name) for name, _ in facts) + 2
                return print_out("".join(f"{name:<{width}}{value}\n" for name, value in facts if value is not None))
            return _show(recording, start, options)
    except NotARecording as error:
        raise Refusal(f"{options.file}: {error}", UNREADABLE) from None


def _show(recording: object, start: float, options: argparse.Namespace) -> int:
    from gputop.commands.dashboard import _require_terminal
    from gputop.recording.reading import Recording

    assert isinstance(recording, Recording)
    _require_terminal()
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    from gputop.monitor import Monitor
    from gputop.sampling.bus import Bus
    from gputop.sampling.player import Player
    from gputop.sampling.shown_time import RecordedTime
    from gputop.ui import app

    settings, path, problems = settings_of(options)
    bus = Bus()
    player = Player(recording, bus, float(settings.chart_window), options.speed)
    player.playing = not options.paused
    player.seek(start)
    player.start()
    status = app.run(Monitor(player, bus, settings, path, problems, shown_time=RecordedTime(player)))
    player.stop()
    return status


def _speed(text: str) -> float:
    try:
        speed = float(text.rstrip("x×"))
    except ValueError:
        speed = 0.0
    if not 0.1 <= speed <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0.1 and 100")
    return speed
