#!/usr/bin/env python3
"""`gputop query` beside `nvidia-smi` with the same arguments, on a real driver: every field both know, all formats, the
errors and their exit status, compute processes, an unprivileged user, and how long each takes.

Headings, units and constants must be the same to the letter. A live value is read three times (nvidia-smi, gputop,
nvidia-smi) and must lie between nvidia-smi's two, give or take a margin. Needs nothing but Python, gputop's sources
beside it and NVIDIA's pynvml. $OUT/query-against-nvidia-smi.json has every cell. Exit status 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gputop.sources.nvml.query import APP_FIELDS, GPU_FIELDS  # noqa: E402

GPUTOP = [sys.executable, "-m", "gputop", "query"]
SMI = ["nvidia-smi"]
NOBODY = 65534
#: What moves by itself, and by how much two readings a second apart may differ beyond nvidia-smi's own two.
LIVE = {
    r"timestamp": None,
    r"utilization\..*": 100,
    r"power\.draw.*": 60,
    r"temperature\..*": 2,
    r"clocks\.current\..*": 1600,
    r"clocks_event_reasons\..*": None,
    r"clocks_event_reasons_counters\..*": 5e6,
    r"memory\.(used|free)": 8,
    r"fan\.speed": 5,
    r"pstate": None,
    r"pcie\.link\.gen\.(current|gpucurrent)": 5,
}
#: Holds 1 GiB of GPU 0, says so, and waits.
HOLDER = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
codes = (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0),
         cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
         cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 30)))
print(*codes, flush=True)
time.sleep(300)
"""
#: Arguments, and whether what is printed must be the same too.
CASES: list[tuple[list[str], bool]] = [
    (["--query-gpu=index,name,memory.total", "--format=csv"], True),
    (["--query-gpu=index,name,memory.total", "--format=csv,nounits"], True),
    (["--query-gpu=index,name,memory.total", "--format=csv,noheader"], True),
    (["--query-gpu=index,memory.total,power.max_limit", "--format=csv,noheader,nounits"], True),
    (["--query-gpu=index,memory.total"], True),
    (["--query-gpu=index", "--format=noheader"], True),
    (["--query-gpu", "index", "--format", "csv"], True),
    (["--query-gpu=index,,name,", "--format=csv"], True),
    (["--query-gpu=index,index,gpu_uuid,clocks.max.mem", "--format=csv"], True),
    (["--query-gpu=index", "--format=csv", "-i", "0"], True),
    (["--query-gpu=index", "--format=csv", "-i=0"], True),
    (["--query-gpu=index", "--format=csv", "--id=0"], True),
    (["--query-gpu=index", "--format=csv", "-i", "0,99"], True),
    (["--query-gpu=index", "--format=csv", "-i", "1,0"], True),
    (["--query-gpu=index", "--format=csv", "-i", "99"], True),
    (["--query-gpu=index", "--format=csv", "-i", "foo"], True),
    (["--query-gpu=nonsense", "--format=csv"], True),
    (["--query-gpu=index,nonsense,other", "--format=csv"], True),
    (["--query-gpu=INDEX", "--format=csv"], True),
    (["--query-gpu=index", "--format=csv,bogus"], True),
    (["--query-gpu=index", "--format=xml"], True),
    (["--query-gpu=index", "--format=csv", "-l", "0"], True),
    (["--query-gpu=index", "--format=csv", "-lms", "0"], True),
    (["--query-gpu=index", "--query-compute-apps=pid", "--format=csv"], True),
    (["--query-compute-apps=pid,gpu_index", "--format=csv"], True),
    (["--query-gpu=index", "--format=csv", "--bogus"], False),
]


def run(command: Sequence[str], user: int | None = None, timeout: float = 60) -> tuple[int, str, str]:
    """Exit status, stdout, stderr."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, cwd=ROOT, user=user, group=user, env=environment()
    )
    return done.returncode, done.stdout, done.stderr


def environment() -> dict[str, str]:
    """Ours, with gputop in it and its bytecode kept: otherwise Python compiles it at every start."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}


def known_to_smi() -> list[str]:
    """Canonical names and aliases from --help-query-gpu."""
    _, text, _ = run([*SMI, "--help-query-gpu"])
    names = []
    for line in text.splitlines():
        if re.match(r'"[a-zA-Z0-9_.]+"( or "[a-zA-Z0-9_.]+")*\s*$', line):
            names += re.findall(r'"([^"]+)"', line)
    return list(dict.fromkeys(names))


