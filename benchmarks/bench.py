#!/usr/bin/env python3
"""gputop beside nvtop and nvitop on the simulated driver: the table, the targets, BENCHMARKS.md.

    bench.py                 # everything: about half an hour
    bench.py --quick         # 1 × 2 and 8 × 8, short runs: about 6 minutes
    bench.py --configs 8x8 --modes plain --parts steady,keys --runs 3 --seconds 30 --quiet 15

Run it with the Python of the environment gputop is installed in. Every run is also kept in
.cache/benchmarks/last.json; `bench.py --report` prints that again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import re
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import endurance
import keys
import measure
import peers
import places
import startup
import usage
from session import Setup
from tables import OURS, OURS_CHART, Results, report

PARTS = ("steady", "keys", "quit", "once", "polls", "open")
GPUTOP = [*places.gputop(), "-d", "{ms}ms"]
SETTINGS = {OURS: "show_chart = false\n", OURS_CHART: "show_chart = true\n"}
LAST = places.CACHE / "last.json"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def header(a: argparse.Namespace) -> list[str]:
    cpu = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    versions = {"Python": platform.python_version()}
    for package in ("textual", "nvidia-ml-py", "psutil", "plotext"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    versions |= peers.versions()
    asked = " ".join(["bench.py", *sys.argv[1:]])
    return [
        f"{datetime.now():%Y-%m-%d}, {os.cpu_count()} × {cpu.group(1).strip() if cpu else platform.machine()}, "
        f"Linux {platform.release()}; " + ", ".join(f"{name} {number}" for name, number in versions.items()) + ".",
        "",
        f"`{asked}`: medians of {a.runs} run(s) of {a.seconds:g} s in a pty of 200×60, refresh asked for: 500 ms. "
        "CPU is of the whole process tree, 100 % = one CPU. The columns are explained in benchmarks/README.md.",
    ]


def programs(a: argparse.Namespace, missing: dict[str, str]) -> dict[str, list[str]]:
    """The monitors to measure by their names in the tables."""
    found = {OURS: GPUTOP, OURS_CHART: GPUTOP}
    for name in a.peers.split(","):
        if name in peers.COMMANDS and name not in missing:
            found[name] = peers.COMMANDS[name]
    for more in a.cmd:
        name, _, command = more.partition("=")
        found[name] = command.split()
    return {name: command for name, command in found.items() if re.search(a.only, name)}


def steady(a: argparse.Namespace, r: Results, monitors: dict[str, list[str]], save: Callable[[], None]) -> None:
    """Every run of every monitor in turns, so that a disturbance does not hit one of them only."""
    for mode in a.modes.split(","):
        for config in a.configs.split(","):
            gpus, procs = map(int, config.split("x"))
            with places.GpuProcesses(gpus, procs) as processes:
                for i in range(a.runs):
                    for name, command in monitors.items():
                        usage.wait_quiet(a.quiet)
                        setup = Setup(gpus=gpus, procs=procs, h200=mode == "h200", settings=SETTINGS.get(name))
                        screen = a.screens and a.screens / f"{mode}-{config}-{re.sub(r'[^a-z]+', '-', name)}.txt"
                        run = measure.measure(command, setup, processes.file, seconds=a.seconds, screen=screen)
                        r.steady.setdefault(mode, {}).setdefault(config, {}).setdefault(name, []).append(run)
                        figures = {key: run.get(key) for key in ("cpu_percent", "bytes_per_update", "other_percent")}
                        say(f"{mode} {config} run {i + 1} {name}: {run.get('error') or figures}")
                        save()


def latency(a: argparse.Namespace, r: Results, monitors: dict[str, list[str]], pids: Path) -> None:
    for name, command in monitors.items():
        if name == OURS_CHART and a.quick:
            continue
        setup = Setup(settings=SETTINGS.get(name))
        slow = "gpu 1 delay_ms 3000\n"
        r.keys[name] = {
            "usual": keys.latency(command, setup, pids, presses=a.presses),
            "one GPU slow": keys.latency(command, setup, pids, presses=a.presses, faults=slow),
        }
        say(f"keys {name}: {r.keys[name]}")


def extras(a: argparse.Namespace, r: Results, monitors: dict[str, list[str]], save: Callable[[], None]) -> None:
    """What is measured at 8 × 8 only."""
    parts = a.parts.split(",")
    with places.GpuProcesses(8, 8) as processes:
        pids = processes.file
        if "keys" in parts:
            latency(a, r, monitors, pids)
            save()
        if "quit" in parts:
            for name, command in monitors.items():
                setup = Setup(settings=SETTINGS.get(name))
                r.quits[name] = startup.quit_seconds(command, setup, pids, faults="gpu 1 hang\n")
                say(f"quit {name}: {r.quits[name]}")
        if "once" in parts:
            bare = {"python -c pass": [sys.executable, "-c", "pass"]}
            asked = (["--version"], ["--once"], ["--once", "--json"])
            ours = {f"gputop {' '.join(options)}": [*places.gputop(), *options] for options in asked}
            others = {"nvitop -1": [peers.COMMANDS["nvitop"][0], "-1"], "gpustat": [peers.COMMANDS["gpustat"][0]]}
            if "nvitop" in r.missing:
                others = {}
            r.once = startup.once(bare | ours | others, Setup(), pids, runs=5 if a.quick else 15)
            say(f"once: {r.once}")
            save()
        if "polls" in parts:
            r.polls = endurance.run_polls(a.polls, Setup(), pids)
            say(f"polls: {r.polls}")
        if "open" in parts:
            setup = Setup(refresh=0.1, settings=SETTINGS[OURS_CHART])
            r.left_open = endurance.left_open(GPUTOP, setup, pids, a.open_seconds)
            say(f"left open: {r.left_open}")
        save()


def write_report(text: str, file: Path) -> None:
    """Between the markers of `file`; the rest of it is left as it is."""
    old = file.read_text() if file.exists() else "# Benchmarks\n"
    if BEGIN not in old or END not in old:
        old = f"{old.rstrip()}\n\n{BEGIN}\n{END}\n"
    before, _, rest = old.partition(BEGIN)
    file.write_text(f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1x2 and 8x8, plain, runs of 10 s")
    parser.add_argument("--configs", metavar="GxP,...", help="GPUs × processes for each (1x2,8x8,8x64,16x63)")
    parser.add_argument("--modes", metavar="MODE,...", help="plain, h200 (calls cost what a real H200's do)")
    parser.add_argument("--parts", default=None, metavar="PART,...", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--peers", default="nvtop,nvitop", metavar="NAME,...", help="of nvtop, nvitop, gpustat")
    parser.add_argument("--cmd", action="append", default=[], metavar="NAME=COMMAND", help="another monitor")
    parser.add_argument("--only", default="", metavar="REGEX", help="only monitors whose name matches")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=None, help="of one run's window (20)")
    parser.add_argument("--presses", type=int, default=None, help="of keys (60)")
    parser.add_argument("--polls", type=int, default=None, help="10000")
    parser.add_argument("--open-seconds", type=float, default=None, help="of the dashboard left open (120)")
    parser.add_argument("--quiet", type=float, default=0, metavar="PERCENT", help="wait for a quieter machine")
    parser.add_argument("--screens", type=Path, metavar="DIR", help="keep the last screen of every run")
    parser.add_argument("--output", type=Path, default=places.ROOT / "BENCHMARKS.md", help="'-': print only")
    parser.add_argument("--report", action="store_true", help="no runs: print the last results")
    a = parser.parse_args()
    quick: dict[str, Any] = {"configs": "1x2,8x8", "modes": "plain", "seconds": 10, "presses": 20, "polls": 2000,
                             "open_seconds": 20, "parts": "steady,keys,quit,once,polls"}  # fmt: skip
    full: dict[str, Any] = {"configs": "1x2,8x8,8x64,16x63", "modes": "plain,h200", "seconds": 20, "presses": 60,
                            "polls": 10_000, "open_seconds": 120, "parts": ",".join(PARTS)}  # fmt: skip
    for name, value in (quick if a.quick else full).items():
        if getattr(a, name) is None:
            setattr(a, name, value)
    if a.screens:
        a.screens.mkdir(parents=True, exist_ok=True)
    return a


def main() -> None:
    a = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    if a.report:
        print(report(Results(**json.loads(LAST.read_text()))), end="")
        return
    results = Results()

    def save() -> None:
        LAST.parent.mkdir(parents=True, exist_ok=True)
        LAST.write_text(json.dumps(dataclasses.asdict(results), indent=1))

    if a.peers:
        results.missing = {name: why for name, why in peers.install().items() if name in a.peers.split(",")}
    results.header = header(a)
    monitors = programs(a, results.missing)
    places.library()
    if "steady" in a.parts:
        steady(a, results, monitors, save)
    if set(a.parts.split(",")) - {"steady"}:
        extras(a, results, monitors, save)
    text = report(results)
    print(text, end="")
    if str(a.output) != "-":
        write_report(text, a.output)
        say(f"written: {a.output}")


if __name__ == "__main__":
    main()
