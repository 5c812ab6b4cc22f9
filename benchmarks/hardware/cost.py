#!/usr/bin/env python3
"""What gputop, nvitop and nvtop cost on this machine's GPUs, side by side, at 500 ms in a pty of 200×60.

CPU of the whole process tree, bytes to the terminal, memory, first paint, gaps between updates, key presses; for gputop
also the sweep, the age of the values when they are painted, `--once` and the time to quit. The driver's calls burn CPU
in the caller, so that is in. $OUT/cost.json has everything.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import time
from pathlib import Path
from typing import Any

import machine  # makes the harness importable

# isort: split
import keys
import measure
import places
import startup
from machine import RealMachine
from measure import spread
from session import Session
from terminal import Emulator, bursts

HIDDEN, SHOWN = "gputop, chart hidden", "gputop, chart shown"
SETTINGS = {HIDDEN: "show_chart = false\n", SHOWN: "show_chart = true\n"}
REFRESH = ["-d", "{ms}ms"]
POWER = re.compile(r"\d\s*W\b")
NUMBERS = re.compile(r"\d+(?:\.\d+)?")


def setup(name: str) -> RealMachine:
    return RealMachine(refresh=0.5, settings=SETTINGS.get(name))


def figures(lines: list[str]) -> list[str]:
    """All numbers on the lines that tell a power: they change with each new reading under a changing load."""
    return [number for line in lines[1:] if POWER.search(line) for number in NUMBERS.findall(line)]


def first_paint(chunks: list[tuple[float, bytes]], started: float, of: RealMachine) -> dict[str, Any]:
    """Until a GPU's power is on the screen."""
    emulator, written = Emulator(of.columns, of.rows), 0
    for t, data in bursts(chunks):
        emulator.feed(data)
        written += len(data)
        if any(POWER.search(line) for line in emulator.lines):
            return {"seconds": round(t - started, 3), "bytes": written}
    return {"seconds": None, "bytes": None}


def steady(name: str, command: list[str], pids: Path, seconds: float, screens: Path) -> dict[str, Any]:
    """One monitor for *seconds* after it has settled."""
    of = setup(name)
    with Session(command, of, pids) as session:
        session.pump(5)
        window = measure._Window(session)
        until = time.monotonic() + seconds
        alive = True
        while alive and time.monotonic() < until:
            window.look()
            alive = session.pump(min(1.0, max(0.01, until - time.monotonic())))
        window.close()
        session.ended()
        chunks, started, status = list(session.chunks), session.started, session.status
    begin, end = window.first["t"], window.last["t"]
    emulator, changed, shown, paints = Emulator(of.columns, of.rows), [], [], 0
    for t, data in bursts(chunks):
        emulator.feed(data)
        now = figures(emulator.lines)
        if begin <= t <= end:
            paints += 1
            if now != shown:
                changed.append(t)
        shown = now
    (screens / f"{re.sub(r'[^a-z]+', '-', name)}-200x60.txt").write_text(
        "\n".join(s.rstrip() for s in emulator.lines) + "\n"
    )
    if not alive:
        return {"ok": False, "status": status, "last": [line.rstrip() for line in emulator.lines if line.strip()][-4:]}
    written = sum(len(data) for t, data in chunks if begin <= t <= end)
    known = set(pids.read_text().split())
    used = {name: value for name, value in window.result().items() if not name.startswith("nvml")}
    return used | {
        "ok": True,
        "first_paint": first_paint(chunks, started, of),
        "bytes_per_s": round(written / (end - begin)),
        "bytes_per_update": round(written / len(changed)) if changed else None,
        "paints_per_s": round(paints / (end - begin), 2),
        "updates_per_s": round(len(changed) / (end - begin), 2),
        "gap_ms": spread(b - a for a, b in itertools.pairwise(changed)),
        "pids_seen": len(known & set(re.findall(r"\d+", "\n".join(emulator.lines)))),
    }


def warm_start(name: str, command: list[str], pids: Path, times: int = 2) -> list[float | None]:
    """Seconds to the first paint with a GPU's power, several times."""
    found = []
    for _ in range(times):
        of = setup(name)
        with Session(command, of, pids) as session:
            session.pump(1.5)
            chunks = list(session.chunks)
        found.append(first_paint(chunks, session.started, of)["seconds"])
    return found


