#!/usr/bin/env python3
"""PCIe, NVLink and GPM as gputop tells them, beside `nvidia-smi dmon` and `nvidia-smi nvlink` over the same seconds.

--xid instead: a process makes an illegal memory access, and gputop must hear of it. $OUT/links.json, $OUT/xid.json.

The figures are means over some seconds of a load that never rests, so they agree roughly: the table shows ratios.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections import defaultdict
from typing import Any

import machine

MB, MIB = 1e6, 1024**2
GPM = {2: "sm_active_percent", 3: "sm_occupancy_percent", 5: "tensor_active_percent", 10: "dram_bandwidth_percent",
       20: "pcie_tx_bytes_per_second", 21: "pcie_rx_bytes_per_second", 60: "nvlink_rx_bytes_per_second",
       61: "nvlink_tx_bytes_per_second"}  # fmt: skip
ILLEGAL = """
import cupy, numpy
cupy.RawKernel('extern "C" __global__ void wrong(int *p) { *p = 1; }', 'wrong')((1,), (1,), (numpy.uint64(64),))
cupy.cuda.runtime.deviceSynchronize()
"""


def smi(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(["nvidia-smi", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def dmon_means(text: str) -> dict[int, dict[str, float]]:
    """By GPU and column: the mean of dmon's lines, the first of each GPU left out (it has no past)."""
    head: list[str] = []
    columns: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in text.splitlines():
        words = line.split()
        if line.startswith("#"):
            if words[1:2] in (["gpu"], ["Date"]) or "gpu" in words:
                head = words[1:]
        elif head and len(words) == len(head) and words[0].isdecimal():
            for name, word in zip(head[1:], words[1:], strict=True):
                if (figure := machine.number(word)) is not None:
                    columns[int(words[0])][name].append(figure)
    return {
        gpu: {name: sum(x[1:]) / len(x[1:]) for name, x in by_name.items() if len(x) > 1}
        for gpu, by_name in columns.items()
    }


def nvlink_bytes(text: str) -> dict[int, tuple[float, float]]:
    """By GPU: (received, sent) over all links since the driver was loaded, of `nvidia-smi nvlink -gt d`."""
    found: dict[int, list[float]] = {}
    gpu = -1
    for line in text.splitlines():
        if named := re.match(r"GPU (\d+):", line.strip()):
            gpu = int(named[1])
            found[gpu] = [0.0, 0.0]
        elif moved := re.search(r"Link \d+: Data (Tx|Rx): (\d+) (KiB|MiB|GiB|B)", line):
            scale = {"B": 1, "KiB": 1024, "MiB": MIB, "GiB": 1024 * MIB}[moved[3]]
            found[gpu][moved[1] == "Tx"] += int(moved[2]) * scale
    return {gpu: (rx, tx) for gpu, (rx, tx) in found.items()}


class Watch:
    """gputop's poller at 500 ms; the snapshots of some seconds."""

    def __init__(self) -> None:
        from gputop.procfs.proc_host_reader import ProcHostReader
        from gputop.sampling.bus import Bus
        from gputop.sampling.poller import Poller
        from gputop.sources.nvml import NvmlSource

        self.poller = Poller(NvmlSource(), ProcHostReader(), Bus(), interval=0.5)
        self.poller.start()

    def snapshots(self, seconds: float) -> list[Any]:
        seen: list[Any] = []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            latest = self.poller.latest
            if latest is not None and (not seen or latest is not seen[-1]):
                seen.append(latest)
            time.sleep(0.02)
        return seen


def means(snapshots: list[Any]) -> dict[int, dict[str, float]]:
    """By GPU: the mean of what GPM and the counters told."""
    sums: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for snapshot in snapshots:
        for gpu in snapshot.gpus:
            for name in GPM.values():
                if (figure := getattr(gpu, name)) is not None:
                    sums[gpu.index][name].append(figure)
    return {gpu: {name: sum(x) / len(x) for name, x in by_name.items()} for gpu, by_name in sums.items()}


