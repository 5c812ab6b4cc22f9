"""Real memory snapshots beside memory_stats() of the same instant, read by gputop and compared to the byte.

    python benchmarks/hardware/torch_snapshots.py        (on a machine with a GPU and torch; $OUT: where files go)

Each story runs in a process of its own, several at a time: plain and expandable segments, several streams, a CUDA
graph's private pool, a ring that overflows, recording that begins late, a deliberate leak, an OOM dumped from the
observer. It prints a table and leaves small .pickle.gz files in $OUT for tests/data, each with the figures it must
agree with (.json).
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

MIB = 1 << 20
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
FIGURES = ("reserved", "allocated", "active", "requested", "inactive_split")


# ------------------------------------------------------------- stories, each in a process of its own


def record(entries: int | None = None, stacks: str = "python") -> None:
    import torch

    more = {} if entries is None else {"max_entries": entries}
    torch.cuda.memory._record_memory_history(enabled="all", context="all", stacks=stacks, **more)


def dump(name: str, settle: bool = True, **known: Any) -> None:
    """A snapshot, and memory_stats() before and after it: they must be the same instant. *settle* False: with what
    still waits for another stream."""
    import torch

    if settle:
        torch.cuda.synchronize()
    before = torch.cuda.memory_stats()
    data = torch.cuda.memory._snapshot()
    after = torch.cuda.memory_stats()
    stats = {f"{key}_bytes": after[f"{key}_bytes.all.current"] for key in FIGURES}
    stats["peak_requested_bytes"] = after["requested_bytes.all.peak"]
    same = all(before[f"{key}_bytes.all.current"] == after[f"{key}_bytes.all.current"] for key in FIGURES)
    folder = Path(os.environ["STORY_OUT"])
    (folder / f"{name}.pickle").write_bytes(pickle.dumps(data))
    known |= {"torch": torch.__version__, "same_instant": same, "expandable": "expandable" in name}
    (folder / f"{name}.json").write_text(json.dumps({"stats": stats, **known}))


def leak_line(kept: list[Any], n: int) -> None:
    import torch

    kept.append(torch.empty(3 * MIB + 100, dtype=torch.uint8, device="cuda"))


def train(steps: int, kept: list[Any] | None = None, width: int = 1024, batch: int = 512) -> Any:
    import torch

    layers = [torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, width)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for n in range(steps):
        x = torch.randn(batch + n % 7, width, device="cuda")
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if kept is not None:
            leak_line(kept, n)
    return model


def plain() -> None:
    record()
    keep = train(6)
    dump(os.environ["STORY"], layers=len(list(keep.parameters())))


def all_stacks() -> None:
    record(stacks="all")
    keep = train(3)
    dump(os.environ["STORY"], layers=len(list(keep.parameters())))


def no_history() -> None:
    keep = train(4)
    dump(os.environ["STORY"], layers=len(list(keep.parameters())))


def late() -> None:
    keep = [train(2)]
    record()
    keep.append(train(4))
    dump(os.environ["STORY"])


def ring() -> None:
    record(entries=300)
    keep = train(30)
    dump(os.environ["STORY"], layers=len(list(keep.parameters())))


def streams() -> None:
    import torch

    record()
    side = torch.cuda.Stream()
    keep = []
    for n in range(40):
        with torch.cuda.stream(side if n % 3 == 0 else torch.cuda.current_stream()):
            x = torch.empty((n % 9 + 1) * 3 * MIB + n, dtype=torch.uint8, device="cuda")
        if n % 4 == 0:
            keep.append(x)
    torch.cuda._sleep(2_000_000_000)  # keeps the default stream busy: what it uses stays pending
    with torch.cuda.stream(side):
        late_one = torch.empty(50 * MIB, dtype=torch.uint8, device="cuda")
    late_one.record_stream(torch.cuda.current_stream())
    del late_one
    dump(os.environ["STORY"], settle=False)


def graph() -> None:
    import torch

    record()
    static = torch.randn(512, 1024, device="cuda")
    weight = torch.randn(1024, 1024, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            _ = (static @ weight).relu()
    torch.cuda.current_stream().wait_stream(side)
    graph_ = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph_):
        out = (static @ weight).relu() @ weight
    graph_.replay()
    dump(os.environ["STORY"], out=out.numel())


def leak() -> None:
    record()
    kept: list[Any] = []
    keep = train(24, kept)
    dump(os.environ["STORY"], leaked_bytes=len(kept) * (3 * MIB + 100), leaked_count=len(kept), kept=id(keep) > 0)


def oom() -> None:
    import torch

    torch.cuda.init()
    torch.cuda.set_per_process_memory_fraction(2560 * MIB / torch.cuda.get_device_properties(0).total_memory)
    record()
    told: dict[str, Any] = {}

    def observer(device: int, asked: int, limit: int, free: int) -> None:
        told.update(oom_asked=asked, oom_limit=limit, oom_free=free)
        dump(os.environ["STORY"], **told)

    torch._C._cuda_attach_out_of_memory_observer(observer)
    keep = [torch.empty(160 * MIB + n, dtype=torch.uint8, device="cuda") for n in range(6)]
    holes = [torch.empty(30 * MIB, dtype=torch.uint8, device="cuda") for _ in range(20)]
    del holes[::2]
    with contextlib.suppress(torch.OutOfMemoryError):
        while True:
            keep.append(torch.empty(162 * MIB, dtype=torch.uint8, device="cuda"))


STORIES: dict[str, tuple[Callable[[], None], dict[str, str]]] = {
    "plain": (plain, {}),
    "expandable": (plain, EXPANDABLE),
    "all-stacks": (all_stacks, {}),
    "no-history": (no_history, {}),
    "late": (late, {}),
    "ring": (ring, {}),
    "ring-expandable": (ring, EXPANDABLE),
    "streams": (streams, {}),
    "streams-expandable": (streams, EXPANDABLE),
    "graph": (graph, {}),
    "leak": (leak, {}),
    "leak-expandable": (leak, EXPANDABLE),
    "oom": (oom, {}),
    "oom-expandable": (oom, EXPANDABLE),
}


# ---------------------------------------------------------------------------------- comparison


def compare(path: Path, known: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(figure, gputop's, torch's) of one snapshot."""
    from gputop.torch_files.snapshot.json_report import facts
    from gputop.torch_files.snapshot.memory_snapshot import open_snapshot

    snapshot = open_snapshot(path)
    device = next(d for d in facts(snapshot, snapshot.devices)["devices"] if d["device"] == 0)
    stats = known["stats"]
    for key in FIGURES:
        yield key, device[f"{key}_bytes"], stats[f"{key}_bytes"]
    if "late" not in path.stem and "ring" not in path.stem and device["events"]:
        # torch's peak is since the process began; ours since the first entry
        yield "peak requested", device["peak_requested_bytes"], stats["peak_requested_bytes"]
        yield "held before the trace", device["coverage"]["held_before_bytes"], 0
        yield "reserved before", snapshot.device(0).reserved_at_start, 0  # type: ignore[union-attr]
    if device["events"]:
        replayed = snapshot.device(0)
        assert replayed is not None
        least = min(replayed.live(n) for n in range(-1, replayed.entries))
        yield "curve below 0", min(0, least), 0
        yield "unmatched", device["coverage"]["unmatched_events"], 0
    if "leaked_bytes" in known:
        first = device["leaks"][0]
        yield "leak: line", first["frames"][0]["name"], "leak_line"
        yield "leak: bytes", first["bytes"], known["leaked_bytes"]
        yield "leak: count", first["count"], known["leaked_count"]
    if "oom_asked" in known:
        event = device["oom_events"][-1]
        yield "oom: asked", event["asked_bytes"], known["oom_asked"]
        yield "oom: device free", event["device_free_bytes"], known["oom_free"]
        print(f"    {event['verdict']}\n    {' '.join(event['advice'])}")


