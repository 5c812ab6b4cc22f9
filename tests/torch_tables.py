"""The table of a profiler trace beside torch's own ``key_averages()`` of the same run: used by tests and on hardware.

``tests/data/make_torch_traces.py`` writes both. On a GPU two things are torch's alone. What the driver does by the way
(it loads code when that is called first) has a number in torch that it does not write into the trace and takes for an
op's: the kernels of that op count there once more, and in all that is around it. And torch finds the forward op of one
TBackward0 by a sequence number that a detach() of long before has too.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, Final

from gputop.torch_files.trace.events import ANNOTATION, DEVICE, DEVICE_ANNOTATION
from gputop.torch_files.trace.profiler_trace import open_trace

FIGURES: Final = ("calls", "cpu_memory", "self_cpu_memory", "device_memory", "self_device_memory")
TIMES: Final = ("cpu_time", "self_cpu_time", "device_time", "self_device_time")
TORCHS_ALONE: Final = ("TBackward0", "aten::t", "aten::transpose", "aten::as_strided")  # by stack, on a GPU
NEAR: Final = 0.01  # µs: torch sums floats of µs, here whole ns are summed


def counted_twice(folder: Path, name: str) -> frozenset[str]:
    """Names of ops that the driver's own work lies in: of these torch's device times may be larger."""
    events = json.loads(gzip.decompress((folder / f"{name}.json.gz").read_bytes()))["traceEvents"]
    spans = [(e["name"], e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"]
    by_the_way = [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "overhead"]
    twice = frozenset(name for name, begins, ends in spans if any(begins <= b and e <= ends for b, e in by_the_way))
    assert len(twice) < len({name for name, _, _ in spans}) / 2
    return twice


def compare(folder: Path, name: str, python: bool = True, on_gpu: bool = False) -> tuple[int, list[str]]:
    """(rows of all tables of *name*, how ours differ from torch's, a line each). *python*: the table has Python's
    functions, as torch's has from 2.12 on."""
    twice = counted_twice(folder, name) if on_gpu else frozenset()
    alone = TORCHS_ALONE if on_gpu else ()
    trace = open_trace(folder / f"{name}.json.gz")
    wanted = json.loads(gzip.decompress((folder / f"{name}.rows.json.gz").read_bytes()))
    count, differences = 0, []
    for by_shape, depth in sorted({(w["by_shape"], w["stack_depth"]) for w in wanted}):
        torchs = {
            (w["name"], w["annotation"], w["on_device"], w["shape"], tuple(w["stack"])): w
            for w in wanted
            if (w["by_shape"], w["stack_depth"]) == (by_shape, depth)
        }
        marks, device = (ANNOTATION, DEVICE_ANNOTATION), (DEVICE, DEVICE_ANNOTATION)
        ours = {
            (row.name, row.kind in marks, row.kind in device, row.shape, row.stack): row
            for row in trace.rows(by_shape, depth, python)
        }
        if depth:
            ours = {key: row for key, row in ours.items() if key[0] not in alone and row.kind != DEVICE_ANNOTATION}
            torchs = {
                key: row for key, row in torchs.items() if key[0] not in alone and not (row["annotation"] and key[2])
            }
        count += len(torchs)
        table = f"{name}, {'by shape' if by_shape else 'all shapes'}, {depth} frames"
        differences += [f"{table}: missing {key}" for key in torchs.keys() - ours.keys()]
        differences += [f"{table}: not torch's {key}" for key in ours.keys() - torchs.keys()]
        for key in ours.keys() & torchs.keys():
            differences += [f"{table}: {key}: {what}" for what in _figures(ours[key], torchs[key], key[0] in twice)]
    return count, differences


def _figures(row: Any, torchs: dict[str, Any], twice: bool) -> list[str]:
    found = [(name, getattr(row, name), torchs[name]) for name in FIGURES if getattr(row, name) != torchs[name]]
    for name in TIMES:
        figure, torch = getattr(row, name), torchs[name]
        more = twice and "device_time" in name and figure < torch + NEAR
        if not more and abs(figure - torch) > max(NEAR, 1e-6 * abs(torch)):
            found.append((name, figure, torch))
    return [f"{name} {figure}, torch's {torch}" for name, figure, torch in found]
