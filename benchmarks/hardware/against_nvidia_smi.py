#!/usr/bin/env python3
"""gputop's readings beside nvidia-smi's under a changing load (load.py runs).

Every pair is: nvidia-smi, gputop, nvidia-smi, within a second. gputop is read in turns through its poller (in this
process, swept on request) and by `gputop --once --json`. Memory must equal one of nvidia-smi's two readings to the MiB
or lie between them, for every GPU and every process; constants must be the same; a live figure must lie between the
two, give or take what two of nvidia-smi's own readings differ by. $OUT/against-nvidia-smi.json has every reading.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import subprocess
import sys
import time
from collections import Counter
from typing import Any, NamedTuple

import machine
from machine import Smi, number

MIB = 1024**2
MEMORY = {
    "memory.total": "memory_total_bytes",
    "memory.used": "memory_used_bytes",
    "memory.reserved": "memory_reserved_bytes",
    "memory.free": "memory_free_bytes",
}
CONSTANT = {
    "name": "name",
    "uuid": "uuid",
    "pci.bus_id": "pci_bus_id",
    "driver_version": "driver_version",
    "vbios_version": "facts.vbios",
    "serial": "facts.serial",
    "compute_cap": "facts.compute_capability",
    "clocks.max.sm": "facts.clock_sm_max_mhz",
    "clocks.max.memory": "facts.clock_memory_max_mhz",
    "pcie.link.gen.max": "facts.pcie_generation_max",
    "pcie.link.width.max": "facts.pcie_width_max",
    "power.default_limit": "facts.power_limit_default_watts",
    "power.max_limit": "facts.power_limit_max_watts",
}
LIVE = {
    "utilization.gpu": "utilization_gpu_percent",
    "utilization.memory": "utilization_memory_percent",
    "utilization.encoder": "utilization_encoder_percent",
    "utilization.decoder": "utilization_decoder_percent",
    "temperature.gpu": "temperature_celsius",
    "temperature.memory": "temperature_memory_celsius",
    "power.draw": "power_watts",
    "power.draw.instant": "power_instant_watts",
    "enforced.power.limit": "power_limit_watts",
    "clocks.current.sm": "clock_sm_mhz",
    "clocks.current.memory": "clock_memory_mhz",
    "clocks.current.video": "clock_video_mhz",
    "pstate": "performance_state",
    "pcie.link.gen.current": "facts.pcie_generation",
    "pcie.link.width.current": "facts.pcie_width",
    "fan.speed": "fan_percent",
}


class Told(NamedTuple):
    """What nvidia-smi said at one moment, by UUID, and by (UUID, pid)."""

    gpus: dict[str, dict[str, str]]
    processes: dict[tuple[str, int], float | None]


class NvidiaSmi:
    def __init__(self) -> None:
        self.gpus = Smi("gpu", list(dict.fromkeys([*MEMORY, "uuid", *LIVE])))
        self.apps = Smi("compute-apps", ["gpu_uuid", "pid", "used_memory"])

    def read(self) -> Told:
        """Both queries at the same time."""
        started = self.gpus.start(), self.apps.start()
        gpus = {row["uuid"]: row for row in self.gpus.rows(started[0])}
        rows = self.apps.rows(started[1])
        return Told(gpus, {(row["gpu_uuid"], int(row["pid"])): number(row["used_memory"]) for row in rows})


class Gputop:
    """gputop's poller in this process, and gputop as a program."""

    def __init__(self) -> None:
        from gputop.procfs.proc_host_reader import ProcHostReader
        from gputop.sampling.bus import Bus
        from gputop.sampling.poller import Poller
        from gputop.sources.nvml import NvmlSource

        self._poller = Poller(NvmlSource(), ProcHostReader(), Bus(), interval=0.5)
        self._poller.start()
        time.sleep(3)  # until the slow tier has been round

    def poller(self) -> dict[str, Any]:
        from gputop.outputs.json_lines import as_dict

        asked = time.time()
        self._poller.refresh()
        while time.time() < asked + 5:
            latest = self._poller.latest
            if latest is not None and latest.gpus and all(gpu.read_at >= asked for gpu in latest.gpus):
                return as_dict(latest)
            time.sleep(0.001)
        raise RuntimeError("gputop's poller gave no new snapshot within 5 s")

    def once(self) -> dict[str, Any]:
        done = subprocess.run([*machine.GPUTOP, "--once", "--json"], capture_output=True, text=True, timeout=20)
        if done.returncode:
            raise RuntimeError(f"gputop --once --json: {done.stderr.strip()}")
        return dict(json.loads(done.stdout))