def main() -> int:
    out = Path(os.environ.get("OUT") or tempfile.mkdtemp(prefix="torch-snapshots-"))
    out.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[1:] or list(STORIES)
    wrong = 0

    def tell(name: str) -> tuple[float, subprocess.CompletedProcess[str]]:
        env = {**os.environ, **STORIES[name][1], "STORY": name, "STORY_OUT": str(out)}
        started = time.perf_counter()
        done = subprocess.run([sys.executable, __file__, "--story", name], env=env, capture_output=True, text=True)
        return time.perf_counter() - started, done

    told = ThreadPoolExecutor(min(len(wanted), os.cpu_count() or 1)).map(tell, wanted)
    for name, (lasted, done) in zip(wanted, told, strict=True):
        print(f"{name}: {lasted:.1f} s", flush=True)
        path = out / f"{name}.pickle"
        if not path.exists():
            print(f"    no snapshot: {done.stderr.strip().splitlines()[-1:] or done.returncode}")
            wrong += 1
            continue
        known = json.loads((out / f"{name}.json").read_text())
        started = time.perf_counter()
        try:
            for figure, ours, theirs in compare(path, known):
                agrees = ours == theirs
                wrong += not agrees
                print(f"    {'ok   ' if agrees else 'WRONG'} {figure:<22} {ours!s:>16} {theirs!s:>16}")
        except Exception as error:  # a table with a hole is better than none
            wrong += 1
            print(f"    WRONG {type(error).__name__}: {error}")
        entries = f"opened and analysed in {time.perf_counter() - started:.2f} s, {path.stat().st_size / 1e3:.0f} kB"
        print(f"    {entries}, same instant: {known['same_instant']}, torch {known['torch']}", flush=True)
        raw = path.read_bytes()
        packed = gzip.compress(raw, 9, mtime=0)
        if len(packed) < 300_000:
            (out / f"{name}.pickle.gz").write_bytes(packed)
        path.unlink()
    print(f"{'everything agrees' if not wrong else f'{wrong} differences'}; files in {out}")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--story"]:
        STORIES[sys.argv[2]][0]()
    else:
        sys.exit(main())
