"""On a GPU with torch: a training with a deliberate leak, watched live: `python benchmarks/hardware/torch_live.py`.

Checks, a line each: the split into live, cached and outside torch against memory_stats() of the same step; the snapshot
asked for as the T key does, and that the leaking line is first in it; the page of a real OOM; what step() costs; and a
CUDA profiler trace's table against key_averages() of the same run. Exit status 1 where one does not hold.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
OUT = Path(os.environ.get("OUT") or "/tmp/gputop-torch-live")

TRAINING = """
import json, sys, time, torch
from gputop.torch_monitor import MemoryMonitor
model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
held = []
with MemoryMonitor(record_history=True, directory=sys.argv[1]) as monitor:
    for n in range(100000):
        with monitor.phase("forward"):
            loss = model(torch.randn(4096, 4096, device="cuda")).square().mean()
        with monitor.phase("backward"):
            loss.backward()
        with monitor.phase("optimizer"):
            optimizer.step(); optimizer.zero_grad()
        held.append(torch.zeros(1 << 21, device="cuda"))  # THE LEAK: 8 MiB a step
        del loss
        monitor.step(n=n)
        stats = torch.cuda.memory_stats()
        print(json.dumps({"n": n, "allocated": stats["allocated_bytes.all.current"],
            "active": stats["active_bytes.all.current"], "reserved": stats["reserved_bytes.all.current"]}), flush=True)
        time.sleep(0.6)
"""
OOM = """
import sys, torch
from gputop.torch_monitor import MemoryMonitor
torch.cuda.set_per_process_memory_fraction(0.02)
with MemoryMonitor(record_history=True, directory=sys.argv[1]) as monitor:
    held = []
    while True:
        held.append(torch.zeros(1 << 27, device="cuda"))  # THE LINE
        monitor.step()
"""
failed = 0


def told(fine: bool, words: str) -> None:
    global failed
    failed += not fine
    print(f"{'ok  ' if fine else 'FAIL'} {words}", flush=True)


def watch(directory: Path) -> None:
    from gputop.history.gpu_history import NoHistory
    from gputop.procfs.proc_host_reader import ProcHostReader
    from gputop.sampling.bus import Bus
    from gputop.sampling.poller import Poller
    from gputop.sources.nvml import NvmlSource
    from gputop.torch_monitor import reports
    from gputop.torch_monitor.process_memory import torch_memory

    script = directory / "leaking_training.py"
    script.write_text(TRAINING)
    said: dict[int, dict[str, int]] = {}
    with open(directory / "training.err", "w") as errors:
        training = subprocess.Popen([sys.executable, str(script), str(directory)], stdout=subprocess.PIPE, text=True,
                                    stderr=errors, env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    poller = Poller(NvmlSource(), ProcHostReader(), Bus(), 0.5, NoHistory())
    poller.want("here", None)
    poller.start()
    assert training.stdout is not None
    compared, off, asked, answer = 0, 0, None, None
    until = time.monotonic() + 90
    for line in training.stdout:
        one = json.loads(line)
        said[one["n"]] = one
        snapshot = poller.latest
        rows = [p for p in snapshot.processes if p.pid == training.pid] if snapshot is not None else []
        for row in rows:
            gpu = snapshot.gpu(row.gpu_uuid)
            split = torch_memory(row, gpu, time.time())
            if split is None or row.torch is None:
                continue
            number = int(dict(row.torch.labels)["n"])
            if number in said:
                truth = said[number]
                same = (split.live, split.live + split.cached) == (truth["active"], truth["reserved"])
                compared, off = compared + 1, off + (not same)
                outside = split.outside
            if asked is None and number >= 12:
                asked = reports.ask(row.key, os.getuid(), "dump")
            answer = next((a for a in row.torch.answers if a.id == asked), None)
        if answer is not None or time.monotonic() > until:
            break
    told(compared > 5 and not off, f"split equals memory_stats() of the same step: {compared} times, {off} differ")
    told(compared > 0 and outside is not None and 2**28 < outside < 2**31, f"outside torch: {outside} bytes")
    told(
        answer is not None and answer.path is not None,
        f"snapshot asked for: {answer.message if answer else 'no answer'}",
    )
    why = subprocess.run(
        [sys.executable, "-m", "gputop", "why", "--gpu", "0"], capture_output=True, text=True, cwd=ROOT
    )
    (OUT / "why.txt").write_text(why.stdout + why.stderr)
    told("live" in why.stdout and str(training.pid) in why.stdout, "gputop why names it, and its live memory")
    training.kill()
    poller.stop()
    if answer is not None and answer.path is not None:
        command = [sys.executable, "-m", "gputop", "torch-snapshot", answer.path, "--summary"]
        page = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        (OUT / "snapshot.txt").write_text(page.stdout + page.stderr)
        told("leaking_training.py:15" in page.stdout, "the snapshot's page names the leaking line")


def oom(directory: Path) -> None:
    script = directory / "running_out.py"
    script.write_text(OOM)
    done = subprocess.run([sys.executable, str(script), str(directory / "oom")], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120)  # fmt: skip
    pages = list((directory / "oom").glob("*.txt"))
    text = pages[0].read_text() if pages else ""
    (OUT / "oom.txt").write_text(text + "\n" + done.stderr[-2000:])
    told("OutOfMemoryError" in done.stderr, "the script sees its OutOfMemoryError")
    told(
        "running_out.py:8" in text and "requested      512.00 MiB" in text, "the page names the line and what it asked"
    )


def trace(directory: Path) -> None:
    import torch

    from tests.torch_tables import compare

    python = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 12)
    script = ROOT / "tests" / "data" / "make_torch_traces.py"
    subprocess.run([sys.executable, str(script), str(directory)], check=True, capture_output=True, timeout=200)
    for name in ("torch_trace", "torch_trace_stacks"):
        count, differences = compare(directory, name, python, on_gpu=True)
        more = "; ".join(differences[:3])
        told(not differences, f"{name}: {count} rows beside key_averages(), {len(differences)} differences {more}")


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("XDG_RUNTIME_DIR", str(OUT))
    directory = OUT / "work"
    directory.mkdir(exist_ok=True)
    for check in (watch, oom, trace):
        try:
            check(directory)
        except Exception as error:  # the others are to be seen too
            told(False, f"{check.__name__}: {error!r}")
    subprocess.run([sys.executable, str(ROOT / "benchmarks" / "torch_monitor.py")], cwd=ROOT)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