def probed(pids: Path, seconds: float, chart: bool) -> dict[str, Any]:
    """Sweeps of a running dashboard, and how old its values are when painted: from the first GPU's reading to the end
    of the first paint after the snapshot."""
    file = places.run_folder() / "probe"
    of = RealMachine(refresh=0.5, settings=SETTINGS[SHOWN if chart else HIDDEN], env={"GPUTOP_PROBE": str(file)})
    command = [machine.GPUTOP[0], str(machine.HERE / "probe.py"), *REFRESH]
    with Session(command, of, pids) as session:
        session.pump(5)
        begin = time.time()
        session.pump(seconds)
        end = time.time()
        offset = time.time() - time.monotonic()
        chunks = list(session.chunks)
    emulator, painted, shown = Emulator(of.columns, of.rows), [], []
    for t, data in bursts(chunks):
        emulator.feed(data)
        now = figures(emulator.lines)
        if now != shown:
            painted.append(t + offset)
        shown = now
    written = file.read_text().splitlines() if file.exists() else []
    noted = [json.loads(line) for line in written if line.endswith("]")]
    noted = [one for one in noted if begin <= one[1] <= end]
    ages = [age for read_at, published, *_ in noted if (age := _painted_after(painted, read_at, published)) is not None]
    if not noted:
        return {"snapshots": 0, "screen": [line.rstrip() for line in emulator.lines if line.strip()][-6:]}
    return {
        "snapshots": len(noted),
        "sweep_ms": spread(took for _, _, took, _ in noted),
        "interval_ms": spread(b[0] - a[0] for a, b in itertools.pairwise(noted)),
        "read_to_published_ms": spread(published - read_at for read_at, published, *_ in noted),
        "age_when_painted_ms": spread(ages),
        "stretched": sum(interval > 0.525 for *_, interval in noted),
    }


def _painted_after(painted: list[float], read_at: float, published: float) -> float | None:
    """Age of a reading at the first paint after it; None where no figure changed before the next one."""
    at = next((t for t in painted if t > published), None)
    return at - read_at if at is not None and at - published < 0.45 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="of each monitor's window")
    parser.add_argument("--presses", type=int, default=30, help="of keys")
    a = parser.parse_args()
    screens = machine.OUT / "screens" / "cost"
    screens.mkdir(parents=True, exist_ok=True)
    folder = places.run_folder()
    pids = machine.load_pids(folder)
    ours = [*machine.GPUTOP, *REFRESH]
    commands = {HIDDEN: ours, SHOWN: ours, **machine.monitors()}
    results: dict[str, Any] = {"steady": {}, "warm_start": {}, "keys": {}}
    count = len(pids.read_text().split())
    print(f"== cost on this machine's GPUs, {count} processes, 200×60, 500 ms, {a.seconds:g} s each")
    for name, command in commands.items():
        results["steady"][name] = steady(name, command, pids, a.seconds, screens)
        results["warm_start"][name] = warm_start(name, command, pids)
        machine.keep("cost.json", results)
    print(machine.table(
        ["", "CPU %", "user", "B/s", "B/update", "updates/s", "gap p50", "p95", "first s", "bytes", "PSS MiB",
         "threads", "pids", "other CPU %"],
        [_row(name, run, results["warm_start"][name]) for name, run in results["steady"].items()],
    ), flush=True)  # fmt: skip
    for chart in (False, True):
        results["probed, chart " + ("shown" if chart else "hidden")] = one = probed(pids, a.seconds * 0.7, chart)
        print(f"gputop, chart {'shown' if chart else 'hidden'}: " + json.dumps(one), flush=True)
    for name, command in commands.items():
        if name != SHOWN:
            results["keys"][name] = one = keys.latency(command, setup(name), pids, presses=a.presses)
            print(f"keys {name}: {one.get('key_ms')}, without effect {one.get('keys_without_effect')}", flush=True)
    bare = {"python -c pass": [machine.GPUTOP[0], "-c", "pass"]}
    once = {
        f"gputop {options}": [*machine.GPUTOP, *options.split()] for options in ("--version", "--once", "--once --json")
    }
    results["once"] = startup.once(bare | once, setup(HIDDEN), pids, runs=5)
    results["quit_s"] = startup.quit_seconds(ours, setup(HIDDEN), pids)
    print(f"once: {results['once']}\nquit: {results['quit_s']} s")
    machine.keep("cost.json", results)


def _row(name: str, run: dict[str, Any], starts: list[float | None]) -> list[object]:
    if not run["ok"]:
        return [f"{name} FAILED: {run['last']}", *[None] * 13]
    known = [start for start in starts if start is not None]
    gap = run["gap_ms"] or {}
    return [name, run["cpu_percent"], run["user_percent"], run["bytes_per_s"], run["bytes_per_update"],
            run["updates_per_s"], gap.get("p50"), gap.get("p95"), min(known, default=None), run["first_paint"]["bytes"],
            run["pss_mib"], run["threads"], run["pids_seen"], run["other_percent"]]  # fmt: skip


if __name__ == "__main__":
    main()
