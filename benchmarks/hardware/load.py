#!/usr/bin/env python3
"""A changing load on every GPU, as a shared machine has it. Needs torch; ends by itself and on SIGTERM.

    load.py --seconds 500 &          # writes $OUT/load.json when everything runs

On each GPU: one that grows, computes and shrinks (breather), two idle holders, one that holds about 20 GiB (big), one
bare CUDA context, a small training with a DataLoader of two workers (loader), a service that answers now and then
(server). With two GPUs or more also a training over all of them: one rank a GPU, gradients summed by NCCL.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MIB, GIB = 1024**2, 1024**3
STEP = 1.6  # seconds between changes of memory: two readings of nvidia-smi and one of gputop fit in
# NVLink multicast off: on a shared host it can put the GPUs out of service (see README.md).
SAFE = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
ALONE = ("breather", "holder-2G", "holder-5G", "big", "context", "loader", "server")


# ---------------------------------------------------------------- what each process does


def breather(torch: Any, ready: Any) -> None:
    """Memory goes up and down by steps of 0.5 to 2 GiB, with matrix products in between."""
    blocks: list[Any] = []
    factor = torch.randn(6144, 6144, device="cuda", dtype=torch.bfloat16)
    ready()
    while True:
        for step in (1, 2, 4, 3, 4, -2, 2, -1, -2, 3, -9):
            if step > 0:
                blocks.append(torch.ones(step * GIB // 2, dtype=torch.uint8, device="cuda"))
            else:
                del blocks[step:]
                torch.cuda.empty_cache()
            until = time.monotonic() + STEP
            while time.monotonic() < until - STEP * (0.7 if step < 0 else 0.2):
                for _ in range(20):
                    factor @ factor
                torch.cuda.synchronize()
            time.sleep(max(0.0, until - time.monotonic()))


def hold(torch: Any, ready: Any, bytes_: int) -> None:
    """An idle process with memory, as notebooks are."""
    block = torch.ones(max(1, bytes_), dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    ready()
    while True:
        time.sleep(1)
        assert block.is_cuda


def server(torch: Any, ready: Any) -> None:
    """A short burst of work each second."""
    weights = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    ready()
    while True:
        for _ in range(60):
            weights @ weights
        torch.cuda.synchronize()
        time.sleep(1)


def loader(torch: Any, ready: Any) -> None:
    """Training fed by two worker processes through pinned memory, with a steady stream over PCIe."""
    from torch.utils.data import DataLoader, Dataset

    room = os.statvfs("/dev/shm")
    batch = 32 if room.f_bavail * room.f_frsize > 2 * GIB else 2

    class Images(Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 1 << 30

        def __getitem__(self, _: int) -> Any:
            time.sleep(0.002)
            return torch.ones(3, 224, 224)

    feed = DataLoader(Images(), batch_size=batch, num_workers=2, pin_memory=True)
    net = torch.nn.Conv2d(3, 64, 7).cuda()
    staged = torch.ones(64 * MIB, dtype=torch.uint8).pin_memory()
    for n, images in enumerate(feed):
        net(images.cuda(non_blocking=True)).mean().backward()
        staged.cuda(non_blocking=True)
        torch.cuda.synchronize()
        if n == 2:
            ready()


def rank(torch: Any, ready: Any) -> None:
    """One process of a data-parallel training."""
    import torch.distributed as dist

    dist.init_process_group("nccl")
    weights = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    gradient = torch.ones(128 * MIB, device="cuda", dtype=torch.bfloat16)
    step = 0
    while True:
        for _ in range(15):
            weights @ weights
        dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
        torch.cuda.synchronize()
        time.sleep(0.02)
        step += 1
        if step == 3:
            ready()


def launcher(file: Path, gpus: int) -> None:
    """As torchrun: a rank for each GPU; when one has died the others are ended a while later."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {**os.environ, **SAFE, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(gpus)}
    common |= {"NCCL_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(_command("rank", n, file), env={**common, "RANK": str(n), "LOCAL_RANK": str(n)})
        for n in range(gpus)
    ]
    while all(one.poll() is None for one in ranks):
        time.sleep(0.2)
    time.sleep(12)  # what a killed rank leaves behind can be looked at
    for one in ranks:
        one.kill()


