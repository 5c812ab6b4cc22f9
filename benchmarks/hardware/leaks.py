#!/usr/bin/env python3
"""What memory does when processes die, on a real GPU, and what gputop says and frees: the table of facts/h200.md.

leaks.py          # about a minute; needs torch; takes 6 GiB of GPU 0, touches nobody else's processes
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

MIB = 1024**2
BYTES = 5 * 1024 * MIB
HANDLE = Path("/tmp/gputop-leaks-handle")


# ---------------------------------------------------------------------- the processes


def say(*words: object) -> None:
    print(*words, flush=True)


def tensor() -> Any:
    import torch

    made = torch.ones(BYTES, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    return made


def forker() -> None:
    kept = tensor()
    pid = os.fork()
    if not pid:
        time.sleep(600)
        os._exit(0)
    say("ready", pid, kept.device)
    time.sleep(600)


def loader() -> None:
    """Workers that are at work (in the data set, here for ever) do not look whether their parent lives."""
    import torch

    class Slow(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 64

        def __getitem__(self, n: int) -> Any:
            time.sleep(600)

    kept = tensor()
    batches = iter(torch.utils.data.DataLoader(Slow(), num_workers=4))
    say("ready", *(worker.pid for worker in batches._workers), kept.device)
    time.sleep(600)


def user() -> None:
    kept = tensor()
    say("ready", kept.device)
    time.sleep(600)


def producer() -> None:
    from torch.multiprocessing import reductions

    kept = tensor()
    HANDLE.write_bytes(pickle.dumps(reductions.reduce_tensor(kept)))
    say("ready")
    time.sleep(600)


def consumer() -> None:
    import torch

    torch.ones(1, device="cuda")
    rebuild, arguments = pickle.loads(HANDLE.read_bytes())
    kept = rebuild(*arguments)
    say("ready", int(kept[0]))
    time.sleep(600)


ROLES = {role.__name__: role for role in (forker, loader, user, producer, consumer)}


def start(role: str) -> tuple[subprocess.Popen[str], list[int]]:
    process = subprocess.Popen(
        [sys.executable, __file__, role], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    words = process.stdout.readline().split()
    assert words[:1] == ["ready"], f"{role} did not start"
    return process, [int(word) for word in words[1:] if word.isdigit()]


# ------------------------------------------------------------------------- gputop


class Gputop:
    """gputop's reading of GPU 0, without the screen; its clock can be put forward."""

    def __init__(self) -> None:
        from gputop.leaks.finder import LeakFinder
        from gputop.leaks.proc_investigator import ProcInvestigator
        from gputop.procfs.proc_host_reader import ProcHostReader
        from gputop.settings import Settings
        from gputop.sources.nvml import NvmlSource

        self.source = NvmlSource()
        self.source.open()
        self.source.count()
        self.source.read(0)
        self.source.read_slow(0)
        self.reader = ProcHostReader()
        self.finder = LeakFinder(ProcInvestigator(self.reader.facts_of))
        self.settings = Settings()
        self.later = 0.0

    def snapshot(self) -> Any:
        from gputop.sampling.snapshot_builder import assemble

        self.source.read_medium(0)
        reading = self.source.read(0)
        pids = {process.pid for process in reading.processes}
        facts = dict(self.reader.read(pids))
        exists = {pid: self.reader.exists(pid) for pid in pids if pid not in facts}
        return assemble(time.time() + self.later, [reading], facts, exists, host=self.reader.machine())

    def look(self, later: float = 0.0) -> Any:
        self.later += later
        return self.finder.step(self.snapshot(), self.settings)

    def used(self) -> int:
        return int(self.snapshot().gpus[0].memory_used_bytes or 0)

    def until(self, condition: Callable[[Any], bool], seconds: float = 15.0) -> float | None:
        """Seconds until it was so; None: never."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if condition(self.snapshot()):
                return time.monotonic() - began
            time.sleep(0.02)
        return None


def show(report: Any) -> None:
    for verdict in (*report.verdicts, *report.notes):
        say(f"    {verdict.verdict.name} {verdict.process.pid}: {(verdict.memory_bytes or 0) / MIB:.0f} MiB")
        for finding in verdict.findings:
            say(f"        {finding.rule} {finding.words}")
    if report.scan is not None:
        say(f"    scan: {report.scan.took * 1000:.0f} ms, {report.scan.words()}")


def free(gputop: Gputop, keys: tuple[Any, ...]) -> None:
    """End them as the kill screen does, and say what came back."""
    from gputop.signals.protocol import Result, Target
    from gputop.signals.sender import ProcSignals

    before, signals = gputop.used(), ProcSignals()
    for key in keys:
        hold = signals.open(Target(key))
        if isinstance(hold, Result):
            say(f"    {key.pid}: {hold.outcome.value}: {hold.message}")
            continue
        say(f"    {key.pid}: {hold.send(signal.SIGKILL).message}")
        hold.close()
    took = gputop.until(lambda snapshot: before - (snapshot.gpus[0].memory_used_bytes or 0) >= 0.9 * BYTES)
    say(
        f"    came back: {(before - gputop.used()) / MIB:.0f} MiB"
        + (f" in {took:.2f} s" if took is not None else " (not all)")
    )


def dead_pid_of(gputop: Gputop, role: str) -> bool:
    process, children = start(role)
    gputop.until(lambda snapshot: any(p.pid == process.pid for p in snapshot.processes))
    show(gputop.look())
    process.kill()
    process.wait()
    time.sleep(1.0)
    gputop.look()
    report = gputop.look(later=6.0)
    show(report)
    leaks = [verdict for verdict in report.verdicts if verdict.verdict.name == "LEAK"]
    found = bool(leaks) and {key.pid for key in leaks[0].targets} == set(children)
    say(f"    holders {'are exactly its children' if found else 'EXPECTED'} {children}")
    free(gputop, leaks[0].targets if leaks else ())
    for pid in children:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return found and gputop.look(later=1.0).dead_pids == ()


def stopped(gputop: Gputop) -> bool:
    process, _ = start("user")
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(0.3)
    gputop.look()
    os.kill(process.pid, signal.SIGTERM)
    time.sleep(1.0)
    report = gputop.look(later=11 * 60)
    show(report)
    (verdict,) = [verdict for verdict in report.verdicts if verdict.process.pid == process.pid]
    free(gputop, verdict.targets)
    process.wait()
    return verdict.verdict.name == "SUSPECT" and verdict.rules[0] == "R6"


def shared(gputop: Gputop) -> bool:
    one, _ = start("producer")
    other, _ = start("consumer")
    parts = gputop.look().breakdowns[0]
    figures = {p.pid: (p.memory_bytes or 0) // MIB for p in gputop.snapshot().processes}
    say(f"    producer {figures.get(one.pid)} MiB, consumer {figures.get(other.pid)} MiB; {parts}")
    one.kill()
    one.wait()
    time.sleep(1.5)
    gputop.look()
    report = gputop.look(later=30.0)
    figures = {p.pid: (p.memory_bytes or 0) // MIB for p in gputop.snapshot().processes}
    say(f"    producer killed: {figures} MiB")
    show(report)
    other.kill()
    other.wait()
    return not report.dead_pids and not [v for v in report.verdicts if v.verdict.name == "LEAK"]


def main() -> None:
    if len(sys.argv) > 1:
        ROLES[sys.argv[1]]()
        return
    gputop = Gputop()
    host = gputop.reader.machine()
    gpu = gputop.snapshot().gpus[0]
    say(f"{gpu.name}, minor {gpu.facts.minor_number}; pids are the host's: {host.pids_are_host}")
    say(os.readlink("/proc/self/ns/pid"), *os.uname()[:3])
    results = {}
    for name, run in (
        ("a child that was forked after CUDA was used", lambda: dead_pid_of(gputop, "forker")),
        ("a DataLoader of four workers", lambda: dead_pid_of(gputop, "loader")),
        ("a stopped process", lambda: stopped(gputop)),
        ("CUDA IPC", lambda: shared(gputop)),
    ):
        say(f"{name}:")
        try:
            results[name] = run()
        except Exception as error:
            say(f"    failed: {error!r}")
            results[name] = False
    say(json.dumps(results))


if __name__ == "__main__":
    main()
