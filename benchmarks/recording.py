#!/usr/bin/env python3
"""What recording costs, how large recordings are, how fast they open and seek. Prints a Markdown table.

    recording.py cost [--gpus 8] [--procs 64] [--seconds 60]   `gputop record` on the simulated driver
    recording.py size [--demo 8xh200] [--hours 1]              bytes per GPU-hour of simulated machines
    recording.py seek [--gpus 8] [--procs 8] [--hours 24]      opening and seeking a recording of a day

`cost` runs the program itself; the driver's figures move (SIMNVML_BEACON), the processes are real ones that sleep.
`size` and `seek` record a simulated machine whose clock runs as fast as it can be read.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import places
import usage
from session import Setup

WARM = 8.0  # seconds: imports, first facts of all processes


def cost(options: argparse.Namespace) -> None:
    setup = Setup(gpus=options.gpus, procs=options.procs)
    folder = places.run_folder()
    file = folder / "recording"
    try:
        with places.GpuProcesses(options.gpus, options.procs) as processes:
            environment = setup.environment(folder, processes.file)
            command = [*places.gputop(), "record", str(file), "-d", "500ms", "--quiet"]
            child = subprocess.Popen(command, env=environment)
            time.sleep(WARM)
            if child.poll() is not None:
                raise SystemExit("gputop record ended: see above")
            pids = usage.tree(child.pid)
            before, size, began = usage.cpu(pids), file.stat().st_size, time.monotonic()
            time.sleep(options.seconds)
            spent, grown = usage.cpu(pids).total - before.total, file.stat().st_size - size
            wall, memory = time.monotonic() - began, usage.memory(pids)
            child.send_signal(signal.SIGTERM)
            child.wait()
        print(f"| record, {options.gpus} × {options.procs} processes, 500 ms | |\n|---|---|")
        print(f"| CPU, of a core | {spent / wall * 100:.2f} % |")
        print(f"| memory, PSS | {memory.pss / 1024:.1f} MiB ({memory.pss * 1024 / 1e6:.1f} MB) |")
        print(f"| growth of the file | {grown / wall * 3600 / 1e6 / options.gpus:.2f} MB per GPU-hour |")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def record_demo(file: Path, demo: str, seconds: float, interval: float) -> tuple[int, int]:
    """Record *seconds* of the life of a simulated machine. Returns (GPUs, records)."""
    from gputop.outputs.recorder import Recorder
    from gputop.sampling.snapshot_builder import SnapshotBuilder, assemble
    from gputop.sources.simulated import simulated_machine

    now = 1_800_000_000.0
    machine = simulated_machine(demo, 0, lambda: now)
    driver, slots = machine.source.open(), machine.source.count()
    assembler, recorder = SnapshotBuilder(), Recorder(file)
    facts, exists, read_at = {}, {}, 0.0
    for n in range(int(seconds / interval)):
        now = 1_800_000_000.0 + n * interval
        readings = [machine.source.read(slot) for slot in range(slots)]
        if now - read_at >= 1:
            read_at = now
            pids = {process.pid for reading in readings for process in reading.processes}
            facts = dict(machine.host.read(pids))
            exists = {pid: machine.host.exists(pid) for pid in pids if pid not in facts}
        recorder.write(
            assemble(now, readings, facts, exists, assembler=assembler, host=machine.host.machine(), driver=driver,
                     took=0.007 + n % 13 * 1e-4, interval=interval, source="simulated")
        )  # fmt: skip
    recorder.close()
    return slots, recorder.records


def size(options: argparse.Namespace) -> None:
    print("| machine, 500 ms | MB per GPU-hour |\n|---|---|")
    for demo in options.demo:
        folder = places.run_folder()
        try:
            gpus, _ = record_demo(folder / "recording", demo, options.hours * 3600, 0.5)
            bytes_ = (folder / "recording").stat().st_size
            print(f"| {demo} | {bytes_ / 1e6 / gpus / options.hours:.2f} |", flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def seek(options: argparse.Namespace) -> None:
    folder = places.run_folder()
    try:
        file = folder / "recording"
        day(file, options.demo, options.hours, options.interval)
        command = [sys.executable, __file__, "_seek", str(file)]
        megabytes = file.stat().st_size / 1e6
        print(f"| {options.demo}, {options.hours:g} h every {options.interval:g} s: {megabytes:.0f} MB | |")
        print("|---|---|", flush=True)
        subprocess.run(command, check=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def day(file: Path, demo: str, hours: float, interval: float) -> None:
    """A recording of *hours*: a quarter of an hour of the simulated machine, over and over at later times."""
    from gputop.model import replace
    from gputop.outputs.recorder import Recorder
    from gputop.recording.reading import Recording

    short = file.with_name("short")
    record_demo(short, demo, 900, interval)
    recorder = Recorder(file)
    snapshots = []
    with Recording.open(short) as recording:
        cursor = recording.cursor()
        cursor.seek(0.0)
        snapshots.append(cursor.snapshot())
        while cursor.step(1):
            snapshots.append(cursor.snapshot())
    sync, os.fdatasync = os.fdatasync, lambda _: None
    for n in range(int(hours * 4)):
        for snapshot in snapshots:
            recorder.write(replace(snapshot, taken_at=snapshot.taken_at + n * 900))
    recorder.close()
    os.fdatasync = sync


def seek_in(file: Path) -> None:
    from gputop.recording.reading import Recording

    subprocess.run(["sync"])
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    opening = timed(lambda: Recording.open(file))
    recording = Recording.open(file)
    cursor = recording.cursor()
    chance = random.Random(1)
    span = recording.last_at - recording.first_at

    def go() -> None:
        cursor.seek(recording.first_at + chance.random() * span)
        cursor.snapshot()

    times = [timed(go) for _ in range(200)]
    print(f"| records | {recording.records} |")
    print(f"| open, cold cache | {opening * 1000:.0f} ms |")
    print(f"| seek to any time, median of 200 | {statistics.median(times) * 1000:.1f} ms |")
    print(f"| the slowest of them | {max(times) * 1000:.1f} ms |")
    cursor.seek(recording.first_at + span / 2)
    print(f"| a step back | {timed(lambda: (cursor.step(-1), cursor.snapshot())) * 1000:.1f} ms |")


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    costs = commands.add_parser("cost")
    costs.add_argument("--gpus", type=int, default=8)
    costs.add_argument("--procs", type=int, default=64)
    costs.add_argument("--seconds", type=float, default=60)
    sizes = commands.add_parser("size")
    sizes.add_argument("--demo", nargs="*", default=["8xh200", "empty", "crowd", "workstation"])
    sizes.add_argument("--hours", type=float, default=0.25)
    seeks = commands.add_parser("seek")
    seeks.add_argument("--demo", default="8xh200")
    seeks.add_argument("--hours", type=float, default=24)
    seeks.add_argument("--interval", type=float, default=0.5)
    within = commands.add_parser("_seek")
    within.add_argument("file", type=Path)
    options = parser.parse_args()
    if options.command == "_seek":
        seek_in(options.file)
    else:
        {"cost": cost, "size": size, "seek": seek}[options.command](options)


if __name__ == "__main__":
    main()
