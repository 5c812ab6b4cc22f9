#!/usr/bin/env python3
"""Leaks made for real on this machine's GPU, found, explained and freed by gputop in a pty.

    leaks_on_gpu.py                  # all cases, about two minutes; needs torch, takes 5 GiB at a time
    leaks_on_gpu.py --only fork      # or dataloader, stopped, ipc

For each case: the leak is made; NVML is asked directly as a witness; gputop must show it, name who keeps the memory,
end that from its list, and say how much came back; NVML must agree. Screens in $OUT/screens/leaks, steps in
$OUT/leaks.json. It ends only processes it started itself.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

GIB = 1024**3
MIB = 1024**2
HELD = 5 * GIB
#: Bytes of the GPU that may differ before and after: contexts of others, the driver's own.
SLACK = 300 * MIB


# ------------------------------------------------------- the leaks, in processes of their own


def act_fork() -> None:
    """A child forked after CUDA was initialised keeps the device open when its parent is killed."""
    import torch

    block = torch.zeros(HELD // 4, device="cuda")
    child = os.fork()
    if child == 0:
        while True:
            time.sleep(60)
    _say(parent=os.getpid(), holders=[child], bytes=block.numel() * 4)


class _Stuck:
    """A data set whose second batch never comes, so that its workers outlive the parent."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, n: int) -> int:
        if n >= 4:
            time.sleep(600)
        return n