# --------------------------------------------------------------------- starting and ending


def _command(role: str, gpu: int, file: Path) -> list[str]:
    return [sys.executable, __file__, "--role", role, "--gpu", str(gpu), "--file", str(file)]


def _end_with_parent() -> None:
    """prctl(PR_SET_PDEATHSIG, SIGKILL)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def be(role: str, gpu: int, file: Path, gpus: int) -> None:
    _end_with_parent()
    if role == "launcher":
        launcher(file, gpus)
        return
    import torch

    torch.cuda.set_device(gpu)

    def ready() -> None:
        (file.parent / f"{file.name}.{role}.{gpu}").write_text(str(os.getpid()))

    if role.startswith("holder") or role in ("big", "context"):
        hold(torch, ready, {"holder-2G": 2 * GIB, "holder-5G": 5 * GIB, "big": 20 * GIB, "context": 1}[role])
    else:
        {"breather": breather, "server": server, "loader": loader, "rank": rank}[role](torch, ready)


def gpu_count() -> int:
    said = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    return len([line for line in said.splitlines() if line.startswith("GPU ")])


def run(file: Path, seconds: float, wait: float, roles: tuple[str, ...]) -> None:
    gpus = gpu_count()
    file.parent.mkdir(parents=True, exist_ok=True)
    for old in file.parent.glob(f"{file.name}*"):
        old.unlink()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    until = time.monotonic() + seconds
    wanted = [(role, gpu) for gpu in range(gpus) for role in roles]
    environment = {**os.environ, **SAFE}
    children = {one: subprocess.Popen(_command(*one, file), env=environment) for one in wanted}
    if gpus > 1:
        launch = subprocess.Popen([*_command("launcher", 0, file), "--gpus", str(gpus)], env=environment)
        children |= {("rank", gpu): launch for gpu in range(gpus)}
        wanted = list(children)
    try:
        deadline = min(until, time.monotonic() + wait)
        missing = wanted
        while any(children[one].poll() is None for one in missing) and time.monotonic() < deadline:
            time.sleep(0.2)
            missing = [one for one in missing if not _ready_file(file, *one).exists()]
        processes = [
            {"pid": int(_ready_file(file, role, gpu).read_text()), "role": role, "gpu": gpu}
            for role, gpu in wanted
            if (role, gpu) not in missing
        ]
        for one in wanted:
            _ready_file(file, *one).unlink(missing_ok=True)
        said = {"gpus": gpus, "processes": processes, "missing": [f"{role} on GPU {gpu}" for role, gpu in missing]}
        file.with_suffix(".new").write_text(json.dumps(said, indent=1))
        file.with_suffix(".new").rename(file)
        print(f"load: {len(processes)} processes on {gpus} GPU(s); missing: {said['missing'] or 'none'}", flush=True)
        while time.monotonic() < until:
            time.sleep(0.5)
    finally:
        for child in children.values():
            child.kill()
        for child in children.values():
            child.wait()


def _ready_file(file: Path, role: str, gpu: int) -> Path:
    return file.parent / f"{file.name}.{role}.{gpu}"


def main() -> None:
    default = Path(os.environ.get("GPUTOP_LOAD") or Path(os.environ.get("OUT", "/tmp")) / "load.json")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=500, help="ends then")
    parser.add_argument("--wait", type=float, default=90, help="seconds to get ready, at most")
    parser.add_argument("--file", type=Path, default=default, help="who runs, as JSON, once all of them do")
    parser.add_argument("--roles", default=",".join(ALONE), help="what runs on each GPU")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--gpu", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--gpus", type=int, default=1, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.role:
        be(a.role, a.gpu, a.file, a.gpus)
    else:
        run(a.file, a.seconds, a.wait, tuple(a.roles.split(",")))


if __name__ == "__main__":
    main()
