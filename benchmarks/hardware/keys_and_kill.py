#!/usr/bin/env python3
"""gputop by its keys, on this machine's GPUs: F2 → 500 ms, and a process of load.py killed from the list.

Every step says what was seen on the screen, in the settings file, by NVML and in /proc. Screens are kept in
$OUT/screens as text and with colours, the steps in $OUT/keys-and-kill.json.

    keys_and_kill.py                 # everything, kills the 20 GiB process on GPU 0
    keys_and_kill.py --only kill --role rank --gpu 1    # then a rank of the training
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import machine
from live_screen import LiveScreen

MIB = 1024**2
SIZES = ((80, 24), (120, 40), (200, 60))


class Steps:
    """What was tried and whether it was seen."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []

    def note(self, words: str, good: bool, **seen: Any) -> bool:
        self.all.append({"step": words, "ok": good, **seen})
        said = ", ".join(f"{name}: {value}" for name, value in seen.items())
        print(f"{'PASS' if good else 'FAIL'}  {words}" + (f"  ({said})" if said else ""), flush=True)
        return good


class Driver:
    """NVML asked directly, as a witness that is not gputop."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()

    def of(self, gpu: int) -> tuple[int, dict[int, int | None]]:
        """Bytes used on a GPU, and by process."""
        handle = self._nvml.nvmlDeviceGetHandleByIndex(gpu)
        used = self._nvml.nvmlDeviceGetMemoryInfo(handle, version=self._nvml.nvmlMemory_v2).used
        processes = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return int(used), {process.pid: process.usedGpuMemory for process in processes}


def settings(screen: LiveScreen, steps: Steps) -> None:
    """500 ms by keys, one press from F2."""
    print(screen.lines[0])
    screen.keep("start")
    screen.press("F2")
    steps.note("F2 opens the settings", bool(screen.wait_for("Refresh", 3)))
    screen.keep("settings")
    screen.press("Left")
    screen.keep("settings-500ms")
    file = screen.folder / "home" / ".config" / "gputop" / "config.toml"
    written = tomllib.loads(file.read_text()) if file.exists() else {}
    steps.note("one key sets 500 ms; the settings file has it", "500ms" in repr(written).replace(" ", "")
               or 0.5 in written.values(), file=written)  # fmt: skip
    screen.press("F2")
    header = screen.lines[0]
    if not steps.note("the header says 500 ms", bool(re.search(r"\b500 ms", header)), header=header.strip()):
        screen.press("F2", "Enter", "500ms", "Enter", "F2")
    screen.pump(4)
    screen.keep("at-500ms")


def sizes(screen: LiveScreen, steps: Steps) -> None:
    names = [f"{process['pid']}" for process in machine.load()]
    for columns, rows in SIZES:
        screen.resize(columns, rows)
        screen.pump(2)
        screen.keep("dashboard")
        seen = [pid for pid in names if re.search(rf"\b{pid}\b", screen.text)]
        steps.note(f"{columns}×{rows}", bool(seen), processes_seen=f"{len(seen)} of {len(names)}")
    screen.press("F7")
    screen.pump(3)
    screen.keep("chart")
    screen.resize(120, 40)
    details = {
        "details-process": ("Enter",),
        "details-gpu": ("Tab", "Enter"),
        "details-gpu-rest": ("Enter", "End"),
        "help": ("F1",),
    }
    for name, keys in details.items():
        screen.press(*keys)
        screen.pump(1)
        screen.keep(name)
        screen.press("Esc")


def kill(screen: LiveScreen, steps: Steps, victim: dict[str, Any], neighbour: dict[str, Any]) -> None:
    """Filter by pid, F9, SIGTERM, and wait for the outcome in words."""
    pid, gpu, driver = victim["pid"], victim["gpu"], Driver()
    used, listed = driver.of(gpu)
    held = listed.get(pid) or 0
    steps.note(f"{victim['role']} is in NVML's list", pid in listed, pid=pid, gpu=gpu, MiB=held // MIB)
    screen.press("/", settle=0.2)
    screen.press(f"pid:{pid}", "Enter")
    screen.keep("filtered")
    rows = [line for line in screen.lines if re.search(rf"(?<!pid:)\b{pid}\b", line)]
    others = [p["pid"] for p in machine.load() if p["pid"] != pid and re.search(rf"\b{p['pid']}\b", screen.text)]
    steps.note("the filter leaves its row alone", bool(rows) and not others, row=rows[0].strip()[:90] if rows else "")
    screen.press("F9")
    opened = screen.wait_for("SIGTERM", 3)
    screen.keep("kill-dialog")
    steps.note(
        "F9 names the process, Cancel first", bool(opened) and str(pid) in screen.text and "Cancel" in screen.text
    )
    screen.press("t", settle=0.2)  # goes to SIGTERM, sends nothing
    steps.note("still alive before Enter", _alive(pid))
    screen.keep("kill-sigterm-chosen")
    pressed = time.monotonic()
    screen.press("Enter", settle=0.02)
    ended = back = None
    outcome = None
    while time.monotonic() < pressed + 20 and (outcome is None or back is None):
        outcome = outcome or screen.wait_for(r"released [^│╎|]*?\bs\b|has not been released|holds? its memory", 0.03)
        ended = ended or (None if _alive(pid) else time.monotonic() - pressed)
        now, listed = driver.of(gpu)
        if back is None and pid not in listed and now <= used - 0.8 * held:
            back = time.monotonic() - pressed
    screen.keep("kill-outcome")
    steps.note("it exited", ended is not None, seconds=ended and round(ended, 2))
    steps.note("NVML: not listed any more, memory back", back is not None, seconds=back and round(back, 2),
               MiB_before=used // MIB, MiB_after=driver.of(gpu)[0] // MIB, MiB_held=held // MIB)  # fmt: skip
    words = outcome[0] if outcome else None
    steps.note("gputop says that it was released", bool(words) and words.startswith("released"), said=words)
    steps.note("its neighbour lives", _alive(neighbour["pid"]), pid=neighbour["pid"], role=neighbour["role"])
    screen.press("Enter")
    screen.press("/", settle=0.2)
    screen.press("Esc")
    screen.pump(1)
    screen.keep("after")


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("keys", "kill"), help="keys: settings and sizes")
    parser.add_argument("--role", default="big", help="of load.py: which process to kill")
    parser.add_argument("--gpu", type=int, default=0)
    a = parser.parse_args()
    processes = machine.load()
    victim = next((p for p in processes if p["role"] == a.role and p["gpu"] == a.gpu and _alive(p["pid"])), None)
    if victim is None and a.only != "keys":
        sys.exit(f"no live {a.role} on GPU {a.gpu} in {machine.LOAD}")
    neighbours = [p for p in processes if p is not victim and p["role"] != "launcher" and _alive(p["pid"])]
    near = [p for p in neighbours if p["gpu"] == a.gpu and p["role"].startswith("holder")]
    steps = Steps()
    name = a.only if a.only == "keys" else f"kill-{a.role}"
    print(f"== gputop by its keys, 120×40: {a.only or 'settings, sizes, kill'}")
    setup = machine.RealMachine(columns=120, rows=40, settings=None if a.only != "kill" else 'refresh = "500ms"\n')
    with LiveScreen(machine.GPUTOP, setup, machine.OUT / "screens" / name) as screen:
        if not steps.note("starts and shows the GPUs", bool(screen.wait_for(r"\d+ ?W\b|°C", 15))):
            sys.exit("\n".join(line for line in screen.lines if line))
        screen.pump(1.5)
        if a.only != "kill":
            settings(screen, steps)
            sizes(screen, steps)
        if a.only != "keys" and victim is not None:
            kill(screen, steps, victim, (near or neighbours)[0])
        started = time.monotonic()
        screen.send(b"q")
        steps.note("q quits", screen.wait_end(3) and screen.status == 0, seconds=round(time.monotonic() - started, 2),
                   status=screen.status)  # fmt: skip
        if screen.status:
            print("its last words: " + " ".join(line for line in screen.lines if line)[:300])
            for log in (screen.folder / "home").rglob("crash.log"):
                print(log.read_text()[-2000:])
    machine.keep(f"{name if a.only else 'keys-and-kill'}.json", steps.all)
    sys.exit(0 if all(step["ok"] for step in steps.all) else 1)


if __name__ == "__main__":
    main()