def act_dataloader() -> None:
    """Four forked DataLoader workers."""
    import torch
    from torch.utils.data import DataLoader

    block = torch.zeros(HELD // 4, device="cuda")
    batches = iter(DataLoader(_Stuck(), batch_size=1, num_workers=4, prefetch_factor=2))  # type: ignore[arg-type]
    next(batches)
    _say(parent=os.getpid(), holders=_children(os.getpid()), bytes=block.numel() * 4)


def act_stopped() -> None:
    """Stopped by Ctrl+Z: it keeps all, and SIGTERM alone does nothing."""
    import torch

    block = torch.zeros(HELD // 4, device="cuda")
    _say(parent=os.getpid(), holders=[os.getpid()], bytes=block.numel() * 4)


def _consume(queue: Any, ready: Any) -> None:
    tensor = queue.get()
    tensor.sum().item()
    ready.set()
    while True:
        time.sleep(60)


def act_ipc() -> None:
    """A consumer that maps the producer's tensor keeps it when the producer is killed."""
    import torch
    import torch.multiprocessing as multiprocessing

    context = multiprocessing.get_context("spawn")
    queue, ready = context.Queue(), context.Event()
    consumer = context.Process(target=_consume, args=(queue, ready), daemon=False)
    consumer.start()
    block = torch.zeros(HELD // 4, device="cuda")
    queue.put(block)
    ready.wait(60)
    _say(parent=os.getpid(), holders=[consumer.pid], bytes=block.numel() * 4)


def _say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)
    while True:
        time.sleep(60)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


ACTS: dict[str, Callable[[], None]] = {
    "fork": act_fork,
    "dataloader": act_dataloader,
    "stopped": act_stopped,
    "ipc": act_ipc,
}

# ------------------------------------------------------------------------------ the stage


class Act:
    """One leak, from its making to the end of all its processes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--act", name], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{name}: ended with {self.process.wait()} before it held anything")
        facts = json.loads(line)
        self.parent: int = facts["parent"]
        self.holders: list[int] = facts["holders"]
        self.bytes: int = facts["bytes"]

    def kill_parent(self) -> None:
        os.kill(self.parent, signal.SIGKILL)
        self.process.wait()

    def clean(self) -> None:
        """End what is left of it."""
        for pid in {self.parent, *self.holders}:
            stat = Path(f"/proc/{pid}/stat")
            if stat.exists() and _session(stat) == self.process.pid:
                os.kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.wait(10)


def _alive(pid: int) -> bool:
    """A zombie is not: it holds nothing, whoever should reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _session(stat: Path) -> int:
    return int(stat.read_text().rpartition(")")[2].split()[3])


def _all_threads_stopped(pid: int) -> bool:
    """Whether each thread's state in /proc/PID/task/TID/stat is T."""
    stats = (task / "stat" for task in Path(f"/proc/{pid}/task").iterdir())
    return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in stats)


def make(act: Act) -> None:
    """Turn what was started into the leak it is about."""
    if act.name == "stopped":
        os.kill(act.parent, signal.SIGSTOP)
        while not _all_threads_stopped(act.parent):  # a thread that still runs would take SIGTERM for all of them
            time.sleep(0.01)
        os.kill(act.parent, signal.SIGTERM)  # pending: the memory stays
    else:
        act.kill_parent()


def run(act: Act, screen: Any, steps: Any, driver: Any, before: int) -> None:
    used, listed = driver.of(0)
    steps.note(f"{act.name}: NVML lists {act.parent} with its memory", (listed.get(act.parent) or 0) >= act.bytes,
               MiB=(listed.get(act.parent) or 0) // MIB, used_MiB=used // MIB)  # fmt: skip
    steps.note(f"{act.name}: gputop shows it", bool(screen.wait_for(rf"\b{act.parent}\b", 6)))
    screen.keep(f"{act.name}-alive")
    made = time.monotonic()
    make(act)
    time.sleep(1.0)
    used, listed = driver.of(0)
    keeper = act.parent if act.name in ("fork", "dataloader", "stopped") else act.holders[0]
    steps.note(f"{act.name}: the memory stays, says NVML", used - before > act.bytes - SLACK and keeper in listed,
               used_MiB=used // MIB, listed={pid: (n or 0) // MIB for pid, n in listed.items()})  # fmt: skip
    if act.name in ("fork", "dataloader"):
        dead_pid(act, screen, steps, made)
    else:
        by_filter(act, screen, steps, keeper)
    end(act, screen, steps, driver, used, before)


def dead_pid(act: Act, screen: Any, steps: Any, made: float) -> None:
    """The dead pid's row, who holds it, the verdict, and F9 from the leaks view."""
    shown = screen.wait_for(rf"† *0 +{act.parent}\b", 8)
    steps.note(f"{act.name}: the dead pid has a row of its own", bool(shown), seconds=round(time.monotonic() - made, 1))
    held = screen.wait_for(rf"{act.parent}\b[^\n]*← (\d+)", 8)
    named = int(held[1]) if held else None
    steps.note(f"{act.name}: it names who keeps the memory", named in act.holders, named=named, holders=act.holders,
               seconds=round(time.monotonic() - made, 1))  # fmt: skip
    leak = screen.wait_for(rf"{act.parent}\b[^\n]*LEAK", 12)
    steps.note(f"{act.name}: it is called a LEAK", bool(leak), seconds=round(time.monotonic() - made, 1))
    screen.keep(f"{act.name}-ghost")
    screen.press("L")
    screen.wait_for("R1", 3)
    evidence = all(re.search(rf"\b{pid}\b", screen.text) for pid in act.holders)
    steps.note(f"{act.name}: the leaks view has rule, evidence and every holder", evidence and "R1" in screen.text)
    screen.keep(f"{act.name}-leaks")
    screen.press("F9")


def by_filter(act: Act, screen: Any, steps: Any, keeper: int) -> None:
    screen.press("/", settle=0.2)
    screen.press(f"pid:{keeper}", "Enter")
    said = screen.wait_for(r"\(stopped\)" if act.name == "stopped" else rf"\b{keeper}\b", 6)
    steps.note(f"{act.name}: its row says so", bool(said), row=next((x for x in screen.lines if str(keeper) in x), ""))
    screen.keep(f"{act.name}-row")
    screen.press("F9")


def end(act: Act, screen: Any, steps: Any, driver: Any, used: int, before: int) -> None:
    """End in good order from the dialog, and what came back."""
    opened = screen.wait_for("Cancel", 4)
    screen.keep(f"{act.name}-dialog")
    wanted = act.holders if act.name != "stopped" else [act.parent]
    named = [pid for pid in wanted if re.search(rf"\b{pid}\b", screen.text)]
    steps.note(f"{act.name}: F9 is about who keeps the memory", bool(opened) and len(named) == len(wanted), pids=named)
    screen.press("e", settle=0.2)
    pressed = time.monotonic()
    screen.press("Enter", settle=0.05)
    back = None
    said = None
    while time.monotonic() < pressed + 30 and (back is None or said is None):
        said = said or screen.wait_for(r"used memory down by [^│╎|]*", 0.05)
        now, _ = driver.of(0)
        if back is None and now <= before + SLACK:
            back = time.monotonic() - pressed
    screen.pump(1.5)
    screen.keep(f"{act.name}-outcome")
    after, listed = driver.of(0)
    steps.note(f"{act.name}: NVML: the memory is back", back is not None, seconds=back and round(back, 2),
               MiB_before=used // MIB, MiB_after=after // MIB, listed=list(listed))  # fmt: skip
    fell = re.search(r"used memory down by [^│╎|]*", screen.text)
    amount = re.search(r"by ([\d.]+)G", fell[0]) if fell else None
    close = amount is not None and abs(float(amount[1]) * GIB - (used - after)) < 0.2 * GIB
    steps.note(f"{act.name}: gputop says how much came back", close, said=fell[0].strip() if fell else None)
    screen.press("Enter")
    screen.press("Esc", settle=0.6)
    screen.press("Esc", settle=0.6)  # the filter
    screen.keep(f"{act.name}-after")
    gone = not any(_alive(pid) for pid in wanted)
    steps.note(f"{act.name}: none of them is left", gone)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tuple(ACTS), action="append")
    parser.add_argument("--act", choices=tuple(ACTS), help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.act:
        ACTS[a.act]()
        return
    import machine
    from keys_and_kill import Driver, Steps
    from live_screen import LiveScreen

    steps, driver = Steps(), Driver()
    setup = machine.RealMachine(columns=140, rows=45, settings='refresh = "500ms"\n')
    with LiveScreen(machine.GPUTOP, setup, machine.OUT / "screens" / "leaks") as screen:
        if not steps.note("starts and shows the GPUs", bool(screen.wait_for(r"\d+ ?W\b|°C", 15))):
            sys.exit("\n".join(line for line in screen.lines if line))
        for name in a.only or ACTS:
            print(f"== {name}", flush=True)
            before, _ = driver.of(0)
            act = Act(name)
            try:
                run(act, screen, steps, driver, before)
            finally:
                act.clean()
            until = time.monotonic() + 10
            while driver.of(0)[0] > before + SLACK and time.monotonic() < until:
                time.sleep(0.1)
        screen.press("e")
        screen.pump(1)
        screen.keep("events")
        log = screen.folder / "home" / ".local" / "state" / "gputop" / "actions.log"
        lines = log.read_text().splitlines() if log.exists() else []
        steps.note("every signal is in actions.log", len(lines) >= len(a.only or ACTS), lines=len(lines))
        print("\n".join(lines[:20]))
        screen.press("Esc")
        screen.send(b"q")
        steps.note("q quits", screen.wait_end(3) and screen.status == 0, status=screen.status)
        for crash in (screen.folder / "home").rglob("crash.log"):
            print(crash.read_text()[-3000:])
    # one file of all screens: the device machine gives back eight files at most
    screens = sorted((machine.OUT / "screens" / "leaks").glob("*.txt"))
    text = "\n".join(f"=== {file.stem}\n{file.read_text()}" for file in screens)
    (machine.OUT / "leaks-screens.txt").write_text(text)
    machine.keep("leaks.json", steps.all)
    sys.exit(0 if all(step["ok"] for step in steps.all) else 1)


if __name__ == "__main__":
    main()
