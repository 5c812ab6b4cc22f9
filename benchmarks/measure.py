#!/usr/bin/env python3
"""Measure one terminal GPU monitor on the simulated driver and print one JSON line.

    measure.py --gpus 8 --procs 8 --refresh 0.5 --seconds 30 -- nvitop --interval {refresh}

The program runs in a pty of 200×60 with a bare home. In its arguments {refresh} stands for the interval
in seconds, {ds} for tenths of a second, {ms} for milliseconds. README.md says what the figures mean.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import usage
from places import GpuProcesses
from session import Session, Setup
from terminal import Chunk, Emulator, bursts

# A GPU's power as the monitors print it; the simulated driver's beacon gives 100 to 599 W.
POWER = re.compile(r"(?<![\d.])([1-5]\d\d)(?:\.\d+)?\s*(?:W|/\s*600)")
NAME = re.compile(r"RTX|H200|Edition")
SHOWS = re.compile(NAME.pattern.encode() + b"|" + POWER.pattern.encode())
CYCLE = 5.0  # seconds in which the beacon goes round
STEP = 0.01  # seconds in which it moves by 1 W


def spread(seconds: Iterable[float]) -> dict[str, float] | None:
    """Of seconds, in milliseconds."""
    ms = sorted(x * 1000 for x in seconds)
    if not ms:
        return None
    at = {"p50": len(ms) // 2, "p95": min(len(ms) - 1, int(0.95 * len(ms))), "max": len(ms) - 1}
    return {name: round(ms[i], 1) for name, i in at.items()} | {"n": len(ms)}


@dataclass
class Seen:
    """When the screen showed what."""

    first_name: float | None = None
    first_values: float | None = None
    bytes_until_values: int = 0
    paints: int = 0
    changes: dict[int, list[float]] = field(default_factory=dict)  # a power's place on the screen: times it changed
    ages: list[float] = field(default_factory=list)  # of the values, when painted
    lines: list[str] = field(default_factory=list)


def replay(chunks: list[Chunk], setup: Setup, window: tuple[float, float]) -> Seen:
    """Find from the recorded output when the screen showed what."""
    emulator, seen, shown, written = Emulator(setup.columns, setup.rows), Seen(), [], 0
    for t, data in bursts(chunks):
        emulator.feed(data)
        written += len(data)
        lines = emulator.lines
        if not seen.first_name and any(NAME.search(line) for line in lines):
            seen.first_name = t
        powers = [int(watts) for line in lines for watts in POWER.findall(line)]
        if powers and not seen.first_values:
            seen.first_values, seen.bytes_until_values = t, written
        if window[0] <= t <= window[1]:
            seen.paints += 1
            for place, (old, new) in enumerate(zip(shown, powers, strict=False)):
                if old != new and len(shown) == len(powers):
                    seen.changes.setdefault(place, []).append(t)
                    seen.ages.append(max(0.0, (t - (new - 100) * STEP) % CYCLE - STEP / 2))
        shown = powers
    seen.lines = emulator.lines
    return seen


def gaps(changes: dict[int, list[float]], without: int = 0) -> list[float]:
    """Seconds between changes, leaving out the `without` places that change most rarely."""
    places = sorted(changes.values(), key=len)[without:]
    return [b - a for times in places for a, b in itertools.pairwise(times)]


def wait_ready(session: Session, limit: float = 30) -> bool:
    """Pump until a GPU's name or power was written. False: nothing came, or it ended."""
    until, looked = time.monotonic() + limit, 0
    while time.monotonic() < until:
        alive = session.pump(0.01)
        if len(session.chunks) > looked:
            looked = len(session.chunks)
            if SHOWS.search(b"".join(data for _, data in session.chunks[-40:])):
                return True
        if not alive:
            return False
    return False