def value(gpu: dict[str, Any], name: str) -> Any:
    for part in name.split("."):
        gpu = gpu[part]
    return gpu


def between(ours: float, one: float, other: float, slack: float = 0.0) -> bool:
    return min(one, other) - slack <= ours <= max(one, other) + slack


class Tally:
    """Comparisons of one quantity."""

    def __init__(self) -> None:
        self.count = self.equal = self.between = 0
        self.unknown = Counter[str]()
        self.outside: list[dict[str, Any]] = []
        self.worst = 0.0

    def mib(self, who: str, ours: int | None, one: float | None, other: float | None) -> None:
        """Bytes beside two readings in MiB; nvidia-smi drops or rounds the fraction."""
        if ours is None or one is None or other is None:
            self.unknown["both" if ours is None and one is None else "gputop" if ours is None else "nvidia-smi"] += 1
            return
        self.count += 1
        whole = math.floor(ours / MIB), math.ceil(ours / MIB)
        if one in whole or other in whole:
            self.equal += 1
        elif between(whole[0], one, other):
            self.between += 1
        else:
            self.worst = max(self.worst, min(abs(ours / MIB - one), abs(ours / MIB - other)))
            self.outside.append({"who": who, "gputop": round(ours / MIB, 2), "nvidia-smi": [one, other]})

    def row(self, name: str) -> list[object]:
        unknown = ", ".join(f"{who} {n}" for who, n in self.unknown.items())
        return [name, self.count, self.equal, self.between, len(self.outside), round(self.worst, 2), unknown or "none"]


def compare_memory(pairs: list[dict[str, Any]]) -> tuple[dict[str, Tally], dict[str, int]]:
    tallies = {name: Tally() for name in [*MEMORY, "per process"]}
    lists = {"pids in both": 0, "missing from gputop": 0, "only in gputop": 0}
    for n, pair in enumerate(pairs):
        before, ours, after = pair["before"], pair["gputop"], pair["after"]
        for gpu in ours["gpus"]:
            for field, name in MEMORY.items():
                told = [number(told.gpus[gpu["uuid"]].get(field, "")) for told in (before, after)]
                tallies[field].mib(f"pair {n} GPU {gpu['index']}", gpu[name], *told)
        mine = {(one["gpu_uuid"], one["pid"]): one["memory_bytes"] for one in ours["processes"] if "C" in one["kind"]}
        both = before.processes.keys() & after.processes.keys()
        for key in both & mine.keys():
            told = [before.processes[key], after.processes[key]]
            tallies["per process"].mib(f"pair {n} pid {key[1]}", mine[key], *told)
        lists["pids in both"] += len(both & mine.keys())
        lists["missing from gputop"] += len(both - mine.keys())
        lists["only in gputop"] += len(mine.keys() - before.processes.keys() - after.processes.keys())
    return tallies, lists


