"""Pictures of gputop on simulated machines, and of its viewers on real files: `make screenshots`.

Each is an SVG beside this file. The machines, their past and the clock are fixed, so that a picture changes only when
gputop does. With `--png` they are also drawn as PNG (by rsvg-convert or cairosvg) to be looked at.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["TEXTUAL_COLOR_SYSTEM"] = "truecolor"
os.environ["TZ"] = "UTC"
time.tzset()

from gputop.fleet.simulated import SimulatedFleet  # noqa: E402
from gputop.fleet.view import FleetView  # noqa: E402
from gputop.history.gpu_history import History  # noqa: E402
from gputop.leaks.finder import LeakFinder  # noqa: E402
from gputop.model import Snapshot  # noqa: E402
from gputop.monitor import Monitor  # noqa: E402
from gputop.sampling.bus import Bus  # noqa: E402
from gputop.sampling.poller import Poller  # noqa: E402
from gputop.sampling.snapshot_builder import SnapshotBuilder, assemble  # noqa: E402
from gputop.settings import Settings  # noqa: E402
from gputop.sources.simulated import simulated_machine  # noqa: E402
from gputop.ui.app import GputopApp  # noqa: E402
from gputop.ui.fleet.app import FleetApp  # noqa: E402
from gputop.ui.toolkit.view import View  # noqa: E402
from gputop.ui.torch_viewers.app import ViewerApp  # noqa: E402
from gputop.ui.torch_viewers.screen import ViewerScreen  # noqa: E402
from gputop.ui.torch_viewers.snapshot.screen import TorchSnapshotScreen  # noqa: E402
from gputop.ui.torch_viewers.trace.screen import TorchTraceScreen  # noqa: E402

HERE = Path(__file__).parent
NOW = 1796047351.0  # 14:02:31 on 30 November 2026
LEAKS_SECONDS = 30.0
PAST = 640.0  # seconds that are known when the picture is taken


@dataclass(frozen=True)
class Picture:
    name: str
    demo: str = ""
    size: tuple[int, int] = (120, 40)
    keys: tuple[str, ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    watched: float = PAST


SIZES = ((80, 24), (120, 40), (200, 60))
LIGHT = (("theme", "gputop-light"),)
PICTURES = (
    Picture("dashboard"),
    *(
        Picture(f"{machine}-{columns}x{rows}-{shade}", demo, (columns, rows), settings=settings)
        for machine, demo in (("two", ""), ("eight", "8xh200"))
        for columns, rows in SIZES
        for shade, settings in (("dark", ()), ("light", LIGHT))
    ),
    Picture("sixteen-80x24", "16xh100", (80, 24)),
    Picture("one-120x40", "h200"),
    Picture("mig-120x40", "mig"),
    Picture("lost-gpu-120x40", "lost-gpu", watched=40),
    Picture("hot-120x40", "hot"),
    Picture("laptop-80x24", "laptop", (80, 24)),
    Picture("tree-120x40", "8xh200", keys=("t",)),
    Picture("utilization-120x40", "8xh200", keys=("c",)),
    Picture("sixteen-colours-120x40", settings=(("theme", "ansi-16"),)),
    Picture("monochrome-80x24", size=(80, 24), settings=(("theme", "monochrome"),)),
    Picture("settings-120x40", keys=("f2",)),
    Picture("settings-80x24", size=(80, 24), keys=("f2",)),
    Picture("kill-120x40", keys=("down", "f9")),
    Picture("help-120x40", keys=("f1",)),
    Picture("sort-80x24", size=(80, 24), keys=("f6",)),
    Picture("process-120x40", keys=("enter",)),
    Picture("gpu-120x40", keys=("tab", "enter")),
    Picture("leaks-120x24", "leak", (120, 24), keys=("f8",)),
    Picture("filter-120x40", "8xh200", keys=("slash", *"mem>10G")),
)


@dataclass(frozen=True)
class ViewerPicture:
    """Of a file that a real H200's torch wrote (tests/data/h200)."""

    name: str
    file: str
    keys: tuple[str, ...] = ()
    size: tuple[int, int] = (120, 40)