def links(watch: Watch, seconds: int) -> dict[str, Any]:
    watch.snapshots(3)
    ids = ",".join(map(str, GPM))
    started = time.monotonic()
    before = nvlink_bytes(smi("nvlink", "-gt", "d").communicate()[0])
    running = (
        smi("dmon", "-s", "t", "-c", str(seconds)),
        smi("dmon", "-s", "u", "--gpm-metrics", ids, "-c", str(seconds)),
    )
    ours = means(watch.snapshots(seconds))
    said = [one.communicate(timeout=30)[0] for one in running]
    text = smi("nvlink", "-gt", "d").communicate()[0]
    took, after = time.monotonic() - started, nvlink_bytes(text)
    throughput, gpm = map(dmon_means, said)
    columns = next((line.split()[-len(GPM) :] for line in said[1].splitlines() if line.startswith("#")), [])
    rows: list[list[object]] = []
    for gpu, mine in ours.items():

        def row(
            what: str, name: str, theirs: float | None, unit: float, gpu: int = gpu, mine: dict[str, float] = mine
        ) -> None:
            own = mine[name] / unit if name in mine else None
            ratio = f"{own / theirs:.2f}" if own is not None and theirs else None
            rows.append(
                [gpu, what, None if own is None else f"{own:.1f}", None if theirs is None else f"{theirs:.1f}", ratio]
            )

        row("PCIe RX MB/s, dmon -s t", "pcie_rx_bytes_per_second", throughput.get(gpu, {}).get("rxpci"), MB)
        row("PCIe TX MB/s, dmon -s t", "pcie_tx_bytes_per_second", throughput.get(gpu, {}).get("txpci"), MB)
        if gpu in before and gpu in after:
            rx, tx = ((b - a) / took / MB for a, b in zip(before[gpu], after[gpu], strict=True))
            row("NVLink RX MB/s, nvlink -gt d", "nvlink_rx_bytes_per_second", rx, MB)
            row("NVLink TX MB/s, nvlink -gt d", "nvlink_tx_bytes_per_second", tx, MB)
        for column, name in zip(columns, GPM.values(), strict=False):  # dmon writes them in the order of their ids
            row(f"{name}, dmon's {column}", name, gpm.get(gpu, {}).get(column), MIB if "bytes" in name else 1)
    print(f"== links and GPM under the load, means over {seconds} s")
    print(machine.table(["GPU", "what", "gputop", "nvidia-smi", "ratio"], rows))
    print(f"dmon's GPM as it came (columns by metric id {ids}):\n" + "\n".join(said[1].splitlines()[:6]), flush=True)
    facts = [{"gpu": gpu.index, "nvlinks": len(gpu.facts.nvlinks), "topology": gpu.facts.topology, "notes": gpu.notes}
             for gpu in watch.poller.latest.gpus]  # type: ignore[union-attr]  # fmt: skip
    print(f"links and notes: {facts}")
    return {"rows": rows, "gputop": ours, "dmon": said, "nvlink": text, "facts": facts}


def illegal(watch: Watch) -> dict[str, Any]:
    """An Xid, from the access to gputop's hearing of it."""
    before = time.time()
    done = subprocess.run([sys.executable, "-c", ILLEGAL], capture_output=True, text=True, timeout=60)
    watch.snapshots(1.5)
    assert watch.poller.latest is not None
    heard = [
        (gpu.index, xid.code, xid.message, round(xid.at - before, 2))
        for gpu in watch.poller.latest.gpus
        for xid in gpu.xids
    ]
    said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
    print(f"Xid after an illegal access: {heard or 'none heard'} (the process said: {said[:120]})")
    return {"heard": heard, "said": said}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--xid", action="store_true", help="make an illegal access (needs cupy)")
    a = parser.parse_args()
    watch = Watch()
    results: dict[str, Any] = {}
    if a.xid:
        results["xid"] = illegal(watch)
    else:
        results["links"] = links(watch, a.seconds)
    machine.keep("xid.json" if a.xid else "links.json", results)


if __name__ == "__main__":
    main()