def compare_live(pairs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By field: how far two of nvidia-smi's readings were apart at most, and how many of gputop's were outside."""
    readings = [told for pair in pairs for told in (pair["before"], pair["after"])]
    results = []
    for field, name in LIVE.items():
        apart = inside = outside = unknown = 0
        beyond: list[float] = []
        own: list[float] = []
        for uuid in pairs[0]["before"].gpus:
            told = [_live(reading.gpus[uuid].get(field, "")) for reading in readings]
            own += [abs(b - a) for a, b in itertools.pairwise(told) if a is not None and b is not None]
        apart = max(own, default=0.0)
        for pair in pairs:
            for gpu in pair["gputop"]["gpus"]:
                ours = value(gpu, name)
                one, other = (_live(pair[when].gpus[gpu["uuid"]].get(field, "")) for when in ("before", "after"))
                if ours is None or one is None or other is None:
                    unknown += (ours is None) != (one is None)
                elif between(ours, one, other, 0.006):  # nvidia-smi rounds watts to 0.01
                    inside += 1
                else:
                    outside += 1
                    beyond.append(min(abs(ours - one), abs(ours - other)))
        worst = max(beyond, default=0.0)
        results.append({
            "field": field, "between": inside, "beyond": outside, "beyond_most": round(worst, 2),
            "two_of_nvidia_smi": round(apart, 2), "known_to_one_only": unknown, "ok": worst <= max(apart, 0.006),
        })  # fmt: skip
    return results


def _live(text: str) -> float | None:
    return number(text.removeprefix("P"))


def compare_constants(ours: dict[str, Any]) -> list[dict[str, Any]]:
    smi = Smi("gpu", list(CONSTANT))
    rows = {row["uuid"]: row for row in smi.read()}
    results = []
    for gpu in ours["gpus"]:
        for field, told in rows.get(gpu["uuid"], {}).items():
            mine = ours["driver_version"] if field == "driver_version" else value(gpu, CONSTANT[field])
            figure = number(told)
            if field not in ("name", "uuid", "pci.bus_id", "driver_version", "vbios_version", "serial", "compute_cap"):
                same = figure == (None if mine is None else float(mine))
            else:
                same = told.casefold() == str(mine).casefold() or (mine is None and told.startswith("["))
            results.append({"gpu": gpu["index"], "field": field, "nvidia-smi": told, "gputop": mine, "ok": same})
    found = {gpu["uuid"] for gpu in ours["gpus"]}
    results.append(
        {"gpu": "all", "field": "GPUs", "nvidia-smi": len(rows), "gputop": len(found), "ok": found == set(rows)}
    )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--apart", type=float, default=1.0, help="seconds from pair to pair")
    a = parser.parse_args()
    smi, gputop = NvidiaSmi(), Gputop()
    smi.read()
    constants = compare_constants(gputop.poller())
    pairs: list[dict[str, Any]] = []
    for n in range(a.pairs):
        started = time.monotonic()
        how = "once" if n % 3 == 2 else "poller"
        before = smi.read()
        ours = gputop.once() if how == "once" else gputop.poller()
        after = smi.read()
        took = time.monotonic() - started
        pairs.append({"how": how, "seconds": round(took, 3), "before": before, "gputop": ours, "after": after})
        time.sleep(max(0.0, a.apart - took))
    report(pairs, constants, smi)


def report(pairs: list[dict[str, Any]], constants: list[dict[str, Any]], smi: NvidiaSmi) -> None:
    memory, lists = compare_memory(pairs)
    live = compare_live(pairs)
    wrong = [one for one in constants if not one["ok"]]
    ways = Counter(pair["how"] for pair in pairs)
    spans = {how: [p["seconds"] for p in pairs if p["how"] == how] for how in ways}
    used = [gpu["memory_used_bytes"] / MIB for pair in pairs for gpu in pair["gputop"]["gpus"][:1]]
    took = ", ".join(f"{how}: median {statistics.median(s):.2f}, most {max(s):.2f}" for how, s in spans.items())
    print(f"== gputop beside nvidia-smi: {len(pairs)} pairs, {dict(ways)}; a pair took (s) {took}")
    print(f"GPU 0 used {min(used):.0f} to {max(used):.0f} MiB, {len({round(x) for x in used})} different values; "
          f"processes: {lists}")  # fmt: skip
    head = ["MiB", "compared", "equal", "between", "OUTSIDE", "worst", "not told"]
    print(machine.table(head, [tally.row(name) for name, tally in memory.items()]))
    print(machine.table(
        ["live", "between", "beyond", "most", "two of nvidia-smi's", "known to one only", ""],
        [[x["field"], x["between"], x["beyond"], x["beyond_most"], x["two_of_nvidia_smi"], x["known_to_one_only"],
          "ok" if x["ok"] else "TOO FAR"] for x in live],
    ))  # fmt: skip
    print(f"constants: {len(constants) - len(wrong)} the same; different: {wrong or 'none'}; "
          f"fields this nvidia-smi does not know: {smi.gpus.unknown or 'none'}")  # fmt: skip
    slow = [pair["seconds"] for pair in pairs if pair["seconds"] > 1.0]
    must = ("name", "uuid", "pci.bus_id", "driver_version", "GPUs")
    verdicts = {
        "memory to the MiB, per GPU and per pid": not any(tally.outside for tally in memory.values()),
        "the same processes": not lists["missing from gputop"] and not lists["only in gputop"],
        "constants": not [one for one in wrong if one["field"] in must],
        "live figures": all(one["ok"] for one in live),
        "each pair within a second": not slow,
    }
    for words, good in verdicts.items():
        print(f"{'PASS' if good else 'FAIL'}  {words}")
    machine.keep("against-nvidia-smi.json", {
        "verdicts": verdicts, "lists": lists, "constants": constants, "live": live,
        "memory": {name: {"compared": t.count, "equal": t.equal, "between": t.between, "outside": t.outside}
                   for name, t in memory.items()},
        "pairs": [{**pair, **{when: {"gpus": pair[when].gpus, "processes": [[*key, mib] for key, mib
                   in pair[when].processes.items()]} for when in ("before", "after")}} for pair in pairs],
    })  # fmt: skip
    sys.stdout.flush()
    sys.exit(0 if all(verdicts.values()) else 1)


if __name__ == "__main__":
    main()