class _Window:
    """The measured time: what was used before and after it, and the peaks in it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._peaks: list[usage.Memory] = []
        self.first = self._now()
        self.last = self.first

    def _now(self) -> dict[str, Any]:
        return {
            "t": time.monotonic(),
            "cpu": usage.cpu(usage.tree(self._session.pid)),
            "own": time.process_time(),
            "machine": usage.machine_cpu(),
            "counts": usage.read_counts(self._session.folder),
        }

    def look(self) -> None:
        self._peaks.append(usage.memory(usage.tree(self._session.pid)))

    def close(self) -> None:
        self.last = self._now()

    def result(self) -> dict[str, Any]:
        a, b = self.first, self.last
        wall = b["t"] - a["t"]
        total, user, system = (y - x for x, y in zip(a["cpu"], b["cpu"], strict=True))
        busy, stolen = (y - x for x, y in zip(a["machine"], b["machine"], strict=True))
        calls = usage.call_rates(a["counts"], b["counts"])

        def percent(seconds: float, digits: int = 2) -> float:
            return round(max(0.0, seconds) / wall * 100, digits)

        return {
            "seconds": round(wall, 2),
            "cpu_percent": percent(total),
            "user_percent": percent(user),
            "system_percent": percent(system),
            "rss_mib": round(max(m.rss for m in self._peaks) / 1024, 1),
            "pss_mib": round(max(m.pss for m in self._peaks) / 1024, 1),
            "threads": max(m.threads for m in self._peaks),
            "processes": max(m.processes for m in self._peaks),
            "other_percent": percent(busy - total - (b["own"] - a["own"]), 1),
            "stolen_percent": percent(stolen, 1),
            "nvml_calls_per_s": round(sum(calls.by_function.values()), 1),
            "nvml_errors_per_s": round(calls.errors, 1),
            "nvml_inside": round(calls.inside, 3),
            "nvml": {name: round(rate, 2) for name, rate in calls.by_function.items()},
        }


def measure(
    command: list[str],
    setup: Setup,
    pids: Path,
    *,
    seconds: float = 30,
    warmup: float = 5,
    faults: str = "",
    keys: bytes = b"",
    screen: Path | None = None,
) -> dict[str, Any]:
    """One run. `faults` come with the warm-up's start, after the first paint; `keys` are typed then."""
    with Session(command, setup, pids) as session:
        ready = wait_ready(session)
        if faults:
            session.scenario(faults)
        if keys:
            session.pump(0.3)
            session.send(keys)
        alive = session.pump(warmup)
        window = _Window(session)
        while alive and time.monotonic() - window.first["t"] < seconds:
            window.look()
            alive = session.pump(min(1.0, max(0.01, window.first["t"] + seconds - time.monotonic())))
        window.close()
        session.ended()
        chunks, started, status = list(session.chunks), session.started, session.status  # without its end
    seen = replay(chunks, setup, (window.first["t"], window.last["t"]))
    if screen:
        screen.write_text("\n".join(line.rstrip() for line in seen.lines) + "\n")
    out: dict[str, Any] = {
        "command": " ".join(setup.command(command)), "gpus": setup.gpus, "procs": setup.procs,
        "refresh": setup.refresh, "h200": setup.h200, "ok": alive and ready,
        "first_name_s": round(seen.first_name - started, 3) if seen.first_name else None,
        "first_values_s": round(seen.first_values - started, 3) if seen.first_values else None,
        "first_values_bytes": seen.bytes_until_values or None,
    }  # fmt: skip
    if not alive:
        last = [line.rstrip() for line in seen.lines if line.strip()][-8:]
        return out | {"error": f"ended early, exit status {status}", "last_lines": last}
    wall = window.last["t"] - window.first["t"]
    written = sum(len(data) for t, data in chunks if window.first["t"] <= t <= window.last["t"])
    updates = statistics.median(len(times) / wall for times in seen.changes.values()) if seen.changes else 0
    known = set(pids.read_text().split())
    return out | window.result() | {
        "updates_per_s": round(updates, 3),
        "gap_ms": spread(gaps(seen.changes)),
        "gap_but_slowest_ms": spread(gaps(seen.changes, without=1)),
        "age_ms": spread(seen.ages),
        "powers_seen": len(seen.changes),
        "pids_seen": len(known & set(re.findall(r"\d+", "\n".join(seen.lines)))),
        "bytes_per_s": round(written / wall),
        "bytes_per_update": round(written / wall / updates) if updates else None,
        "paints_per_s": round(seen.paints / wall, 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--procs", type=int, default=8, help="processes per GPU")
    parser.add_argument("--refresh", type=float, default=0.5, help="seconds")
    parser.add_argument("--seconds", type=float, default=30, help="length of the measured window")
    parser.add_argument("--warmup", type=float, default=5, help="seconds from the first paint to the window")
    parser.add_argument("--columns", type=int, default=200)
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--term", default="xterm-256color")
    parser.add_argument("--h200", action="store_true", help="calls cost what a real H200's do (h200-costs.faults)")
    parser.add_argument("--fault", action="append", default=[], metavar="LINE", help="after the first paint")
    parser.add_argument("--keys", default="", help="typed after the first paint")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="gputop's config.toml")
    parser.add_argument(
        "--quiet", type=float, default=0, metavar="PERCENT", help="wait for a machine quieter than this"
    )
    parser.add_argument("--screen", type=Path, metavar="FILE", help="write the last screen there")
    parser.add_argument("command", nargs="+")
    a = parser.parse_args()
    setup = Setup(gpus=a.gpus, procs=a.procs, refresh=a.refresh, columns=a.columns, rows=a.rows, term=a.term,
                  h200=a.h200, env=dict(x.split("=", 1) for x in a.env),
                  settings=a.settings.read_text() if a.settings else None)  # fmt: skip
    with GpuProcesses(a.gpus, a.procs) as processes:
        usage.wait_quiet(a.quiet)
        faults = "".join(f"{line}\n" for line in a.fault)
        print(json.dumps(measure(a.command, setup, processes.file, seconds=a.seconds, warmup=a.warmup,
                                 faults=faults, keys=a.keys.encode(), screen=a.screen)))  # fmt: skip


if __name__ == "__main__":
    main()