VIEWERS = (
    ViewerPicture("torch-snapshot-120x40", "leak.pickle.gz"),
    ViewerPicture("torch-timeline-120x40", "leak.pickle.gz", ("t",)),
    ViewerPicture("torch-leaks-120x40", "leak.pickle.gz", ("l",)),
    ViewerPicture("torch-oom-120x40", "oom.pickle.gz", ("m",)),
    ViewerPicture("torch-trace-120x40", "torch_trace.json.gz", ("m",)),
    ViewerPicture("torch-ops-120x40", "torch_trace.json.gz", ("t", "h")),
    ViewerPicture("torch-trace-80x24", "torch_trace.json.gz", ("m",), (80, 24)),
    ViewerPicture("torch-trace-200x60", "torch_trace.json.gz", ("m",), (200, 60)),
    ViewerPicture("torch-categories-120x40", "torch_trace_stacks.timeline.raw.json.gz"),
)


@dataclass(frozen=True)
class FleetPicture:
    """Of a simulated fleet."""

    name: str
    hosts: int
    size: tuple[int, int] = (120, 40)
    keys: tuple[str, ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()


FLEETS = (
    FleetPicture("fleet-80x24", 200, (80, 24)),
    FleetPicture("fleet-80x24-light", 200, (80, 24), settings=LIGHT),
    FleetPicture("fleet-3-120x40", 3),
    FleetPicture("fleet-120x40", 200),
    FleetPicture("fleet-120x40-light", 200, settings=LIGHT),
    FleetPicture("fleet-200x60", 1250, (200, 60)),
    FleetPicture("fleet-users-120x40", 200, keys=("b", "down", "down", "enter")),
    FleetPicture("fleet-host-120x40", 200, keys=("down", "down", "enter")),
    FleetPicture("fleet-filter-120x40", 200, keys=("slash", *"free>=4 model:h100")),
)


async def fleet_svg(picture: FleetPicture) -> str:
    """The picture as SVG, at NOW."""
    really, time.time = time.time, lambda: NOW
    try:
        app = FleetApp(SimulatedFleet(picture.hosts, 7, lambda: NOW), FleetView(), Settings(**dict(picture.settings)))
        async with app.run_test(size=picture.size) as pilot:
            await _settled(pilot)
            for key in picture.keys:
                await pilot.press(key)
            await _settled(pilot)
            return app.export_screenshot(title="gputop fleet")
    finally:
        time.time = really


async def _settled(pilot: Any) -> None:
    for _ in range(12):
        await pilot.pause(0.12)


async def viewer_svg(picture: ViewerPicture) -> str:
    """The picture as SVG."""
    path = HERE.parent / "tests" / "data" / "h200" / picture.file

    def make(view: View) -> ViewerScreen[Any]:
        return TorchTraceScreen(path, view) if "trace" in picture.file else TorchSnapshotScreen([path], view)

    app = ViewerApp(make, Settings())
    async with app.run_test(size=picture.size) as pilot:
        screen: Any = app.screen
        while not screen.panes:
            await pilot.pause(0.05)
        await pilot.press(*picture.keys)
        for _ in range(6):
            await pilot.pause(0.12)
        return _neutral(app.export_screenshot(title="gputop"))


def _neutral(text: str) -> str:
    """Without the folder of the machine that the file was made on; of the same length, so that nothing moves."""
    return text.replace("/work/main/", "/home/user/")


async def svg(picture: Picture) -> str:
    """The picture as SVG."""
    clock = [NOW - picture.watched]
    machine = simulated_machine(picture.demo, 7, clock=lambda: clock[0])
    history, assembler = History(), SnapshotBuilder()
    driver = machine.source.open()

    def look() -> Snapshot:
        readings = [machine.source.read(slot) for slot in range(machine.source.count())]
        pids = {process.pid for reading in readings for process in reading.processes}
        facts = machine.host.read(pids)
        exists = {pid: machine.host.exists(pid) for pid in pids - facts.keys()}
        return assemble(
            clock[0],
            readings,
            facts,
            exists,
            assembler=assembler,
            host=machine.host.machine(),
            driver=driver,
            took=0.0071,
            interval=0.5,
            source=machine.source.name,
        )

    bus = Bus()
    poller = Poller(machine.source, machine.host, bus, 0.5, history, clock=lambda: clock[0])  # never started
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(refresh=0.5, **dict(picture.settings))
        os.environ["HOME"] = folder  # shown as ~
        config = Path(folder) / ".config" / "gputop" / "config.toml"
        monitor = Monitor(poller, bus, settings, config, signals=machine.signals)
        app, finder = GputopApp(monitor), LeakFinder(machine.investigator)
        async with app.run_test(size=picture.size) as pilot:
            while clock[0] < NOW:
                clock[0] += 1.0
                snapshot = poller.latest = look()
                history.add(snapshot)
                monitor.detail_history.add(snapshot)
                monitor.journal.observe(snapshot, settings)
                if NOW - clock[0] < LEAKS_SECONDS:  # owners, WHERE, LEAK
                    monitor.take_report(finder.step(snapshot, settings))
            app.dashboard.look()
            await _still(app, pilot)
            for key in picture.keys:
                await pilot.press(key)
            await _still(app, pilot)
            return app.export_screenshot(title="gputop")


async def _still(app: GputopApp, pilot: Any) -> None:
    """Until threads (chart, process details) have delivered."""
    for _ in range(8):
        await pilot.pause(0.12)
    if app.screen is app.dashboard:
        app.dashboard.look()
        await pilot.pause(0.3)


def png(text: str, file: Path) -> None:
    """Draw an SVG with a monospace font of this machine."""
    font = "JetBrains Mono" if "JetBrains" in _fonts() else "DejaVu Sans Mono"
    text = text.replace("Fira Code", font).replace("<text ", '<text xml:space="preserve" ')
    text = re.sub(r"(>)([^<]*)(</text>)", lambda m: m[1] + m[2].replace("&#160;", " ") + m[3], text)
    with tempfile.NamedTemporaryFile("w", suffix=".svg") as temporary:
        temporary.write(text)
        temporary.flush()
        if shutil.which("rsvg-convert"):
            subprocess.run(["rsvg-convert", "-w", "1800", "-o", file, temporary.name], check=True)
        else:
            import cairosvg

            cairosvg.svg2png(url=temporary.name, write_to=str(file), output_width=1800)


def _fonts() -> str:
    listed = shutil.which("fc-list")
    return subprocess.run([listed], capture_output=True, text=True).stdout if listed else ""


async def _svg(picture: Picture | ViewerPicture | FleetPicture) -> str:
    if isinstance(picture, FleetPicture):
        return await fleet_svg(picture)
    return await (svg(picture) if isinstance(picture, Picture) else viewer_svg(picture))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these pictures (beginnings of names)")
    parser.add_argument("--png", metavar="FOLDER", type=Path, help="draw PNGs there too")
    options = parser.parse_args()
    for picture in (*PICTURES, *VIEWERS, *FLEETS):
        if not options.names or picture.name.startswith(tuple(options.names)):
            keep(picture.name, asyncio.run(_svg(picture)), options.png)


def keep(name: str, text: str, pngs: Path | None) -> None:
    (HERE / f"{name}.svg").write_text(text)
    if pngs:
        pngs.mkdir(parents=True, exist_ok=True)
        png(text, pngs / f"{name}.png")
    print(name, flush=True)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # the chart's thread need not be waited for
