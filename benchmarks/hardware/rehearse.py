#!/usr/bin/env python3
"""Run a command here as on a machine with GPUs: the simulated driver, a stand-in for nvidia-smi, sleeps for load.py.

    rehearse.py -- python3 against_nvidia_smi.py --pairs 6
    rehearse.py -- ./run_all.sh --rehearsal

What the stand-in says is the simulated driver's, so a rehearsal tells whether the scripts work, not whether gputop's
figures are right.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import machine  # makes the harness and tests/ importable

# isort: split
from load import ALONE, GIB, MIB

from tests.driver import SimulatedDriver

HELD = {"holder-2G": 2, "holder-5G": 5, "big": 20, "context": 0, "loader": 3, "server": 1, "breather": 1, "rank": 4}
CONTEXT = 612 * MIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("command", nargs="+")
    a = parser.parse_args()
    done = threading.Event()
    with tempfile.TemporaryDirectory(prefix="gputop-rehearsal-") as name:
        folder = Path(name)
        stand_in = folder / "nvidia-smi"
        stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} {machine.HERE}/stand_in_nvidia_smi.py "$@"\n')
        stand_in.chmod(0o755)
        driver = SimulatedDriver(folder / "driver", gpus=a.gpus)
        roles = [(role, gpu) for gpu in range(a.gpus) for role in (*ALONE, *(["rank"] if a.gpus > 1 else []))]
        sleeps = {
            one: subprocess.Popen([f"python3 load.py --role {one[0]}", "7200"], executable="/bin/sleep")
            for one in roles
        }
        with driver.together():
            for gpu in range(a.gpus):
                driver.gpu(gpu).set(name="NVIDIA H200", memory_total=143771 * MIB, memory_reserved=615 * MIB).gpm()
                for role, on in roles:
                    if on == gpu:
                        memory = HELD[role] * GIB + CONTEXT
                        driver.gpu(gpu).process(sleeps[role, on].pid, memory=memory, sm=HELD[role], while_alive=True)

        def breathe() -> None:
            while not done.wait(1.6):
                for gpu in range(a.gpus):
                    pid = sleeps["breather", gpu].pid
                    driver.gpu(gpu).process(pid, memory=random.randrange(8 * GIB), sm=50, while_alive=True)

        threading.Thread(target=breathe, daemon=True).start()
        load = folder / "load.json"
        load.write_text(json.dumps({"gpus": a.gpus, "processes": [
            {"pid": sleep.pid, "role": role, "gpu": gpu} for (role, gpu), sleep in sleeps.items()
        ]}))  # fmt: skip
        threading.Thread(target=lambda: [sleep.wait() for sleep in sleeps.values()], daemon=True).start()
        environment = {**driver.env, "PATH": f"{folder}:{os.environ['PATH']}", "GPUTOP_LOAD": str(load)}
        environment.setdefault("OUT", str(machine.OUT))
        command = [sys.executable if word == "python3" else word for word in a.command]
        try:
            sys.exit(subprocess.run(command, env=environment, cwd=machine.HERE).returncode)
        finally:
            done.set()
            for sleep in sleeps.values():
                sleep.kill()


if __name__ == "__main__":
    main()
