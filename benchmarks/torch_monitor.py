"""What ``MemoryMonitor.step()`` costs a training: ``python benchmarks/torch_monitor.py [--devices N]``.

On a GPU with torch: all of it. Elsewhere: with a stand-in whose statistics are ready made, so that only the monitor's
own part is measured; torch's C call is 18 µs a device on an H200's host (facts: h200.md). Goal: 30 µs, and 20 µs a
device, for a step; a phase has two samples more.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

STEPS = 20_000
TORCH_CALL = 18.0  # µs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=1)
    options = parser.parse_args()
    real = False
    try:
        import torch

        real = torch.cuda.is_available()
    except ImportError:
        pass
    devices = options.devices
    if real:
        devices = min(devices, torch.cuda.device_count())
        held = [torch.zeros(1024, device=f"cuda:{n}") for n in range(devices)]
        print(f"torch {torch.__version__} on {torch.cuda.get_device_name(0)}, {len(held)} device(s)")
    else:
        from tests.unit.torch_monitor.fake_torch import FakeTorch

        fake = FakeTorch(devices=devices)
        ready = []
        for n in range(devices):
            fake.allocate(1 << 30, n)
            ready.append(fake._stats(n))
        fake._C._cuda_memoryStats = ready.__getitem__
        sys.modules["torch"] = fake
        print(f"a stand-in for torch, {devices} device(s)")

    from gputop.torch_monitor import MemoryMonitor

    with tempfile.TemporaryDirectory() as directory:
        import os

        os.environ["XDG_RUNTIME_DIR"] = directory
        for publish, phases in ((False, 0), (True, 0), (True, 3)):
            with MemoryMonitor(publish=publish) as monitor:
                costs = []
                for _ in range(STEPS):
                    begun = time.perf_counter()
                    for _ in range(phases):
                        with monitor.phase("phase"):
                            pass
                    monitor.step(epoch=1)
                    costs.append(time.perf_counter() - begun)
            mean, median = 1e6 * statistics.fmean(costs), 1e6 * statistics.median(costs)
            high = 1e6 * sorted(costs)[int(0.999 * STEPS)]
            samples = 1 + 2 * phases
            goal = 30 + 20 * devices if not phases else None
            torchs = 0.0 if real else TORCH_CALL * devices * samples
            words = (
                f"publish={publish}, {phases} phases: median {median:.1f} µs, mean {mean:.1f} µs, 99.9 % {high:.0f} µs"
            )
            if torchs:
                words += f"; with torch's own calls mean {mean + torchs:.1f} µs"
            if goal is not None:
                words += f" (goal {goal} µs: {'met' if mean + torchs <= goal else 'MISSED'})"
            print(words)


if __name__ == "__main__":
    main()
