"""How soon a viewer of files shows something, and how fast it follows the keys."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def first_frame(arguments: Sequence[str], opened: str, times: int = 3) -> None:
    """From the command to the first picture with its progress bar, and to *opened*, in a real terminal."""
    import pexpect

    for _ in range(times):
        started = time.perf_counter()
        child = pexpect.spawn(
            sys.executable,
            ["-m", "gputop", *arguments],
            cwd=str(ROOT),
            dimensions=(60, 200),
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            timeout=120,
        )
        child.expect("reading")
        bar = time.perf_counter() - started
        child.expect(opened)
        print(f"  in a terminal: progress bar after {bar:.2f} s, viewer after {time.perf_counter() - started:.2f} s")
        child.send("q")
        child.expect(pexpect.EOF)


def walk(make: Callable[[Any], Any], keys: Mapping[str, Sequence[str]]) -> None:
    """Key by key: from the key to all lines drawn, at 200×60."""
    from textual import events
    from textual.geometry import Region

    from gputop.settings import DEFAULTS
    from gputop.ui.torch_viewers.app import ViewerApp

    async def run() -> None:
        app = ViewerApp(make, DEFAULTS)
        async with app.run_test(size=(200, 60)) as pilot:
            started = time.perf_counter()
            screen: Any = app.screen
            while not screen.panes:
                await asyncio.sleep(0.02)
            print(f"  viewer: open {time.perf_counter() - started:.2f} s")
            await pilot.pause()
            for view, presses in keys.items():
                took = []
                for key in presses:
                    event = events.Key(key, None)
                    at = time.perf_counter()
                    screen.on_key(event)
                    screen.board.render_lines(Region(0, 0, 200, 60))
                    took.append((time.perf_counter() - at) * 1000)
                    await asyncio.sleep(0)
                first, rest = took[0], sorted(took[1:])
                median, worst = rest[len(rest) // 2], rest[-1]
                print(f"    {view:<12} first {first:6.1f} ms, then median {median:5.1f}, worst {worst:5.1f}")
                await asyncio.sleep(0.3)

    asyncio.run(run())
