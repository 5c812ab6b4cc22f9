"""Makes the traces of the tests with a real torch, and what its key_averages() says of them:
``python tests/data/make_torch_traces.py DIRECTORY`` (torch 2.4 or later; the CPU build will do)."""

from __future__ import annotations

import gzip
import json
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
STACK_DEPTH = 5

import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile, record_function  # noqa: E402


def training(steps: int = 3):
    """What is profiled. The model is made before: the detach() of a parameter has the sequence number of a later op."""
    model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=True)  # ops that take lists of tensors
    keep = []

    def train(step_done) -> None:
        for step in range(steps):
            batch = torch.randn(32 * (1 + step % 2), 128)
            with record_function("forward"):
                loss = model(batch).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            keep.append(torch.zeros(1000))  # the leak
            step_done()

    return train


def make(directory: Path, name: str, **options: object) -> None:
    torch.set_num_threads(1)
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
        torch.set_default_device("cuda")
    work = training()
    with profile(activities=activities, profile_memory=True, record_shapes=True, **options) as profiler:
        work(profiler.step)
    path = directory / f"{name}.json"
    profiler.export_chrome_trace(str(path))
    stack_depths = (0, STACK_DEPTH) if options.get("with_stack") else (0,)
    if options.get("with_stack"):
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
        for form in ("timeline.json", "timeline.raw.json.gz"):
            profiler.export_memory_timeline(str(directory / f"{name}.{form}"), device=device)
    rows = [
        {
            "by_shape": by_shape,
            "stack_depth": depth,
            "stack": row.stack if depth else [],
            "name": row.key,
            "annotation": row.is_user_annotation,
            "on_device": "CPU" not in str(row.device_type),
            "shape": str(row.input_shapes) if by_shape else "",
            "calls": row.count,
            "cpu_memory": row.cpu_memory_usage,
            "self_cpu_memory": row.self_cpu_memory_usage,
            "device_memory": row.device_memory_usage,
            "self_device_memory": row.self_device_memory_usage,
            "cpu_time": row.cpu_time_total,
            "self_cpu_time": row.self_cpu_time_total,
            "device_time": row.device_time_total,
            "self_device_time": row.self_device_time_total,
        }
        for depth in stack_depths
        for by_shape in (False, True)
        for row in profiler.key_averages(group_by_input_shape=by_shape, group_by_stack_n=depth)
    ]
    (directory / f"{name}.json.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    (directory / f"{name}.rows.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode(), mtime=0))
    path.unlink()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    make(target, "torch_trace")
    # without verbose, key_averages(group_by_stack_n=...) of torch 2 finds no stacks (pytorch #100253)
    verbose = torch._C._profiler._ExperimentalConfig(verbose=True)
    make(target, "torch_trace_stacks", with_stack=True, experimental_config=verbose)