def table(text: str) -> tuple[list[str], list[list[str]]]:
    heading, *rows = [line.split(", ") for line in text.splitlines()]
    return heading, rows


def margin(name: str) -> float | None:
    """None where the value is live and no number; -1 where it is constant."""
    for pattern, allowed in LIVE.items():
        if re.fullmatch(pattern, name):
            return allowed
    return -1


def number(text: str) -> float | None:
    found = re.match(r"-?\d+(\.\d+)?", text)
    return float(found[0]) if found and not text.startswith("0x") else None


def judge(name: str, before: str, ours: str, after: str) -> str:
    """ "same", "live", or "DIFFERS"."""
    allowed = margin(name)
    if ours in (before, after):
        return "same"
    if allowed == -1 or ours.startswith("[") != before.startswith("["):
        return "DIFFERS"
    if allowed is None:
        return "live" if len(ours) == len(before) or name == "pstate" or " Active" in f" {ours}" else "DIFFERS"
    numbers = [number(text) for text in (before, ours, after)]
    if None in numbers:
        return "DIFFERS"
    low, high = sorted((numbers[0] or 0.0, numbers[2] or 0.0))
    same_unit = ours.partition(" ")[2] == before.partition(" ")[2]
    return "live" if same_unit and low - allowed <= (numbers[1] or 0.0) <= high + allowed else "DIFFERS"


def compare_fields(user: int | None = None) -> list[dict[str, Any]]:
    """Every field that both know, of every GPU."""
    theirs = set(known_to_smi())
    names = [name for field in GPU_FIELDS for name in (field.name, *field.aliases) if name in theirs]
    arguments = [f"--query-gpu={','.join(names)}", "--format=csv"]
    readings = [run([*program, *arguments], user) for program in (SMI, GPUTOP, SMI)]
    for status, output, errors in readings:
        if status:
            print(f"user {user}: exit status {status}: {output[:300]} {errors[-1000:]}", file=sys.stderr)
            return []
    (before_heading, before), (heading, ours), (_, after) = (table(output) for _, output, _ in readings)
    cells = []
    for position, name in enumerate(names):
        canonical = re.sub(r" \[.*", "", before_heading[position])
        for gpu, row in enumerate(ours):
            cell = {
                "field": name,
                "gpu": gpu,
                "heading": heading[position],
                "their_heading": before_heading[position],
                "before": before[gpu][position],
                "gputop": row[position],
                "after": after[gpu][position],
            }
            cell["verdict"] = judge(canonical, cell["before"], cell["gputop"], cell["after"])
            if cell["heading"] != cell["their_heading"]:
                cell["verdict"] = "DIFFERS"
            cells.append(cell)
    return cells


def compare_cases() -> list[dict[str, Any]]:
    results = []
    for arguments, exact in CASES:
        theirs, ours = run([*SMI, *arguments]), run([*GPUTOP, *arguments])
        same = theirs[0] == ours[0] and (not exact or theirs[1] == ours[1])
        results.append({"arguments": arguments, "nvidia-smi": theirs, "gputop": ours, "same": same})
    return results


def compare_apps(user: int | None = None) -> list[dict[str, Any]]:
    names = [name for field in APP_FIELDS for name in (field.name, *field.aliases) if name != "timestamp"]
    results = []
    for form in ("csv", "csv,noheader,nounits"):
        arguments = [f"--query-compute-apps={','.join(names)}", f"--format={form}"]
        theirs, ours = run([*SMI, *arguments], user), run([*GPUTOP, *arguments], user)
        results.append({"arguments": arguments, "nvidia-smi": theirs, "gputop": ours, "same": theirs[:2] == ours[:2]})
    return results


def loops() -> list[dict[str, Any]]:
    """Rows in 2.2 s, and the exit status when Ctrl+C ends it."""
    import signal

    results = []
    for arguments in (["-l", "1"], ["-lms", "500"], ["--loop=1"], ["--loop-ms=500"], ["-l"]):
        result: dict[str, Any] = {"arguments": arguments}
        for name, program in (("nvidia-smi", SMI), ("gputop", GPUTOP)):
            command = [*program, "--query-gpu=timestamp,index", "--format=csv", "-i", "0", *arguments]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment())
            time.sleep(2.4)
            child.send_signal(signal.SIGINT)
            output, _ = child.communicate(timeout=20)
            result[name] = {"lines": len(output.splitlines()), "exit_status": child.returncode}
        theirs, ours = result["nvidia-smi"], result["gputop"]
        result["same"] = abs(theirs["lines"] - ours["lines"]) <= 1 and theirs["exit_status"] == ours["exit_status"]
        results.append(result)
    return results


