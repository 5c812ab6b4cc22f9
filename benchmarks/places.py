"""Where things are, the driver's library, and live processes for the simulated GPUs."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "benchmarks"
CACHE = ROOT / ".cache" / "benchmarks"
sys.path.insert(0, str(ROOT))


def library() -> Path:
    """The folder of the simulated driver's library, built when needed."""
    from tests.driver import build

    return build()


def gputop() -> list[str]:
    """The command line of this checkout's gputop."""
    installed = Path(sys.executable).with_name("gputop")
    return [str(installed)] if installed.exists() else [sys.executable, "-m", "gputop"]


def run_folder() -> Path:
    """A fresh folder for one run."""
    CACHE.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="run-", dir=CACHE))


def quiet(command: list[str | Path], **more: object) -> str:
    """Run a command; what it said is shown only when it failed (RuntimeError)."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)  # type: ignore
    if done.returncode:
        raise RuntimeError(f"{done.stdout}\nfailed ({done.returncode}): {' '.join(map(str, command))}")
    return str(done.stdout)


class GpuProcesses:
    """`gpus` × `each` live `sleep`s with the command lines and users of GPU work; `file` names their pids."""

    COMMANDS = (
        "python3 train.py --config configs/llama-70b.yaml --rank {i} --world-size 64",
        "python3 -m vllm.entrypoints.openai.api_server --model mixtral-8x7b --port {port}",
        "/opt/conda/bin/python finetune.py --lr 3e-5 --batch {i}",
        "ollama runner --model llama3 --port {port}",
        "jupyter-kernel --f kernel-{i}.json",
        "tritonserver --model-repository=/models --http-port={port}",
        "ffmpeg -hwaccel cuda -i in{i}.mkv -c:v hevc_nvenc out{i}.mkv",
        "Xorg :{i} -nolisten tcp",
    )
    USERS = ("root", "daemon", "www-data", "nobody", "backup")

    def __init__(self, gpus: int, each: int) -> None:
        self.gpus, self.each = gpus, each
        self.children: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> GpuProcesses:
        self.folder = run_folder()
        self.file = self.folder / "pids"
        sleep = shutil.which("sleep")
        known = {entry.pw_name for entry in pwd.getpwall()}
        users = [user for user in self.USERS if user in known] if os.geteuid() == 0 else []
        for n in range(self.gpus * self.each):
            i = n % max(1, self.each)
            command = self.COMMANDS[i % len(self.COMMANDS)].format(i=n, port=8000 + n)
            user = users[n * 7 % len(users)] if users else None
            self.children.append(subprocess.Popen([command, "7200"], executable=sleep, user=user, cwd="/"))
        self.file.write_text("".join(f"{child.pid}\n" for child in self.children))
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            child.kill()
        for child in self.children:
            child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