def speed(repeats: int) -> dict[str, dict[str, float]]:
    """Seconds for ten fields of all GPUs, and of Python doing nothing."""
    ten = "index,name,uuid,memory.used,memory.total,utilization.gpu,temperature.gpu,power.draw,clocks.sm,pstate"
    arguments = [f"--query-gpu={ten}", "--format=csv,noheader"]
    programs = {"gputop query": [*GPUTOP, *arguments], "nvidia-smi": [*SMI, *arguments]}
    programs["python -c pass"] = [sys.executable, "-c", "pass"]
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(repeats + 1):
        for name, command in programs.items():
            started = time.perf_counter()
            run(command)
            times[name].append(time.perf_counter() - started)
    return {name: {"median": statistics.median(taken[1:]), "min": min(taken[1:])} for name, taken in times.items()}


def held() -> subprocess.Popen[str] | None:
    """A process with a CUDA context on GPU 0, if there is CUDA."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    if holder.stdout.readline().split() == ["0"] * 4:
        return holder
    holder.kill()
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10, help="of the timing")
    parser.add_argument("--all", action="store_true", help="print every cell, not only what differs")
    options = parser.parse_args()
    report: dict[str, Any] = {"fields": compare_fields(), "cases": compare_cases()}
    theirs = known_to_smi()
    ours = [name for field in GPU_FIELDS for name in (field.name, *field.aliases)]
    report["only_nvidia_smi"] = [name for name in theirs if name not in ours]
    report["only_gputop"] = [name for name in ours if name not in theirs]
    holder = held()
    try:
        report["apps"] = compare_apps()
        report["with_a_process"] = holder is not None
        if os.geteuid() == 0:
            report["fields_unprivileged"] = compare_fields(NOBODY)
            report["apps_unprivileged"] = compare_apps(NOBODY)
    finally:
        if holder is not None:
            holder.kill()
            holder.wait()
    report["loops"] = loops()
    report["seconds"] = speed(options.repeats)
    out = Path(os.environ.get("OUT") or ROOT / ".cache" / "hardware")
    out.mkdir(parents=True, exist_ok=True)
    (out / "query-against-nvidia-smi.json").write_text(json.dumps(report, indent=1))
    return tell(report, options.all)


def tell(report: dict[str, Any], everything: bool) -> int:
    wrong = 0
    for part in ("fields", "fields_unprivileged"):
        cells = report.get(part, [])
        counts = {verdict: sum(cell["verdict"] == verdict for cell in cells) for verdict in ("same", "live", "DIFFERS")}
        wrong += counts["DIFFERS"]
        print(f"{part}: {len(cells)} cells: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items()))
        for cell in cells:
            if everything or cell["verdict"] == "DIFFERS":
                print(
                    f"  {cell['verdict']:7} gpu {cell['gpu']} {cell['field']}: nvidia-smi {cell['before']!r} "
                    f"{cell['after']!r}, gputop {cell['gputop']!r}; {cell['their_heading']!r} {cell['heading']!r}"
                )
    for part in ("cases", "apps", "apps_unprivileged", "loops"):
        results = report.get(part, [])
        wrong += sum(not result["same"] for result in results)
        print(f"{part}: {len(results)}, {sum(result['same'] for result in results)} the same")
        for result in results:
            if everything or not result["same"] or part == "loops":
                print(f"  {result['same']!s:5} {result['arguments']}")
                print(f"        nvidia-smi {result['nvidia-smi']}\n        gputop     {result['gputop']}")
    print("only nvidia-smi knows:", *report["only_nvidia_smi"])
    print("only gputop knows:", *report["only_gputop"])
    print("with a compute process:", report["with_a_process"])
    for name, seconds in report["seconds"].items():
        print(f"{name}: median {seconds['median'] * 1000:.0f} ms, min {seconds['min'] * 1000:.0f} ms")
    print("nothing differs" if not wrong else f"{wrong} DIFFER")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
